"""The escalator: selected events reach every target, in order, and what does not is told target by target."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals import CoordinatorClosed, InvalidBody, InvalidOption
from ephemerals.atoms import Escalator, RetryPolicy
from ephemerals.signals import SignalKey, SignalSink
from ephemerals.testing import VirtualClock, assert_forgotten, assert_quiet, run


def now():
    return VirtualClock.current().monotonic() - 1000


class Target:
    """Take some seconds to keep an event; fail the first so many times."""

    def __init__(self, seconds=0, failures=0):
        self.seconds = seconds
        self.failures = failures
        self.kept = []
        self.calls = 0

    async def __call__(self, event):
        self.calls += 1
        await asyncio.sleep(self.seconds)
        if self.calls <= self.failures:
            raise OSError("secret")
        self.kept.append(event.data)


def told(sink):
    return [(event.name, event.data["target"]) for event in sink.events(pattern="escalation.*")]


async def test_every_target_gets_the_event():
    """[atoms:escalator] 170."""
    sink, key = SignalSink(), SignalKey[int]("escalate.signal", check=int)
    db, log = Target(), Target()
    async with Escalator(sink, targets={"db": db, "log": log}) as escalator:
        event = sink.emit(key, 5, key="k")
        await escalator.join()
        assert told(sink) == [("escalation.persisted", "db"), ("escalation.persisted", "log")]
    assert db.kept == log.kept == [5]
    outcome = sink.last("escalation.persisted")
    assert outcome.key == "k"
    assert outcome.data == {"target": "log", "event": "escalate.signal", "sequence": event.sequence}
    assert_quiet(escalator)


async def test_other_events_reach_nobody():
    """[atoms:escalator] 171."""
    sink, db = SignalSink(), Target()
    async with Escalator(sink, "escalate.*", targets={"db": db}) as escalator:
        sink.emit("ignore.signal")
        await asyncio.sleep(100)
    sink.emit("escalate.late")
    await asyncio.sleep(100)
    assert (db.calls, escalator.statistics().promoted) == (0, 0)


async def test_a_target_that_fails_keeps_it_from_no_other():
    """[atoms:escalator] 172."""
    sink, good, bad = SignalSink(), Target(), Target(failures=9)
    async with Escalator(sink, targets={"bad": bad, "good": good}) as escalator:
        sink.emit("escalate.signal", 5)
    assert (good.kept, bad.calls) == ([5], 1)
    assert sorted(told(sink)) == [("escalation.failed", "bad"), ("escalation.persisted", "good")]
    assert sink.last("escalation.failed").data["error"] == "OSError"
    counts = escalator.statistics().targets
    assert (counts["bad"].failed, counts["good"].persisted) == (1, 1)
    assert_quiet(escalator)


async def test_a_predicate_may_choose_from_everything():
    """[atoms:escalator] 173."""
    sink, db = SignalSink(), Target(3)
    escalator = Escalator(sink, "*", targets={"db": db}, when=lambda event: event.data == "keep")
    async with escalator:
        sink.emit("force.persist", "keep")
        sink.emit("force.persist", "drop")
    assert db.kept == ["keep"]
    assert escalator.statistics().promoted == 1


async def test_its_own_signals_are_not_escalated():
    sink, db = SignalSink(), Target()
    async with Escalator(sink, "*", targets={"db": db}):
        sink.emit("order", 1)
        await asyncio.sleep(100)
    assert db.kept == [1]


async def test_only_the_target_that_failed_gets_it_again():
    sink, good, flaky = SignalSink(), Target(), Target(failures=2)
    policy = RetryPolicy(initial=1, jitter=False)
    async with Escalator(sink, targets={"good": good, "flaky": flaky}, retry=policy) as escalator:
        sink.emit("escalate.x", "x")
        await escalator.join()
        assert now() == 3
    assert (good.calls, flaky.calls, good.kept, flaky.kept) == (1, 3, ["x"], ["x"])
    assert [name for name, _ in told(sink)] == ["escalation.persisted"] * 2
    assert_quiet(escalator)


async def test_a_slow_target_holds_up_no_other_and_order_is_kept():
    sink, slow, quick = SignalSink(max_age=None), Target(10), Target()
    async with Escalator(sink, targets={"slow": slow, "quick": quick}, max_concurrency=4) as escalator:
        for number in range(5):
            sink.emit("escalate.x", number)
        await asyncio.sleep(1)
        assert quick.kept == list(range(5))
        assert escalator.statistics().targets["slow"].waiting == 5
    assert slow.kept == list(range(5))
    assert now() == 50


async def test_what_has_no_room_is_refused_and_told():
    sink, slow = SignalSink(max_age=None), Target(10)
    async with Escalator(sink, targets={"slow": slow}, max_waiting=2) as escalator:
        for number in range(6):
            sink.emit("escalate.x", number)
    assert slow.kept == [0, 1, 2]
    assert escalator.statistics().targets["slow"].refused == 3
    assert told(sink).count(("escalation.refused", "slow")) == 3


async def test_after_an_exception_or_a_budget_what_is_left_is_cancelled_and_counted():
    for end in ("error", "close"):
        sink, slow = SignalSink(), Target(100)
        escalator = Escalator(sink, targets={"slow": slow})
        before = now()
        with pytest.raises(ZeroDivisionError):
            async with escalator:
                sink.emit("escalate.x", 1)
                sink.emit("escalate.x", 2)
                await asyncio.sleep(1)
                if end == "close":
                    await escalator.aclose(grace=5)
                raise ZeroDivisionError
        assert now() - before == (1 if end == "error" else 6)
        assert escalator.statistics().targets["slow"].cancelled == 2
        assert told(sink) == []
        assert_quiet(escalator)


async def test_draining_listens_no_more():
    sink, db = SignalSink(), Target(5)
    escalator = await Escalator(sink, targets={"db": db}).__aenter__()
    sink.emit("escalate.x", 1)
    await escalator.drain()
    sink.emit("escalate.x", 2)
    await escalator.aclose()
    with pytest.raises(CoordinatorClosed):
        await escalator.__aenter__()
    assert db.kept == [1]
    assert sink.statistics().handler_errors == 0
    assert_quiet(escalator)


async def test_a_plain_function_is_a_target_and_other_work_is_no_delivery():
    sink, kept = SignalSink(), []
    async with Escalator(sink, targets={"list": lambda event: kept.append(event.data)}) as escalator:
        sink.emit("escalate.x", 1)
        await (await escalator.coordinator.spawn(int))
    assert kept == [1]
    assert escalator.statistics().targets["list"].persisted == 1


@given(
    st.lists(st.floats(0, 2), max_size=20),
    st.lists(st.tuples(st.floats(0, 3), st.integers(0, 4)), min_size=1, max_size=3),
    st.integers(1, 10),
    st.integers(1, 3),
)
def test_whatever_happens_every_event_is_accounted_for_at_every_target(gaps, plan, waiting, attempts):
    targets = {str(number): Target(*each) for number, each in enumerate(plan)}

    async def main():
        sink = SignalSink(max_age=None)
        policy = RetryPolicy(attempts=attempts, initial=0.5)
        async with Escalator(sink, targets=targets, max_waiting=waiting, retry=policy) as escalator:
            for number, gap in enumerate(gaps):
                await asyncio.sleep(gap)
                sink.emit("escalate.x", number)
        assert_quiet(escalator)
        assert len(told(sink)) == len(gaps) * len(plan)
        return escalator.statistics()

    counts = run(main())
    for name, target in targets.items():
        own = counts.targets[name]
        assert own.persisted + own.failed + own.refused == counts.promoted == len(gaps)
        assert len(target.kept) == own.persisted
        assert target.kept == sorted(target.kept)


@pytest.mark.parametrize("end", ["persisted", "failed", "cancelled"])
async def test_what_was_persisted_is_forgotten(end):
    sink = SignalSink()

    async def save(event):
        await asyncio.sleep(10)
        if end == "failed":
            raise OSError(event.data.secret)

    async with Escalator(sink, targets={"db": save}, retry=RetryPolicy(attempts=2, initial=1)) as escalator:

        async def use(item):
            sink.emit("escalate.x", item)
            del item
            await asyncio.sleep(1)
            sink.clear()
            if end == "cancelled":
                escalator.coordinator.cancel()
            await escalator.join()
            return escalator.coordinator.snapshot()

        await assert_forgotten(use)


def test_wrong_options_are_refused():
    sink, db = SignalSink(), Target()
    with pytest.raises(InvalidOption, match="targets"):
        Escalator(sink, targets={})
    with pytest.raises(InvalidBody):
        Escalator(sink, targets={"db": "postgres"})
    for option, value in (("when", 3), ("max_waiting", 0), ("max_concurrency", 0)):
        with pytest.raises(InvalidOption, match=option):
            Escalator(sink, targets={"db": db}, **{option: value})
