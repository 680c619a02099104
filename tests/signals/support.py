"""A clock that moves when told, and timers that run when it does."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

from ephemerals.clock import Clock


class ManualClock(Clock):
    """Tell a time that only `advance` moves, and with it, inside `timers()`, the timers of the loop."""

    __slots__ = ("_timers", "now", "wall")

    def __init__(self):
        self.now = 1000.0
        self.wall = 1_767_225_600.0
        self._timers = []
        super().__init__(monotonic=lambda: self.now, time=lambda: self.wall)

    def advance(self, seconds):
        until = self.now + seconds
        while due := sorted((each for each in self._timers if each.when <= until), key=lambda each: each.when):
            timer = due[0]
            self._timers.remove(timer)
            self._move(timer.when)
            if not timer.cancelled():
                timer._run()
        self._move(until)

    def _move(self, now):
        self.wall += now - self.now
        self.now = now

    @property
    def armed(self):
        return [each.when for each in self._timers if not each.cancelled()]

    @contextmanager
    def timers(self):
        loop = asyncio.get_running_loop()

        def call_later(delay, callback, *args, context=None):
            timer = Timer(self.now + delay, callback, args, loop, context)
            self._timers.append(timer)
            return timer

        loop.call_later = call_later
        try:
            yield self
        finally:
            del loop.call_later


class Timer(asyncio.Handle):
    def __init__(self, when, callback, args, loop, context):
        super().__init__(callback, args, loop, context)
        self.when = when


class Payload:
    """Something that can be seen to be forgotten."""


def names(events):
    return [event.name for event in events]
