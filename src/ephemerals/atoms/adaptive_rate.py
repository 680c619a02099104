"""A rate that follows what the upstream can take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

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

_NEAR = 0.95
"""Share of the rate that was too much, up to which the rate comes back quickly."""
_QUICKLY = 0.5
"""Share of the gap that closes, up to there, for each second's worth of successes."""


class AdaptiveRate(GCRA):
    """Grant permits at a rate that is cut when the upstream complains, and grows back while it does not.

    It is a `GCRA` limiter that is told how each call went: as `limiter=` of a coordinator by the coordinator, in
    `async with` by the exception that leaves the block, else with `observe`. A complaint, by default `is_throttled`
    (a `retry_after` on the exception, or status 429), pauses everybody for as long as it says (else for one interval)
    and multiplies the rate by `cut` (0.5), once however many calls complain during that pause. Each second's worth of
    successes brings the rate quickly back to just below what was too much, and from there `step` (1.0) permits per
    second further: additive increase, multiplicative decrease. The rate stays between `minimum` and `maximum`
    (`None`: no limit).

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
        self._too_much: float | None = None

    def observe(self, error: BaseException | None) -> None:
        """Learn how a call went: `None` means well; an exception that is no complaint teaches nothing."""
        if error is None:
            self._grow()
        elif self._complains(error):
            pause = retry_after_of(error, self._clock)
            self._slow_down(1 / self.rate if pause is None else pause)

    def _grow(self) -> None:
        rate = self.rate
        near = 0.0 if self._too_much is None else self._too_much * _NEAR
        gain = self._step if rate >= near else max(self._step, (near - rate) * _QUICKLY)
        rate += gain / rate
        self.set_rate(rate if self._maximum is None else min(rate, self._maximum))

    def _slow_down(self, pause: float) -> None:
        is_first = self._clock.monotonic() >= self._paused_until
        self.pause_for(pause)
        if not is_first:
            return
        self._too_much = self.rate
        self.set_rate(max(self._minimum, self.rate * self._cut))
        if self._signals is not None:
            self._signals.emit("rate.cut", {"rate": self.rate, "pause": pause}, key=self._name)

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.observe(error)
