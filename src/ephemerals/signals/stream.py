"""Signals as an asynchronous iterator."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from .delivery import running_loop

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from .event import SignalEvent
    from .subscription import Subscription

__all__ = ["Buffer", "SignalStream", "resolve"]


class Buffer:
    """Keep the newest `size` events that nobody has taken yet, and wake those who wait for one.

    Whoever waits does so on its own loop, which need not be the one that events are delivered on.
    """

    __slots__ = ("_waiters", "dropped", "events", "is_ended", "size")

    def __init__(self, events: Iterable[SignalEvent[Any]], size: int) -> None:
        self.events = deque(events)
        self.size = size
        self.dropped = 0
        self.is_ended = False
        self._waiters: list[asyncio.Future[None]] = []

    def put(self, event: SignalEvent[Any]) -> None:
        """Take an event, pushing out the oldest if there is no room."""
        while len(self.events) >= self.size:
            with suppress(IndexError):  # another thread has just taken it
                self.events.popleft()
                self.dropped += 1
        self.events.append(event)
        self._wake()

    def end(self) -> None:
        """Let nothing more come."""
        self.is_ended = True
        self._wake()

    async def take(self) -> SignalEvent[Any]:
        """Wait for an event and return it; `StopAsyncIteration` when none is left and none will come."""
        while True:
            with suppress(IndexError):
                return self.events.popleft()
            if self.is_ended:
                raise StopAsyncIteration
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                if not self.events and not self.is_ended:  # else another thread was quicker
                    await waiter
            finally:
                with suppress(ValueError):
                    self._waiters.remove(waiter)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            resolve(waiter)


class SignalStream:
    """Iterate over matching events as they come: `async for event in sink.stream("order.*")`.

    It listens from the moment it is made, until the iterator is closed, left as an `async with` block, or
    forgotten. An event that nobody takes waits; when `size` of them wait, the oldest goes, and `dropped`
    counts it. Several tasks may iterate: each event goes to one of them.
    """

    __slots__ = ("_buffer", "_subscription")

    def __init__(self, buffer: Buffer, subscription: Subscription) -> None:
        self._buffer: Final = buffer
        self._subscription: Final = subscription

    @property
    def dropped(self) -> int:
        """Return how many events were pushed out before anybody took them."""
        return self._buffer.dropped

    def close(self) -> None:
        """Stop listening; what has come already can still be taken. Repeating it does nothing."""
        self._subscription.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SignalEvent[Any]:
        return await self._buffer.take()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._subscription.cancel()


def resolve(waiter: asyncio.Future[None]) -> None:
    """Wake whoever waits for a future, on whatever loop it waits; repeating it does nothing."""
    loop = waiter.get_loop()
    if loop is running_loop():
        if not waiter.done():
            waiter.set_result(None)
    elif not loop.is_closed():
        with suppress(RuntimeError):  # closed this very moment
            loop.call_soon_threadsafe(resolve, waiter)
