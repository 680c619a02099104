"""A rate that follows what the upstream can take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from ephemerals.clock import system_clock
from ephemerals.errors import InvalidOption

from .gcra import GCRA
from .throttling import is_throttled, retry_after_of
from .token_bucket import as_rate

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ephemerals.clock import Clock
    from ephemerals.signals import SignalSink

__all__ = ["AdaptiveRate"]

_NEAR: Final = 0.95
"""Share of the rate that was too much, to which the rate comes back quickly."""
_CREDIBLE: Final = 0.7
"""Share of that rate that must have gone through since the complaint before, if that is to tell more."""
_QUICKLY: Final = 0.75
"""Share of the gap that closes, up to there, for each second's worth of successes."""
_THERE: Final = 0.99
"""Share of the way back at which it counts as back."""
_PLATEAU: Final = 30.0
"""Seconds' worth of successes, once it is back, after which the rate grows by the share `_PROBE` in a second."""
_PROBE: Final = 0.003
"""The growth itself grows with the square of the time."""


class AdaptiveRate(GCRA):
    """Grant permits at a rate that is cut when the upstream complains, and grows back while it does not.

    It is a `GCRA` limiter that is told how each call went: as `limiter=` of a coordinator by the coordinator, in
    `async with` by the exception that leaves the block, else with `observe`. A complaint, by default `is_throttled`
    (a `retry_after` on the exception, or status 429), pauses everybody for as long as it says (else for one interval)
    and multiplies the rate by `cut` (0.5), once however many calls complain during that pause. Successes bring it
    quickly back to just below what was too much, where it stays for a while before it tries more and more (Ha, Rhee,
    Xu: "CUBIC: a new TCP-friendly high-speed TCP variant", 2008). Before the first complaint it grows by `step` (1.0)
    permits per second in each second at least. It stays between `minimum` and `maximum` (`None`: no limit).

    Signals, if `signals` is given: `rate.cut` with `{"rate": …, "pause": …}`; its key is `name`.

    >>> import asyncio
    >>> from ephemerals.atoms import RetryAfter
    >>> async def main() -> None:
    ...     rate = AdaptiveRate(100.0)
    ...     try:
    ...         async with rate:
    ...             raise RetryAfter(0.5)
    ...     except RetryAfter:
    ...         print(rate.rate, rate.statistics().is_paused)
    >>> asyncio.run(main())
    50.0 True
    """

    def __init__(  # noqa: PLR0913 - its options
        self,
        rate: float,
        burst: int = 1,
        *,
        minimum: float = 0.1,
        maximum: float | None = None,
        cut: float = 0.5,
        step: float = 1.0,
        complains: Callable[[BaseException], bool] = is_throttled,
        signals: SignalSink | None = None,
        name: str | None = None,
        clock: Clock = system_clock,
    ) -> None:
        super().__init__(rate, burst, clock=clock)
        if not 0 < cut < 1:
            raise InvalidOption("cut", cut, "a factor between 0 and 1")
        self._minimum = as_rate("minimum", minimum)
        self._maximum = None if maximum is None else as_rate("maximum", maximum)
        if not self._minimum <= rate <= (self._maximum or rate):
            raise InvalidOption("rate", rate, f"a rate from minimum={minimum!r} to maximum={maximum!r}")
        self._cut = cut
        self._step = as_rate("step", step)
        self._complains = complains
        self._signals = signals
        self._name = name
        self._near: float | None = None
        self._calm = 0.0
        self._succeeded = 0
        self._complained_at: float | None = None

    def observe(self, error: BaseException | None) -> None:
        """Learn how a call went: `None` means well; an exception that is no complaint teaches nothing."""
        if error is None:
            self._grow()
        elif self._complains(error):
            pause = retry_after_of(error, self._clock)
            self._slow_down(1 / self.rate if pause is None else pause)

    def _grow(self) -> None:
        self._succeeded += 1
        rate, near = self.rate, self._near
        if near is not None and rate < near * _THERE:
            grown = rate + (near - rate) * _QUICKLY / rate
        else:
            self._calm += 1 / rate
            gain = rate * _PROBE * (self._calm / _PLATEAU) ** 2
            grown = rate + (max(self._step, gain) if near is None else gain) / rate
        self.set_rate(grown if self._maximum is None else min(grown, self._maximum))

    def _slow_down(self, pause: float) -> None:
        now = self._clock.monotonic()
        is_first = now >= self._paused_until
        self.pause_for(pause)
        if not is_first:
            return
        self._near = self._estimate(now)
        self._calm, self._succeeded, self._complained_at = 0.0, 0, now
        self.set_rate(max(self._minimum, self.rate * self._cut))
        if self._signals is not None:
            self._signals.emit("rate.cut", {"rate": self.rate, "pause": pause}, key=self._name)

    def _estimate(self, now: float) -> float:
        """Return what the upstream will take: what it has taken between two complaints, if there was enough to do."""
        near = self.rate * _NEAR
        if self._complained_at is not None and now > self._complained_at:
            taken = self._succeeded / (now - self._complained_at)
            if taken >= near * _CREDIBLE:
                return min(near, taken)
        return near

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.observe(error)
