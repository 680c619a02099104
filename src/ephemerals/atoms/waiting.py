"""A line of waiters: first come, first served, woken one by one, and nothing lost when one gives up."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WaitingLine"]

W = TypeVar("W")


class WaitingLine(Generic[W]):
    """Let tasks wait, each for something it wants, until they are woken in order.

    Whoever wakes the first has already given it what it wants. If that one was cancelled in the same moment,
    `returned(wanted)` is called, so that it can go to another. `shortened()` is called when somebody gives up who was
    not yet woken, for others may have stood behind only because of that one.
    """

    __slots__ = ("_line", "_returned", "_shortened")

    def __init__(self, returned: Callable[[W], object], shortened: Callable[[], object]) -> None:
        self._returned = returned
        self._shortened = shortened
        self._line: OrderedDict[asyncio.Future[Exception | None], W] = OrderedDict()

    def __len__(self) -> int:
        """Return how many wait, those included that were cancelled a moment ago."""
        return len(self._line)

    def __bool__(self) -> bool:
        """Tell whether anybody waits; if so, the first in line can be woken."""
        line = self._line
        while line and next(iter(line)).done():
            line.popitem(last=False)  # cancelled, and has not run yet
        return bool(line)

    @property
    def first(self) -> W:
        """Return what the first in line wants; there must be one."""
        return next(iter(self._line.values()))

    async def wait(self, wanted: W) -> None:
        """Wait until woken; raise what `dismiss` was given."""
        waiter: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._line[waiter] = wanted
        try:
            refusal = await waiter
        except BaseException:
            if waiter in self._line:
                del self._line[waiter]
                self._shortened()
            elif not waiter.cancelled() and waiter.result() is None:
                self._returned(wanted)
            raise
        if refusal is not None:
            raise refusal

    def wake_first(self) -> None:
        """Wake the first in line, who gets what it wants; there must be one."""
        waiter, _ = self._line.popitem(last=False)
        waiter.set_result(None)

    def dismiss(self, refusal: Callable[[], Exception]) -> None:
        """Send everybody away, with an exception made for each."""
        line, self._line = self._line, OrderedDict()
        for waiter in line:
            if not waiter.done():
                waiter.set_result(refusal())
