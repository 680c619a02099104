"""A token bucket: so many permits a second, and a burst after a quiet time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ephemerals.clock import system_clock
from ephemerals.options import as_count, as_factor

from .limiter import Limiter

if TYPE_CHECKING:
    from ephemerals.clock import Clock

__all__ = ["TokenBucket", "as_rate"]

_TOLERANCE: Final = 1e-9
"""Tokens by which a bucket may seem too empty because floats are not exact; it is not forgotten but owed."""


def as_rate(option: str, value: object) -> float:
    """Return a rate in permits per second if it is a finite number above 0, which may be a fraction."""
    return as_factor(option, value, "permits per second: a number above 0")


class TokenBucket(Limiter):
    """Grant at most `burst + rate·t` permits in any span of `t` seconds.

    The bucket holds `burst` tokens, is full at first, and gains `rate` tokens a second, fractions included; a permit
    takes one. `burst` defaults to what a second brings, at least 1. No timer runs while nobody waits.

    >>> import asyncio
    >>> async def main() -> None:
    ...     bucket = TokenBucket(rate=1000, burst=2)
    ...     await bucket.acquire(2)
    ...     print(bucket.try_acquire(2), bucket.statistics().granted)
    ...     async with bucket:
    ...         print(bucket.statistics().granted)
    >>> asyncio.run(main())
    False 2
    3
    """

    def __init__(self, rate: float, burst: int | None = None, *, clock: Clock = system_clock) -> None:
        super().__init__(clock)
        self._rate = as_rate("rate", rate)
        self._burst = max(1, round(self._rate)) if burst is None else as_count("burst", burst)
        self._tokens = float(self._burst)
        self._filled_at = clock.monotonic()

    @property
    def rate(self) -> float:
        """Return the permits per second."""
        return self._rate

    @property
    def burst(self) -> int:
        """Return how many permits can be taken at once after a quiet time."""
        return self._burst

    @property
    def capacity(self) -> int:
        """Return the most permits that can be taken at one moment, which is the burst."""
        return self._burst

    @property
    def tokens(self) -> float:
        """Return how many tokens the bucket holds now."""
        self._fill(self._clock.monotonic())
        return self._tokens

    def set_rate(self, rate: float) -> None:
        """Change the rate: tokens and waiters stay, and the waiters are timed anew."""
        self._fill(self._clock.monotonic())
        self._rate = as_rate("rate", rate)
        self._changed()

    def set_burst(self, burst: int) -> None:
        """Change the burst: tokens above it are lost, and who waits for more than it gets `InvalidOption`."""
        self._fill(self._clock.monotonic())
        self._burst = as_count("burst", burst)
        self._tokens = min(self._tokens, float(burst))
        self._changed()

    def _fill(self, now: float) -> None:
        self._tokens = min(float(self._burst), self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now

    def _delay(self, now: float, n: int) -> float:
        self._fill(now)
        missing = n - self._tokens
        return missing / self._rate if missing > _TOLERANCE else 0.0

    def _take(self, now: float, n: int) -> None:
        self._fill(now)
        self._tokens -= n
