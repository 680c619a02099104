"""One outcome for many: whoever waits gets the value, or an exception of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ephemerals.failure import kept_form

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["Promise"]

R = TypeVar("R")


class Promise(Generic[R]):
    """Be awaited by any number of tasks, before or after it is kept or broken, once.

    A failure is kept without traceback, cause and context, and every waiter gets a copy, so that raising it in one
    place changes nothing in another. Nobody has to ask for it. `on_abandoned` is called when the last waiter has given
    up before the end.
    """

    __slots__ = ("_error", "_on_abandoned", "_value", "_waiters", "is_done")

    def __init__(self, on_abandoned: Callable[[], object] | None = None) -> None:
        self._on_abandoned = on_abandoned
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._value: Any = None
        self._error: BaseException | None = None
        self.is_done = False

    @property
    def waiters(self) -> int:
        """Return how many wait."""
        return len(self._waiters)

    def keep(self, value: R) -> None:
        """Give everybody the value; without effect once it is done."""
        if not self.is_done:
            self._value = value
            self._end()

    def break_off(self, error: BaseException) -> None:
        """Give everybody a copy of the exception; without effect once it is done."""
        if not self.is_done:
            self._error = kept_form(error, is_shared=True)
            self._end()

    def _end(self) -> None:
        self.is_done = True
        self._on_abandoned = None
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def __await__(self) -> Generator[Any, None, R]:
        """Wait for the outcome."""
        if not self.is_done:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters[waiter] = None
            try:
                yield from waiter
            finally:
                del self._waiters[waiter]
                if not self._waiters and self._on_abandoned is not None:
                    self._on_abandoned()
        if self._error is not None:
            raise kept_form(self._error, is_shared=True)
        return cast("R", self._value)
