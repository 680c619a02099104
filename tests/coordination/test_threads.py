"""Plain functions: in threads of the coordinator's own, that keep their slot until they have really returned."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
import time
from functools import partial

import pytest
from tests.coordinators import assert_adds_up, every_coordinator

from ephemerals import (
    CoordinatorError,
    DeadlockError,
    OperationCancelled,
    OperationStatus,
    OperationTimeout,
    WorkCoordinator,
    current_operation,
)
from ephemerals.testing import VirtualClock, assert_quiet, run


class Blocking:
    """Be a body that blocks its thread until it is released, or asked to stop if it listens."""

    def __init__(self, *, listens=False):
        self.released = threading.Event()
        self.listens = listens
        self.threads = []
        self.running = 0
        self.peak = 0
        self.lock = threading.Lock()

    def __call__(self, item, operation):
        with self.lock:
            self.threads.append(threading.current_thread())
            self.running += 1
            self.peak = max(self.peak, self.running)
        try:
            while not self.released.wait(0.002):
                if self.listens and operation.stop_requested:
                    return "stopped early"
            return item
        finally:
            with self.lock:
                self.running -= 1


async def outcome(awaitable):
    try:
        return await awaitable
    except BaseException as error:  # noqa: BLE001 - it is what is asked for
        return error


async def until(condition):
    """Wait, really, until threads have got that far."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "the threads never got that far"
        time.sleep(0.001)  # noqa: ASYNC251 - threads need real time, which the virtual loop does not spend
        await asyncio.sleep(0)


@every_coordinator
async def test_a_plain_function_runs_in_a_thread_and_gives_its_result(make):
    def body(item):
        return item * 2, threading.current_thread() is threading.main_thread()

    async with make(body, max_concurrency=2) as coordinator:
        operations = [await coordinator.enqueue(each) for each in range(10)]
        assert [await each for each in operations] == [(each * 2, False) for each in range(10)]


async def test_it_may_take_the_operation_and_finds_the_current_one():
    def body(_item, operation):
        return operation, current_operation()

    async with WorkCoordinator(body) as coordinator:
        operation = await coordinator.enqueue(1)
        assert await operation == (operation, operation)


async def test_as_many_threads_run_as_the_limit_says_and_the_loop_goes_on():  # report R62, fault L14
    body = Blocking()
    async with WorkCoordinator(body, max_concurrency=4) as coordinator:
        for each in range(8):
            await coordinator.enqueue(each)
        await until(lambda: body.running == 4)
        assert coordinator.active_count == 4
        body.released.set()
        await coordinator.join()
    assert body.peak == 4


async def test_each_coordinator_has_threads_of_its_own():  # report R62
    slow, quick = Blocking(), Blocking()
    quick.released.set()
    async with WorkCoordinator(slow, max_concurrency=2) as first, WorkCoordinator(quick, max_concurrency=2) as second:
        for each in range(20):
            await first.enqueue(each)
        assert await second.run("quick") == "quick"
        assert await asyncio.to_thread(lambda: "the loop's own threads are free") == "the loop's own threads are free"
        slow.released.set()
        await first.join()
    assert not set(slow.threads) & set(quick.threads)
    assert {each.name.split("_")[0] for each in slow.threads} == {"ephemerals"}


async def test_raising_the_limit_gives_more_threads():
    body = Blocking()
    async with WorkCoordinator(body, max_concurrency=1) as coordinator:
        for each in range(6):
            await coordinator.enqueue(each)
        await until(lambda: body.running == 1)
        coordinator.set_max_concurrency(4)
        await until(lambda: body.running == 4)
        body.released.set()
        await coordinator.join()
        assert coordinator.total_completed == 6


async def test_a_cancelled_thread_keeps_its_slot_until_it_returns():  # report R34
    body = Blocking()
    async with WorkCoordinator(body, max_concurrency=1) as coordinator:
        operation = await coordinator.enqueue(1)
        waiting = await coordinator.enqueue(2)
        await until(lambda: body.running == 1)
        assert operation.cancel()
        await VirtualClock.current().settle(external=False)
        assert operation.status is OperationStatus.CANCELLING
        assert operation.stop_requested
        assert not operation.has_ended
        assert coordinator.running()[0].status is OperationStatus.CANCELLING
        assert waiting.status is OperationStatus.PENDING
        assert operation.cancel()
        body.released.set()
        with pytest.raises(OperationCancelled):
            await operation
        assert await waiting == 2
        assert_adds_up(coordinator)


async def test_a_thread_may_leave_early_when_asked_to_stop():  # report R34
    body = Blocking(listens=True)
    async with WorkCoordinator(body) as coordinator:
        operation = await coordinator.enqueue(1)
        await until(lambda: body.running == 1)
        operation.cancel()
        with pytest.raises(OperationCancelled):
            await operation


async def test_an_error_after_the_cancellation_is_a_failure():
    started, released = threading.Event(), threading.Event()

    def body(_item):
        started.set()
        released.wait(10)
        raise LookupError

    async with WorkCoordinator(body) as coordinator:
        operation = await coordinator.enqueue(1)
        await until(started.is_set)
        operation.cancel()
        await asyncio.sleep(0)
        released.set()
        with pytest.raises(LookupError):
            await operation


async def test_a_timed_out_thread_keeps_its_slot_and_ends_with_the_timeout():
    body = Blocking(listens=True)
    clock = VirtualClock.current()
    async with WorkCoordinator(body, operation_timeout=5, max_concurrency=1) as coordinator:
        operation = await coordinator.enqueue(1)
        await until(lambda: body.running == 1)
        clock.advance(5)
        with pytest.raises(OperationTimeout):
            await operation
        assert operation.duration == 5


async def test_cancelled_in_the_step_of_its_start_it_ends_as_cancelled():
    body = Blocking()
    async with WorkCoordinator(body) as coordinator:
        operation = await coordinator.enqueue(1)
        await asyncio.sleep(0)
        assert operation.cancel()
        body.released.set()
        assert isinstance(await outcome(operation), OperationCancelled)
        assert_adds_up(coordinator)


async def test_closing_names_threads_that_do_not_return():  # report R34
    body = Blocking()
    coordinator = WorkCoordinator(body, max_concurrency=1)
    operation = await coordinator.enqueue(1)
    await until(lambda: body.running == 1)
    report = await coordinator.aclose(grace=0, cancel_grace=0)
    assert report.stragglers == (operation.id,)
    body.released.set()
    assert isinstance(await outcome(operation), OperationCancelled)
    assert_quiet(coordinator)


async def test_the_threads_are_gone_after_closing():
    body = Blocking()
    body.released.set()
    coordinator = WorkCoordinator(body)
    await coordinator.run(1)
    await coordinator.aclose()
    await until(lambda: not any(each.is_alive() for each in body.threads))


async def test_partials_methods_and_callable_objects_run_in_threads_too():
    class Service:
        def work(self, item):
            return item, threading.current_thread() is threading.main_thread()

        def __call__(self, item):
            return self.work(item)

    def two(first, second):
        return first, second

    for body in (Service().work, Service(), lambda item: Service().work(item)):
        async with WorkCoordinator(body) as coordinator:
            assert await coordinator.run(5) == (5, False)
    async with WorkCoordinator(partial(two, "bound")) as coordinator:
        assert await coordinator.run(5) == ("bound", 5)


def test_a_thread_whose_loop_has_gone_ends_in_silence():
    body = Blocking()

    async def main():
        coordinator = WorkCoordinator(body)
        await coordinator.enqueue(1)
        await until(lambda: body.running == 1)
        return coordinator

    loop = asyncio.new_event_loop()
    coordinator = loop.run_until_complete(main())
    tasks = asyncio.all_tasks(loop)
    loop.close()
    body.released.set()
    coordinator.cancel()
    for thread in body.threads:
        thread.join(10)
    assert_adds_up(coordinator)
    for task in tasks:
        task._log_destroy_pending = False


class TestFromThreads:
    async def test_an_item_may_come_from_any_thread(self):  # report R57
        async def body(item):
            return item * 2

        def enqueue(item):
            return coordinator.enqueue_threadsafe(item, metadata={"item": item}).result(10)

        async with WorkCoordinator(body) as coordinator:
            operations = await asyncio.gather(*[asyncio.to_thread(enqueue, each) for each in range(20)])
            assert [await each for each in operations] == [each * 2 for each in range(20)]
            assert operations[3].metadata["item"] == 3

    async def test_from_the_loops_own_thread_it_raises_at_once(self):  # report R57
        async def body(item):
            return item

        async with WorkCoordinator(body, name="mail") as coordinator:
            with pytest.raises(CoordinatorError, match=r"'mail' was called on the loop's own thread.*await enqueue"):
                coordinator.enqueue_threadsafe(1)
            assert coordinator.total_enqueued == 0

    async def test_a_future_that_is_cancelled_while_it_waits_for_room_accepts_nothing(self):
        async def body(item):
            await asyncio.sleep(1)

        async with WorkCoordinator(body, max_pending=1) as coordinator:
            coordinator.pause()
            await coordinator.enqueue(1)
            future = await asyncio.to_thread(coordinator.enqueue_threadsafe, 2)
            await VirtualClock.current().settle()
            assert future.cancel()
            await VirtualClock.current().settle()
            assert coordinator.statistics().waiting == 0
            assert coordinator.total_enqueued == 1

    async def test_a_loop_that_is_closed_this_very_moment_leaves_no_coroutine_behind(self, monkeypatch):  # report R4
        def fail(coroutine, loop):
            raise RuntimeError("Event loop is closed")

        async def body(item):
            return item

        async with WorkCoordinator(body) as coordinator:
            monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", fail)
            with pytest.raises(RuntimeError, match="closed"):
                await asyncio.to_thread(coordinator.enqueue_threadsafe, 1)
            gc.collect()  # a coroutine that nobody closed would warn, and warnings are errors

    async def test_what_enqueue_raises_the_future_raises(self):
        async def body(item):
            return item

        async with WorkCoordinator(body) as coordinator:
            coordinator.complete()
            future = await asyncio.to_thread(coordinator.enqueue_threadsafe, 1)
            with pytest.raises(CoordinatorError, match="closed"):
                await asyncio.wrap_future(future)

    def test_before_the_first_use_on_a_loop_there_is_nowhere_to_go(self):
        coordinator = WorkCoordinator(Blocking(), name="mail")
        with pytest.raises(CoordinatorError, match="'mail' is not bound to an event loop: use it once"):
            coordinator.enqueue_threadsafe(1)

    def test_after_its_loop_has_gone_there_is_nowhere_to_go(self):
        async def body(item):
            return item

        async def main():
            await coordinator.run(1)

        coordinator = WorkCoordinator(body)
        run(main())
        with pytest.raises(CoordinatorError, match="not bound to an event loop"):
            coordinator.enqueue_threadsafe(1)

    async def test_a_body_in_a_thread_may_enqueue_and_wait_for_the_place(self):
        def body(item):
            if item:
                coordinator.enqueue_threadsafe(item - 1).result(10)

        async with WorkCoordinator(body, max_concurrency=2) as coordinator:
            await coordinator.enqueue(5)
            await coordinator.join()
            assert coordinator.total_completed == 6

    async def test_a_body_in_a_thread_that_could_never_get_its_place_gets_a_deadlock_error(self):  # report R46
        def body(item):
            if item == "parent":
                for each in range(3):
                    coordinator.enqueue_threadsafe(each).result(10)

        async with WorkCoordinator(body, max_concurrency=1, max_pending=1) as coordinator:
            operation = await coordinator.enqueue("parent")
            with pytest.raises(DeadlockError):
                await operation

    async def test_a_running_loop_of_another_thread_may_call_it(self):
        async def body(item):
            return item

        async def elsewhere():
            future = coordinator.enqueue_threadsafe(7)
            return await asyncio.wrap_future(future)

        async with WorkCoordinator(body) as coordinator:
            await coordinator.run(1)
            with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="ephemerals-test") as pool:
                job = asyncio.get_running_loop().run_in_executor(pool, asyncio.run, elsewhere())
                operation = await job
            assert await operation == 7
