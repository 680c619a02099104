"""Values that stand out from those before them."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from ephemerals.clock import system_clock
from ephemerals.errors import InvalidOption, InvalidOptionType
from ephemerals.functions import as_callback
from ephemerals.options import as_count, as_seconds

from .following import follow
from .keyed_states import KeyedStates
from .recent import Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ephemerals.clock import Clock
    from ephemerals.options import Seconds
    from ephemerals.signals import PatternLike, SignalEvent, SignalSink

__all__ = ["OutlierDetector", "Verdict"]

_MEDIAN: Final = 1.4826
"""Median absolute deviation to standard deviation, of a normal distribution."""
_MEAN: Final = 1.2533
"""Mean absolute deviation to standard deviation, likewise."""
_RESOLUTION: Final = 0.01
"""Share of the median that counts as its deviation where all values are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Say how far a value lies from the median of those before it: `score` standard deviations, with its sign."""

    is_outlier: bool
    score: float
    median: float
    count: int


class _Values:
    """Keep the newest values of one key, also in order."""

    __slots__ = ("ordered", "recent")

    def __init__(self, window: float, size: int) -> None:
        self.ordered: list[float] = []
        self.recent: Recent[float] = Recent(window, size, self._left)

    @property
    def due(self) -> float:
        """Return when the last one leaves the window."""
        return self.recent.empty_at

    def add(self, now: float, value: float) -> None:
        insort(self.ordered, value)
        self.recent.add(now, value)

    def score(self, value: float) -> tuple[float, float]:
        """Return how many deviations a value lies from the median, and the median."""
        middle = median(self.ordered)
        distances = [abs(each - middle) for each in self.ordered]
        scale = median(distances) * _MEDIAN or sum(distances) / len(distances) * _MEAN or abs(middle) * _RESOLUTION
        distance = value - middle
        return (distance / scale if scale else math.copysign(math.inf, distance) if distance else 0.0), middle

    def _left(self, value: float) -> None:
        del self.ordered[bisect_left(self.ordered, value)]


def _as_number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidOptionType("value", f"<{type(value).__qualname__}>", "a number")
    if not math.isfinite(value):
        raise InvalidOption("value", value, "a finite number")
    return float(value)


class OutlierDetector:
    """Compare each value with those before it, by median and MAD: an outlier lies more than `threshold` (3.5) away.

    Median and median absolute deviation do not care about a few wild values, so outliers may be remembered and hide
    nothing; a new level is normal once it makes up half of what is remembered (Iglewicz, Hoaglin, "How to Detect and
    Handle Outliers", 1993). Values are compared within their key: the newest `size` (100) of the last `window` (900)
    seconds, of at most `max_keys` (1000) keys. With fewer than `min_samples` (10) there is no verdict.

    Say `check(value, key)`, or let it hear the events of `signals` that match `pattern`: `value_of(event)` is by
    default the event's `data`, and what is no finite number is left out and counted.

    Signals, if `signals` is given, with the key: `anomaly.detected` with `{"value": …, "score": …, "median": …}`.

    >>> latencies = OutlierDetector()
    >>> for value in (10, 11, 9, 10, 12, 10, 11, 9, 10, 11):
    ...     _ = latencies.check(value)
    >>> latencies.check(11).is_outlier, latencies.check(50).is_outlier
    (False, True)
    """

    def __init__(  # noqa: PLR0913 - its options
        self,
        signals: SignalSink | None = None,
        pattern: PatternLike | None = None,
        *,
        threshold: float = 3.5,
        window: Seconds = 900.0,
        size: int = 100,
        min_samples: int = 10,
        max_keys: int = 1000,
        value_of: Callable[[SignalEvent[Any]], Any] = lambda event: event.data,
        clock: Clock = system_clock,
    ) -> None:
        if not threshold > 0:
            raise InvalidOption("threshold", threshold, "a number above 0")
        as_callback("value_of", value_of, "event")
        seconds = as_seconds("window", window)
        if as_count("size", size, least=2) < as_count("min_samples", min_samples, least=2):
            raise InvalidOption("min_samples", min_samples, f"at most size={size}")
        self._threshold, self._min_samples = threshold, min_samples
        self._value_of = value_of
        self._signals = signals
        self._clock = clock
        self._states: KeyedStates[_Values] = KeyedStates(
            as_count("max_keys", max_keys), clock, lambda: _Values(seconds, size)
        )
        self._checked = self._outliers = self._ignored = 0
        self._subscription = follow(signals, pattern, self._hear)

    def check(self, value: float, key: Hashable = None) -> Verdict | None:
        """Compare a value with those before it, and remember it; `None` if there are too few.

        Raise `InvalidOption` if it is not finite, `InvalidOptionType` if it is no number.
        """
        number = _as_number(value)
        now = self._clock.monotonic()
        values = self._states.of(key)
        values.recent.trim(now)
        verdict = None
        if len(values.recent) >= self._min_samples:
            score, middle = values.score(number)
            is_outlier = abs(score) > self._threshold
            verdict = Verdict(is_outlier=is_outlier, score=score, median=middle, count=len(values.recent))
            self._outliers += is_outlier
        values.add(now, number)
        self._states.watch(key)
        self._checked += 1
        if verdict is not None and verdict.is_outlier and self._signals is not None:
            said = {"value": value, "score": verdict.score, "median": verdict.median}
            self._signals.emit("anomaly.detected", said, key=key)
        return verdict

    def close(self) -> None:
        """Hear nothing more, and forget all."""
        if self._subscription is not None:
            self._subscription.cancel()
        self._states.clear()

    def statistics(self) -> dict[str, int]:
        """Return how many values were checked, stood out, were left out; how many keys are known, were pushed out."""
        return {
            "checked": self._checked,
            "outliers": self._outliers,
            "ignored": self._ignored,
            "keys": len(self._states),
            "evicted": self._states.evicted,
        }

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when all have been idle for the window, for tests."""
        return self._states.leftovers()

    def _hear(self, event: SignalEvent[Any]) -> None:
        try:
            self.check(self._value_of(event), event.key)
        except InvalidOption:
            self._ignored += 1
