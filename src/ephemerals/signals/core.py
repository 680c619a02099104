"""What a sink is made of, and how its parts keep step: window, listeners, delivery, watches, and one timer.

Everything that changes the window ends here: watches get the next best event, and the timer is armed for what
expires next. Events go when their time has come also if nobody emits or asks any more.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import weakref
from contextvars import Context, copy_context
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from .async_handlers import AsyncHandlers
from .delivery import Delivery, running_loop
from .index import EventIndex
from .isolation import Isolation
from .routing import RoutingTable

if TYPE_CHECKING:
    from ephemerals.clock import Clock

    from .event import SignalEvent
    from .index import Cell
    from .isolation import OnHandlerError
    from .pattern import Pattern
    from .routing import Route
    from .watch import Watch

__all__ = ["SinkCore"]

_SWEEP: Final = 0.1
"""Seconds between two sweeps of a busy window; whoever reads does not depend on them."""
_TICK: Final = 1e-6
"""Seconds that a timer waits at least, so that a clock and a loop that round differently get ahead."""

_numbers: Final = itertools.count(1)


class SinkCore:
    """Hold the parts of a sink together. The methods with an underscore are for the sink's own modules."""

    __slots__ = (
        "__weakref__",
        "_acquire",
        "_delivery",
        "_due",
        "_handlers",
        "_index",
        "_isolation",
        "_listeners",
        "_lock",
        "_number",
        "_present",
        "_queue",
        "_release",
        "_routes",
        "_table",
        "_timer",
        "clock",
    )

    def __init__(  # noqa: PLR0913 - what the parts need
        self,
        *,
        capacity: int,
        age: float,
        on_handler_error: OnHandlerError | None,
        max_concurrent: int,
        max_queued: int,
        clock: Clock,
    ) -> None:
        self.clock = clock
        self._number = next(_numbers)
        self._index = EventIndex(capacity, age)
        self._table = RoutingTable()
        self._isolation = Isolation(on_handler_error)
        self._new_lock()
        self._handlers = AsyncHandlers(
            self._lock, self._isolation, max_concurrent=max_concurrent, max_queued=max_queued
        )
        self._delivery = Delivery(
            self._number, self._lock, self._isolation, self._handlers, partial(_on_timer, self._reference())
        )
        self._timer: asyncio.TimerHandle | None = None
        self._due = -inf  # the moment for which the timer is armed
        self._present: dict[Watch, SignalEvent[Any]] = {}  # the newest one for each watch that has any
        # What `emit` needs, one look-up away.
        self._queue = self._delivery.queue
        self._routes = self._table.routes
        self._listeners = self._table.listeners
        _sinks.add(self)

    def _new_lock(self) -> None:
        """Make the lock: re-entrant, for a finalizer that emits may run in the middle of anything."""
        lock = threading.RLock()
        self._lock = lock
        self._acquire = lock.acquire
        self._release = lock.release

    def _route(self, name: str) -> Route:
        """Return who hears of a name; the caller holds the lock."""
        return self._routes.get(name) or self._table.find(name)

    def _refresh(self) -> float:
        """Bring the window up to date and return what time it is; the caller holds the lock."""
        now = self.clock.monotonic()
        if self._index.refresh(now):
            self._settle(now)
        return now

    def _take(self, cells: list[Cell], *, retracted: bool) -> int:
        """Take events out of the window, and queue what is to be told of it; the caller holds the lock."""
        events: list[SignalEvent[Any]] = [cell[0] for cell in cells]
        removed = self._index.remove(cells)
        self._settle(self.clock.monotonic())
        if retracted and self._listeners:
            for event in reversed(events):
                route = self._route(event.name)
                if route.retractions:
                    self._queue.append((event, route.retractions, copy_context() if route.has_async else None))
        return removed

    # Presence: the watches follow the window.

    def _change(self, watch: Watch, event: SignalEvent[Any] | None) -> None:
        """Let a watch have a new event; the caller holds the lock."""
        self._set(watch, event)
        if watch.on_change is not None and not watch.is_due:
            watch.is_due = True
            self._queue.append((None, (watch,), None))

    def _set(self, watch: Watch, event: SignalEvent[Any] | None) -> None:
        watch.is_set = event is not None
        if event is None:
            self._present.pop(watch, None)
        else:
            self._present[watch] = event

    def _settle(self, now: float) -> None:
        """Give the watches whose event has left the window the next best; the caller holds the lock."""
        if not self._present:
            return
        self._index.refresh(now)
        for watch, event in list(self._present.items()):
            if not self._index.contains(event):
                self._change(watch, self._newest(watch.pattern))

    def _newest(self, pattern: Pattern) -> SignalEvent[Any] | None:
        names = pattern.names if pattern.is_exact else pattern.select(self._index.names())
        newest = [event for event in map(self._index.newest_of, names) if event is not None]
        return max(newest, key=lambda event: event.sequence, default=None)

    def _event_of(self, watch: Watch) -> SignalEvent[Any] | None:
        """Return what a watch has at this moment."""
        event = self._present.get(watch)
        now = self.clock.monotonic()
        if event is None or event.monotonic + self._index.max_age > now:
            return event
        with self._lock:
            self._settle(now)
            return self._present.get(watch)

    # The loop and its timer.

    def bind(self) -> None:
        """Deliver on the running loop, and keep time there, from now on.

        Listening inside a loop does that by itself. If the sink is bound to another loop that is still open
        in another thread, it stays there.
        """
        asyncio.get_running_loop()
        self._attach()

    def _attach(self) -> None:
        """Bind to the loop that runs here, if one does and none is bound, and see to the timer."""
        running = running_loop()
        if running is None:
            return
        if self._delivery.loop is not running:
            self._delivery.adopt(running)
        with self._lock:
            self._arm(self.clock.monotonic())
        self._flush()

    def _flush(self) -> None:
        if self._queue:
            self._delivery.flush()

    def _arm(self, now: float) -> None:
        """Arm the timer for the next expiry; the caller holds the lock."""
        loop = self._delivery.loop
        running = running_loop()
        if loop is None or loop.is_closed():
            if running is None:
                return
            self._delivery.adopt(running)
            loop = running
        if running is not loop:
            self._due = now + _SWEEP  # the loop's thread does it; should it not come to it, somebody asks again
            self._delivery.call(_on_timer, self._reference())
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._next_expiry(now)
        self._due = -inf if due == inf else due
        if due != inf:
            delay = max(due - now, _TICK)
            self._timer = loop.call_later(delay, _on_timer, self._reference(), context=Context())

    def _reference(self) -> weakref.ref[SinkCore]:
        return weakref.ref(self)

    def _next_expiry(self, now: float) -> float:
        """Return when to look again: for a watched event exactly then, for others now and then."""
        age = self._index.max_age
        due = self._index.next_expiry
        if due != inf:
            due = max(due, now + min(_SWEEP, age))
        for event in self._present.values():
            if not self._index.is_held(event):
                due = min(due, event.monotonic + age)
        return due

    def _on_due(self) -> None:
        with self._lock:
            now = self.clock.monotonic()
            self._index.tidy(now)
            self._settle(now)
            self._arm(now)
        if self._queue:
            self._delivery.flush_some()

    def _start_anew(self) -> None:
        """Be empty in a forked child: its parent's events, loop and half-done deliveries are not its own."""
        self._new_lock()
        self._index = EventIndex(self._index.capacity, self._index.max_age)
        self._handlers.start_anew(self._lock)
        self._delivery.start_anew(self._lock)
        self._timer = None
        self._due = -inf
        for watch in list(self._present):
            self._change(watch, None)


_sinks: Final[weakref.WeakSet[SinkCore]] = weakref.WeakSet()


def _on_timer(reference: weakref.ref[SinkCore]) -> None:
    """Be called by the loop; the timer does not keep the sink."""
    if (sink := reference()) is not None:
        sink._on_due()


def _after_fork() -> None:
    for sink in list(_sinks):
        sink._start_anew()


os.register_at_fork(after_in_child=_after_fork)
