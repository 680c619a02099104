"""Results of a body over a whole collection, as an async iterator that leaves nothing running behind."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Self, TypeVar, overload

from ephemerals.options import as_choice, as_flag
from ephemerals.snapshot import OperationStatus

from .oneshot import OneShot
from .source import log_error

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterable, Iterable
    from types import TracebackType
    from typing import Unpack

    from ephemerals.operation import Operation
    from ephemerals.options import EphemeralOptions, OptionKeywords

    from .body import AsyncBody, PlainBody
    from .coordinator import KeySelector

__all__ = ["MappedResults", "map_each"]

T = TypeVar("T")
R = TypeVar("R")


@overload
def map_each(
    items: Iterable[T] | AsyncIterable[T],
    body: AsyncBody[T, R],
    *,
    ordered: bool = False,
    key: KeySelector[T] | None = None,
    errors: Literal["raise", "skip"] = "raise",
    options: EphemeralOptions | None = None,
    **keywords: Unpack[OptionKeywords],
) -> MappedResults[R]: ...


@overload
def map_each(
    items: Iterable[T] | AsyncIterable[T],
    body: PlainBody[T, R],
    *,
    ordered: bool = False,
    key: KeySelector[T] | None = None,
    errors: Literal["raise", "skip"] = "raise",
    options: EphemeralOptions | None = None,
    **keywords: Unpack[OptionKeywords],
) -> MappedResults[R]: ...


def map_each(  # noqa: PLR0913 - each is a choice of its own, with a default
    items: Iterable[T] | AsyncIterable[T],
    body: Any,
    *,
    ordered: bool = False,
    key: KeySelector[T] | None = None,
    errors: Literal["raise", "skip"] = "raise",
    options: EphemeralOptions | None = None,
    **keywords: Unpack[OptionKeywords],
) -> MappedResults[Any]:
    """Run a body over all items, so many at once; iterate over the results in an `async with` block.

    Results come as bodies complete, or with `ordered=True` in the order of the items. Either way bodies start in
    that order, and a slow one holds up nobody: an item is pulled while fewer than `max_concurrency` + `max_pending`
    are outstanding, that is waiting, running, or ended and not yet taken. By default `max_pending` is twice the
    concurrency and at least 64. With `key` the order within each key is kept. Every option of a coordinator is
    understood, except an `overflow` other than `"wait"`.

    With `errors="raise"` a failure is raised by the iterator in its place: the original exception without its
    traceback, which a note replaces; `OperationCancelled` or `OperationSkipped` if that is what became of an item.
    Whoever catches it inside the block can iterate on. `"skip"` passes over everything that did not complete. If the
    source (or `key`) raises, the results of the accepted items come first, then its error.

    Leaving the block, early or not, cancels what still runs and waits for it, for 5 seconds at most, and closes the
    source, in the task that reads it.

    >>> import asyncio
    >>> async def double(number: int) -> int:
    ...     return number * 2
    >>> async def main() -> None:
    ...     async with map_each(range(3), double, ordered=True, max_concurrency=8) as doubled:
    ...         print([number async for number in doubled])
    >>> asyncio.run(main())
    [0, 2, 4]
    """
    chosen = as_choice("errors", errors, ("raise", "skip"))
    line: type[_Line] = _OrderedLine if as_flag("ordered", ordered) else _Line
    return MappedResults(
        line(items, body, key=key, options=options, keywords=keywords), passes_over_failures=chosen == "skip"
    )


class MappedResults(Generic[R]):
    """Yield the results of a `map_each`, inside its `async with` block, to one reader."""

    __slots__ = ("_line", "_passes_over_failures", "_state")

    def __init__(self, line: _Line, *, passes_over_failures: bool) -> None:
        self._line = line
        self._passes_over_failures = passes_over_failures
        self._state: Literal["new", "open", "left"] = "new"

    async def __aenter__(self) -> Self:
        """Begin to pull items and to run bodies; once only."""
        if self._state != "new":
            message = "these results have been iterated already: call map_each() again"
            raise RuntimeError(message)
        self._line.start()
        self._state = "open"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Cancel what still runs, close the source and wait for both."""
        self._state = "left"
        line = self._line
        try:
            await line.abort()
        finally:
            await line.leave()
        late, line.late_error = line.late_error, None
        if (unseen := line.feeder.take_error()) is not None:
            log_error(line.name, unseen)
        if late is not None and kind is None:
            try:
                raise late
            finally:
                del late, line
        if late is not None:
            log_error(line.name, late)

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> R:
        """Return the next result, waiting for it."""
        if self._state == "new":
            message = "use it in a block: 'async with map_each(...) as results'"
            raise RuntimeError(message)
        if self._state == "left":
            message = "the block of these results has been left, and the rest was let go: iterate inside the block"
            raise RuntimeError(message)
        line = self._line
        while self._state == "open":
            if (operation := line.take()) is not None:
                if self._passes_over_failures and operation.status is not OperationStatus.COMPLETED:
                    continue
                result: R = operation._unwrap()
                return result
            if line.is_over:
                if (error := line.feeder.take_error()) is not None:
                    try:
                        raise error
                    finally:
                        del error
                break
            await line.wait()
        raise StopAsyncIteration


class _Line(OneShot[Any, Any]):
    """Hold the operations that have ended and were not taken yet, in the order they ended."""

    _example = "map_each(items, {})"

    def __init__(self, *arguments: Any, **rest: Any) -> None:
        super().__init__(*arguments, **rest)
        waiting = self.options.max_pending
        self._most: Final = math.inf if waiting is None else self.options.max_concurrency + waiting
        self._taken = 0
        self._ready: deque[Operation[Any]] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._feeder_waits: asyncio.Future[None] | None = None
        self.late_error: BaseException | None = None

    def take(self) -> Operation[Any] | None:
        """Take the next operation that has ended; `None` if the next has not ended yet."""
        operation = self._next()
        if operation is not None:
            self._taken += 1
            if self._feeder_waits is not None and not self._feeder_waits.done():
                self._feeder_waits.set_result(None)
        return operation

    async def wait(self) -> None:
        """Wait until there is something to take, or nothing more will come."""
        if self._reader is not None:
            message = "results of map_each have one reader, and another task waits for the next one"
            raise RuntimeError(message)
        self._reader = self.engine.bind().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    async def leave(self) -> None:
        """Let go of what was not taken, too, and send a reader away who still waits."""
        self._ready.clear()
        self._wake()
        await super().leave()

    def settle(self) -> None:
        """Wake the reader."""
        self._wake()

    async def _gate(self) -> None:
        while self.engine.counts.enqueued - self._taken >= self._most:
            self._feeder_waits = self.engine.bind().create_future()
            try:
                await self._feeder_waits
            finally:
                self._feeder_waits = None

    def _next(self) -> Operation[Any] | None:
        return self._ready.popleft() if self._ready else None

    def _ended(self, operation: Operation[Any]) -> None:
        self._ready.append(operation)
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _on_late_error(self, error: BaseException) -> None:
        if self.late_error is None:
            self.late_error = error
        else:
            super()._on_late_error(error)


class _OrderedLine(_Line):
    """Hold all operations that were not taken yet, in the order of their items."""

    def _new(self, *arguments: Any, **rest: Any) -> Operation[Any]:
        operation = super()._new(*arguments, **rest)
        self._ready.append(operation)
        return operation

    def _next(self) -> Operation[Any] | None:
        return self._ready.popleft() if self._ready and self._ready[0].has_ended else None

    def _ended(self, operation: Operation[Any]) -> None:
        if self._ready and self._ready[0] is operation:
            self._wake()
