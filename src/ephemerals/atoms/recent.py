"""What came within the newest seconds: the one sliding window that limiters, breakers and detectors stand on."""

from __future__ import annotations

import math
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Recent"]

V = TypeVar("V")


class Recent(Generic[V]):
    """Remember values for `window` seconds, the newest `size` of them (`None`: no limit).

    Times are given, must not go back, and nothing happens by itself: call `trim` before looking. `left(value)` is
    called for each value that leaves, but not by `clear`.
    """

    __slots__ = ("_entries", "_left", "_size", "window")

    def __init__(self, window: float, size: int | None = None, left: Callable[[V], object] | None = None) -> None:
        self.window = window
        self._size = size
        self._left = left
        self._entries: deque[tuple[float, V]] = deque()

    def __len__(self) -> int:
        """Return how many there are, as of the last `trim`."""
        return len(self._entries)

    def add(self, now: float, value: V, count: int = 1) -> None:
        """Remember a value, `count` times over; the oldest go if there are too many."""
        self._entries.extend([(now, value)] * count)
        while self._size is not None and len(self._entries) > self._size:
            self._drop()

    def trim(self, now: float) -> None:
        """Forget what has been here for the whole window."""
        while self._entries and self._entries[0][0] + self.window <= now:
            self._drop()

    def values(self) -> Iterator[V]:
        """Yield the values, oldest first."""
        return (value for _, value in self._entries)

    def leaves_at(self, place: int) -> float:
        """Return the time when the value at a place goes, by age: 0 is the oldest."""
        return next(islice(self._entries, place, None))[0] + self.window

    @property
    def empty_at(self) -> float:
        """Return the time when the newest value goes; minus infinity if there is none."""
        return self._entries[-1][0] + self.window if self._entries else -math.inf

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()

    def _drop(self) -> None:
        value = self._entries.popleft()[1]
        if self._left is not None:
            self._left(value)
