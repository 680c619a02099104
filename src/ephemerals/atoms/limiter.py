"""What every limiter shares: who waits for permits, and in which order they get them.

A permit is *reserved* for the first in line as soon as the policy allows it, and *taken*, which is what the policy
counts, when its owner really goes on. So the promise of a policy holds for what callers see, however late the loop
wakes them; and a reservation that is given back leaves no trace. One timer, set for the first in line, serves any
number of waiters.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ephemerals.coordination.alarm import Alarm
from ephemerals.errors import InvalidOption
from ephemerals.options import as_count, as_seconds

from .reservation import Reservation

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ephemerals.clock import Clock
    from ephemerals.options import Seconds

__all__ = ["Limiter", "LimiterStatistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterStatistics:
    """Hold what a limiter has done: permits granted, calls refused and cancelled, and who waits.

    `waiting` counts waiters, `waited` is the seconds that those who were granted have waited in total.
    """

    granted: int
    refused: int
    cancelled: int
    waiting: int
    waited: float
    is_paused: bool


class Limiter:
    """Grant permits in first-come order, as fast as a policy allows; the subclass is the policy.

    It may be used as `async with limiter:`, which takes one permit. It belongs to one event loop at a time, and not
    to several threads. A caller that is cancelled while it waits has taken nothing.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._line: OrderedDict[Reservation, None] = OrderedDict()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm = Alarm(clock, self._serve)
        self._wanted = 0
        self._reserved = 0
        self._paused_until = float("-inf")
        self._granted = 0
        self._refused = 0
        self._cancelled = 0
        self._waited = 0.0

    # What a policy says.

    @property
    def capacity(self) -> int:
        """Return the most permits that can be taken at one moment."""
        raise NotImplementedError

    def _delay(self, now: float, n: int) -> float:
        """Return the seconds until `n` more permits may be taken at once; 0 or less: now."""
        raise NotImplementedError

    def _take(self, now: float, n: int) -> None:
        """Count `n` permits as taken."""
        raise NotImplementedError

    # What callers do.

    async def acquire(self, n: int = 1) -> None:
        """Take `n` permits, waiting for those who came before and for the policy.

        Raise `InvalidOption` if `n` is more than `capacity`, for that would wait for ever.
        """
        if self._take_at_once(n):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ready() -> None:
            if not waiter.done():
                waiter.set_result(None)

        reservation = self.reserve(n, ready)
        try:
            if not reservation.is_granted:
                await waiter
        except BaseException:
            reservation.cancel()
            raise
        if not reservation.is_granted:
            raise self._too_many(n)
        reservation.take()

    def try_acquire(self, n: int = 1) -> bool:
        """Take `n` permits if that is possible at once; never overtake somebody who waits."""
        granted = self._take_at_once(n)
        self._refused += not granted
        return granted

    def reserve(self, n: int, ready: Callable[[], object]) -> Reservation:
        """Stand in line for `n` permits without waiting; the line calls `ready()` once they are granted.

        If they are granted at once, `ready` is not called; look at `is_granted`. The caller must `take` or `cancel`.
        """
        self._check(n)
        self._bind()
        reservation = Reservation(self, n, ready)
        self._line[reservation] = None
        self._wanted += n
        if len(self._line) == 1:
            reservation._ready = _nothing
            self._serve()
            reservation._ready = ready
        return reservation

    def retry_after(self, n: int = 1) -> float:
        """Return the seconds until `n` permits can be had behind all who wait now; 0.0: at once.

        While others wait it is an estimate: they may give up, or the rate may change.
        """
        self._check(n)
        return max(0.0, self._wait_of(self._clock.monotonic(), self._wanted + n))

    def pause_for(self, seconds: Seconds) -> None:
        """Grant nothing for so many seconds from now; a pause that ends later stays."""
        until = self._clock.monotonic() + as_seconds("seconds", seconds, zero=True)
        self._paused_until = max(self._paused_until, until)

    def statistics(self) -> LimiterStatistics:
        """Return the counts as they are now."""
        return LimiterStatistics(
            granted=self._granted,
            refused=self._refused,
            cancelled=self._cancelled,
            waiting=len(self._line),
            waited=self._waited,
            is_paused=self._paused_until > self._clock.monotonic(),
        )

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when nobody waits, for tests."""
        return {"waiters": len(self._line), "reservations": self._reserved, "timers": int(self._alarm.is_set)}

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    # The line.

    def _changed(self) -> None:
        """Look at the line again after the policy has changed; refuse those who could never be served now."""
        for reservation in [each for each in self._line if each.n > self.capacity]:
            reservation.cancel()
            reservation._ready()
        if self._line:
            self._serve()

    def _serve(self) -> None:
        """Reserve permits for those first in line, as far as the policy allows, and set the timer for the next."""
        now = self._clock.monotonic()
        while self._line:
            first = next(iter(self._line))
            delay = self._wait_of(now, first.n)
            if delay > 0:
                self._alarm.set(now + delay)
                return
            self._leave_line(first)
            self._reserved += first.n
            first.is_granted = True
            first._ready()
        self._alarm.stop()

    def _take_at_once(self, n: int) -> bool:
        self._check(n)
        now = self._clock.monotonic()
        if self._line or self._wait_of(now, n) > 0:
            return False
        self._take(now, n)
        self._granted += n
        return True

    def _wait_of(self, now: float, n: int) -> float:
        return max(self._paused_until - now, self._delay(now, self._reserved + n))

    def _taken(self, n: int, since: float) -> None:
        now = self._clock.monotonic()
        self._reserved -= n
        self._take(now, n)
        self._granted += n
        self._waited += now - since
        if self._line:
            self._serve()

    def _given_back(self, reservation: Reservation) -> None:
        self._cancelled += 1
        if reservation.is_granted:
            self._reserved -= reservation.n
        elif reservation in self._line:
            self._leave_line(reservation)
        if self._line:
            self._serve()
        else:
            self._alarm.stop()

    def _leave_line(self, reservation: Reservation) -> None:
        del self._line[reservation]
        self._wanted -= reservation.n

    def _bind(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        if self._loop is not None and not self._loop.is_closed() and (self._line or self._reserved):
            raise RuntimeError(
                f"this {type(self).__name__} has waiters on another event loop: use one limiter for each loop"
            )
        self._loop = loop
        self._line.clear()  # a loop that was closed took its waiters with it
        self._wanted = self._reserved = 0

    def _check(self, n: int) -> None:
        as_count("n", n)
        if n > self.capacity:
            raise self._too_many(n)

    def _too_many(self, n: int) -> InvalidOption:
        return InvalidOption("n", n, f"at most {self.capacity}, the most this limiter can grant at once")


def _nothing() -> None:
    return None
