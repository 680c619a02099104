"""Workers in waves: an outcome for each, an early end, and a breaker for each."""

from __future__ import annotations

import asyncio

import pytest

from ephemerals import DuplicateName, InvalidBody, InvalidOption
from ephemerals.atoms import CircuitOpen
from ephemerals.patterns import NoValue, Waves
from ephemerals.signals import SignalSink
from ephemerals.testing import VirtualClock, assert_forgotten, assert_quiet


def now():
    return VirtualClock.current().monotonic() - 1000


def add(waves, name, *, wave=0, seconds=0.0, value=None, error=None, calls=None, **options):
    """Add a worker that takes some seconds, and then returns or raises."""

    @waves.worker(wave=wave, name=name, **options)
    async def work(item):
        if calls is not None:
            calls.append((name, now()))
        await asyncio.sleep(seconds)
        if error is not None:
            raise error
        return value

    return work


def statuses(report):
    return {each.name: str(each.status) for each in report}


async def test_waves_follow_one_another_and_workers_of_one_run_side_by_side():
    calls, waves = [], Waves(delay=0.5)
    for name, wave in [("late", 2), ("a", 0), ("b", 0), ("middle", 1)]:
        add(waves, name, wave=wave, seconds=1, value=name, calls=calls)
    report = await waves.run("x")
    assert calls == [("a", 0), ("b", 0), ("middle", 1.5), ("late", 3)]
    assert report.values == ["a", "b", "middle", "late"]
    assert report.elapsed == 4
    assert report["middle"].elapsed == 1
    assert report.decisive is None
    assert_quiet(waves)


async def test_no_more_than_allowed_run_at_once_and_low_priority_numbers_come_first():
    calls, waves = [], Waves(max_concurrency=1)
    for name, priority in [("c", 3), ("a", 1), ("b", 2)]:
        add(waves, name, seconds=1, calls=calls, priority=priority)
    await waves.run("x")
    assert calls == [("a", 0), ("b", 1), ("c", 2)]


async def test_the_first_decisive_result_ends_it_and_cancels_the_others():
    waves = Waves(decisive=lambda value: value == "yes")
    add(waves, "quick", seconds=0.1, value="no")
    add(waves, "decides", seconds=0.2, value="yes")
    add(waves, "slow", seconds=1, value="yes")
    add(waves, "later", wave=1)
    report = await waves.run("x")
    assert statuses(report) == {
        "quick": "completed",
        "decides": "completed",
        "slow": "cancelled",
        "later": "not_started",
    }
    assert (report.decisive, report.elapsed) == (report["decides"], pytest.approx(0.2))
    assert waves.statistics()["runs_decided"] == 1
    assert_quiet(waves)


@pytest.mark.parametrize("order", [0, 1])
async def test_what_completes_with_others_in_one_moment_still_decides(order):
    """The decisive one may be anywhere among those that end together."""
    waves = Waves(decisive=bool)
    for number in range(3):
        add(waves, f"w{number}", seconds=1, value=number == order)
    assert (await waves.run("x")).decisive.name == f"w{order}"


async def test_a_failed_worker_is_an_outcome_and_never_a_value():
    waves = Waves(decisive=lambda value: value == 0)
    add(waves, "fails", error=ConnectionError("no"))
    add(waves, "counts", value=1)
    report = await waves.run("x")
    assert report.values == [1]
    assert report.decisive is None  # a value that was never returned decides nothing
    failed = report["fails"]
    assert (str(failed.status), type(failed.error)) == ("failed", ConnectionError)
    assert failed.error.__traceback__ is None
    with pytest.raises(NoValue, match="worker 'fails' has no value: it is failed") as refusal:
        failed.value  # noqa: B018
    assert refusal.value.__cause__ is failed.error


async def test_a_worker_has_its_time_and_the_run_has_its_own():
    waves = Waves(timeout=3, worker_timeout=2)
    add(waves, "slow", seconds=5)
    add(waves, "patient", wave=1, seconds=5, timeout=5)
    add(waves, "never", wave=2)
    report = await waves.run("x")
    assert statuses(report) == {"slow": "timed_out", "patient": "cancelled", "never": "not_started"}
    assert (report.timed_out, report.elapsed, report["slow"].elapsed) == (True, 3, 2)
    assert waves.statistics() == {
        "running": 0,
        "runs": 1,
        "runs_decided": 0,
        "runs_timed_out": 1,
        "completed": 0,
        "failed": 0,
        "timed_out": 1,
        "skipped": 0,
        "cancelled": 1,
        "not_started": 1,
    }
    assert_quiet(waves)


async def test_a_workers_own_timeout_error_is_a_failure():
    waves = Waves()
    add(waves, "w", error=TimeoutError())
    assert statuses(await waves.run("x")) == {"w": "failed"}


async def test_a_circuit_that_is_open_within_a_worker_is_a_failure_of_that_worker():
    waves = Waves(threshold=2)
    add(waves, "w", error=CircuitOpen("inner", 3))
    assert [statuses(await waves.run("x"))["w"] for _ in range(3)] == ["failed", "failed", "skipped"]


async def test_a_worker_that_keeps_failing_is_skipped_for_a_while_and_then_tried_by_one_run():
    calls, waves = [], Waves(threshold=2, recovery=10)
    add(waves, "w", seconds=0.1, error=OSError(), calls=calls)
    for expected in ("failed", "failed", "skipped"):
        assert statuses(await waves.run("x")) == {"w": expected}
    await asyncio.sleep(10)
    reports = await asyncio.gather(*(waves.run("x") for _ in range(5)))
    assert sorted(str(report["w"].status) for report in reports) == ["failed", *["skipped"] * 4]
    assert len(calls) == 3


async def test_neither_an_early_end_nor_the_total_timeout_counts_against_a_worker():
    waves = Waves(threshold=1, timeout=1, worker_timeout=5, decisive=bool)
    add(waves, "slow", seconds=3)
    await waves.run("x")
    add(waves, "decides", value=True)
    for _ in range(3):
        assert statuses(await waves.run("x"))["slow"] == "cancelled"


async def test_the_caller_may_be_cancelled():
    waves = Waves(threshold=1)
    add(waves, "slow", seconds=1)
    running = asyncio.create_task(waves.run("x"))
    await asyncio.sleep(0.5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert_quiet(waves)
    assert statuses(await waves.run("x")) == {"slow": "completed"}


async def test_an_error_of_the_predicate_is_raised_and_leaves_nothing_running():
    def decisive(value):
        raise ZeroDivisionError

    waves = Waves(decisive=decisive)
    add(waves, "quick")
    add(waves, "slow", seconds=1)
    with pytest.raises(ZeroDivisionError):
        await waves.run("x")
    assert now() == 0
    assert_quiet(waves)


async def test_what_happens_is_said_without_anything_of_the_item():
    sink = SignalSink()
    waves = Waves("checks", signals=sink, decisive=bool, threshold=1)
    add(waves, "fails", error=OSError("secret"))
    add(waves, "decides", wave=1, seconds=1, value=True)
    await waves.run("secret")
    assert [(event.name, event.data) for event in sink.events(key="checks")] == [
        ("wave.started", {"wave": 0, "workers": 1}),
        ("wave.worker.failed", {"worker": "fails", "wave": 0, "elapsed": 0, "error": "OSError"}),
        ("wave.started", {"wave": 1, "workers": 1}),
        ("wave.worker.completed", {"worker": "decides", "wave": 1, "elapsed": 1, "error": None}),
        ("wave.decided", {"wave": 1, "worker": "decides"}),
    ]
    assert [event.name for event in sink.events(key="fails")] == ["circuit.opened"]
    add(waves, "hangs", wave=0, seconds=9, timeout=8)
    await waves.run("secret")
    assert sink.last("wave.timed_out").data == {"wave": 0}


async def test_without_workers_there_is_nothing_to_say():
    assert list(await Waves().run("x")) == []
    with pytest.raises(KeyError):
        (await Waves().run("x"))["w"]


@pytest.mark.parametrize("end", ["completed", "failed", "timed_out", "cancelled"])
async def test_the_item_is_forgotten_however_a_worker_ends(end):
    waves = Waves(decisive=lambda value: value == "yes", worker_timeout=2)
    add(waves, "first", seconds=0.1, value="yes" if end == "cancelled" else "no")

    @waves.worker()
    async def second(item):
        await asyncio.sleep(5 if end in {"timed_out", "cancelled"} else 0.1)
        if end == "failed":
            raise ValueError(item)
        return "no"

    async def use(item):
        report = await waves.run(item)
        assert statuses(report)["test_the_item_is_forgotten_however_a_worker_ends.<locals>.second"] == end
        if end == "failed":
            assert report["test_the_item_is_forgotten_however_a_worker_ends.<locals>.second"].error.args[0] is item
            return None  # what a worker puts into its error is the caller's
        return report

    await assert_forgotten(use)
    assert_quiet(waves)


def test_wrong_uses_are_refused():
    waves = Waves()
    add(waves, "w")
    with pytest.raises(DuplicateName, match="worker named 'w'"):
        add(waves, "w")
    with pytest.raises(InvalidBody, match="async def"):
        waves.worker()(print)
    with pytest.raises(InvalidOption, match="wave="):
        waves.worker(wave=-1)
    for option, value in [("max_concurrency", 0), ("timeout", 0), ("worker_timeout", -1), ("decisive", 3)]:
        with pytest.raises(InvalidOption, match=f"{option}="):
            Waves(**{option: value})
