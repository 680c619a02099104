"""Early exit: a signal ends a block, and nothing else is mistaken for that."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ephemerals import WorkCoordinator, for_each
from ephemerals.errors import InvalidOption, InvalidOptionType, SinkClosed
from ephemerals.signals import SignalKey, SignalSink, early_exit
from ephemerals.testing import assert_quiet

from .support import ManualClock


@pytest.fixture
def sink():
    return SignalSink()


def emit_later(sink, seconds, name="stop", **options):
    asyncio.get_running_loop().call_later(seconds, lambda: sink.emit(name, **options))


async def test_the_next_event_that_matches_ends_the_block(sink):
    log = []
    sink.emit("stop.old")
    emit_later(sink, 2, "other")
    emit_later(sink, 3, "stop.now")
    emit_later(sink, 4, "stop.later")
    async with early_exit(sink, "stop.*") as decision:
        assert not decision
        await asyncio.sleep(2.5)
        log.append("in time")
        await asyncio.sleep(100)
        log.append("too late")
    assert log == ["in time"]
    assert decision
    assert decision.event is sink.last("stop.now")
    await asyncio.sleep(10)  # and nothing hits what comes after
    assert decision.event.name == "stop.now"
    assert asyncio.current_task().cancelling() == 0
    assert sink.statistics().subscriptions == 0


async def test_without_one_it_is_a_block_like_any_other(sink):
    async with early_exit(sink, "stop") as decision:
        await asyncio.sleep(1)
    assert not decision
    assert decision.event is None
    with pytest.raises(ValueError, match="mine"):
        async with early_exit(sink, "stop"):
            raise ValueError("mine")
    sink.emit("stop")
    assert not decision


async def test_only_with_the_right_key(sink):
    emit_later(sink, 1, key="b")
    emit_later(sink, 2, key="a")
    async with early_exit(sink, SignalKey[int]("stop"), key="a") as decision:
        await asyncio.sleep(100)
    assert decision.event.key == "a"


async def test_with_since_what_was_decided_already_ends_it_at_once():
    clock = ManualClock()
    sink = SignalSink(clock=clock)
    sink.emit("stop")
    clock.advance(5)
    async with early_exit(sink, "stop", since=clock.wall - 4) as decision:
        await asyncio.sleep(1)
    assert not decision
    async with early_exit(sink, "stop", since=clock.wall - 6) as decision:
        await asyncio.sleep(0)
        pytest.fail("it went on")
    assert decision


async def test_a_block_that_decides_itself_goes_on_to_its_next_wait(sink):
    log = []
    async with early_exit(sink, "stop") as decision:
        sink.emit("stop")
        log.append("here")
        await asyncio.sleep(0)
        log.append("and not here")
    assert decision
    assert log == ["here"]


async def test_a_decision_in_the_last_moment_does_not_hit_what_comes_after(sink):
    async with early_exit(sink, "stop") as decision:
        sink.emit("stop")
    assert decision
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(1)


async def test_one_that_is_swallowed_is_over_with_the_block(sink):
    async with early_exit(sink, "stop") as decision:
        sink.emit("stop")
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
    assert decision
    assert asyncio.current_task().cancelling() == 0


async def test_being_cancelled_by_somebody_else_is_not_an_exit(sink):
    decisions = []

    async def work(*, decide):
        async with early_exit(sink, "stop") as decision:
            decisions.append(decision)
            if decide:
                sink.emit("stop")
            await asyncio.sleep(100)

    for decide in (False, True):
        task = asyncio.ensure_future(work(decide=decide))
        if not decide:
            await asyncio.sleep(1)
        else:
            sink.subscribe("stop", lambda event, task=task: task.cancel())
        if not decide:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [bool(each) for each in decisions] == [False, True]


async def test_cancelled_from_outside_in_the_last_moment_it_is_cancelled(sink):
    async def work():
        async with early_exit(sink, "stop"):
            sink.emit("stop")
            asyncio.current_task().cancel()

    task = asyncio.ensure_future(work())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_while_it_unwinds_travels_on(sink):
    emit_later(sink, 1)
    with pytest.raises(LookupError):
        async with early_exit(sink, "stop"):
            try:
                await asyncio.sleep(100)
            finally:
                raise LookupError
    assert asyncio.current_task().cancelling() == 0


async def test_inside_a_timeout_each_ends_its_own_block(sink):
    emit_later(sink, 1)
    async with asyncio.timeout(5):
        async with early_exit(sink, "stop") as first:
            await asyncio.sleep(100)
        async with early_exit(sink, "stop") as second:
            await asyncio.sleep(1)
    assert (bool(first), bool(second)) == (True, False)
    with pytest.raises(TimeoutError):
        async with early_exit(sink, "stop") as third, asyncio.timeout(1):
            await asyncio.sleep(100)
    assert not third


async def test_one_signal_may_end_several(sink):
    emit_later(sink, 1)
    log = []
    async with early_exit(sink, "stop") as outer:
        async with early_exit(sink, "stop") as inner:
            await asyncio.sleep(100)
        log.append("not here")
    assert inner
    assert outer
    assert log == []


async def test_a_task_group_in_it_is_cancelled_and_partial_results_stay(sink):
    results = []

    async def check(number):
        await asyncio.sleep(number)
        results.append(number)
        if number == 3:
            sink.emit("verdict.confirmed")
            await asyncio.sleep(0)
            results.append("after")

    async with early_exit(sink, "verdict.*") as verdict, asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(check(number))
    assert verdict
    assert results == [0, 1, 2, 3]


async def test_a_coordinator_in_it_cancels_what_is_left_and_leaves_nothing():
    """ADV-1."""
    sink = SignalSink()
    seen = []

    async def body(number, operation):
        await asyncio.sleep(1)
        seen.append(number)
        if number == 3:
            operation.emit("verdict.confirmed")

    async with early_exit(sink, "verdict.*") as verdict:
        async with WorkCoordinator(body, signals=sink, max_concurrency=1) as coordinator:
            await coordinator.enqueue_many(range(10))
            await coordinator.join()
    assert verdict
    assert seen == [0, 1, 2, 3]
    assert coordinator.total_cancelled >= 6
    assert coordinator.pending_count == coordinator.active_count == 0
    assert_quiet(coordinator)


async def test_so_is_for_each(sink):
    async def body(number):
        await asyncio.sleep(1)
        if number == 3:
            sink.emit("found")

    async with early_exit(sink, "found") as found:
        await for_each(range(1000), body, max_concurrency=2)
        pytest.fail("it went on")
    assert found
    assert_quiet()


async def test_only_the_first_decision_counts(sink):
    async with early_exit(sink, "stop") as decision:
        first = sink.emit("stop")
        sink.emit("stop")
        await asyncio.sleep(1)
    assert decision.event is first
    assert asyncio.current_task().cancelling() == 0


@pytest.mark.real_loop
async def test_a_sink_that_another_loop_delivers_ends_it_too(sink):
    ready, done = threading.Event(), threading.Event()

    def elsewhere():
        async def main():
            sink.bind()
            ready.set()
            await asyncio.to_thread(done.wait)

        asyncio.run(main())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    try:
        await asyncio.to_thread(ready.wait)
        async with early_exit(sink, "stop") as decision:
            await asyncio.to_thread(sink.emit, "stop")
            await asyncio.sleep(20)
        assert decision
    finally:
        done.set()
        thread.join()


async def test_what_makes_no_sense_is_refused(sink):
    with pytest.raises(InvalidOption):
        early_exit(sink, "")
    with pytest.raises(InvalidOptionType):
        early_exit(sink, "stop", since="yesterday")
    used = early_exit(sink, "stop")
    async with used:
        pass
    with pytest.raises(RuntimeError, match="once"):
        async with used:
            pass
    await sink.aclose()
    with pytest.raises(SinkClosed):
        async with early_exit(sink, "stop"):
            pass
