"""An async stream that feeds a coordinator: pulled by one task, as fast as there is room, and closed by it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterable
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any

from ephemerals.errors import CoordinatorClosed, InvalidOptionType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ephemerals.operation import Operation

    from .engine import Engine

__all__ = ["Feeder", "closing_source"]


class Feeder:
    """Pull items from a source and enqueue them, until the source ends or the intake is closed.

    An item that has been pulled is never lost: if the intake closes meanwhile it is accepted all the same, and
    cancelled if everything is. The source's own error is kept in `error`.
    """

    __slots__ = ("_discards", "_engine", "_has_ended", "_make", "_source", "_task", "error")

    def __init__(self, engine: Engine, source: AsyncIterable[Any], make: Callable[[Any], Operation[Any]]) -> None:
        if not isinstance(source, AsyncIterable):
            raise InvalidOptionType("source", source, "an async iterable, such as an async generator")
        self._engine = engine
        self._source = source
        self._make = make
        self._task: asyncio.Task[None] | None = None
        self._has_ended = False
        self._discards = False
        self.error: BaseException | None = None
        engine.listen(on_closed=self._stop)

    def start(self) -> None:
        """Begin to pull, in the running loop; once only."""
        if self._task is None:
            loop = self._engine.bind()
            self._task = loop.create_task(self._feed(), name=f"ephemerals source of {self._engine.name}")

    def discard(self) -> None:
        """Cancel what has been pulled and not accepted yet, when the intake closes."""
        self._discards = True

    async def wait(self, within: float | None = None) -> bool:
        """Wait until the source has ended, for at most `within` seconds; tell whether it has."""
        self.start()
        assert self._task is not None
        done, _ = await asyncio.wait((self._task,), timeout=within)
        return bool(done)

    def take_error(self) -> BaseException | None:
        """Return the source's error, once."""
        error, self.error = self.error, None
        return error

    def _stop(self) -> None:
        if self._task is not None and not self._has_ended:
            self._task.cancel()

    async def _feed(self) -> None:
        try:
            async with closing_source(self._source) as items:
                async for item in items:
                    await self._hand_over(item)
                    if self._engine.is_closed:
                        break
        except asyncio.CancelledError:
            pass  # the intake was closed, or the loop is going away
        except Exception as error:  # noqa: BLE001 - a source may raise anything; drain() raises it
            self.error = error
        finally:
            self._has_ended = True
            self._source = _exhausted()
            self._engine.complete()

    async def _hand_over(self, item: Any) -> None:
        operation = contextvars.Context().run(self._make, item)
        try:
            await self._engine.enqueue(operation)
        except (CoordinatorClosed, asyncio.CancelledError):
            self._engine.accept(operation)
            if self._discards:
                operation.cancel()
            raise asyncio.CancelledError from None


async def _exhausted() -> AsyncIterator[Any]:
    return
    yield


def closing_source(source: AsyncIterable[Any]) -> Any:
    """Return a context manager that gives an iterator over a source and closes it on leaving, if it can be closed."""
    iterator = aiter(source)
    if hasattr(iterator, "aclose"):
        return aclosing(iterator)
    return _NotClosing(iterator)


class _NotClosing(AsyncExitStack):
    """Give an iterator that has nothing to close."""

    def __init__(self, iterator: AsyncIterator[Any]) -> None:
        super().__init__()
        self._iterator = iterator

    async def __aenter__(self) -> Any:
        return self._iterator
