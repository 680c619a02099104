"""What is about to start takes nobody's room: nothing is refused or dropped while slots are free."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ephemerals import Background, CoordinatorFull, KeyedWorkCoordinator, Lane, PriorityWorkCoordinator, WorkCoordinator
from ephemerals.signals import SignalSink
from ephemerals.testing import VirtualClock, assert_quiet


async def rest(_):
    await asyncio.sleep(1)


async def test_drop_oldest_drops_nothing_while_slots_are_free():
    async with WorkCoordinator(rest, max_concurrency=8, max_pending=2, overflow="drop_oldest") as work:
        for number in range(10):
            await work.enqueue(number)
        assert work.statistics().dropped == 0
        await work.enqueue(10)
        assert work.statistics().dropped == 1
        await work.drain()
        assert (work.total_completed, work.total_cancelled) == (10, 1)
    assert_quiet(work)


async def test_reject_refuses_nothing_while_slots_are_free():
    async with WorkCoordinator(rest, max_concurrency=8, max_pending=2, overflow="reject") as work:
        for number in range(10):
            await work.enqueue(number)
        with pytest.raises(CoordinatorFull):
            await work.enqueue(10)
    assert work.total_completed == 10


async def test_try_enqueue_and_background_likewise():
    async with WorkCoordinator(rest, max_concurrency=4, max_pending=1) as work:
        assert [work.try_enqueue(number) is not None for number in range(6)] == [True] * 5 + [False]
    async with Background(max_concurrency=4, max_pending=1) as background:
        for number in range(5):
            background.add_task(rest, number)
        with pytest.raises(CoordinatorFull):
            background.add_task(rest, 5)


async def test_what_cannot_start_fills_the_room_although_slots_are_free():
    async with KeyedWorkCoordinator(lambda item: item[0], rest, max_concurrency=8, max_pending=2) as work:
        keys = "a", "a", "a", "a", "b", "b"
        assert [work.try_enqueue((key, n)) is not None for n, key in enumerate(keys)] == [True] * 3 + [False] * 3
        await VirtualClock.current().settle()
        assert work.pending_count == 2
    assert work.total_completed == 3


async def test_a_paused_a_held_back_and_a_full_lane_fill_it_too():
    async with WorkCoordinator(rest, max_concurrency=8, max_pending=1) as work:
        work.pause()
        assert [work.try_enqueue(number) is not None for number in range(2)] == [True, False]
        work.resume()
    sink = SignalSink()
    with sink.hold("busy"):
        async with WorkCoordinator(
            rest, max_concurrency=8, max_pending=1, signals=sink, defer_on_signals="busy", max_defer_time=1
        ) as work:
            assert [work.try_enqueue(number) is not None for number in range(2)] == [True, False]
    lanes = [Lane("one", max_concurrency=1), Lane("other")]
    async with PriorityWorkCoordinator(rest, lanes=lanes, max_concurrency=8, max_pending=1) as work:
        assert [work.try_enqueue(number, lane="one") is not None for number in range(3)] == [True, True, False]


def test_a_body_in_a_thread_may_cancel_itself_and_others_in_debug_mode_too():
    async def main():
        async def waits(_):
            await asyncio.sleep(1000)

        other_work = WorkCoordinator(waits)
        other = await other_work.enqueue(1)
        began = threading.Event()

        def body(_, operation):
            began.set()
            assert other.cancel()
            assert operation.cancel()

        async with WorkCoordinator(body) as work:
            operation = await work.enqueue(1)
            await work.join()
            assert operation.status == "cancelled"
            await other_work.join()
            assert other.status == "cancelled"
        await other_work.aclose()
        assert began.is_set()

    asyncio.run(asyncio.wait_for(main(), 20), debug=True)
