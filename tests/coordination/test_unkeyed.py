"""An item whose key is `None` has no key: nothing orders it, and no bound of a key applies to it."""

from __future__ import annotations

import asyncio

import pytest

from ephemerals import KeyedWorkCoordinator, Lane, PriorityWorkCoordinator
from ephemerals.testing import assert_quiet


async def sleeper(item):
    await asyncio.sleep(1)


@pytest.mark.parametrize("fair", [False, True])
async def test_items_without_a_key_run_side_by_side(fair):
    async with KeyedWorkCoordinator(
        lambda item: item, sleeper, max_concurrency=8, fair_scheduling=fair, fair_scheduling_threshold=2
    ) as coordinator:
        for _ in range(4):
            assert coordinator.try_enqueue(None) is not None
        await coordinator.enqueue_many(["a", "a"])
        await asyncio.sleep(0.5)
        assert [each.key for each in coordinator.running()] == [None, None, None, None, "a"]
        assert coordinator.pending_count == 1


async def test_the_order_of_arrival_holds_between_items_with_a_key_and_without():
    started = []

    async def body(item):
        started.append(item)

    async with KeyedWorkCoordinator(lambda item: item[0], body, max_concurrency=1) as coordinator:
        items = [("a", 1), (None, 2), ("b", 3), (None, 4), ("a", 5)]
        await coordinator.enqueue_many(items)
    assert started == items
    assert_quiet(coordinator)


async def test_one_without_a_key_can_be_withdrawn():
    async with KeyedWorkCoordinator(lambda _: None, sleeper, max_concurrency=1) as coordinator:
        operations = [await coordinator.enqueue(number) for number in range(3)]
        await asyncio.sleep(0.5)
        operations[1].cancel()
        await operations[2]
        assert operations[2].waiting_time == 1.0
        await coordinator.drain()
        assert coordinator.engine.schedule.leftovers() == {"keys": 0, "withdrawn": 0}


async def test_it_holds_inside_a_lane():
    async with PriorityWorkCoordinator(
        sleeper, lanes=[Lane("hot"), Lane("normal")], key=lambda item: item, max_concurrency=8
    ) as coordinator:
        for lane in ("hot", "normal"):
            await coordinator.enqueue(None, lane=lane)
            await coordinator.enqueue("a", lane=lane)
        await asyncio.sleep(0.5)
        assert [each.key for each in coordinator.running()] == [None, "a", None]
