"""Stages: waves on a trigger, bounded, each with its event, and an early exit that cancels the rest."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals.errors import DuplicateName, InvalidOption, InvalidOptionType
from ephemerals.signals import SignalKey, SignalSink, Stages, TaskStatus, current_cause
from ephemerals.testing import VirtualClock, assert_quiet, run

from .support import Payload, names

COMPLETED, FAILED, CANCELLED, SKIPPED = (
    TaskStatus.COMPLETED,
    TaskStatus.FAILED,
    TaskStatus.CANCELLED,
    TaskStatus.SKIPPED,
)


@pytest.fixture
def sink():
    return SignalSink()


@pytest.fixture
def reports():
    return []


async def settle():
    await VirtualClock.current().settle()


def statuses(report):
    return {each.name: each.status for each in report.outcomes}


def stage(log, name, seconds=1, result=None):
    async def work(event):
        log.append(f"{name} begins")
        await asyncio.sleep(seconds)
        log.append(f"{name} ends")
        return name if result is None else result

    return work


async def test_waves_run_one_after_another_and_a_wave_side_by_side(sink, reports):
    log = []
    async with Stages(sink, on_finished=reports.append) as stages:
        stages.add("late", "go", stage(log, "late"), wave=7)
        stages.add("slow", "go", stage(log, "slow", 3))
        stages.add("fast", "go", stage(log, "fast", 2))
        event = sink.emit("go")
    assert log == ["slow begins", "fast begins", "fast ends", "slow ends", "late begins", "late ends"]
    (report,) = reports
    assert report.trigger is event
    assert [(each.name, each.wave, each.status) for each in report.outcomes] == [
        ("fast", 0, COMPLETED),
        ("slow", 0, COMPLETED),
        ("late", 7, COMPLETED),
    ]
    assert report.values == {"fast": "fast", "slow": "slow", "late": "late"}
    assert report.exit is None
    assert_quiet()


async def test_a_stage_gets_its_event(sink):
    """WAVE-1."""
    seen = []
    async with Stages(sink) as stages:

        @stages.when("order.*, cart.left")
        async def look(event):
            seen.append((event.name, event.key, event.data))

        @stages.when(SignalKey[int]("other"), name="not.needed")
        async def without():
            seen.append("no argument")

        sink.emit("order.placed", 3, key="a")
        sink.emit("cart.left")
        sink.emit("unrelated")
        sink.emit("other", 1)
    assert seen == [("order.placed", "a", 3), ("cart.left", None, None), "no argument"]


async def test_each_trigger_starts_a_run_of_its_own(sink, reports):
    log = []
    async with Stages(sink, on_finished=reports.append) as stages:
        stages.add("one", "a", stage(log, "one"))
        stages.add("both", "a, b", stage(log, "both"))
        sink.emit("a")
        sink.emit("b")
        sink.emit("a")
    reports.sort(key=lambda report: report.trigger.sequence)
    assert [statuses(each) for each in reports] == [
        {"one": COMPLETED, "both": COMPLETED},
        {"both": COMPLETED},
        {"one": COMPLETED, "both": COMPLETED},
    ]


async def test_no_more_at_once_than_allowed_and_the_oldest_first(sink):
    running = most = 0
    order = []

    async def work(event):
        nonlocal running, most
        running += 1
        most = max(most, running)
        order.append(event.data)
        await asyncio.sleep(1)
        running -= 1

    async with Stages(sink, max_concurrency=3) as stages:
        for number in range(2):
            stages.add(f"s{number}", "go", work)
            stages.add(f"t{number}", "go", work, wave=1)
        for number in range(4):
            sink.emit("go", number)
        await settle()
        assert (stages.running, stages.queued) == (3, 2)
        await stages.join()
        assert (stages.running, stages.queued) == (0, 0)
    assert most == 3
    assert order[:4] == [0, 0, 1, 1]
    assert sorted(order) == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]


async def test_a_failed_stage_is_an_outcome_and_never_a_value(sink):
    """WO-1: not even where 0 or None would be one."""
    stages = Stages(sink)

    @stages.when("go")
    async def broken(event):
        raise LookupError("no such thing")

    @stages.when("go")
    async def nothing(event):
        return None

    @stages.when("go", wave=1)
    async def after():
        return 0

    report = await stages.run(sink.emit("unrelated"))
    assert report.outcomes == ()
    event = sink.emit("go")
    await stages.aclose()
    report = await stages.run(event)
    assert statuses(report) == {"broken": FAILED, "nothing": COMPLETED, "after": COMPLETED}
    assert report.values == {"nothing": None, "after": 0}
    assert [type(error) for error in report.errors.values()] == [LookupError]
    with pytest.raises(ExceptionGroup, match=r"1 of 3 stages failed") as failure:
        report.raise_for_failures()
    assert [type(each) for each in failure.value.exceptions] == [LookupError]
    assert sink.has("stage.broken.failed")
    assert not sink.has("stage.broken.completed")


async def test_without_failures_nothing_is_raised(sink):
    stages = Stages(sink)
    stages.add("fine", "go", stage([], "fine"))
    (await stages.run(sink.emit("go"))).raise_for_failures()
    await stages.aclose()


class TestEarlyExit:
    async def test_it_cancels_what_runs_and_skips_what_waits(self, sink, reports):
        """WAVE-3: what had not started is told of, too."""
        log = []
        async with Stages(sink, exit_on="verdict.*", max_concurrency=1, on_finished=reports.append) as stages:
            stages.add("slow", "go", stage(log, "slow", 100))
            stages.add("waiting", "go", stage(log, "waiting"))
            stages.add("later", "go", stage(log, "later"), wave=1)
            sink.emit("go")
            await asyncio.sleep(1)
            decision = sink.emit("verdict.bot")
            await settle()
            (report,) = reports
            assert report.exit is decision
            assert statuses(report) == {"slow": CANCELLED, "waiting": SKIPPED, "later": SKIPPED}
            assert report.values == {}
            assert log == ["slow begins"]
            assert names(sink.events(pattern="stage.*")) == [
                "stage.slow.started",
                "stage.waiting.skipped",
                "stage.later.skipped",
                "stage.slow.cancelled",
            ]

    async def test_it_is_at_once_and_does_not_wait_for_the_wave(self, sink, reports):
        """WO-2."""
        clock = VirtualClock.current()
        began = clock.monotonic()
        async with Stages(sink, exit_on="found", on_finished=reports.append) as stages:

            @stages.when("go")
            async def finder():
                await asyncio.sleep(2)
                sink.emit("found")
                await asyncio.sleep(1)
                return "it"  # whoever decides may finish

            stages.add("sibling", "go", stage([], "sibling", 100))
            sink.emit("go")
        assert clock.monotonic() - began == pytest.approx(3)
        assert statuses(reports[0]) == {"sibling": CANCELLED, "finder": COMPLETED}
        assert reports[0].values == {"finder": "it"}
        assert reports[0].exit.name == "found"

    async def test_with_a_key_it_ends_only_the_runs_of_that_key(self, sink, reports):
        async with Stages(sink, exit_on="stop", on_finished=reports.append) as stages:
            stages.add("work", "go", stage([], "work", 5))
            for key in ("a", "b", None):
                sink.emit("go", key=key)
            await asyncio.sleep(1)
            sink.emit("stop", key="a")
            await settle()
            assert [(each.trigger.key, statuses(each)) for each in reports] == [("a", {"work": CANCELLED})]
            sink.emit("stop")
            await settle()
            assert {each.trigger.key for each in reports} == {"a", "b", None}
            assert all(each.exit.name == "stop" for each in reports)

    async def test_afterwards_triggers_start_new_runs(self, sink, reports):
        """WAVE-4."""
        async with Stages(sink, exit_on="stop", on_finished=reports.append) as stages:
            stages.add("work", "go", stage([], "work", 4))
            sink.emit("stop")  # nothing to end
            sink.emit("go")
            sink.emit("stop")
            sink.emit("stop")
            sink.emit("go")
        assert [statuses(each) for each in reports] == [{"work": SKIPPED}, {"work": COMPLETED}]

    async def test_a_signal_may_end_the_old_and_start_the_new(self, sink, reports):
        async with Stages(sink, exit_on="go", on_finished=reports.append) as stages:
            stages.add("work", "go", stage([], "work", 4))
            sink.emit("go", 1)
            await asyncio.sleep(1)
            sink.emit("go", 2)
        assert [(each.trigger.data, statuses(each)["work"]) for each in reports] == [(1, CANCELLED), (2, COMPLETED)]

    async def test_one_that_will_not_be_cancelled_is_waited_for_and_told_as_it_is(self, sink, reports):
        async with Stages(sink, exit_on="stop", on_finished=reports.append) as stages:

            @stages.when("go")
            async def stubborn():
                try:
                    await asyncio.sleep(100)
                except asyncio.CancelledError:
                    await asyncio.sleep(1)
                return "after all"

            stages.add("next", "go", stage([], "next"), wave=1)
            sink.emit("go")
            await settle()
            sink.emit("stop")
            await settle()
            assert reports == []
        assert statuses(reports[0]) == {"next": SKIPPED, "stubborn": COMPLETED}

    async def test_everything_may_decide(self, sink, reports):
        """An exit that matches what the stages tell themselves ends, too."""
        async with Stages(sink, exit_on="*", on_finished=reports.append) as stages:
            stages.add("work", "go", stage([], "work", 5))
            stages.add("next", "go", stage([], "next"), wave=1)
            sink.emit("go")
        assert statuses(reports[0]) == {"next": SKIPPED, "work": COMPLETED}


async def test_one_that_gives_up_by_itself_is_cancelled_and_the_rest_goes_on(sink, reports):
    async with Stages(sink, on_finished=reports.append) as stages:

        @stages.when("go")
        async def quitter():
            raise asyncio.CancelledError

        stages.add("next", "go", stage([], "next"), wave=1)
        sink.emit("go")
    assert statuses(reports[0]) == {"quitter": CANCELLED, "next": COMPLETED}


async def test_stages_that_set_each_other_going_come_to_an_end(sink, reports):
    """WAVE-2: also one that hears its own signals."""
    async with Stages(sink, on_finished=reports.append) as stages:
        stages.add("curious", "*", stage([], "curious"))
        stages.add("echo", "stage.curious.completed", stage([], "echo"))
        sink.emit("go")
        await stages.join()
    assert 2 < len(reports) < 50
    assert sink.statistics().blocked > 0


async def test_what_a_stage_emits_was_caused_by_its_trigger_and_is_told_with_its_key(sink):
    causes = []
    stages = Stages(sink)

    @stages.when("go")
    async def work(event):
        causes.append(str(current_cause()))
        await asyncio.sleep(1)
        sink.emit("done")

    event = sink.emit("go", key="a", operation_id=7)
    await stages.join()
    assert causes == ["go"]
    assert str(sink.last("done").propagation) == "go -> done"
    assert [(each.name, each.key, each.operation_id) for each in sink.events(pattern="stage.*")] == [
        ("stage.work.started", "a", 7),
        ("stage.work.completed", "a", 7),
    ]
    await stages.run(event)
    assert causes == ["go", "go"]
    assert str(sink.last("done").propagation) == "go -> done"
    await stages.aclose()


class TestRun:
    async def test_it_returns_the_report(self, sink):
        stages = Stages(sink)
        stages.add("work", "go", stage([], "work"))
        event = sink.emit("go")
        await stages.join()
        report = await stages.run(event)
        assert report.trigger is event
        assert report.values == {"work": "work"}
        await stages.aclose()

    async def test_being_cancelled_cancels_and_waits(self, sink):
        log = []
        stages = Stages(sink)

        async def careful(event):
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(1)
                log.append("cleaned up")

        stages.add("careful", "go", careful)
        stages.add("next", "go", stage(log, "next"), wave=1)
        event = sink.emit("other")
        object.__setattr__(event, "name", "go")
        waiting = asyncio.ensure_future(stages.run(event))
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert log == ["cleaned up"]
        assert (stages.running, stages.queued) == (0, 0)
        await stages.aclose()
        assert_quiet()

    async def test_a_decision_ends_it_too(self, sink):
        stages = Stages(sink, exit_on="stop")
        stages.add("work", "go", stage([], "work", 100))
        event = sink.emit("go")
        waiting = asyncio.ensure_future(stages.run(event))
        await asyncio.sleep(1)
        decision = sink.emit("stop")
        report = await waiting
        assert (report.exit, statuses(report)) == (decision, {"work": CANCELLED})
        await stages.aclose()


class TestClosing:
    async def test_leaving_waits(self, sink, reports):
        async with Stages(sink, on_finished=reports.append) as stages:
            stages.add("work", "go", stage([], "work", 4))
            sink.emit("go")
        assert statuses(reports[0]) == {"work": COMPLETED}
        sink.emit("go")
        await settle()
        assert len(reports) == 1
        assert sink.statistics().subscriptions == 0

    async def test_what_takes_too_long_is_cancelled_and_the_rest_skipped(self, sink, reports):
        stages = Stages(sink, max_concurrency=1, on_finished=reports.append)
        stages.add("work", "go", stage([], "work", 100))
        sink.emit("go")
        sink.emit("go")
        await stages.aclose(3)
        await stages.aclose(3)
        assert [statuses(each) for each in reports] == [{"work": SKIPPED}, {"work": CANCELLED}]
        assert {each.exit for each in reports} == {None}
        assert_quiet()

    async def test_a_stage_may_join_and_close(self, sink, reports):
        stages = Stages(sink, on_finished=reports.append)

        @stages.when("go")
        async def last():
            await asyncio.sleep(1)
            await stages.join()
            await stages.aclose()
            return "closed"

        stages.add("sibling", "go", stage([], "sibling", 100))
        stages.add("next", "go", stage([], "next"), wave=1)
        sink.emit("go")
        await asyncio.sleep(10)
        assert statuses(reports[0]) == {"next": SKIPPED, "sibling": CANCELLED, "last": COMPLETED}
        stages.add("another", "go", stage([], "another"))  # it hears of nothing any more
        assert sink.statistics().subscriptions == 0


async def test_without_stages_there_is_nothing_to_close(sink):
    async with Stages(sink):
        sink.emit("go")


async def test_when_too_many_wait_the_oldest_is_dropped_and_counted(sink, reports, caplog):
    async with Stages(sink, max_concurrency=1, max_queued=2, on_finished=reports.append) as stages:
        stages.add("work", "go", stage([], "work", 5))
        for number in range(5):
            sink.emit("go", number)
        assert stages.dropped == 2
        assert stages.queued == 2
        await stages.join()
    assert [(each.trigger.data, statuses(each)["work"]) for each in reports] == [
        (1, SKIPPED),
        (2, SKIPPED),
        (0, COMPLETED),
        (3, COMPLETED),
        (4, COMPLETED),
    ]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


async def test_a_hook_that_fails_hurts_nobody(sink, caplog):
    def broken(report):
        raise ValueError("secret")

    async with Stages(sink, on_finished=broken) as stages:
        stages.add("work", "go", stage([], "work"))
        sink.emit("go")
        sink.emit("go")
    assert sink.count("stage.work.completed") == 2
    assert "ValueError" in caplog.text
    assert "secret" not in caplog.text


def test_what_is_emitted_before_the_loop_runs_in_it_and_a_second_loop_goes_on(sink, reports):
    stages = Stages(sink, max_concurrency=1, on_finished=reports.append)
    stages.add("work", "go", stage([], "work"))
    sink.emit("go", 1)

    async def first():
        async with asyncio.timeout(0.5):
            sink.emit("go", 2)
            await stages.join()

    async def second():
        sink.emit("go", 3)
        await stages.join()
        await stages.aclose()

    with pytest.raises(TimeoutError):
        run(first())
    run(second())
    assert [each.trigger.data for each in reports if statuses(each)["work"] is COMPLETED] == [2, 3]


async def test_what_has_run_is_forgotten(sink):
    gc.disable()
    try:
        async with Stages(sink) as stages:
            stages.add("work", "go", stage([], "work"))
            item = Payload()
            alive = weakref.ref(item)
            sink.emit("go", item)
            del item
            await stages.join()
            sink.clear()
            await settle()
            assert alive() is None
    finally:
        gc.enable()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with 3.12")
async def test_eager_tasks_change_nothing(sink, reports):
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    async with Stages(sink, exit_on="stop", max_concurrency=2, on_finished=reports.append) as stages:

        @stages.when("go")
        async def decider():
            await stages.join()
            sink.emit("stop")
            return "decided"

        stages.add("rest", "go", stage([], "rest"))
        sink.emit("go")
        await settle()
    assert statuses(reports[0]) == {"rest": CANCELLED, "decider": COMPLETED}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_travels_on(sink, reports, error):
    stages = Stages(sink, on_finished=reports.append)

    @stages.when("go")
    async def interrupted():
        raise error

    async def main():
        sink.emit("go")
        await asyncio.sleep(10)

    with pytest.raises(error):
        run(main())


def test_what_makes_no_sense_is_refused(sink):
    for options in (
        {"exit_on": ""},
        {"max_concurrency": 0},
        {"max_queued": 0},
        {"on_finished": 3},
    ):
        with pytest.raises(InvalidOption, match="pattern" if "exit_on" in options else next(iter(options))):
            Stages(sink, **options)
    stages = Stages(sink)
    work = stage([], "work")
    stages.add("work", "go", work)
    with pytest.raises(DuplicateName):
        stages.add("work", "other", work)
    with pytest.raises(InvalidOption):
        stages.add("", "go", work)
    with pytest.raises(InvalidOption):
        stages.add("other", "", work)
    with pytest.raises(InvalidOption):
        stages.add("other", "go", work, wave=-1)
    with pytest.raises(InvalidOptionType):
        stages.add("other", "go", work, wave="first")
    with pytest.raises(InvalidOptionType):
        stages.add("other", "go", lambda event: None)

    async def greedy(event, more):
        """Need too much."""

    with pytest.raises(InvalidOptionType):
        stages.when("go")(greedy)
    assert stages.when("go", name="other")(work) is work
    with pytest.raises(DuplicateName):
        stages.when("go")(work)  # its own name is taken


@given(
    waves=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=6),
    triggers=st.integers(1, 4),
    limit=st.integers(1, 4),
    exit_after=st.one_of(st.none(), st.sampled_from([0, 1.5, 3.5])),
)
def test_whatever_the_plan_each_stage_ends_once_and_waves_do_not_overlap(waves, triggers, limit, exit_after):
    reports, running, most = [], {}, 0

    def make(wave, seconds, fails):
        async def work(event):
            nonlocal most
            here = running.setdefault(event.data, [])
            assert all(each == wave for each in here)
            here.append(wave)
            most = max(most, sum(map(len, running.values())))
            try:
                await asyncio.sleep(seconds)
                if fails:
                    raise ValueError
            finally:
                here.remove(wave)

        return work

    async def main():
        sink = SignalSink()
        async with Stages(sink, exit_on="stop", max_concurrency=limit, on_finished=reports.append) as stages:
            for number, (wave, seconds, fails) in enumerate(waves):
                stages.add(f"s{number}", "go", make(wave, seconds, fails), wave=wave)
            for number in range(triggers):
                sink.emit("go", number)
            if exit_after is not None:
                await asyncio.sleep(exit_after)
                sink.emit("stop")
            await stages.join()
            assert (stages.running, stages.queued) == (0, 0)
        assert_quiet()

    run(main())
    assert sorted(each.trigger.data for each in reports) == list(range(triggers))
    assert most <= limit
    for report in reports:
        assert sorted(each.name for each in report.outcomes) == [f"s{number}" for number in range(len(waves))]
        started = [each.wave for each in report.outcomes if each.status is not SKIPPED]
        assert started == sorted(started)
        if report.exit is None:
            assert {each.status for each in report.outcomes} <= {COMPLETED, FAILED}
