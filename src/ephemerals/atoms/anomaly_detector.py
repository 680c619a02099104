"""Too many of something just now."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from ephemerals.signals import Pattern

from .following import follow
from .surge import Surges

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ephemerals.options import Seconds
    from ephemerals.signals import PatternLike, SignalEvent, SignalSink

__all__ = ["AnomalyDetector"]

_ALL: Final = "all"


class AnomalyDetector:
    """Hold the condition `name` while events that match `pattern` come too fast: `threshold` (5) in `window` (10) s.

    The condition lasts until no more than `low` (by default half of the threshold) are left in the window. What is in
    the sink already counts; how much the sink remembers does not matter afterwards. For the rate of each key see
    `BurstDetector`, for values that stand out `OutlierDetector`. It listens until `close()`, or until nobody holds it.

    Signals: `name` ("anomaly.rate"), held while there are too many, with `{"count": …}`, so that coordinators may hold
    back with `defer_on_signals="anomaly.*"`.

    >>> from ephemerals.signals import SignalSink
    >>> sink = SignalSink()
    >>> detector = AnomalyDetector(sink, "error.*", threshold=2)
    >>> for name in ("error.timeout", "order.placed", "error.refused"):
    ...     _ = sink.emit(name)
    ...     print(detector.is_anomalous, sink.has("anomaly.rate"))
    False False
    False False
    True True
    """

    def __init__(  # noqa: PLR0913 - its options
        self,
        signals: SignalSink,
        pattern: PatternLike = "error.*",
        *,
        threshold: int = 5,
        window: Seconds = 10.0,
        low: int | None = None,
        name: str = "anomaly.rate",
    ) -> None:
        self.name = name
        self._signals = signals
        self._held = ExitStack()
        self._surges = Surges(threshold, window, low, 1, signals.clock, started=self._started, ended=self._ended)
        compiled = Pattern.of(pattern)
        self._subscription = follow(signals, compiled, self._hear)
        since = signals.clock.monotonic() - self._surges.window
        for event in signals.events(pattern=compiled):
            if event.monotonic > since and event.name != name:
                self._surges.note(_ALL, event.monotonic)

    @property
    def is_anomalous(self) -> bool:
        """Tell whether there are too many now."""
        return self._surges.is_surging(_ALL)

    @property
    def count(self) -> int:
        """Return how many there were within the window, up to the threshold."""
        return self._surges.count(_ALL)

    def close(self) -> None:
        """Hear nothing more, and end the condition; twice is the same as once."""
        if self._subscription is not None:
            self._subscription.cancel()
        self._surges.close()
        self._held.close()

    def statistics(self) -> dict[str, int]:
        """Return how many there were within the window, and how often there were too many."""
        return {"count": self.count, "anomalies": self._surges.surges}

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when there was nothing for the window, for tests."""
        return self._surges.states.leftovers()

    def _hear(self, event: SignalEvent[Any]) -> None:
        if event.name != self.name:
            self._surges.note(_ALL)

    def _started(self, _: Hashable) -> None:
        self._held.enter_context(self._signals.hold(self.name, {"count": self._surges.threshold}))

    def _ended(self, _: Hashable, seconds: float) -> None:
        del seconds
        self._held.close()
