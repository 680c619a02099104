"""Plain functions in threads that belong to one coordinator, and what such threads have in common with processes.

A thread cannot be stopped from outside. So an operation that is cancelled or runs out of time keeps its slot, in the
state `cancelling`, until its function has returned; `operation.stop_requested` lets the function leave early.

A function's arguments travel in a box that the thread empties, and are gone before the loop hears of the end.
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Final

from ephemerals.errors import InvalidBody
from ephemerals.snapshot import OperationStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemerals.operation import Operation

__all__ = ["Pool", "ThreadPool", "busy_workers", "call_emptying"]

_busy: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, int]] = weakref.WeakKeyDictionary()

_Settle = "Callable[[Any, BaseException | None], None]"


def busy_workers(loop: asyncio.AbstractEventLoop) -> int:
    """Return how many plain functions run in threads and processes for the coordinators of a loop.

    A virtual clock asks this, because time must not jump while something real is going on. It is counted by loop,
    because a function that outlives its loop can no longer report its end.
    """
    return _busy.get(loop, 0)


class Pool:
    """Run plain functions elsewhere and await them; the subclass says where."""

    __slots__ = ("_executor", "_loop", "_size")

    def __init__(self) -> None:
        self._executor: Executor | None = None
        self._size = 0

    async def run(self, operation: Operation[Any], size: int, function: Callable[..., Any], box: list[Any]) -> Any:
        """Call `function(*box)` in one of at most `size` workers; return or raise what it does.

        If the operation is asked to stop meanwhile, wait all the same, then raise `CancelledError` unless the
        function raised.
        """
        loop = asyncio.get_running_loop()
        outcome: list[Any] = []
        waiter: asyncio.Future[None] | None = None

        def settle(result: Any, error: BaseException | None) -> None:
            _busy[loop] -= 1
            outcome.extend((result, error))
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

        if self._executor is None or size > self._size:
            self.shutdown()
            self._executor = self._make(size)
            self._size = size
        _busy[loop] = _busy.get(loop, 0) + 1
        try:
            self._submit(loop, function, box, settle, operation.id)
        except BaseException:
            _busy[loop] -= 1
            raise
        stopped = False
        while not outcome:
            waiter = loop.create_future()
            try:
                await waiter
            except asyncio.CancelledError:
                stopped = True
                operation._status = OperationStatus.CANCELLING
                operation._stop = operation._stop or "cancelled"
        result, error = outcome
        outcome.clear()
        if error is not None:
            if isinstance(error, BrokenExecutor):
                self.shutdown()  # the next call gets a new one
            try:
                raise error
            finally:
                del error
        if stopped:
            raise asyncio.CancelledError
        return result

    def shutdown(self) -> None:
        """Let the workers go once they are done; a later call makes new ones."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
        self._executor = None

    def _make(self, size: int) -> Executor:
        raise NotImplementedError

    def _submit(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[..., Any],
        box: list[Any],
        settle: Any,
        operation_id: int,
    ) -> None:
        raise NotImplementedError


class ThreadPool(Pool):
    """Run functions in threads, each in a copy of the operation's context."""

    __slots__ = ()

    def _make(self, size: int) -> Executor:
        return ThreadPoolExecutor(max_workers=size, thread_name_prefix="ephemerals")

    def _submit(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[..., Any],
        box: list[Any],
        settle: Any,
        operation_id: int,  # noqa: ARG002 - processes need it
    ) -> None:
        assert self._executor is not None
        self._executor.submit(_call, loop, contextvars.copy_context(), function, box, settle)


def _call(
    loop: asyncio.AbstractEventLoop,
    context: contextvars.Context,
    function: Callable[..., Any],
    box: list[Any],
    settle: Callable[[Any, BaseException | None], None],
) -> None:
    """Run in a thread: call the function with what is in the box, and tell the loop."""
    result: Any = None
    failure: BaseException | None = None
    try:
        result = context.run(call_emptying, function, box)
    except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the operation
        failure = error
    try:
        loop.call_soon_threadsafe(settle, result, failure)
    except RuntimeError:
        pass  # the loop has gone, and with it everybody who could have been told
    finally:
        del result, failure  # the failure's traceback holds this frame


def call_emptying(function: Callable[..., Any], box: list[Any]) -> Any:
    """Call a function with what is in the box, leaving the box empty."""
    arguments, keywords = box
    box.clear()
    try:
        result = function(*arguments, **keywords)
    except (StopIteration, StopAsyncIteration) as error:
        message = f"the body raised {type(error).__name__}"
        raise RuntimeError(message) from error
    if iscoroutine(result):
        result.close()
        message = (
            f"{getattr(function, '__qualname__', function)!s} is a plain function that returned a coroutine, "
            "which nobody would await: use an async def"
        )
        raise InvalidBody(message)
    return result
