"""How a coordinator reacts to signals: skip, hold back, clear, drain.

Conditions are watched, so that asking costs next to nothing for an item; commands act on new events only. Nothing
here is polled: the end of a cause, its expiry included, wakes the engine in the same turn of the loop.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

from ephemerals.options import as_patterns

from .body import is_coroutine_function
from .lanes import LaneSchedule

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ephemerals.operation import Operation
    from ephemerals.signals import SignalEvent, SignalSink, Subscription, Watch

    from .engine import Engine
    from .lanes import LaneState

__all__ = ["Deferral", "Reactions"]

_DRAIN_ONE: Final = "coordinator.drain"


class Deferral:
    """Hold starts back while a condition is present, one episode at a time.

    An episode begins when something is held back, and ends with its cause: no matching event is present any more, or
    one of `resume` came later. It lasts at most `limit` seconds in total, however many items wait; after that nothing
    is held back until the cause has ended.
    """

    __slots__ = ("_changed", "_engine", "_limit", "_resumed", "_skips", "_timer", "_watch", "_watches", "is_over")

    def __init__(
        self,
        engine: Engine,
        sink: SignalSink,
        patterns: tuple[str, ...],
        resume: tuple[str, ...],
        changed: Callable[[], None],
    ) -> None:
        self._engine = weakref.ref(engine)
        self._limit = engine.options.max_defer_time
        self._skips = engine.options.on_defer_timeout == "skip"
        self._changed = changed
        self._resumed = 0
        self._timer: asyncio.TimerHandle | None = None
        self.is_over = False
        self._watch = sink.watch(patterns, self._on_change)
        self._watches = [self._watch]
        if resume:
            watch = sink.watch(resume, self._on_resume)
            self._on_resume(watch)
            self._watches.append(watch)

    @property
    def cause(self) -> SignalEvent[Any] | None:
        """Return the event that holds starts back, even if the time for that is over; `None` if there is none."""
        event = self._watch.event
        return event if event is not None and event.sequence > self._resumed else None

    @property
    def holds(self) -> bool:
        """Tell whether nothing may start now."""
        return not self.is_over and self.cause is not None

    def note_held_back(self) -> None:
        """Begin an episode, if none has begun: something would have started now."""
        engine = self._engine()
        if self._timer is None and self._limit is not None and engine is not None:
            self._timer = engine.call_later(self._limit, self._on_time_out)

    @property
    def skips(self) -> bool:
        """Tell whether what would be held back is skipped, because the time for that is over."""
        return self.is_over and self._skips

    def lift_endless(self) -> None:
        """Hold nothing back any more until the cause has ended, if there is no limit of time for that."""
        if self._limit is None:
            self.is_over = True
            self._changed()

    def cancel(self) -> None:
        """Stop watching."""
        for watch in self._watches:
            watch.cancel()
        self._stop_timer()

    @property
    def has_timer(self) -> bool:
        """Tell whether an episode is being timed."""
        return self._timer is not None

    def _on_change(self, _: Watch) -> None:
        if self.cause is None:
            self.is_over = False
            self._stop_timer()
        self._changed()

    def _on_resume(self, watch: Watch) -> None:
        if watch.event is not None:
            self._resumed = max(self._resumed, watch.event.sequence)
            self._on_change(watch)

    def _on_time_out(self) -> None:
        self._timer = None
        self.is_over = self.cause is not None
        self._changed()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Reactions:
    """React to a sink on behalf of an engine, for the whole and for each lane, until `cancel`.

    The sink holds this object, but this holds the engine weakly: a coordinator that is dropped is not kept alive by
    the signals it listened to.
    """

    __slots__ = ("__weakref__", "_cancel", "_clears", "_engine", "_lanes", "_sink", "_subscriptions", "deferral")

    def __init__(self, engine: Engine, sink: SignalSink) -> None:
        options = engine.options
        self._engine = weakref.ref(engine)
        self._sink = sink
        self._clears = options.clear_on_signals if options.clear == "matching" else None
        self._cancel = sink.watch(options.cancel_on_signals) if options.cancel_on_signals else None
        self.deferral: Deferral | None = None
        self._lanes: dict[str, tuple[Watch | None, Deferral | None]] = {}
        if options.defer_on_signals:
            self.deferral = Deferral(engine, sink, options.defer_on_signals, options.resume_on_signals, self._wake)
        if isinstance(engine.schedule, LaneSchedule):
            for state in engine.schedule.lanes:
                self._watch_lane(engine, state)
        self._subscriptions: list[Subscription] = []
        if options.clear_on_signals:
            self._subscriptions.append(sink.subscribe(options.clear_on_signals, self._clear))
        if options.drain_on_signals:
            self._subscriptions.append(sink.subscribe(options.drain_on_signals, self._drain))
        for hook, retractions in ((options.on_signal, False), (options.on_signal_retracted, True)):
            if hook is not None:
                handler = _only_from(engine.name, hook)
                self._subscriptions.append(sink.subscribe("*", handler, retractions=retractions))

    @property
    def is_gate(self) -> bool:
        """Tell whether anything has to be asked before an operation starts."""
        return bool(self._cancel is not None or self._deferrals() or any(watch for watch, _ in self._lanes.values()))

    @property
    def holds(self) -> bool:
        """Tell whether nothing may start now, in any lane; if so, the time of the deferral begins to run."""
        if self.deferral is None or not self.deferral.holds:
            return False
        self.deferral.note_held_back()
        return True

    def skips(self, operation: Operation[Any]) -> SignalEvent[Any] | None:
        """Return the event for which an operation that is about to start is skipped; `None` if it may start."""
        watch, lane_deferral = self._lanes.get(operation.lane or "", (None, None))
        for each in (self._cancel, watch):
            if each is not None and (event := each.event) is not None:
                return event
        for deferral in (self.deferral, lane_deferral):
            if deferral is not None and deferral.skips and (event := deferral.cause) is not None:
                return event
        return None

    @property
    def timers(self) -> int:
        """Return how many deferrals are being timed."""
        return sum(each.has_timer for each in self._deferrals())

    def lift_endless(self) -> None:
        """Let go of what would be held back without a limit of time: the coordinator drains, and must end."""
        for deferral in self._deferrals():
            deferral.lift_endless()

    def cancel(self) -> None:
        """Listen no more; twice is the same as once."""
        for subscription in self._subscriptions:
            subscription.cancel()
        for watch, _ in (*self._lanes.values(), (self._cancel, None)):
            if watch is not None:
                watch.cancel()
        for deferral in self._deferrals():
            deferral.cancel()

    def _deferrals(self) -> list[Deferral]:
        deferrals = (self.deferral, *(deferral for _, deferral in self._lanes.values()))
        return [each for each in deferrals if each is not None]

    def _watch_lane(self, engine: Engine, state: LaneState) -> None:
        lane, watch, deferral = state.lane, None, None
        if lane.cancel_on_signals:
            watch = self._sink.watch(lane.cancel_on_signals)
        if lane.defer_on_signals:
            deferral = Deferral(
                engine,
                self._sink,
                as_patterns("defer", lane.defer_on_signals),
                engine.options.resume_on_signals,
                self._wake,
            )
            state.deferral = deferral
        self._lanes[lane.name] = watch, deferral

    def _wake(self) -> None:
        engine = self._engine()
        if engine is not None:
            engine.wake_from_anywhere()

    def _clear(self, _: SignalEvent[Any]) -> None:
        if self._clears is None:
            self._sink.clear()
        else:
            self._sink.clear_matching(self._clears)

    def _drain(self, event: SignalEvent[Any]) -> None:
        engine = self._engine()
        if engine is None or (event.key != engine.name if event.key is not None else event.name == _DRAIN_ONE):
            return
        engine.begin_drain()


def _only_from(source: str, hook: Callable[[SignalEvent[Any]], object]) -> Callable[[SignalEvent[Any]], object]:
    """Return a handler that passes on only what this source has emitted, and is asynchronous if the hook is."""
    if is_coroutine_function(hook):

        async def handle_async(event: SignalEvent[Any]) -> None:
            if event.source == source:
                await hook(event)  # type: ignore[misc]  # a coroutine function, as just found out

        return handle_async

    def handle(event: SignalEvent[Any]) -> None:
        if event.source == source:
            hook(event)

    return handle
