"""As many at once as the upstream can take, and a rate that settles: without swinging to and fro."""

from __future__ import annotations

import asyncio
import gc
import weakref
from statistics import median

import pytest
from benchmarks.adaptive import Phase, concurrency, rate

from ephemerals import InvalidOption, OperationTimeout, WorkCoordinator
from ephemerals.atoms import AdaptiveConcurrency, RetryAfter, RetryPolicy, is_overload
from ephemerals.atoms.gradient import Gradient, Round
from ephemerals.signals import SignalSink
from ephemerals.testing import assert_forgotten, assert_quiet


def assert_settled(trace, phases, *, last=0.5):
    """Assert that what was chosen is near the capacity in the last part of each phase, and stays there."""
    for number, phase in enumerate(phases):
        length = round(phase.seconds)
        chosen = trace.chosen[(number + 1) * length - round(length * last) : (number + 1) * length]
        allowed = max(1, 0.1 * phase.capacity)
        assert median(chosen) == pytest.approx(phase.capacity, abs=allowed), (phase, chosen)
        far = [each for each in chosen if abs(each - phase.capacity) > allowed]
        assert len(far) <= len(chosen) * 0.1, (phase, chosen)  # a trial now and then


@pytest.mark.parametrize("how", [{}, {"jitter": 0.4}, {"refuses": True}], ids=["queue", "noisy queue", "refusals"])
async def test_it_settles_at_what_the_upstream_can_take_also_when_that_changes(how):
    phases = [Phase(40, 100, 0.2), Phase(15, 100, 0.2), Phase(15, 100, 0.4), Phase(30, 100, 0.4)]
    assert_settled(await concurrency(phases, **how), phases)


async def test_a_rate_settles_too_and_does_not_swing():
    phases = [Phase(100, 150), Phase(30, 150), Phase(60, 150)]
    assert_settled(await rate(phases), phases, last=0.3)


def rounds(gradient, limit, latencies, *, is_held_back=True):
    """Let rounds of these mean latencies, by limit, go by; return the limits."""
    chosen = []
    for latency in latencies:
        ended = Round()
        for _ in range(max(20, 3 * limit)):
            ended.add(latency(limit), limit, is_held_back=is_held_back)
        limit = max(1, round(gradient.next(limit, ended)))
        chosen.append(limit)
    return chosen


def test_steps_up_double_and_end_at_the_knee():
    def latency(limit):
        return 0.1 * max(1, limit / 50)

    assert rounds(Gradient(), 1, [latency] * 8) == [2, 4, 8, 16, 32, 64, 50, 50]


def test_calls_that_have_become_slower_by_themselves_cost_one_cut_only():
    gradient = Gradient()
    rounds(gradient, 1, [lambda limit: 0.1 * max(1, limit / 50)] * 8)
    assert rounds(gradient, 50, [lambda limit: 0.3 * max(1, limit / 50)] * 2) == [17, 50]


def test_with_less_to_do_than_the_limit_allows_nothing_is_learnt():
    assert rounds(Gradient(), 8, [lambda _: 0.1] * 30, is_held_back=False) == [8] * 30


def test_calls_that_take_no_time_teach_nothing_wrong():
    assert rounds(Gradient(), 1, [lambda _: 0.0] * 3)[-1] > 1


async def test_a_complaint_cuts_once_for_all_that_began_before():
    outcome = {"error": RetryAfter(0)}

    async def body(_):
        await asyncio.sleep(1)
        if outcome["error"] is not None:
            raise outcome["error"]

    async with WorkCoordinator(body, max_concurrency=20) as coordinator:
        adaptive = AdaptiveConcurrency(coordinator, minimum=10, cut=0.5)
        await coordinator.enqueue_many(range(20))
        await coordinator.join()
        assert coordinator.max_concurrency == 10
        assert adaptive.statistics().complaints == 1
        outcome["error"] = ValueError()
        await coordinator.enqueue_many(range(10))
        await coordinator.join()
        assert coordinator.max_concurrency == 10
        assert [event.data for event in coordinator.signals.sink.events("concurrency.changed")] == [
            {"limit": 10, "was": 20}
        ]
        adaptive.close()
        adaptive.close()
    assert_quiet(coordinator, adaptive)


async def test_many_that_are_refused_at_once_cut_once():
    async def body(_):
        raise RetryAfter(0)

    async with WorkCoordinator(body, max_concurrency=20) as coordinator:
        adaptive = AdaptiveConcurrency(coordinator)
        await asyncio.sleep(1)
        await coordinator.enqueue_many(range(20))
        await coordinator.join()
        assert (adaptive.statistics().cut, coordinator.max_concurrency) == (1, 18)


async def test_attempts_that_are_retried_are_looked_at_too():
    async def body(_):
        raise RetryAfter(1)

    policy = RetryPolicy(attempts=3, jitter=False)
    async with WorkCoordinator(body, max_concurrency=8, retry=policy) as coordinator:
        adaptive = AdaptiveConcurrency(coordinator)
        await coordinator.enqueue(0)
        await coordinator.join()
        assert adaptive.statistics().complaints == 3
        assert coordinator.max_concurrency == 5


async def test_a_timeout_is_a_complaint_and_a_cancellation_is_not():
    async with WorkCoordinator(asyncio.sleep, max_concurrency=10, operation_timeout=5) as coordinator:
        adaptive = AdaptiveConcurrency(coordinator)
        operation = await coordinator.enqueue(60)
        other = await coordinator.enqueue(60)
        await asyncio.sleep(1)
        other.cancel()
        with pytest.raises(OperationTimeout) as failure:
            await operation
        assert is_overload(failure.value)
        assert adaptive.statistics().complaints == 1
        assert coordinator.max_concurrency == 9


async def test_a_judge_that_fails_is_counted_and_changes_nothing():
    def judge(error):
        raise ZeroDivisionError

    async def body(_):
        raise ValueError

    async with WorkCoordinator(body, max_concurrency=4) as coordinator:
        AdaptiveConcurrency(coordinator, complains=judge)
        await coordinator.enqueue(0)
        await coordinator.join()
        assert coordinator.statistics().hook_errors == 1
        assert coordinator.max_concurrency == 4


async def test_load_signals_double_and_halve_between_the_bounds():
    sink = SignalSink()
    async with WorkCoordinator(asyncio.sleep, max_concurrency=16, signals=sink) as coordinator:
        adaptive = AdaptiveConcurrency(coordinator, minimum=2, maximum=8, high="load.high", low="load.low")
        assert coordinator.max_concurrency == 8  # the bounds hold from the beginning
        for name, limit in [("load.low", 4), ("load.low", 2), ("load.low", 2), ("load.high", 4), ("load.high", 8)]:
            await asyncio.sleep(1)
            sink.emit(name)
            assert coordinator.max_concurrency == limit
        sink.emit("load.low")  # too soon
        assert coordinator.max_concurrency == 8
        assert (adaptive.statistics().ignored, adaptive.statistics().raised) == (1, 2)
        await asyncio.sleep(100)
        assert coordinator.max_concurrency == 8  # one signal, one change: nothing is read out of the past
        adaptive.close()
        sink.emit("load.low")
        assert coordinator.max_concurrency == 8
    assert_quiet(coordinator, adaptive)


async def test_it_neither_keeps_a_coordinator_nor_anything_of_its_work():
    gc.disable()
    try:
        sink = SignalSink()
        coordinator = WorkCoordinator(asyncio.sleep, signals=sink, max_concurrency=4)
        adaptive = AdaptiveConcurrency(coordinator, high="load.high")
        reference = weakref.ref(coordinator.engine)
        await coordinator.aclose()
        del coordinator
    finally:
        gc.enable()
    gc.collect()
    assert reference() is None
    sink.emit("load.high")
    assert adaptive.statistics().limit == 0


@pytest.mark.parametrize("error", [None, RetryAfter(0), ValueError()])
async def test_an_item_is_forgotten_when_its_attempt_has_been_looked_at(error):
    async def body(_):
        if error is not None:
            raise error

    coordinator = WorkCoordinator(body)
    adaptive = AdaptiveConcurrency(coordinator)

    async def use(item):
        operation = await coordinator.enqueue(item)
        del item
        await coordinator.join()
        return operation

    await assert_forgotten(use)
    await coordinator.aclose()
    adaptive.close()
    assert_quiet(coordinator, adaptive)


@pytest.mark.parametrize(
    ("option", "value"), [("minimum", 0), ("minimum", 300), ("maximum", 0), ("cut", 1), ("cooldown", -1)]
)
def test_a_wrong_option_is_refused(option, value):
    with pytest.raises(InvalidOption, match=f"{option}="):
        AdaptiveConcurrency(WorkCoordinator(asyncio.sleep), **{option: value})
