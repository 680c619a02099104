"""Many items: what must stay cheap or leave nothing behind, however many there are.

Costs are compared with one another, never with the clock on the wall of this machine.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
import tracemalloc

import pytest
from tests.coordinators import EVERY, assert_adds_up, every_coordinator

from ephemerals import KeyedWorkCoordinator, Lane, OperationStatus, PriorityWorkCoordinator, WorkCoordinator
from ephemerals.testing import assert_quiet

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
KEYS = 1_000_000 if LONG else 60_000


async def nothing(_item):
    pass


def cpu():
    return time.process_time()


async def cost(function):
    """Return the processor seconds of a coroutine function, at best of three."""
    best = float("inf")
    for _ in range(3):
        gc.collect()
        before = cpu()
        await function()
        best = min(best, cpu() - before)
    return best


@pytest.mark.parametrize("fair", [False, True], ids=["oldest first", "in turn"])
async def test_so_many_keys_leave_nothing_behind(fair):  # reports R51, fault K4
    async with KeyedWorkCoordinator(
        lambda item: item, nothing, max_concurrency=64, fair_scheduling=fair
    ) as coordinator:
        await coordinator.enqueue_many(range(KEYS // (2 if fair else 1)))
        await coordinator.join()
        assert coordinator.total_completed == KEYS // (2 if fair else 1)
        left = coordinator.engine.leftovers()
        assert (left["keys"], left["withdrawn"]) == (0, 0)
        schedule = coordinator.engine.schedule
        assert not schedule._keys
        assert not schedule._table.active
        assert not schedule._queue
        assert not schedule._released


@pytest.mark.parametrize("count", [50_000])
@pytest.mark.parametrize("kind", ["work", "keyed"])
async def test_stopping_so_many_starts_none_of_them_and_is_cheaper_than_accepting_them(kind, count):  # report R10
    await stop(EVERY[kind], count)


@every_coordinator
async def test_stopping_many_starts_none_of_them_on_any_coordinator(make):
    await stop(make, 3_000)


async def stop(make, count):
    started = []

    async def body(item):
        started.append(item)
        await asyncio.sleep(1000)

    coordinator = make(body, max_concurrency=1, max_pending=None)
    await coordinator.enqueue("running")
    await asyncio.sleep(1)
    before = cpu()
    operations = [await coordinator.enqueue(each) for each in range(count)]
    accepting = cpu() - before
    before = cpu()
    report = await coordinator.cancel()
    stopping = cpu() - before
    assert started == ["running"]
    assert report.cancelled == count + 1
    assert {each.status for each in operations} == {OperationStatus.CANCELLED}
    assert stopping < 2 * accepting
    assert_adds_up(coordinator)
    await coordinator.aclose()
    assert_quiet(coordinator)


async def test_cancelling_one_by_one_costs_the_same_for_each_however_many_wait():
    async def withdraw(count):
        async with WorkCoordinator(nothing, max_pending=None) as coordinator:
            coordinator.pause()
            operations = [await coordinator.enqueue(each) for each in range(count)]
            before = cpu()
            for operation in operations:
                operation.cancel()
            return cpu() - before

    small = min([await withdraw(2_000) for _ in range(3)])
    large = min([await withdraw(16_000) for _ in range(3)])
    assert large < 8 * small * 4


@pytest.mark.parametrize("kind", ["keyed", "fair", "lanes"])
async def test_choosing_the_next_costs_the_same_however_many_wait(kind):
    def make():
        if kind == "lanes":
            lanes = [Lane(str(each)) for each in range(4)]
            return PriorityWorkCoordinator(nothing, lanes=lanes, max_pending=None, max_concurrency=4)
        return KeyedWorkCoordinator(
            lambda item: item % 50,
            nothing,
            max_pending=None,
            max_concurrency=4,
            fair_scheduling=kind == "fair",
            fair_scheduling_threshold=1_000_000,
        )

    async def work(count):
        async with make() as coordinator:
            coordinator.pause()
            await coordinator.enqueue_many(range(count))
            before = cpu()
            await coordinator.drain()
            return cpu() - before

    small = min([await work(1_000) for _ in range(3)])
    large = min([await work(8_000) for _ in range(3)])
    assert large < 8 * small * 4


async def test_pinning_getting_and_evicting_cost_the_same_however_many_are_remembered():  # fault W6
    async def look(count):
        coordinator = WorkCoordinator(nothing, max_tracked_operations=None, max_pinned=None, max_pending=None)
        operations = [await coordinator.enqueue(each) for each in range(count)]
        await coordinator.join()
        chosen = operations[count // 2 :][:500]

        async def touch():
            for operation in chosen:
                coordinator.pin(operation.id)
                coordinator.get(operation.id)
                coordinator.unpin(operation.id)

        spent = await cost(touch)
        await coordinator.aclose()
        return spent

    assert await look(10_000) < 8 * await look(1_000)


async def test_a_hundred_thousand_waits_that_were_given_up_leave_no_waiter():  # reports R24, R25
    async with WorkCoordinator(nothing, max_pending=1) as coordinator:
        coordinator.pause()
        operation = await coordinator.enqueue(1)
        tracemalloc.start()
        for round_ in range(100):
            if round_ == 10:
                before = tracemalloc.get_traced_memory()[0]
            waiters = [asyncio.ensure_future(coordinator.enqueue(2)) for _ in range(50)]
            waiters += [asyncio.ensure_future(coordinator.join()) for _ in range(25)]
            waiters += [asyncio.ensure_future(wait_for(operation)) for _ in range(25)]
            await asyncio.sleep(0)
            for each in waiters:
                each.cancel()
            await asyncio.wait(waiters)
        waiters.clear()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert coordinator.statistics().waiting == 0
        assert coordinator.engine.leftovers()["waiting for idle"] == 0
        assert not operation._waiters
        assert grown < 50_000
        await coordinator.cancel()


async def wait_for(operation):
    return await operation


async def test_a_long_life_leaves_no_more_than_a_short_one():  # row L14
    async def live(count):
        await coordinator.enqueue_many(range(count))
        await coordinator.join()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    coordinator = KeyedWorkCoordinator(
        lambda item: item, nothing, max_tracked_operations=50, echo_capacity=50, max_concurrency=16
    )
    async with coordinator:
        tracemalloc.start()
        await live(2_000)
        short = await live(1_000)
        long = await live(10_000)
        tracemalloc.stop()
        assert long - short < 100_000


async def test_the_queue_is_bounded_for_an_endless_producer():
    async def slow(_item):
        await asyncio.sleep(1)

    def endless():
        pulled = 0
        while True:
            pulled += 1
            yield pulled

    async with WorkCoordinator(slow, max_concurrency=2, max_pending=10) as coordinator:
        producer = asyncio.ensure_future(coordinator.enqueue_many(endless()))
        await asyncio.sleep(50.5)
        assert coordinator.pending_count <= 10
        assert coordinator.total_enqueued <= 2 * 51 + 10
        producer.cancel()
        await asyncio.wait((producer,))
        await coordinator.cancel()
