"""Which key goes when there are too many: S3-FIFO, which a scan does not flush.

Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need for cache eviction", SOSP 2023. Newcomers enter a small
queue, a tenth of the size. Who is asked for there moves on to the main queue; who is not is gone early, and only
its hash is remembered for a while, so that it enters the main queue directly should it come back. A hit only counts;
nothing is moved.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["S3Fifo"]

_MOST_COUNTED: Final = 3


class S3Fifo:
    """Keep an order among keys, and say which one is to go; of those that have gone it keeps hashes only."""

    __slots__ = ("_ghosts", "_main", "_small", "_small_size")

    def __init__(self, size: int) -> None:
        self._small_size = max(1, size // 10)
        self._small: OrderedDict[Hashable, int] = OrderedDict()
        self._main: OrderedDict[Hashable, int] = OrderedDict()
        self._ghosts: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        """Return how many keys there are."""
        return len(self._small) + len(self._main)

    def add(self, key: Hashable) -> None:
        """Take in a key that is not there."""
        if self._ghosts.pop(hash(key), _MOST_COUNTED) is None:
            self._main[key] = 0
        else:
            self._small[key] = 0

    def hit(self, key: Hashable) -> None:
        """Note that a key was asked for."""
        queue = self._small if key in self._small else self._main
        queue[key] = min(queue[key] + 1, _MOST_COUNTED)

    def remove(self, key: Hashable) -> None:
        """Forget a key that has gone for another reason."""
        if self._small.pop(key, None) is None:
            self._main.pop(key, None)

    def evict(self) -> Hashable:
        """Choose the key to go, and forget it; there must be one."""
        while True:
            if self._small and (len(self._small) >= self._small_size or not self._main):
                key, count = self._small.popitem(last=False)
                if not count:
                    self._remember(hash(key))
                    return key
                self._main[key] = 0
            else:
                key, count = self._main.popitem(last=False)
                if not count:
                    return key
                self._main[key] = count - 1

    def clear(self) -> None:
        """Forget all."""
        self._small.clear()
        self._main.clear()
        self._ghosts.clear()

    def _remember(self, ghost: int) -> None:
        self._ghosts[ghost] = None
        while len(self._ghosts) > len(self) + 1:
            self._ghosts.popitem(last=False)
