"""The window as an event log: in true order, and played again in its rhythm (row P11)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from ephemerals import InvalidOption, KeyedWorkCoordinator, WorkCoordinator
from ephemerals.testing import VirtualClock


async def rest(seconds):
    await asyncio.sleep(seconds)


async def made():
    """Return a coordinator in whose window two operations have ended, one runs, and one waits."""
    coordinator = WorkCoordinator(rest, max_concurrency=2)
    await coordinator.enqueue(5)
    await asyncio.sleep(1)
    await coordinator.enqueue(2)
    await asyncio.sleep(0.5)
    await coordinator.enqueue(100)
    await coordinator.enqueue(100)
    await asyncio.sleep(0.25)
    await coordinator.enqueue(7)
    await asyncio.sleep(5)
    return coordinator


async def test_it_tells_what_happened_in_true_order():
    coordinator = await made()
    told = [(each.event, each.detail, each.monotonic - 1000) for each in coordinator.timeline()]
    assert told == [
        ("enqueued", "", 0),
        ("started", "", 0),
        ("enqueued", "", 1),
        ("started", "", 1),
        ("enqueued", "", 1.5),
        ("enqueued", "", 1.5),
        ("enqueued", "", 1.75),
        ("finished", "completed", 3),
        ("started", "", 3),
        ("finished", "completed", 5),
        ("started", "", 5),
    ]
    await coordinator.cancel()
    await coordinator.aclose()


async def test_entries_name_their_operation_its_key_and_the_time_of_day():
    async with KeyedWorkCoordinator(lambda item: f"key {item}", rest) as coordinator:
        operation = await coordinator.enqueue(2)
        VirtualClock.current().step_wall(3600)
        await operation
        entries = coordinator.timeline()
        assert {(each.operation_id, each.name, each.key) for each in entries} == {(operation.id, "rest", "key 2")}
        assert entries[0].time == operation.enqueued_at
        assert entries[2].time - entries[0].time == timedelta(seconds=2)
        with pytest.raises(AttributeError):
            entries[0].event = "other"


async def test_it_may_begin_at_a_time():
    coordinator = await made()
    whole = coordinator.timeline()
    since = whole[7].time
    assert coordinator.timeline(since) == whole[7:]
    assert coordinator.timeline(since + timedelta(hours=1)) == []
    await coordinator.cancel()
    await coordinator.aclose()


@pytest.mark.parametrize(("speed", "seconds"), [(1.0, 5), (10, 0.5), (0.5, 10), (None, 0)])
async def test_it_is_replayed_in_its_rhythm(speed, seconds):
    coordinator = await made()
    await coordinator.cancel()
    since = coordinator.timeline()[0].time
    before = VirtualClock.current().monotonic()
    first = coordinator.timeline()
    heard = []
    async for entry in coordinator.replay(speed, since=since):
        heard.append((entry, VirtualClock.current().monotonic() - before))  # noqa: PERF401 - the time is read at each
    assert [entry for entry, _ in heard] == first
    assert heard[0][1] == 0
    in_window = [each for each in heard if each[0].monotonic <= 1005]
    assert in_window[-1][1] == pytest.approx(seconds)
    for entry, moment in heard:
        assert moment == pytest.approx(0 if speed is None else (entry.monotonic - 1000) / speed)
    await coordinator.aclose()


@pytest.mark.parametrize("speed", [0, -1, "2"])
async def test_a_wrong_speed_is_refused_at_once(speed):
    async with WorkCoordinator(rest) as coordinator:
        with pytest.raises(InvalidOption, match="speed="):
            coordinator.replay(speed)


async def test_an_empty_window_has_nothing_to_tell():
    async with WorkCoordinator(rest) as coordinator:
        assert coordinator.timeline() == []
        assert [each async for each in coordinator.replay()] == []


async def test_signals_are_told_between_start_and_end():
    async def body(_item, operation):
        await asyncio.sleep(1)
        operation.emit("work.half")
        await asyncio.sleep(1)

    async with WorkCoordinator(body) as coordinator:
        await coordinator.run(1)
        told = [(each.event, each.detail) for each in coordinator.timeline()]
        assert told == [("enqueued", ""), ("started", ""), ("signal", "work.half"), ("finished", "completed")]
