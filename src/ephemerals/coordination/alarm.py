"""One timer that many things share: it rings at the earliest time somebody needs.

It is moved only to ring sooner. So it may ring before there is anything to do; whoever owns it looks then, and sets
it again for what comes next. That way an owner with ten thousand due times has one timer, and moves it rarely.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemerals.clock import Clock

__all__ = ["Alarm"]

_NEVER: Final = math.inf


class Alarm:
    """Call `ring()` on the running loop once a monotonic time of `clock` has come, never in anybody's context.

    A loop that was closed takes its timer with it; the next `set` uses the loop that runs then.
    """

    __slots__ = ("_clock", "_context", "_handle", "_loop", "_ring", "due")

    def __init__(self, clock: Clock, ring: Callable[[], object]) -> None:
        self._clock = clock
        self._ring = ring
        self._context = contextvars.Context()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self.due = _NEVER

    @property
    def is_set(self) -> bool:
        """Tell whether the timer is armed."""
        return self._handle is not None

    def set(self, due: float) -> None:
        """Ring at the monotonic time `due` (seconds) at the latest; at once, in another turn, if it has passed."""
        loop = asyncio.get_running_loop()
        if loop is self._loop and self._handle is not None:
            if self.due <= due:
                return
            self._handle.cancel()
        self._loop = loop
        self.due = due
        # Never at the present instant: a difference too small for a float would ring for ever without time passing.
        when = max(loop.time() + (due - self._clock.monotonic()), math.nextafter(loop.time(), _NEVER))
        self._handle = loop.call_at(when, self._on_timer, context=self._context)

    def stop(self) -> None:
        """Ring no more; without effect if it is not set."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None
        self.due = _NEVER

    def _on_timer(self) -> None:
        self._handle = None
        self.due = _NEVER
        self._ring()
