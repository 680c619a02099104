"""The task of an operation: started in the caller's context, eagerly where Python can, within its time limit.

A task of its own for each operation, never a worker that is used again: whatever a body, or a library below it, ties
to `asyncio.current_task()` (cancellation, time-outs, task groups, sessions) belongs to this operation and no other.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import Task
from typing import TYPE_CHECKING, Any, Final

from ephemerals.errors import OperationTimeout
from ephemerals.ids import format_id
from ephemerals.operation import _current
from ephemerals.snapshot import OperationStatus

from .deadlines import Deadlines
from .pools import ThreadPool
from .retrying import mark_retried

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemerals.operation import Operation

    from .engine import Engine
    from .pools import Pool

__all__ = ["Execution", "raise_in_loop"]

_RUNNING: Final = OperationStatus.RUNNING
_COMPLETED: Final = OperationStatus.COMPLETED
_CANCELLED: Final = OperationStatus.CANCELLED

_TIMED_OUT: Final = "timed out"


class Execution:
    """Run operations, each in its task, and hand what comes out of them to the settlement."""

    __slots__ = (
        "_engine",
        "_function",
        "_is_async",
        "_is_retried",
        "_starting",
        "_takes_operation",
        "_task_factory",
        "_task_name",
        "_window",
        "deadlines",
        "pool",
    )

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._window = engine.window
        self._function = engine.body.function
        self._is_async = engine.body.kind == "async"
        self._takes_operation = engine.body.takes_operation
        self._is_retried = engine.options.retry is not None
        self._task_name = f"ephemerals {engine.name}"
        self._starting: list[Operation[Any]] = []
        self._task_factory: object = None
        self.deadlines = Deadlines(engine.options.clock, self._time_out)
        self.pool: Pool = _process_pool() if engine.body.kind == "process" else ThreadPool()

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Get ready to start some operations on a loop."""
        self._task_factory = loop.get_task_factory()
        if self._starting:
            self._check_started()

    @property
    def is_starting(self) -> bool:
        """Tell whether there are tasks that have not begun, and have to be looked at again."""
        return bool(self._starting)

    def start(self, operation: Operation[Any], loop: asyncio.AbstractEventLoop) -> None:
        """Start an operation that is pending; if it can begin at once, its body runs before this returns."""
        engine, window = self._engine, self._window
        running, admission, operation_id = window.running, engine.admission, operation.id
        del window.pending[operation_id]
        running[operation_id] = operation
        operation._status = _RUNNING
        operation._draft._started = engine.clock.monotonic()
        if admission.line or admission.parked:
            admission.left(operation)
        if operation._timeout is not None:
            self.deadlines.add(operation, operation._timeout, loop, engine.context)
        if engine.retrying is not None:
            engine.retrying.begin(operation)
        coroutine, context = self._drive(operation), operation._context
        try:
            if sys.version_info >= (3, 12) and self._task_factory is None:
                task = Task(coroutine, loop=loop, name=self._task_name, context=context, eager_start=True)
            else:
                task = loop.create_task(coroutine, name=self._task_name, context=context)
        except Exception as error:  # noqa: BLE001 - a task factory of the user may raise anything
            coroutine.close()
            engine.settlement.fail(operation, error)
            return
        if operation_id in running:
            operation._task = task
            if operation._context is not None:
                self._starting.append(operation)
            elif operation._stop is not None:
                task.cancel()

    def stop(self, operation: Operation[Any], reason: str) -> None:
        """Ask a running operation to stop, if nobody has; a task that has not begun finds that out by itself."""
        if operation._stop is None:
            operation._stop = reason
        if operation._task is not None and operation._context is None:
            operation._task.cancel()

    async def run_plain(self, operation: Operation[Any], function: Callable[..., Any], box: list[Any]) -> Any:
        """Run a plain function, with the arguments in the box, in this engine's own threads or processes."""
        engine = self._engine
        return await self.pool.run(operation, max(engine.limit, len(self._window.running)), function, box)

    def abandon(self) -> None:
        """Forget tasks, threads and time limits: their loop is closed."""
        self._starting.clear()
        self.pool.shutdown()
        self.deadlines.disarm()

    def _check_started(self) -> None:
        """End operations whose task was cancelled by a stranger before its first step.

        Such a task is done and has never run a line of `_drive`. Others are looked at again by the next pump.
        """
        starting, self._starting = self._starting, []
        for operation in starting:
            if operation._context is None or operation._draft._finished is not None:
                continue
            if operation._task is None or operation._task.done():
                self._engine.settlement.end(operation, _CANCELLED, None)
            else:
                self._starting.append(operation)

    async def _drive(self, operation: Operation[Any]) -> None:
        """Be the task of one operation: run the body and settle what comes out of it, whatever it is."""
        settlement = self._engine.settlement
        operation._context = None
        if operation._stop is not None:
            self._stopped(operation, asyncio.CancelledError())
            return
        _current.set((self._window.running, operation.id))
        if self._is_retried:
            mark_retried()
        try:
            item = operation._item
            operation._item = None
            if self._is_async:
                call = self._function(item, operation) if self._takes_operation else self._function(item)
                del item
                result = await call
            else:
                box: list[Any] = [(item, operation) if self._takes_operation else (item,), {}]
                del item
                result = await self.run_plain(operation, self._function, box)
        except asyncio.CancelledError as error:
            self._stopped(operation, error)
        except (KeyboardInterrupt, SystemExit) as error:
            settlement.fail(operation, error, travels_on=True)
            raise_in_loop(asyncio.get_running_loop(), error)
        except StopAsyncIteration as error:
            failure = RuntimeError("the body raised StopAsyncIteration")
            failure.__cause__ = error
            settlement.fail(operation, failure.with_traceback(error.__traceback__))
            del failure
        except GeneratorExit:
            if self._engine.is_orphaned:
                operation._waiters = None  # nobody can be told
                self._engine.waits.abandon()
            settlement.end(operation, _CANCELLED, "its event loop went away")
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a body raises belongs to its operation
            settlement.fail(operation, error)
        else:
            settlement.end(operation, _COMPLETED, result)

    def _stopped(self, operation: Operation[Any], error: asyncio.CancelledError) -> None:
        """Settle an operation whose body was cancelled, by its handle, by the clock, or by a stranger."""
        settlement = self._engine.settlement
        if operation._stop is _TIMED_OUT:
            limit = operation._timeout or 0.0
            message = f"operation {format_id(operation.id)} ({operation.name}) ran longer than {limit:g} seconds"
            failure = OperationTimeout(message, operation.id, limit)
            settlement.fail(operation, failure.with_traceback(error.__traceback__))
        else:
            error.__traceback__ = None  # a body may have tied it into a cycle
            settlement.end(operation, _CANCELLED, None)

    def _time_out(self, operation: Operation[Any]) -> None:
        self.stop(operation, _TIMED_OUT)


def raise_in_loop(loop: asyncio.AbstractEventLoop, error: BaseException) -> None:
    """Let an exception that is meant for the whole program, not for an operation, out of the loop."""
    loop.call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error


def _process_pool() -> Pool:
    from .process_pool import ProcessPool  # with multiprocessing, for those who use processes

    return ProcessPool()
