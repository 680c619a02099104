"""A source that feeds a coordinator: pulled by one task, as fast as there is room, and closed by that task."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ephemerals.errors import CoordinatorClosed, InvalidOptionType
from ephemerals.failure import qualified_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ephemerals.operation import Operation

    from .engine import Engine

__all__ = ["Feeder", "log_error", "pull"]

T = TypeVar("T")

_logger: Final = logging.getLogger("ephemerals")


class Feeder:
    """Pull items from a source, an iterable of either kind, and enqueue them, until it ends or the intake is closed.

    `make` turns an item into an operation. `gate`, if given, is awaited before each pull but the first. An item that
    has been pulled is never lost: if the intake closes while it waits for room it is accepted all the same, and
    cancelled if everything is.

    The first error of the source, or of closing it, is kept in `error`. One that comes after `stop` was not the
    reason for anything any more, nor is a second one: it goes to `on_late_error`, which by default logs its type.
    """

    __slots__ = ("_discards", "_engine", "_gate", "_make", "_on_late_error", "_source", "_stopped", "_task", "error")

    def __init__(
        self,
        engine: Engine,
        source: Iterable[Any] | AsyncIterable[Any],
        make: Callable[[Any], Operation[Any]],
        *,
        gate: Callable[[], Awaitable[None]] | None = None,
        on_late_error: Callable[[BaseException], object] | None = None,
    ) -> None:
        self._engine = engine
        self._source = source
        self._make = make
        self._gate = gate
        self._on_late_error = on_late_error or partial(log_error, engine.name)
        self._task: asyncio.Task[None] | None = None
        self._discards = False
        self._stopped = False
        self.error: BaseException | None = None
        engine.listen(on_closed=self._stop)

    def start(self) -> asyncio.Task[None]:
        """Begin to pull, in the running loop, once only; return the task."""
        if self._task is None:
            loop = self._engine.bind()
            self._task = loop.create_task(self._feed(), name=f"ephemerals source of {self._engine.name}")
        return self._task

    def discard(self) -> None:
        """Cancel what has been pulled and not accepted yet, when the intake is closed."""
        self._discards = True

    def _stop(self) -> None:
        """Pull no more, because the intake is closed; the task closes the source."""
        if self._task is not None and not self._stopped:
            self._stopped = True
            if not self._task.get_loop().is_closed():
                self._task.cancel()

    async def wait(self, within: float | None = None) -> bool:
        """Wait until the source has ended, for at most `within` seconds; tell whether it has.

        A source that was left to another loop, or to the process this one was forked from, has.
        """
        if self.start().get_loop() is not asyncio.get_running_loop():
            return True
        done, _ = await asyncio.wait((self.start(),), timeout=within)
        return bool(done)

    def take_error(self) -> BaseException | None:
        """Return the source's error, once."""
        error, self.error = self.error, None
        return error

    async def _feed(self) -> None:
        source, self._source = self._source, ()
        try:
            await pull(source, self._hand_over, self._on_late_error)
        except asyncio.CancelledError as error:
            if not self._stopped:
                failure = RuntimeError("the source raised CancelledError although it was not cancelled")
                failure.__cause__ = error
                self._failed(failure)
        except (KeyboardInterrupt, SystemExit, GeneratorExit) as error:
            self._failed(error)
            raise
        except BaseException as error:  # noqa: BLE001 - a source may raise anything; whoever drains raises it
            self._failed(error)
        finally:
            self._stopped = True
            self._engine.complete()

    def _failed(self, error: BaseException) -> None:
        if self._stopped:
            self._on_late_error(error)
        else:
            self.error = error

    async def _hand_over(self, item: Any) -> bool:
        """Enqueue an item, wait for the gate, and tell whether to pull another."""
        operation = self._make(item)
        del item
        try:
            if not self._engine.admit(operation):
                await self._engine.enqueue(operation)
        except (CoordinatorClosed, asyncio.CancelledError) as error:
            self._engine.accept(operation)
            if self._discards:
                operation.cancel()
            if isinstance(error, asyncio.CancelledError):
                raise
        if self._gate is not None:
            await self._gate()
        return not self._engine.is_closed


def log_error(coordinator: str, error: BaseException) -> None:
    """Log the type of a source's error that nobody else will hear of."""
    _logger.warning("the source of coordinator %s raised %s", coordinator, qualified_name(type(error)))


async def pull(
    source: Iterable[T] | AsyncIterable[T],
    take: Callable[[T], Awaitable[bool]],
    on_second_error: Callable[[BaseException], object],
) -> None:
    """Give each item to `take` until that returns False; close the source whatever happens, in the same task.

    No item is held while waiting for the next. A plain iterator is closed only if it is a generator: a file, say,
    belongs to whoever opened it. If closing raises after another exception, that one counts, and the second is
    given to `on_second_error`.
    """
    iterator: Any
    if is_async := isinstance(source, AsyncIterable):
        iterator = aiter(source)
    elif isinstance(source, Iterable):
        iterator = iter(source)
    else:
        raise InvalidOptionType("items", f"<{type(source).__qualname__}>", "an iterable or an async iterable")
    del source
    async with _Closing(iterator, on_second_error):
        if is_async:
            async for item in iterator:
                taken = take(item)
                del item
                if not await taken:
                    return
        else:
            for item in iterator:
                taken = take(item)
                del item
                if not await taken:
                    return


class _Closing:
    """Close an iterator at the end of a block."""

    __slots__ = ("_iterator", "_on_second_error")

    def __init__(self, iterator: Any, on_second_error: Callable[[BaseException], object]) -> None:
        self._iterator = iterator
        self._on_second_error = on_second_error

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is GeneratorExit:
            return  # the loop has gone: nothing can be awaited any more
        try:
            if hasattr(self._iterator, "aclose"):
                await self._iterator.aclose()
            elif inspect.isgenerator(self._iterator):
                self._iterator.close()
        except Exception as error:
            if kind is None:
                raise
            self._on_second_error(error)
