"""Privacy by shape: whatever way a body ends, nothing in the library refers to its item afterwards.

Weak references are checked with the garbage collector off, while the snapshot is still in the window and the handle
is still held. After a failure the graph of objects that the library holds is walked for tracebacks, frames and the
item itself (reports R64, R66, R68).
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import time
import types
from collections import deque
from contextlib import suppress

import pytest
from tests.coordinators import EVERY, every_coordinator

from ephemerals import (
    CoordinatorClosed,
    DeadlockError,
    OperationCancelled,
    OperationError,
    OperationTimeout,
    ResultCoordinator,
    WorkCoordinator,
)
from ephemerals.testing import Payload, VirtualClock, assert_forgotten

OPTIONS = {"max_concurrency": 1, "max_operation_lifetime": None, "echo_retention": 1000}


@pytest.fixture(scope="module", autouse=True)
def frozen():
    """Keep what exists already out of the collector's sight, which makes collecting cheap."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Failure(Exception):
    pass


async def outcome(awaitable):
    """Wait, and forget what came of it."""
    with suppress(BaseException):
        await awaitable


def reachable(*roots):
    """Yield everything that the roots refer to, directly or not; modules, classes and loops are not entered."""
    closed = (type, types.ModuleType, types.BuiltinFunctionType, asyncio.AbstractEventLoop, asyncio.Task)
    seen = {id(globals())}
    queue = deque(roots)
    while queue:
        thing = queue.popleft()
        if id(thing) in seen or isinstance(thing, closed):
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, types.FunctionType):
            queue.extend(thing.__closure__ or ())
        else:
            queue.extend(gc.get_referents(thing))


def assert_holds_no_frame(*roots):
    kinds = (types.TracebackType, types.FrameType, Payload)
    found = [each for each in reachable(*roots) if isinstance(each, kinds)]
    assert not found, found
    for each in reachable(*roots):
        if isinstance(each, BaseException):
            assert each.__traceback__ is None
            assert each.__cause__ is None
            assert each.__context__ is None


def deep_failure(item):
    local = [item, {"copy": item}]
    try:
        raise LookupError(len(local))
    except LookupError as error:
        raise Failure from error


def missing_attribute(item):
    return item.missing


def cycle(item):
    try:
        deep_failure(item)
    except Failure as error:
        kept = error
        raise kept from None


def own_cycle_of_cancellation(item):
    try:
        raise asyncio.CancelledError
    except asyncio.CancelledError as error:
        kept = [error, item]
        raise kept[0]  # noqa: B904 - as careless as it gets


def group(item):
    try:
        deep_failure(item)
    except Failure as error:
        raise ExceptionGroup("group", [error, ValueError()]) from error


def base_exception(item):
    local = item  # noqa: F841 - a frame that holds it
    raise BaseException("odd")  # noqa: TRY002 - whatever a body raises


def cancelled_error(item):
    local = item  # noqa: F841 - a frame that holds it
    raise asyncio.CancelledError


def stop_iteration(item):
    local = item  # noqa: F841 - a frame that holds it
    return next(iter(()))


def complete(item):
    local = [item]
    return len(local)


ENDINGS = {
    "completes": complete,
    "fails": deep_failure,
    "misses an attribute of the item": missing_attribute,
    "fails with a cycle": cycle,
    "fails with a group": group,
    "raises a BaseException": base_exception,
    "raises CancelledError": cancelled_error,
    "raises CancelledError in a cycle": own_cycle_of_cancellation,
    "raises StopIteration": stop_iteration,
}


def body_of(kind, end):
    """Return a body that ends in a way, as a coroutine function or as a plain one; with or without the operation."""
    if kind == "async":

        async def asynchronous(item):
            await asyncio.sleep(1)
            return end(item)

        return asynchronous
    if kind == "async with operation":

        async def with_operation(item, operation):
            await asyncio.sleep(1)
            return end(item)

        return with_operation
    return lambda item: end(item)  # noqa: PLW0108 - a plain function, whatever `end` is


@pytest.mark.parametrize("detail", ["message", "exception"])
@pytest.mark.parametrize("waited_for", [False, True], ids=["alone", "waited for"])
@pytest.mark.parametrize("kind", ["async", "async with operation", "thread"])
@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS.keys())
@every_coordinator
async def test_after_a_body_has_ended_its_item_is_forgotten(make, end, kind, waited_for, detail):
    coordinator = make(body_of(kind, end), error_detail=detail, **OPTIONS)

    async def use(item):
        operation = await coordinator.enqueue(item)
        del item
        waiter = asyncio.ensure_future(outcome(operation)) if waited_for else None
        await coordinator.join()
        if waiter is not None:
            await waiter
        del waiter
        return operation, coordinator.snapshot(), operation.snapshot()

    kept = []

    async def keep(item):
        kept.append(await use(item))
        return kept

    knot = waited_for and end is cycle  # which the body has tied itself, and the waiter got: for the collector
    within = 0.0 if kind != "thread" else 0.05 if knot else 2.0
    await assert_forgotten(keep, collector=knot, within=within)
    assert len(coordinator.snapshot()) == 1
    assert_holds_no_frame(coordinator, kept, sys.modules["ephemerals.coordination.lifetime"]._busy)
    await outcome(kept[0][0])
    await coordinator.aclose()


class TestOtherEnds:
    """Ends that somebody else brings about."""

    @staticmethod
    def sleeper():
        async def body(item):
            local = [item]
            await asyncio.sleep(100)
            return len(local)

        return body

    @staticmethod
    async def check(make, end, *, body=None, then=None, **options):
        coordinator = make(body or TestOtherEnds.sleeper(), **(OPTIONS | options))

        async def use(item):
            operation = await coordinator.enqueue(item)
            del item
            await end(coordinator, operation)
            return operation, coordinator.snapshot(), coordinator.echoes()

        await assert_forgotten(use)
        if then is not None:
            await then(coordinator)
        await coordinator.aclose(grace=0)

    @every_coordinator
    async def test_cancelled_before_the_start(self, make):
        async def end(coordinator, operation):
            operation.cancel()

        await self.check(make, end)

    @every_coordinator
    async def test_cancelled_while_it_waits_behind_others(self, make):
        async def end(coordinator, operation):
            operation.cancel()

        coordinator = make(self.sleeper(), **OPTIONS)
        await coordinator.enqueue("first")
        await asyncio.sleep(1)

        async def use(item):
            operation = await coordinator.enqueue(item)
            del item
            operation.cancel()
            return operation

        await assert_forgotten(use)
        await coordinator.aclose(grace=0)

    @every_coordinator
    async def test_cancelled_while_running(self, make):
        async def end(coordinator, operation):
            await asyncio.sleep(1)
            operation.cancel()
            await coordinator.join()

        await self.check(make, end)

    @every_coordinator
    async def test_cancelled_while_running_and_waited_for(self, make):
        async def end(coordinator, operation):
            waiter = asyncio.ensure_future(outcome(operation))
            await asyncio.sleep(1)
            operation.cancel()
            await waiter

        await self.check(make, end)

    @every_coordinator
    async def test_timed_out(self, make):
        async def end(coordinator, operation):
            await coordinator.join()
            with pytest.raises(OperationTimeout):
                await operation

        await self.check(make, end, operation_timeout=1)

    @every_coordinator
    async def test_swallowing_its_cancellation(self, make):
        async def body(item):
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError as error:
                kept = error  # noqa: F841 - as careless as it gets
            return "done"

        async def end(coordinator, operation):
            await asyncio.sleep(1)
            operation.cancel()
            await coordinator.join()
            assert operation.status == "completed"

        # The body has tied the exception to its own frame: only the collector can undo that knot.
        coordinator = make(body, **OPTIONS)

        async def use(item):
            operation = await coordinator.enqueue(item)
            del item
            await end(coordinator, operation)
            return operation

        await assert_forgotten(use, collector=True)
        await coordinator.aclose()

    @every_coordinator
    async def test_dropped_for_a_newer_one(self, make):
        async def end(coordinator, operation):
            coordinator.pause()
            await coordinator.enqueue("newer")
            assert operation.status == "cancelled"

        await self.check(make, end, max_pending=1, overflow="drop_oldest")

    @every_coordinator
    async def test_refused(self, make):
        coordinator = make(self.sleeper(), max_pending=1, **OPTIONS)
        coordinator.pause()
        await coordinator.enqueue("first")

        async def use(item):
            assert coordinator.try_enqueue(item) is None
            del item
            return coordinator

        await assert_forgotten(use)
        await coordinator.aclose(grace=0)

    @every_coordinator
    async def test_given_up_while_waiting_for_room(self, make):
        coordinator = make(self.sleeper(), max_pending=1, **OPTIONS)
        coordinator.pause()
        await coordinator.enqueue("first")

        async def use(item):
            task = asyncio.ensure_future(coordinator.enqueue(item))
            del item
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.wait((task,))
            assert task.cancelled()
            return coordinator

        await assert_forgotten(use)
        await coordinator.aclose(grace=0)

    @every_coordinator
    async def test_refused_because_the_intake_was_closed(self, make):
        coordinator = make(self.sleeper(), **OPTIONS)
        coordinator.complete()

        async def use(item):
            with pytest.raises(CoordinatorClosed) as caught:
                await coordinator.enqueue(item)
            del caught, item
            return coordinator

        await assert_forgotten(use)

    @every_coordinator
    async def test_refused_because_the_intake_was_closed_while_it_waited_for_room(self, make):
        coordinator = make(self.sleeper(), max_pending=1, **OPTIONS)
        coordinator.pause()
        await coordinator.enqueue("first")

        async def use(item):
            task = asyncio.ensure_future(outcome(coordinator.enqueue(item)))
            del item
            await asyncio.sleep(1)
            coordinator.complete()
            await task
            return coordinator

        await assert_forgotten(use)
        await coordinator.aclose(grace=0)

    @every_coordinator
    async def test_cancelled_with_everything(self, make):
        async def end(coordinator, operation):
            await asyncio.sleep(1)
            await coordinator.cancel()

        await self.check(make, end)

    @every_coordinator
    async def test_closed_while_pending(self, make):
        async def end(coordinator, operation):
            coordinator.pause()
            await coordinator.aclose(grace=0)

        await self.check(make, end)

    @every_coordinator
    async def test_drained_while_pending(self, make):
        async def end(coordinator, operation):
            await coordinator.drain()
            assert operation.status == "completed"

        await self.check(make, end)

    @every_coordinator
    async def test_left_behind_by_a_deadlock(self, make):
        async def body(item):
            await box[0].run("child")

        async def end(coordinator, operation):
            await outcome(operation)
            assert operation.error.type == f"{DeadlockError.__module__}.DeadlockError"
            await coordinator.cancel()

        box = []

        def making(body, **options):
            box.append(make(body, **options))
            return box[0]

        await self.check(making, end, body=body)

    async def test_skipped_because_of_a_signal(self):
        signals = pytest.importorskip("ephemerals.signals")
        sink = signals.SignalSink()
        sink.emit("stop")

        async def end(coordinator, operation):
            await coordinator.join()
            assert operation.status == "skipped"

        for make in EVERY.values():
            await self.check(make, end, signals=sink, cancel_on_signals="stop")

    async def test_a_thread_that_is_cancelled_forgets_when_it_returns(self):
        released, started = threading.Event(), threading.Event()

        def body(item):
            started.set()
            released.wait(10)
            return len([item])

        for make in EVERY.values():
            released.clear()
            started.clear()
            coordinator = make(body, **OPTIONS)

            async def use(item, coordinator=coordinator):
                operation = await coordinator.enqueue(item)
                del item
                while not started.is_set():
                    time.sleep(0.001)  # noqa: ASYNC251 - a thread needs real time
                    await asyncio.sleep(0)
                operation.cancel()
                await asyncio.sleep(0)
                released.set()
                await coordinator.join()
                assert operation.status == "cancelled"
                return operation, coordinator.snapshot()

            await assert_forgotten(use, within=2.0)
            await coordinator.aclose()

    async def test_a_process_forgets_what_was_sent(self):
        async with WorkCoordinator(str, run_in="process", max_concurrency=1) as coordinator:

            async def use(item):
                operation = await coordinator.enqueue(item)
                del item
                await coordinator.join()
                return operation

            await assert_forgotten(use, within=5.0)


class TestMeanwhile:
    async def test_an_item_is_let_go_before_its_body_is_waited_for_again(self):  # report R66
        async def body(item):
            del item
            await asyncio.sleep(100)

        async with WorkCoordinator(body) as coordinator:

            async def use(item):
                operation = await coordinator.enqueue(item)
                del item
                await asyncio.sleep(1)
                assert operation.status == "running"
                return operation

            await assert_forgotten(use)
            await coordinator.cancel()

    async def test_the_last_of_a_batch_is_let_go_while_the_pump_is_idle(self):
        async def body(item):
            await asyncio.sleep(1)

        for make in EVERY.values():
            coordinator = make(body, **OPTIONS)
            for _ in range(3):
                await coordinator.enqueue(Payload())
            await coordinator.join()
            await VirtualClock.current().settle()
            assert not [each for each in reachable(coordinator) if isinstance(each, Payload)]
            await coordinator.aclose()


class TestText:
    """What is shown of an operation shows nothing of its item."""

    @pytest.mark.parametrize("detail", ["type", "message", "exception"])
    @every_coordinator
    async def test_no_text_of_the_library_shows_the_item(self, make, detail, caplog):
        caplog.set_level(0)

        async def body(item):
            if detail == "type":
                raise Failure(item.secret)
            raise Failure

        payload = Payload()
        async with make(body, error_detail=detail, max_tracked_operations=1, **OPTIONS) as coordinator:
            operations = [await coordinator.enqueue(payload, metadata={"language": "es"}) for _ in range(2)]
            await coordinator.join()
            shown = [
                coordinator,
                coordinator.statistics(),
                coordinator.snapshot(),
                coordinator.echoes(),
                coordinator.timeline(),
                *operations,
                *[str(each.error) for each in coordinator.failed()],
                await coordinator.drain(),
                caplog.text,
                json.dumps([each.to_dict() for each in coordinator.snapshot()]),
            ]
        assert payload.secret not in "\n".join(map(repr, shown))

    async def test_errors_about_operations_do_not_show_the_item(self):
        async def body(item):
            await asyncio.sleep(100)

        payload = Payload()
        async with WorkCoordinator(body, operation_timeout=1, max_pending=1, overflow="reject") as coordinator:
            coordinator.pause()
            operation = await coordinator.enqueue(payload)
            with pytest.raises(Exception, match="is full") as full:
                await coordinator.enqueue(payload)
            coordinator.resume()
            with pytest.raises(OperationError) as timeout:
                await operation
            operation = await coordinator.enqueue(payload)
            operation.cancel()
            with pytest.raises(OperationCancelled) as cancelled:
                await operation
        for each in (full, timeout, cancelled):
            assert payload.secret not in str(each.value)


async def test_a_result_coordinator_keeps_the_result_on_purpose_and_the_item_not():
    async def body(item):
        return [item.secret]

    async with ResultCoordinator(body, **OPTIONS) as coordinator:

        async def use(item):
            operation = await coordinator.enqueue(item)
            del item
            await coordinator.join()
            return operation, coordinator.results()

        await assert_forgotten(use)
        assert coordinator.results()[0][0].startswith("secret-")


async def test_a_large_local_of_a_failing_body_is_freed_at_once():  # report R64
    sizes = []

    class Large(bytearray):
        def __del__(self):
            sizes.append(len(self))

    async def body(_item):
        large = Large(10_000_000)
        raise Failure(len(large))

    gc.disable()
    try:
        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue(1)
            await coordinator.join()
            assert sizes == [10_000_000]
            assert operation.error.type.endswith("Failure")
    finally:
        gc.enable()
