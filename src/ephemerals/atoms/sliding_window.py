"""A sliding window: never more than so many in any span of a length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ephemerals.clock import system_clock
from ephemerals.options import as_count, as_seconds

from .limiter import Limiter
from .recent import Recent

if TYPE_CHECKING:
    from ephemerals.clock import Clock
    from ephemerals.options import Seconds

__all__ = ["SlidingWindowLimiter"]


class SlidingWindowLimiter(Limiter):
    """Grant at most `limit` permits in any span of `window` seconds (1), wherever the span begins.

    This is how people read "100 per minute". A fixed window would let twice as many through at its edge, a bucket
    its burst on top. It remembers the times of the newest `limit` permits.

    >>> import asyncio
    >>> async def main() -> None:
    ...     limiter = SlidingWindowLimiter(2, window=60)
    ...     print([limiter.try_acquire() for _ in range(3)], round(limiter.retry_after()))
    >>> asyncio.run(main())
    [True, True, False] 60
    """

    def __init__(self, limit: int, window: Seconds = 1.0, *, clock: Clock = system_clock) -> None:
        super().__init__(clock)
        self._limit = as_count("limit", limit)
        self._taken_lately: Recent[None] = Recent(as_seconds("window", window))

    @property
    def limit(self) -> int:
        """Return how many permits a window allows."""
        return self._limit

    @property
    def window(self) -> float:
        """Return the length of the window in seconds."""
        return self._taken_lately.window

    @property
    def capacity(self) -> int:
        """Return the most permits that can be taken at one moment, which is the limit."""
        return self._limit

    def set_limit(self, limit: int) -> None:
        """Change the limit; those who wait are timed anew, and who waits for more than it gets `InvalidOption`."""
        self._limit = as_count("limit", limit)
        self._changed()

    def _delay(self, now: float, n: int) -> float:
        taken = self._taken_lately
        taken.trim(now)
        rounds, n = divmod(n - 1, self._limit)  # more than the limit: an estimate, so many whole windows later
        excess = len(taken) + n + 1 - self._limit
        later = rounds * taken.window
        return later if excess <= 0 else later + taken.leaves_at(excess - 1) - now

    def _take(self, now: float, n: int) -> None:
        self._taken_lately.add(now, None, n)
