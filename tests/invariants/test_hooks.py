"""No callback of the user can break the engine, whatever it raises and whatever it does (invariant 7)."""

from __future__ import annotations

import asyncio

import pytest

from ephemerals import KeyedWorkCoordinator, OperationCancelled, WorkCoordinator
from ephemerals.testing import VirtualClock, assert_quiet


class Odd(BaseException):
    """Be what no `except Exception` catches."""


async def body(item):
    if isinstance(item, BaseException):
        raise item
    if isinstance(item, asyncio.Event):
        await item.wait()
    return item


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, GeneratorExit, StopIteration, Odd])
@pytest.mark.parametrize("hook", ["on_finalized", "on_sample"])
async def test_a_hook_that_raises_is_counted_and_changes_nothing(hook, error):
    def raises(*_):
        raise error

    async with WorkCoordinator(body, max_tracked_operations=1, sample_interval=0, **{hook: raises}) as coordinator:
        operations = [await coordinator.enqueue(number) for number in range(5)]
        assert await asyncio.gather(*operations) == [0, 1, 2, 3, 4]
        assert coordinator.statistics().hook_errors >= 4
    assert coordinator.total_completed == 5
    assert_quiet(coordinator)


async def test_a_hook_that_reads_at_the_close_takes_nothing_from_being_finalized():
    finalized = []

    def reads(snapshot, reason):
        finalized.append((snapshot.id, str(reason)))
        coordinator.snapshot()

    coordinator = WorkCoordinator(body, on_finalized=reads)
    operations = [await coordinator.enqueue(number) for number in range(4)]
    await asyncio.gather(*operations)
    for operation in operations[1:3]:
        operation.pin()
    await coordinator.aclose()
    assert finalized == [(each.id, "shutdown") for each in operations]


async def test_an_operation_that_a_hook_ends_while_the_window_is_read_is_shown_once():
    event = asyncio.Event()
    coordinator = WorkCoordinator(
        body, max_concurrency=1, max_operation_lifetime=10, on_finalized=lambda *_: waiting.cancel()
    )
    await (await coordinator.enqueue("ends"))
    await coordinator.enqueue(event)
    waiting = await coordinator.enqueue("waits")
    await asyncio.sleep(1)
    VirtualClock.current().advance(20)
    shown = coordinator.snapshot()
    assert [each.status for each in shown] == ["cancelled", "running"]
    event.set()
    await coordinator.aclose()


@pytest.mark.parametrize("meddles", ["cancels another", "cancels everything", "closes the intake"])
async def test_a_hook_may_meddle_while_everything_is_cancelled(meddles):
    def meddle(*_):
        if meddles == "cancels another":
            next((each for each in reversed(operations) if each.cancel()), None)
        elif meddles == "cancels everything":
            coordinator.cancel()
        else:
            coordinator.complete()

    coordinator = KeyedWorkCoordinator(
        lambda item: item % 3, body, max_concurrency=1, max_tracked_operations=0, on_finalized=meddle
    )
    operations = [await coordinator.enqueue(number) for number in range(20)]
    await coordinator.cancel()
    outcomes = await asyncio.gather(*operations, return_exceptions=True)
    assert all(isinstance(each, OperationCancelled) for each in outcomes)
    assert coordinator.total_cancelled == 20
    await coordinator.aclose()
    assert_quiet(coordinator)


async def test_a_task_factory_that_fails_now_and_then_fails_those_operations_and_no_others():
    loop = asyncio.get_running_loop()
    calls = iter(range(100))

    def factory(loop, coroutine, **keywords):
        if coroutine.__name__ == "_drive" and next(calls) % 2:
            raise ValueError("no task today")
        return asyncio.Task(coroutine, loop=loop, **keywords)

    loop.set_task_factory(factory)
    try:
        coordinator = WorkCoordinator(body, max_concurrency=10)
        coordinator.pause()
        operations = [await coordinator.enqueue(number) for number in range(6)]
        coordinator.resume()
        outcomes = await asyncio.gather(*operations, return_exceptions=True)
        assert [each if isinstance(each, int) else type(each) for each in outcomes] == [
            0,
            ValueError,
            2,
            ValueError,
            4,
            ValueError,
        ]
        await coordinator.aclose()
    finally:
        loop.set_task_factory(None)
    assert_quiet(coordinator)


async def test_a_key_function_that_raises_fails_that_one_enqueue_and_counts_nothing():
    coordinator = KeyedWorkCoordinator(lambda item: 1 / item, body)
    with pytest.raises(ZeroDivisionError):
        await coordinator.enqueue(0)
    with pytest.raises(ZeroDivisionError):
        coordinator.try_enqueue(0)
    assert coordinator.total_enqueued == 0
    assert await (await coordinator.enqueue(2)) == 2
    await coordinator.aclose()
    assert_quiet(coordinator)
