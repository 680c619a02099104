"""Scores that fade: each halves in every half-life.

    >>> from ephemerals.clock import Clock
    >>> now = 0.0
    >>> scores = DecayingScores(half_life=60, clock=Clock(monotonic=lambda: now))
    >>> scores.add("ada", 10)
    10.0
    >>> now = 60.0
    >>> scores.score("ada"), scores.add("ada", 10), scores.score("nobody")
    (5.0, 15.0, 0.0)

When there are too many, the most neutral one is forgotten: the one whose faded score is nearest to 0, so that neither
good nor bad ones are pushed out by noise. All scores fade at the same rate, so who is nearer to 0 never changes
with time: `log2(abs(score)) + time / half_life` ranks them for good, and a heap finds the least.
"""

from __future__ import annotations

import heapq
import itertools
from math import inf, log2
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from ephemerals.clock import system_clock

from .validation import as_count, as_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from datetime import timedelta

    from ephemerals.clock import Clock

    from .event import SignalEvent
    from .pattern import PatternLike
    from .sink import SignalSink
    from .subscription import Subscription

    K = TypeVar("K", bound=Hashable)
else:
    K = TypeVar("K")

__all__ = ["DecayingScores"]

_TOLERATED: Final = 64
"""Outdated places that the heap may hold, besides as many as there are scores."""


class _Entry(NamedTuple):
    value: float
    stamp: float
    rank: float
    number: int


class DecayingScores(Generic[K]):
    """Keep a score for each of at most `max_size` keys; each halves in `half_life` seconds. Use it from one thread."""

    __slots__ = ("_clock", "_entries", "_heap", "_numbers", "half_life", "max_size")

    def __init__(self, half_life: float | timedelta, *, max_size: int = 1024, clock: Clock = system_clock) -> None:
        self.half_life: Final = as_seconds("half_life", half_life)
        self.max_size: Final = as_count("max_size", max_size)
        self._clock = clock
        self._entries: dict[K, _Entry] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._numbers = itertools.count()

    def add(self, key: K, amount: float) -> float:
        """Add to the score of a key, a negative amount too, and return it. A new key may push out another one."""
        now = self._clock.monotonic()
        value = self._faded(self._entries.get(key), now) + amount
        rank = log2(abs(value)) + now / self.half_life if value else -inf
        self._entries[key] = _Entry(value, now, rank, next(self._numbers))
        if len(self._entries) > self.max_size:
            self._forget_most_neutral(key)
        heapq.heappush(self._heap, (rank, self._entries[key].number, key))
        if len(self._heap) > 2 * len(self._entries) + _TOLERATED:
            self._heap = [(entry.rank, entry.number, each) for each, entry in self._entries.items()]
            heapq.heapify(self._heap)
        return value

    def score(self, key: K) -> float:
        """Return the score of a key as it is now; 0.0 for one that is not known."""
        return self._faded(self._entries.get(key), self._clock.monotonic())

    def scores(self) -> dict[K, float]:
        """Return all scores as they are now, the highest first."""
        now = self._clock.monotonic()
        faded = {key: self._faded(entry, now) for key, entry in self._entries.items()}
        return dict(sorted(faded.items(), key=lambda each: -each[1]))

    def forget(self, key: K) -> bool:
        """Forget a key; False if it is not known."""
        return self._entries.pop(key, None) is not None

    def follow(
        self,
        sink: SignalSink,
        pattern: PatternLike,
        *,
        weigh: Callable[[SignalEvent[Any]], float] = lambda _: 1.0,
    ) -> Subscription:
        """Add `weigh(event)` to the score of each matching event's key, until the result is cancelled.

        Events without a key are left out.
        """

        def hear(event: SignalEvent[Any]) -> None:
            if event.key is not None:
                self.add(event.key, weigh(event))

        return sink.subscribe(pattern, hear)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def _faded(self, entry: _Entry | None, now: float) -> float:
        if entry is None:
            return 0.0
        share: float = 0.5 ** ((now - entry.stamp) / self.half_life)
        return entry.value * share

    def _forget_most_neutral(self, spared: K) -> None:
        """Forget the key of the lowest rank; the one that has just come is not in the heap yet."""
        while self._heap:
            _, number, key = heapq.heappop(self._heap)
            entry = self._entries.get(key)
            if entry is not None and entry.number == number and key != spared:
                del self._entries[key]
                return
