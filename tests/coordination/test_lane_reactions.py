"""Lanes skip and hold back for signals of their own, beside those of the whole."""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinators import assert_adds_up

from ephemerals import Lane, OperationSkipped, OperationStatus, PriorityWorkCoordinator
from ephemerals.signals import SignalSink
from ephemerals.testing import VirtualClock, assert_quiet

keyed = pytest.mark.parametrize("key", [None, lambda item: item[0]], ids=["plain", "keyed"])


async def nothing(item):
    pass


def now():
    return VirtualClock.current().monotonic()


async def settle():
    await VirtualClock.current().settle()


def recorder():
    started = {}

    async def body(item):
        started[item] = now()

    return body, started


@keyed
async def test_items_of_a_lane_that_cancels_are_skipped_counted_and_told(key):
    """P6: the producer hears of it."""
    sink = SignalSink()
    lanes = [Lane("hot"), Lane("bulk", cancel_on_signals="bulk.off")]
    sink.emit("bulk.off")
    async with PriorityWorkCoordinator(nothing, lanes=lanes, key=key, signals=sink) as coordinator:
        bulk = [await coordinator.enqueue(f"b{number}", lane="bulk") for number in range(3)]
        hot = [await coordinator.enqueue(f"h{number}", lane="hot") for number in range(3)]
        await coordinator.join()
        assert_adds_up(coordinator)
    assert [each.status for each in bulk] == [OperationStatus.SKIPPED] * 3
    assert [each.status for each in hot] == [OperationStatus.COMPLETED] * 3
    assert coordinator.total_skipped == 3
    with pytest.raises(OperationSkipped, match=r"bulk\.off"):
        await bulk[0]
    assert_quiet(coordinator)


@keyed
async def test_a_lane_that_is_held_back_wakes_by_itself_and_holds_up_no_other(key):
    """P2: nobody has to enqueue anything."""
    sink = SignalSink()
    body, started = recorder()
    lanes = [Lane("hot", defer_on_signals="night"), Lane("bulk")]
    async with PriorityWorkCoordinator(
        body, lanes=lanes, key=key, signals=sink, max_concurrency=1, max_defer_time=None
    ) as coordinator:
        began = now()
        with sink.hold("night"):
            await coordinator.enqueue("hot", lane="hot")
            await coordinator.enqueue("bulk", lane="bulk")
            await asyncio.sleep(7)
        await settle()
        assert started == {"bulk": began, "hot": began + 7}


@pytest.mark.parametrize("end", ["clear", "expiry", "resume"])
async def test_whatever_ends_the_cause_wakes_the_lane(end):
    sink = SignalSink(max_age=7)
    body, started = recorder()
    lanes = [Lane("hot", defer_on_signals="night")]
    async with PriorityWorkCoordinator(
        body, lanes=lanes, signals=sink, max_defer_time=None, resume_on_signals="day"
    ) as coordinator:
        began = now()
        sink.emit("night")
        await coordinator.enqueue("hot", lane="hot")
        await asyncio.sleep(5)
        assert not started
        if end == "clear":
            sink.clear()
        elif end == "resume":
            sink.emit("day")
        else:
            await asyncio.sleep(2)
        await settle()
        assert started == {"hot": began + (7 if end == "expiry" else 5)}


async def test_each_lane_has_a_time_of_its_own_and_its_items_have_one_in_common():
    """C4, in lanes."""
    sink = SignalSink(max_age=None)
    body, started = recorder()
    lanes = [Lane("hot", defer_on_signals="a"), Lane("bulk", defer_on_signals="b")]
    sink.emit("a")
    sink.emit("b")
    began = now()
    async with PriorityWorkCoordinator(
        body, lanes=lanes, signals=sink, max_defer_time=5, max_concurrency=1
    ) as coordinator:
        for number in range(20):
            await coordinator.enqueue(("hot", number), lane="hot")
        await asyncio.sleep(3)
        for number in range(20):
            await coordinator.enqueue(("bulk", number), lane="bulk")
    assert {(lane, at - began) for (lane, _), at in started.items()} == {("hot", 5), ("bulk", 8)}


async def test_when_the_time_is_over_the_items_of_the_lane_are_skipped_if_asked():
    sink = SignalSink(max_age=None)
    sink.emit("night")
    lanes = [Lane("hot"), Lane("bulk", defer_on_signals="night")]
    async with PriorityWorkCoordinator(
        nothing, lanes=lanes, signals=sink, max_defer_time=5, on_defer_timeout="skip"
    ) as coordinator:
        bulk = await coordinator.enqueue(1, lane="bulk")
        hot = await coordinator.enqueue(2, lane="hot")
        with pytest.raises(OperationSkipped, match="night"):
            await bulk
        assert bulk.waiting_time == 5
        assert hot.status is OperationStatus.COMPLETED


@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.parametrize("pauses", [False, True])
async def test_draining_while_a_lane_is_held_back_ends(pauses, limit):
    """P2, P11: and may be repeated."""
    sink = SignalSink(max_age=None)
    sink.emit("night")
    lanes = [Lane("hot"), Lane("bulk", defer_on_signals="night")]
    began = now()
    async with asyncio.timeout(100):
        async with PriorityWorkCoordinator(nothing, lanes=lanes, signals=sink, max_defer_time=limit) as coordinator:
            await coordinator.enqueue(1, lane="bulk")
            await settle()
            if pauses:
                coordinator.pause()
            await coordinator.drain()
            await coordinator.drain()
    assert now() - began == (limit or 0)
    assert coordinator.total_completed == 1
    assert_quiet(coordinator)


async def test_a_signal_for_the_whole_holds_every_lane():
    sink = SignalSink()
    body, started = recorder()
    async with PriorityWorkCoordinator(
        body, lanes=[Lane("hot"), Lane("bulk")], signals=sink, defer_on_signals="busy", max_defer_time=None
    ) as coordinator:
        with sink.hold("busy"):
            for lane in ("hot", "bulk"):
                await coordinator.enqueue(lane, lane=lane)
            await settle()
            assert not started
        await settle()
        assert list(started) == ["hot", "bulk"]


async def test_whether_a_lane_cancels_is_asked_when_an_item_is_about_to_start():
    """P4, L11."""
    ran = []

    async def body(item, operation):
        ran.append(item)
        await asyncio.sleep(1)
        operation.emit("bulk.off")

    lanes = [Lane("hot"), Lane("bulk", cancel_on_signals="bulk.off")]
    async with PriorityWorkCoordinator(body, lanes=lanes, max_concurrency=1) as coordinator:
        for number in range(3):
            await coordinator.enqueue(number, lane="bulk")
        await coordinator.enqueue("hot", lane="hot")
    assert ran == ["hot"]
    assert coordinator.total_skipped == 3


async def test_a_body_that_signals_at_once_stops_its_lane_in_the_same_turn():
    ran = []

    async def body(item, operation):
        ran.append(item)
        operation.emit("bulk.off")

    for option in ({"cancel_on_signals": "bulk.off"}, {"defer_on_signals": "bulk.off"}):
        ran.clear()
        async with PriorityWorkCoordinator(
            body, lanes=[Lane("bulk", **option)], max_concurrency=1, max_defer_time=5
        ) as coordinator:
            for number in range(3):
                await coordinator.enqueue(number)
            await settle()
            assert ran == [0]


async def test_among_weighted_lanes_one_that_is_held_back_gives_its_share_to_the_others():
    sink = SignalSink()
    order = []

    async def body(item):
        order.append(item)
        await asyncio.sleep(1)

    lanes = [Lane("a", weight=3, defer_on_signals="night"), Lane("b", weight=1)]
    async with PriorityWorkCoordinator(
        body, lanes=lanes, signals=sink, max_concurrency=1, max_defer_time=None
    ) as coordinator:
        with sink.hold("night"):
            for number in range(3):
                await coordinator.enqueue(f"a{number}", lane="a")
                await coordinator.enqueue(f"b{number}", lane="b")
            await asyncio.sleep(2.5)
    assert order[:3] == ["b0", "b1", "b2"]
    assert order[3:] == ["a0", "a1", "a2"]


async def test_a_lane_held_back_is_no_deadlock_for_a_body_that_waits_for_room_in_it():
    """The body waits for room in its own coordinator; the hold ends, and both go on."""
    sink = SignalSink()

    async def body(item):
        if item == "outer":
            await coordinator.enqueue("inner", lane="bulk")

    lanes = [Lane("hot"), Lane("bulk", defer_on_signals="night", max_pending=1)]
    async with PriorityWorkCoordinator(
        body, lanes=lanes, signals=sink, max_concurrency=2, max_defer_time=None
    ) as coordinator:
        with sink.hold("night"):
            await coordinator.enqueue("first", lane="bulk")
            outer = await coordinator.enqueue("outer", lane="hot")
            await settle()
            assert outer.status is OperationStatus.RUNNING
        await outer
    assert coordinator.total_completed == 3
