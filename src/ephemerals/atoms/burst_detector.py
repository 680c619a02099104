"""Somebody does too much in too short a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ephemerals.clock import system_clock
from ephemerals.options import as_count

from .following import follow
from .surge import Surges

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ephemerals.clock import Clock
    from ephemerals.options import Seconds
    from ephemerals.signals import PatternLike, SignalEvent, SignalSink

__all__ = ["BurstDetector"]


class BurstDetector:
    """Find the keys that do something `threshold` (10) times or more within `window` (30) seconds.

    Say `note(key)` each time, or let it hear the events of `signals` that match `pattern`; those without a key are
    left out. A burst lasts until no more than `low` (by default half of the threshold) are left in the window, so it
    begins and ends once, however long it is. At most `max_keys` (1000) keys are known, each until it has been idle for
    the window.

    Signals, if `signals` is given, with the key: `burst.started` with `{"count": …}`, `burst.ended` with
    `{"seconds": …}`.

    >>> from ephemerals.signals import SignalSink
    >>> sink = SignalSink()
    >>> bursts = BurstDetector(sink, "login.failed", threshold=3, window=60)
    >>> for name in ("ada", "bob", "ada", "ada"):
    ...     _ = sink.emit("login.failed", key=name)
    >>> bursts.bursting(), [event.key for event in sink.events("burst.started")]
    (['ada'], ['ada'])
    """

    def __init__(  # noqa: PLR0913 - its options
        self,
        signals: SignalSink | None = None,
        pattern: PatternLike | None = None,
        *,
        threshold: int = 10,
        window: Seconds = 30.0,
        low: int | None = None,
        max_keys: int = 1000,
        clock: Clock = system_clock,
    ) -> None:
        as_count("max_keys", max_keys)
        self._surges = Surges(threshold, window, low, max_keys, clock, started=self._started, ended=self._ended)
        self._signals = signals
        self._without_key = 0
        self._subscription = follow(signals, pattern, self._hear)

    def note(self, key: Hashable) -> bool:
        """Count one more of a key; tell whether that is a burst."""
        return self._surges.note(key)

    def is_bursting(self, key: Hashable) -> bool:
        """Tell whether a key has a burst now."""
        return self._surges.is_surging(key)

    def bursting(self) -> list[Hashable]:
        """Return the keys that have a burst now."""
        return self._surges.surging()

    def count(self, key: Hashable) -> int:
        """Return how often a key did it within the window, up to the threshold."""
        return self._surges.count(key)

    def close(self) -> None:
        """Hear nothing more, and forget all keys, without a word about their bursts."""
        if self._subscription is not None:
            self._subscription.cancel()
        self._surges.close()

    def statistics(self) -> dict[str, int]:
        """Return how many bursts there were and are, keys are known and were pushed out, and events had no key."""
        return {
            "bursts": self._surges.surges,
            "bursting": len(self.bursting()),
            "keys": len(self._surges.states),
            "evicted": self._surges.states.evicted,
            "without_key": self._without_key,
        }

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when all have been idle for long enough, for tests."""
        return self._surges.states.leftovers()

    def _hear(self, event: SignalEvent[Any]) -> None:
        if event.key is None:
            self._without_key += 1
        else:
            self.note(event.key)

    def _started(self, key: Hashable) -> None:
        if self._signals is not None:
            self._signals.emit("burst.started", {"count": self._surges.threshold}, key=key)

    def _ended(self, key: Hashable, seconds: float) -> None:
        if self._signals is not None:
            self._signals.emit("burst.ended", {"seconds": seconds}, key=key)
