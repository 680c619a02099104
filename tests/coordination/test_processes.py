"""Plain functions in other processes: spawned, owned by the coordinator, replaced when they die."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from concurrent.futures.process import BrokenProcessPool

import pytest
from tests.coordinators import assert_adds_up

from ephemerals import (
    InvalidBody,
    OperationCancelled,
    OperationFailed,
    OperationStatus,
    OperationTimeout,
    WorkCoordinator,
)
from ephemerals.testing import VirtualClock


def square(number):
    return number * number, os.getpid()


def fail(item):
    raise LookupError(f"no {item}")


def die(item):
    if item == "die":
        os._exit(7)
    return item


def stop_iteration(_item):
    return next(iter([]))


def give_lock(_item):
    return threading.Lock()


def slow(_item):
    time.sleep(0.3)
    return "done"


class NotBack(Exception):
    """Pickle well, and not unpickle."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


class NotOut(Exception):
    """Not even pickle."""

    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


def exit_when_unpickled():
    raise SystemExit(3)


class Exits(Exception):
    def __reduce__(self):
        return exit_when_unpickled, ()


class ResultNotBack:
    def __reduce__(self):
        return NotBack, ("one",)


ODD = {"back": NotBack("one", "two"), "out": NotOut("no"), "exits": Exits("bye")}


def raise_odd(item):
    if item == "result":
        return ResultNotBack()
    if item in ODD:
        raise ODD[item]
    time.sleep(0.2)
    return item


async def asynchronous(item):
    return item


def takes_operation(item, operation):
    return item


async def test_it_runs_in_a_spawned_process_and_gives_its_result_and_its_errors():
    async with WorkCoordinator(square, run_in="process", max_concurrency=2) as coordinator:
        operations = [await coordinator.enqueue(each) for each in range(5)]
        results = [await each for each in operations]
        assert [each for each, _ in results] == [0, 1, 4, 9, 16]
        assert os.getpid() not in {pid for _, pid in results}
        assert coordinator.engine.execution.pool._executor._mp_context.get_start_method() == "spawn"
        unpicklable = await coordinator.enqueue(threading.Lock())
        with pytest.raises(TypeError, match="pickle"):
            await unpicklable
        assert (await coordinator.run(3))[0] == 9
        assert_adds_up(coordinator)


async def test_an_error_travels_back_with_its_place():
    async with WorkCoordinator(fail, run_in="process", max_concurrency=1) as coordinator:
        operation = await coordinator.enqueue("luck")
        with pytest.raises(LookupError, match="no luck"):
            await operation
        assert operation.error.type == "LookupError"
        assert coordinator.total_failed == 1


async def test_stop_iteration_becomes_a_runtime_error_there_too():
    async with WorkCoordinator(stop_iteration, run_in="process", max_concurrency=1) as coordinator:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await coordinator.run(1)


async def test_a_result_that_cannot_travel_is_a_failure():
    async with WorkCoordinator(give_lock, run_in="process", max_concurrency=1) as coordinator:
        with pytest.raises(TypeError, match="pickle"):
            await coordinator.run(1)


@pytest.mark.parametrize(
    ("item", "kind", "text"), [("back", NotBack, "one and two"), ("out", NotOut, "no"), ("exits", Exits, "bye")]
)
async def test_an_error_that_cannot_travel_fails_its_own_operation_alone(item, kind, text):
    async with WorkCoordinator(raise_odd, run_in="process", max_concurrency=2) as coordinator:
        innocent = await coordinator.enqueue("innocent")
        operation = await coordinator.enqueue(item)
        with pytest.raises(OperationFailed, match=f"{kind.__qualname__}: {text}") as caught:
            await operation
        name = f"{kind.__module__}.{kind.__qualname__}"
        assert (caught.value.error_type, caught.value.operation_id) == (name, operation.id)
        assert "could not travel" in caught.value.__notes__[0]
        assert "raise_odd" in str(caught.value.__cause__)
        assert operation.error.type == name
        assert text in operation.error.message
        assert await innocent == "innocent"
        assert await coordinator.run("later") == "later"
        assert (coordinator.total_failed, coordinator.total_completed) == (1, 2)


async def test_a_result_that_cannot_be_unpacked_fails_its_own_operation_alone():
    async with WorkCoordinator(raise_odd, run_in="process", max_concurrency=2) as coordinator:
        innocent = await coordinator.enqueue("innocent")
        with pytest.raises(TypeError, match="argument"):
            await coordinator.run("result")
        assert await innocent == "innocent"


async def test_a_worker_that_dies_is_replaced():
    async with WorkCoordinator(die, run_in="process", max_concurrency=1) as coordinator:
        with pytest.raises(BrokenProcessPool):
            await coordinator.run("die")
        assert await coordinator.run("live") == "live"


async def test_a_worker_that_dies_with_nothing_to_do_is_replaced():
    async with WorkCoordinator(square, run_in="process", max_concurrency=1) as coordinator:
        _, pid = await coordinator.run(1)
        executor = coordinator.engine.execution.pool._executor
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while not executor._broken and time.monotonic() < deadline:
            time.sleep(0.005)  # noqa: ASYNC251 - the executor's own thread has to notice
        assert (await coordinator.run(2))[0] == 4


async def test_a_cancelled_process_keeps_its_slot_until_it_has_returned():
    async with WorkCoordinator(slow, run_in="process", max_concurrency=1) as coordinator:
        operation = await coordinator.enqueue(1)
        waiting = await coordinator.enqueue(2)
        await VirtualClock.current().settle(external=False)
        operation.cancel()
        await VirtualClock.current().settle(external=False)
        assert operation.status is OperationStatus.CANCELLING
        assert waiting.status is OperationStatus.PENDING
        with pytest.raises(OperationCancelled):
            await operation
        assert await waiting == "done"


async def test_a_process_that_runs_too_long_ends_with_the_timeout_when_it_has_returned():
    async with WorkCoordinator(slow, run_in="process", max_concurrency=1, operation_timeout=5) as coordinator:
        operation = await coordinator.enqueue(1)
        await VirtualClock.current().settle(external=False)
        VirtualClock.current().advance(5)
        with pytest.raises(OperationTimeout):
            await operation


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (asynchronous, "async function.*run_in='process' needs a def"),
        (takes_operation, "takes the operation, which cannot travel.*use body"),
        (lambda item: item, "cannot be sent to another process.*a module's top level"),
        (threading.Lock().acquire, "cannot be sent to another process"),
    ],
)
def test_a_body_that_cannot_run_there_is_refused(body, message):
    with pytest.raises(InvalidBody, match=message):
        WorkCoordinator(body, run_in="process")


def test_a_loop_that_goes_away_under_a_process_is_no_error():
    async def main():
        coordinator = WorkCoordinator(slow, run_in="process", max_concurrency=1)
        await coordinator.enqueue(1)
        await asyncio.sleep(0.05)
        return coordinator

    loop = asyncio.new_event_loop()
    coordinator = loop.run_until_complete(main())
    executor = coordinator.engine.execution.pool._executor
    loop.close()
    executor.shutdown(wait=True)
    coordinator.cancel()
