"""The generic cell rate algorithm: a limit that is one point in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ephemerals.clock import system_clock
from ephemerals.options import as_count

from .limiter import Limiter
from .token_bucket import as_rate

if TYPE_CHECKING:
    from ephemerals.clock import Clock

__all__ = ["GCRA"]

_TOLERANCE: Final = 1e-9


class GCRA(Limiter):
    """Space permits evenly, `rate` a second, with at most `burst` (1) at once after a quiet time.

    All it remembers is when the next permit would be due if they came evenly (the *theoretical arrival time* of ITU-T
    I.371), so it suits a limiter for each of many keys. It grants at most `burst + rate·t` in any span of `t` seconds.

    >>> import asyncio
    >>> async def main() -> None:
    ...     limiter = GCRA(rate=10)
    ...     await limiter.acquire()
    ...     print(limiter.try_acquire(), 0.0 < limiter.retry_after() <= 0.1)
    >>> asyncio.run(main())
    False True
    """

    def __init__(self, rate: float, burst: int = 1, *, clock: Clock = system_clock) -> None:
        super().__init__(clock)
        self._interval = 1 / as_rate("rate", rate)
        self._burst = as_count("burst", burst)
        self._due = clock.monotonic()

    @property
    def rate(self) -> float:
        """Return the permits per second."""
        return 1 / self._interval

    @property
    def burst(self) -> int:
        """Return how many permits can be taken at once after a quiet time."""
        return self._burst

    @property
    def capacity(self) -> int:
        """Return the most permits that can be taken at one moment, which is the burst."""
        return self._burst

    def set_rate(self, rate: float) -> None:
        """Change the rate: what was taken and who waits stays, and the waiters are timed anew."""
        now = self._clock.monotonic()
        interval = 1 / as_rate("rate", rate)
        self._due = now + max(0.0, self._due - now) * interval / self._interval
        self._interval = interval
        self._changed()

    def set_burst(self, burst: int) -> None:
        """Change the burst; who waits for more permits than that gets `InvalidOption`.

        A larger one is gained over time, not granted at once.
        """
        now = self._clock.monotonic()
        gained = as_count("burst", burst) - self._burst
        self._due = max(now, max(self._due, now) + gained * self._interval)
        self._burst = burst
        self._changed()

    def _delay(self, now: float, n: int) -> float:
        delay = max(self._due, now) + (n - self._burst) * self._interval - now
        return delay if delay > _TOLERANCE * self._interval else 0.0

    def _take(self, now: float, n: int) -> None:
        self._due = max(self._due, now) + n * self._interval
