"""Cancelling at every point of a life, also in the very step in which something else happens; nothing is lost."""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinators import assert_adds_up, every_coordinator

from ephemerals import OperationCancelled, WorkCoordinator
from ephemerals.testing import VirtualClock, assert_quiet


async def outcome(awaitable):
    try:
        return await awaitable
    except BaseException as error:  # noqa: BLE001 - it is what is asked for
        return error


@pytest.mark.parametrize("steps", range(8))
@every_coordinator
async def test_an_operation_cancelled_after_so_many_steps_ends_once(make, steps):
    entered = []

    async def body(item):
        entered.append(item)
        for _ in range(4):
            await asyncio.sleep(0)
        return item

    async with make(body, max_concurrency=1) as coordinator:
        first = await coordinator.enqueue(1)
        second = await coordinator.enqueue(2)
        waiter = asyncio.ensure_future(outcome(first))
        for _ in range(steps):
            await asyncio.sleep(0)
        had_effect = first.cancel()
        assert await second == 2
        got = await waiter
        assert got == 1 if not had_effect else isinstance(got, OperationCancelled)
        assert_adds_up(coordinator)
        assert coordinator.total_completed + coordinator.total_cancelled == 2


@pytest.mark.parametrize("steps", range(6))
async def test_completed_and_cancelled_in_the_same_step_is_one_outcome(steps):  # report R21
    async def body(future):
        return await future

    async with WorkCoordinator(body) as coordinator:
        future = asyncio.get_running_loop().create_future()
        operation = await coordinator.enqueue(future)
        for _ in range(steps):
            await asyncio.sleep(0)
        if not future.done():
            future.set_result("done")
        operation.cancel()
        got = await outcome(operation)
        assert got == "done" or isinstance(got, OperationCancelled)
        assert coordinator.total_completed + coordinator.total_cancelled == 1
        assert_adds_up(coordinator)


@pytest.mark.parametrize("steps", range(6))
@every_coordinator
async def test_a_caller_of_run_cancelled_after_so_many_steps_loses_no_slot(make, steps):
    async def body(item):
        await asyncio.sleep(1)
        return item

    async with make(body, max_concurrency=1, max_pending=1) as coordinator:
        callers = [asyncio.ensure_future(coordinator.run(each)) for each in range(4)]
        for _ in range(steps):
            await asyncio.sleep(0)
        for each in callers[:3]:
            each.cancel()
        assert await callers[3] == 3
        await coordinator.join()
        assert_adds_up(coordinator)
        assert await coordinator.run(9) == 9
        await coordinator.aclose()
        assert_quiet(coordinator)


async def test_cancelling_a_handle_from_another_operation():
    async def body(item):
        if item == "second":
            operations[0].cancel()
            return item
        await asyncio.sleep(100)
        return None

    async with WorkCoordinator(body, max_concurrency=2) as coordinator:
        operations = [await coordinator.enqueue("first")]
        assert await coordinator.run("second") == "second"
        await coordinator.join()
        assert coordinator.total_cancelled == 1
        assert VirtualClock.current().monotonic() == 1000


async def test_a_body_cancelled_in_a_task_group_cancels_the_group_and_ends():
    ended = []

    async def child():
        try:
            await asyncio.sleep(100)
        finally:
            ended.append("child")

    async def body(_item):
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
            group.create_task(child())

    async with WorkCoordinator(body) as coordinator:
        operation = await coordinator.enqueue(1)
        await asyncio.sleep(1)
        operation.cancel()
        assert isinstance(await outcome(operation), OperationCancelled)
        assert ended == ["child", "child"]


async def test_a_cancelled_waiter_inside_a_body_does_not_cancel_the_body():
    async def body(item):
        if isinstance(item, int):
            await asyncio.sleep(item)
            return item
        try:
            async with asyncio.timeout(1):
                await item[0]
        except TimeoutError:
            return "gave up"

    async with WorkCoordinator(body, max_concurrency=2) as coordinator:
        slow = await coordinator.enqueue(10)
        assert await coordinator.run([slow]) == "gave up"
        assert await slow == 10
        assert coordinator.engine.leftovers()["blocked"] == 0
