"""When things expire whose time may be prolonged: one timer, and no work when it is.

A prolonged expiry is not moved. When its old time comes, it is looked at and put back for its new one.
"""

from __future__ import annotations

import asyncio
import math
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ephemerals.coordination.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ephemerals.clock import Clock

__all__ = ["Expiry"]

K = TypeVar("K", bound="Hashable")

_FEW: Final = 32


class Expiry(Generic[K]):
    """Call `expired(key)` on time, for each key that is watched; `due(key)` says when that is now.

    The queue holds numbers, so that a key that is no longer watched is not held.
    """

    __slots__ = ("_alarm", "_clock", "_due", "_expired", "_keys", "_next", "_numbers", "_queue")

    def __init__(self, clock: Clock, due: Callable[[K], float], expired: Callable[[K], object]) -> None:
        self._clock = clock
        self._due = due
        self._expired = expired
        self._alarm = Alarm(clock, self.sweep)
        self._queue: list[tuple[float, int]] = []
        self._keys: dict[int, K] = {}
        self._numbers: dict[K, int] = {}
        self._next = 0

    @property
    def has_timer(self) -> bool:
        """Tell whether the timer is armed."""
        return self._alarm.is_set

    def is_watched(self, key: K) -> bool:
        """Tell whether a key is watched."""
        return key in self._numbers

    def watch(self, key: K) -> None:
        """Begin to watch a key, or begin anew."""
        self.forget(key)
        due = self._due(key)
        if due == math.inf:
            return
        self._next += 1
        self._keys[self._next] = key
        self._numbers[key] = self._next
        heappush(self._queue, (due, self._next))
        self._arm()

    def forget(self, key: K) -> None:
        """Watch a key no longer."""
        number = self._numbers.pop(key, None)
        if number is None:
            return
        del self._keys[number]
        if not self._keys:
            self._queue.clear()
            self._alarm.stop()
        elif len(self._queue) > 2 * len(self._keys) + _FEW:
            self._queue = [each for each in self._queue if each[1] in self._keys]
            heapify(self._queue)

    def sweep(self) -> None:
        """Let go of what has expired by now."""
        now = self._clock.monotonic()
        while self._queue and self._queue[0][0] <= now:
            number = heappop(self._queue)[1]
            if number not in self._keys:
                continue
            key = self._keys[number]
            due = self._due(key)
            if due > now:
                heappush(self._queue, (due, number))
            else:
                self._expired(key)
        self._arm()

    def _arm(self) -> None:
        if not self._queue:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # without a loop there is no timer; who reads looks at the time
        self._alarm.set(self._queue[0][0])
