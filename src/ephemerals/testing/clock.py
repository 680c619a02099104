"""A clock for tests: it moves only when told, and tells wall time and monotonic time apart.

`VirtualClock` is a `Clock`, so it can be given wherever one is taken; `installed()` puts it in the place of
the system's clock for everything in the library. It does not run anything: that is `VirtualEventLoop`,
which moves this clock to the next timer instead of waiting.
"""

from __future__ import annotations

import asyncio
import math
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, Self, cast

from ephemerals.clock import Clock, system_clock
from ephemerals.errors import InvalidOption, InvalidOptionType
from ephemerals.options import as_float, as_seconds

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

__all__ = ["ExternalWork", "VirtualClock"]

MONOTONIC_START: Final = 1000.0
WALL_START: Final = 1767225600.0  # 2026-01-01T00:00:00Z


class _Hands:
    """Hold the two readings, apart from the clock, so that a clock is not part of a reference cycle."""

    __slots__ = ("lock", "now", "wall_offset", "working")

    def __init__(self, monotonic: float, wall: float) -> None:
        self.lock = threading.Lock()
        self.now = monotonic
        self.wall_offset = wall - monotonic
        self.working = 0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + self.wall_offset


class _SettlingLoop(Protocol):
    async def settle(self, *, external: bool) -> None: ...


class ExternalWork:
    """Keep virtual time from jumping until `end()`; a context manager, made by `external_work()`."""

    __slots__ = ("_hands",)

    def __init__(self, hands: _Hands) -> None:
        self._hands: _Hands | None = hands
        with hands.lock:
            hands.working += 1

    def end(self) -> None:
        """Let virtual time jump again as far as this work is concerned; repeating it does nothing."""
        hands, self._hands = self._hands, None
        if hands is not None:
            with hands.lock:
                hands.working -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class VirtualClock(Clock):
    """Tell a time that moves only when told, or when a `VirtualEventLoop` has nothing else to do.

    `monotonic` and `time` are the readings to start from, in seconds (`time` since the Unix epoch; the
    default is 2026-01-01T00:00Z). `patience` is how many *real* seconds a loop waits for threads, processes
    or I/O before it calls the test stuck.

    >>> clock = VirtualClock()
    >>> clock.advance(2.5)
    >>> clock.step_wall(-3600)
    >>> clock.monotonic(), clock.time() - 1767225600
    (1002.5, -3597.5)
    """

    __slots__ = ("_hands", "patience")

    def __init__(self, *, monotonic: float = MONOTONIC_START, time: float = WALL_START, patience: float = 10.0) -> None:
        self._hands = hands = _Hands(_finite("monotonic", monotonic), _finite("time", time))
        self.patience = as_seconds("patience", patience, zero=True)
        super().__init__(monotonic=hands.monotonic, time=hands.time)

    @classmethod
    def current(cls) -> VirtualClock:
        """Return the clock of the running virtual loop; on any other loop, or none, a `RuntimeError`."""
        clock = getattr(asyncio.get_running_loop(), "clock", None)
        if not isinstance(clock, VirtualClock):
            msg = "the running loop is not a VirtualEventLoop: start it with ephemerals.testing.run()"
            raise RuntimeError(msg)  # noqa: TRY004 - the wrong place, not the wrong type
        return clock

    def advance(self, seconds: float) -> None:
        """Move both readings forward by `seconds`, at once; a negative span is an `InvalidOption`.

        It is a leap, as when something blocked the loop: timers passed on the way run afterwards, in order,
        and all of them see the new time. To pass them one by one, `await asyncio.sleep(seconds)`.
        """
        span = _span(seconds)
        with self._hands.lock:
            self._hands.now += span

    def advance_to(self, moment: float) -> None:
        """Move both readings forward until `monotonic()` is exactly `moment`; a past one changes nothing."""
        reading = _finite("moment", moment)
        with self._hands.lock:
            self._hands.now = max(self._hands.now, reading)

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock by `seconds`, forward or (negative) back, as NTP or a person does."""
        step = _finite("seconds", seconds)
        with self._hands.lock:
            self._hands.wall_offset += step

    def suspend(self, seconds: float) -> None:
        """Let the machine sleep for `seconds`: wall time goes on, monotonic time stands still."""
        self.step_wall(_span(seconds))

    def external_work(self) -> ExternalWork:
        """Return a context manager that keeps virtual time from jumping while real work is under way.

        Use it around what the loop cannot know of: own threads, subprocesses, sockets of other programs. Any
        thread may; it may be nested. A thread hands its result over (`call_soon_threadsafe`) *before* it
        leaves. What goes through `run_in_executor`, `to_thread` or a coordinator's threads is counted anyway.
        """
        return ExternalWork(self._hands)

    @property
    def working(self) -> int:
        """How many pieces of external work are under way."""
        return self._hands.working

    async def settle(self, *, external: bool = True) -> None:
        """Run everything that is ready until only timers are left; time does not move.

        External work is waited for (really) too; with `external=False` what threads do is left out, so it
        returns while a body still blocks its thread. Anything but the virtual loop of this clock is a
        `RuntimeError`. A task that keeps calling `sleep(0)` keeps it from ever returning.
        """
        if self.current() is not self:
            msg = "settle() of a clock that the running loop does not use: use VirtualClock.current()"
            raise RuntimeError(msg)
        await cast("_SettlingLoop", asyncio.get_running_loop()).settle(external=external)

    @contextmanager
    def installed(self) -> Generator[Self]:
        """Stand in for `system_clock` inside the block; blocks may be nested, and end in reverse order."""
        before = system_clock.monotonic, system_clock.time
        system_clock.monotonic, system_clock.time = self.monotonic, self.time
        try:
            yield self
        finally:
            system_clock.monotonic, system_clock.time = before

    def __repr__(self) -> str:
        return f"<VirtualClock monotonic={self.monotonic()!r} time={self.time()!r}>"


def _span(seconds: object) -> float:
    return _finite("seconds", seconds, "a finite number of seconds, 0 or more", least=0.0)


def _finite(option: str, value: object, allowed: str = "a finite number of seconds", least: float = -math.inf) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidOptionType(option, value, allowed)
    number = as_float(value)
    if not math.isfinite(number) or number < least:
        raise InvalidOption(option, value, allowed)
    return number
