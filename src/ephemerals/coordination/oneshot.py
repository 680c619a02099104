"""One run over one source, as `for_each` and `map_each` make it: a coordinator that is fed, watched and left behind.

It pulls lazily, is bounded in time when it is left, and has one outcome whatever comes together: the caller's own
cancellation counts most, then whatever happened first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ephemerals.errors import InvalidOption, InvalidOptionType
from ephemerals.options import EphemeralOptions

from .coordinator import Coordinator
from .keyed import keyed_schedule
from .schedule import FifoSchedule
from .source import Feeder, log_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemerals.operation import Operation
    from ephemerals.options import OptionKeywords

    from .coordinator import KeySelector

__all__ = ["OneShot"]

T = TypeVar("T")
R = TypeVar("R")

_logger: Final = logging.getLogger("ephemerals")
_CANCEL_GRACE: Final = 5.0
_FEW_PENDING: Final = 64


class OneShot(Coordinator[T, R]):
    """Run a body over the items of one source; the subclass says what to do with what ends.

    `settled` is resolved when everything has ended, or when the subclass has seen enough (`settle`).
    """

    settled: asyncio.Future[None]
    feeding: asyncio.Task[None]

    def __init__(
        self,
        items: Iterable[T] | AsyncIterable[T],
        body: Callable[..., Any],
        *,
        key: KeySelector[T] | None,
        options: EphemeralOptions | None,
        keywords: OptionKeywords,
    ) -> None:
        _check(items)
        chosen = _chosen(options, keywords)
        super().__init__(
            body, (lambda _: FifoSchedule()) if key is None else keyed_schedule, options=chosen, keywords={}, key=key
        )
        self._feeder = self.feeder = Feeder(
            self.engine,
            items,
            lambda item: self._new(item, None),
            gate=self._gate,
            on_late_error=self._on_late_error,
        )

    def start(self) -> None:
        """Begin to pull, in a copy of the caller's context."""
        self.settled = self.engine.bind().create_future()
        self._stop_listening = self.engine.listen(on_end=self._on_operation_end)
        self.feeding = self.feeder.start()
        self.feeding.add_done_callback(self._on_feeding_end)

    @property
    def is_over(self) -> bool:
        """Tell whether the source has ended and been closed, and every operation has ended."""
        return self.feeding.done() and self.engine.is_idle

    def settle(self) -> None:
        """Wake whoever waits for `settled`."""
        if not self.settled.done():
            self.settled.set_result(None)

    async def abort(self) -> None:
        """Cancel everything and wait until it has ended, but not for ever.

        If the caller is cancelled meanwhile, raise `CancelledError`, but only then.
        """
        self._cancel_everything()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _CANCEL_GRACE
        cancelled: asyncio.CancelledError | None = None
        while not self.is_over and (rest := deadline - loop.time()) > 0:
            try:
                if self.engine.is_idle:
                    await asyncio.wait((self.feeding,), timeout=rest)
                else:
                    await self.engine.wait_idle(rest)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            try:
                raise cancelled
            finally:
                del cancelled

    async def leave(self) -> None:
        """Let go of everything; what has not ended by now is named in the log."""
        self._stop_listening()
        if not self.feeding.done():
            _logger.warning("the source of coordinator %s does not let itself be closed", self.name)
        await self.engine.close(0, 0)

    def _on_feeding_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # has been taken note of
        self._check()

    def _on_operation_end(self, operation: Operation[R]) -> None:
        self._ended(operation)
        self._check()

    def _check(self) -> None:
        if self.is_over:
            self.settle()

    async def _gate(self) -> None:
        """Wait until another item may be pulled; room in the queue is waited for elsewhere."""

    def _ended(self, operation: Operation[R]) -> None:
        """Take note of an operation that has ended."""
        raise NotImplementedError

    def _on_late_error(self, error: BaseException) -> None:
        """Take note of an error of the source that comes too late to be the outcome."""
        log_error(self.name, error)


def _chosen(options: EphemeralOptions | None, keywords: OptionKeywords) -> EphemeralOptions:
    """Return the options with those defaults that suit a run: few items ahead, and the exceptions themselves."""
    chosen = EphemeralOptions.of(options, keywords)
    if chosen.overflow != "wait":
        allowed = "'wait', because items are pulled only when there is room for them"
        raise InvalidOption("overflow", chosen.overflow, allowed)
    if options is None and "max_pending" not in keywords:
        chosen = chosen.replace(max_pending=max(_FEW_PENDING, 2 * chosen.max_concurrency))
    if options is None and "error_detail" not in keywords:
        chosen = chosen.replace(error_detail="exception")
    return chosen


def _check(items: object) -> None:
    """Refuse what cannot be iterated."""
    if isinstance(items, AsyncIterable | Iterable):
        return
    allowed = "an iterable or an async iterable"
    if asyncio.iscoroutine(items):
        items.close()
        allowed += ": await the coroutine first, or pass an async generator"
    raise InvalidOptionType("items", f"<{type(items).__qualname__}>", allowed)
