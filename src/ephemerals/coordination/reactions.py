"""How a coordinator reacts to signals: skip, hold back, clear, drain, tell its hooks.

Conditions are watched, so that asking costs next to nothing for an item; commands act on new events only. Nothing
here is polled: the end of a cause, its expiry included, wakes the engine in the same turn of the loop. A sink may be
delivered on another loop than the coordinator's; whatever changes the engine is then handed over to its own.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

from ephemerals.errors import InvalidOption
from ephemerals.options import as_patterns

from .lanes import LaneSchedule
from .signal_hooks import SignalHooks

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ephemerals.operation import Operation
    from ephemerals.options import EphemeralOptions
    from ephemerals.signals import SignalEvent, SignalSink, Subscription, Watch

    from .engine import Engine
    from .lanes import LaneState
    from .schedule import Schedule

__all__ = ["Deferral", "Reactions", "check_options", "has_conditions"]

_DRAIN_ONE: Final = "coordinator.drain"


class Deferral:
    """Hold starts back while a condition is present, one episode at a time.

    An episode begins when something is held back, and ends when its cause has: no matching event is present any more,
    or one of `resume` came later. It lasts at most `limit` seconds in total, however many items wait; after that
    nothing is held back until the cause has ended. As long as there is time, a cause that comes back before anything
    could start has not ended.
    """

    __slots__ = (
        "_changed",
        "_engine",
        "_is_lifted",
        "_is_over",
        "_limit",
        "_resume",
        "_resumed",
        "_skips",
        "_timer",
        "_watch",
    )

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
        self._is_over = False
        self._is_lifted = False
        self._resume: Subscription | None = None
        if resume:
            self._resume = sink.subscribe(resume, self._on_resume)
            if (last := sink.last(resume)) is not None:
                self._resumed = last.sequence
        self._watch = sink.watch(patterns, self._on_change)

    @property
    def cause(self) -> SignalEvent[Any] | None:
        """Return the event that holds starts back, even if the time for that is over; `None` if there is none."""
        event = self._watch.event
        return event if event is not None and event.sequence > self._resumed else None

    @property
    def is_holding(self) -> bool:
        """Tell whether nothing may start now."""
        return not self._is_over and not self._is_lifted and self.cause is not None

    def holds_back(self) -> bool:
        """Tell whether something that would start now has to wait; if so, the time for that begins to run."""
        if not self.is_holding:
            return False
        engine = self._engine()
        if self._timer is None and self._limit is not None and engine is not None:
            self._timer = engine.call_later(self._limit, self._on_time_out)
        return True

    @property
    def skips(self) -> bool:
        """Tell whether what would be held back is skipped, because the time for that is over."""
        return self._is_over and self._skips

    def lift_endless(self) -> None:
        """Hold nothing back any more, ever, if there is no limit of time for that."""
        if self._limit is None:
            self._is_lifted = True
            self._changed()

    def settle(self) -> None:
        """End the episode if its cause has ended, and what was held back could start."""
        if self.cause is None:
            self._is_over = False
            self.stop_timer()

    def stop_timer(self) -> None:
        """Time the episode no more, because it has ended or its loop is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def cancel(self) -> None:
        """Stop watching."""
        self._watch.cancel()
        if self._resume is not None:
            self._resume.cancel()
        self.stop_timer()

    @property
    def has_timer(self) -> bool:
        """Tell whether an episode is being timed."""
        return self._timer is not None

    def _on_change(self, _: Watch) -> None:
        self._note_end()
        self._changed()

    def _on_resume(self, event: SignalEvent[Any]) -> None:
        self._resumed = max(self._resumed, event.sequence)
        self._note_end()
        self._changed()

    def _note_end(self) -> None:
        """Let the next cause hold back again, if the time for this one was over and it has ended."""
        if self._is_over and self.cause is None:
            self._is_over = False

    def _on_time_out(self) -> None:
        self._timer = None
        self._is_over = self.cause is not None
        self._changed()


class Reactions:
    """React to a sink on behalf of an engine, for the whole and for each lane, until `cancel`.

    The sink holds this object, but this holds the engine weakly, and its hooks not at all: a coordinator that is
    dropped is not kept alive by the signals it listened to.
    """

    __slots__ = (
        "__weakref__",
        "_cancel",
        "_clears",
        "_engine",
        "_hooks",
        "_lanes",
        "_sink",
        "_subscriptions",
        "deferral",
        "deferrals",
    )

    def __init__(self, engine: Engine, sink: SignalSink) -> None:
        options = engine.options
        self._engine = weakref.ref(engine)
        self._sink = sink
        self._clears = options.clear_on_signals if options.clear == "matching" else None
        self._cancel = sink.watch(options.cancel_on_signals) if options.cancel_on_signals else None
        self._lanes: dict[str, tuple[Watch | None, Deferral | None]] = {}
        self.deferral: Deferral | None = None
        if options.defer_on_signals:
            self.deferral = Deferral(engine, sink, options.defer_on_signals, options.resume_on_signals, self._wake)
        if isinstance(engine.schedule, LaneSchedule):
            for state in engine.schedule.lanes:
                self._watch_lane(engine, state)
        lanes = (deferral for _, deferral in self._lanes.values())
        self.deferrals = tuple(each for each in (self.deferral, *lanes) if each is not None)
        self._hooks = SignalHooks(engine, sink)
        self._subscriptions: list[Subscription] = []
        if options.clear_on_signals:
            self._subscriptions.append(sink.subscribe(options.clear_on_signals, self._clear))
        if options.drain_on_signals:
            self._subscriptions.append(sink.subscribe(options.drain_on_signals, self._drain))

    # What the engine asks, for each item.

    @property
    def is_gate(self) -> bool:
        """Tell whether anything has to be asked before an operation starts."""
        return bool(self._cancel is not None or self.deferrals or any(watch for watch, _ in self._lanes.values()))

    @property
    def is_holding(self) -> bool:
        """Tell whether nothing may start now, in any lane."""
        return self.deferral is not None and self.deferral.is_holding

    def holds_back(self) -> bool:
        """Tell whether what would start now, in whatever lane, has to wait; if so, the time for that begins to run."""
        return self.deferral is not None and self.deferral.holds_back()

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

    # What the engine does with it.

    def settle(self) -> None:
        """End the episodes whose cause has ended."""
        for deferral in self.deferrals:
            deferral.settle()

    def lift_endless(self) -> None:
        """Let go of what would be held back without a limit of time: the coordinator drains, and must end."""
        for deferral in self.deferrals:
            deferral.lift_endless()

    def bind(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Run the asynchronous hooks on this loop from now on; what was timed on another is not any more."""
        for deferral in self.deferrals:
            deferral.stop_timer()
        self._hooks.bind(loop)

    async def finish_hooks(self, budget: float | None) -> None:
        """Wait `budget` seconds for asynchronous hooks that were called (`None`: no limit), then cancel them."""
        await self._hooks.finish(budget)

    def cancel(self) -> None:
        """Listen no more; twice is the same as once."""
        for subscription in self._subscriptions:
            subscription.cancel()
        for watch, _ in (*self._lanes.values(), (self._cancel, None)):
            if watch is not None:
                watch.cancel()
        for deferral in self.deferrals:
            deferral.cancel()
        self._hooks.cancel()

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when the coordinator is idle: timers, and calls of asynchronous hooks."""
        return {
            "timers": sum(each.has_timer for each in self.deferrals),
            "calls of signal hooks": self._hooks.calls,
        }

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

    # What the sink tells.

    def _wake(self) -> None:
        engine = self._engine()
        if engine is not None:
            engine.on_own_loop(engine.look_again)

    def _clear(self, _: SignalEvent[Any]) -> None:
        if self._clears is None:
            self._sink.clear()
        else:
            self._sink.clear_matching(self._clears)

    def _drain(self, event: SignalEvent[Any]) -> None:
        engine = self._engine()
        if engine is None or (event.key != engine.name if event.key is not None else event.name == _DRAIN_ONE):
            return
        if engine.is_orphaned:
            engine.leave_loop()
        engine.on_own_loop(engine.begin_drain)


def has_conditions(options: EphemeralOptions, schedule: Schedule) -> bool:
    """Tell whether anything has to be asked before an operation starts."""
    lanes = [each.lane for each in schedule.lanes] if isinstance(schedule, LaneSchedule) else []
    return bool(
        options.cancel_on_signals
        or options.defer_on_signals
        or any(lane.cancel_on_signals or lane.defer_on_signals for lane in lanes)
    )


def check_options(options: EphemeralOptions, schedule: Schedule) -> None:
    """Refuse what would do nothing for want of another option."""
    lanes = [each.lane for each in schedule.lanes] if isinstance(schedule, LaneSchedule) else []
    defers = options.defer_on_signals or any(lane.defer_on_signals for lane in lanes)
    if options.resume_on_signals and not defers:
        raise InvalidOption("resume_on_signals", options.resume_on_signals, "defer_on_signals beside it")
    if options.on_defer_timeout == "skip" and (not defers or options.max_defer_time is None):
        raise InvalidOption("on_defer_timeout", "skip", "defer_on_signals and a max_defer_time beside it")
    if options.clear == "matching" and not options.clear_on_signals:
        raise InvalidOption("clear", "matching", "clear_on_signals beside it")
