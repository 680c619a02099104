"""The one engine under every coordinator: it accepts, starts and ends operations.

    item ──► admission ──► schedule ──► execution ──► settlement ──► window

Starting is the work of the pump, a plain callback of the loop that is scheduled when there may be something to
start, and takes from the schedule while there are free slots. Everything happens on the loop's thread, in synchronous
steps, so the counts add up at every point where somebody else can look.

The parts hold the engine, and one another through it: `execution` the tasks, `settlement` the ends, `waits` those who
wait, `signalling` the sink and the reactions, `retrying` and `start_limit` what the options of these names ask for.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ephemerals.errors import CoordinatorBroken, CoordinatorClosed, CoordinatorFull, WrongLoop
from ephemerals.ids import format_id, next_id
from ephemerals.operation import Operation, freeze_metadata
from ephemerals.options import as_count
from ephemerals.signals.propagation import cause
from ephemerals.snapshot import OperationStatus
from ephemerals.window import OperationWindow

from .admission import Admission
from .counts import Counts
from .execution import Execution, raise_in_loop
from .lifetime import keep_while_busy, let_go, register
from .logs import log
from .privacy import hashed_key
from .reactions import check_options
from .responsibility import acknowledged
from .retrying import Retrying
from .settlement import Settlement
from .signalling import Signalling
from .stable_key import StableKeys
from .start_limit import StartLimit
from .waits import Waits

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from datetime import timedelta

    from ephemerals.options import EphemeralOptions
    from ephemerals.signals import PatternLike, SignalEvent, SignalKey, SignalSink

    from .body import Body
    from .report import CoordinatorStatistics, DrainReport
    from .responsibility import Acknowledgement
    from .schedule import Schedule

__all__ = ["Engine"]

_PER_TURN: Final = 64
"""Items accepted, or started, before others on the loop get a turn."""

_PENDING: Final = OperationStatus.PENDING


class Engine:
    """Run operations; the coordinators are faces of this.

    `make_schedule` is called once, and again in a forked child, where everything starts anew.
    """

    __slots__ = (
        "__weakref__",
        "_accepted_in_turn",
        "_closed_listeners",
        "_hashes_keys",
        "_inherits_context",
        "_keeps_results",
        "_keys",
        "_limit",
        "_make_schedule",
        "_results_ttl",
        "_scheduled",
        "_timeout",
        "admission",
        "body",
        "broken",
        "clock",
        "context",
        "counts",
        "execution",
        "is_closed",
        "is_paused",
        "is_released",
        "loop",
        "name",
        "options",
        "retrying",
        "schedule",
        "settlement",
        "signalling",
        "start_limit",
        "started_at",
        "waits",
        "window",
    )

    schedule: Schedule
    window: OperationWindow
    admission: Admission

    def __init__(  # noqa: PLR0913 - the parts a face chooses
        self,
        body: Body,
        make_schedule: Callable[[], Schedule],
        options: EphemeralOptions,
        name: str,
        *,
        keeps_results: bool = False,
        results_ttl: float | None = None,
    ) -> None:
        self.body = body
        self.options = options
        self.name = name
        self.clock = options.clock
        self._make_schedule = make_schedule
        self._keeps_results = keeps_results
        self._results_ttl = results_ttl
        self.signalling = Signalling(self)
        self.start_anew()
        register(self)

    def start_anew(self) -> None:
        """Be new and empty, with no loop; done at construction, and again in a forked child."""
        options = self.options
        self.loop: asyncio.AbstractEventLoop | None = None
        self.context = contextvars.Context()
        self.counts = Counts()
        self.schedule = self._make_schedule()
        check_options(options, self.schedule)
        self.window = OperationWindow(options, self.call_hook, results_ttl=self._results_ttl)
        self.admission = Admission(options.max_pending, self.schedule, self.window.pending)
        self.execution = Execution(self)
        self.settlement = Settlement(self, keeps_results=self._keeps_results)
        self.waits = Waits(self)
        self._keys = StableKeys()
        self.retrying = None if options.retry is None else Retrying(options.retry, self.clock, self._readmit)
        self.start_limit = None if options.limiter is None else StartLimit(options.limiter, self._schedule_pump)
        self._limit = options.max_concurrency
        self._timeout = options.operation_timeout
        self._hashes_keys = options.key_privacy == "hashed"
        self._inherits_context = options.context == "inherit"
        self._scheduled = False
        self._accepted_in_turn = 0
        self._closed_listeners: tuple[Callable[[], None], ...] = ()
        self.broken: BaseException | None = None
        self.is_paused = False
        self.is_closed = False
        self.is_released = False
        self.started_at: float | None = None
        self.signalling.start_anew(self)

    # Coming in.

    def new_operation(  # noqa: PLR0913 - the fields of an operation
        self,
        item: Any,
        *,
        key: Any = None,
        lane: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        name: str | None = None,
        timeout: float | None = None,
    ) -> Operation[Any]:
        """Make an operation in the caller's context, not yet accepted; raise if nothing is accepted any more."""
        if asyncio.get_running_loop() is not self.loop:
            self.bind()
        if self.is_closed:
            raise self.refusal()
        operation: Operation[Any] = Operation(
            next_id(),
            name or self.body.name,
            self,
            item,
            contextvars.copy_context() if self._inherits_context else _fresh_context(),
            key,
            None if key is None else self._keys.of(key),
            hashed_key(key) if self._hashes_keys and key is not None else key,
            lane,
            timeout or self._timeout,
        )
        if metadata is not None:
            operation._draft.metadata = freeze_metadata(metadata)
        return operation

    def check_open(self) -> None:
        """Raise `CoordinatorClosed` if the intake is closed, `CoordinatorBroken` if an internal error closed it."""
        if self.is_closed:
            raise self.refusal()

    def admit(self, operation: Operation[Any]) -> bool:
        """Accept an operation if that can be done at once; if not, `enqueue` has to be awaited."""
        if self._accepted_in_turn >= _PER_TURN or not self.admission.has_room(operation):
            return False
        self._accepted_in_turn += 1
        self.accept(operation)
        return True

    async def enqueue(self, operation: Operation[Any]) -> None:
        """Accept an operation, waiting for room if need be; give others a turn now and then."""
        if self._accepted_in_turn >= _PER_TURN:
            self._accepted_in_turn = 0
            await asyncio.sleep(0)
            self.check_open()
        self._accepted_in_turn += 1
        if self.admission.has_room(operation):
            self.accept(operation)
        elif self.options.overflow == "wait":
            await self._wait_for_room(operation)
        elif not self.enqueue_nowait(operation):
            raise CoordinatorFull(self.name, self.why_full(operation))

    async def _wait_for_room(self, operation: Operation[Any]) -> None:
        try:
            await self.admission.wait(operation, lambda waiter: self.waits.note(waiter, operation, for_room=True))
            try:
                self.check_open()
                self.accept(operation)
            except BaseException:
                self.admission.give_back(operation)
                raise
        except BaseException:
            if self.is_idle:
                self.became_idle()  # nobody is about to come in any more
            raise
        self.admission.used(operation)
        self.waits.end_deadlock()  # a body may wait behind this one for room that it alone could make

    def enqueue_nowait(self, operation: Operation[Any]) -> bool:
        """Accept an operation if there is room or room can be made by dropping; tell whether it was accepted."""
        if not self._has_room_now(operation) and not (
            self.options.overflow == "drop_oldest" and self._drop_for(operation)
        ):
            self.counts.rejected += 1
            log(logging.INFO, "coordinator %s refused an item: %s", self.name, self.why_full(operation))
            return False
        self.accept(operation)
        return True

    def _has_room_now(self, operation: Operation[Any]) -> bool:
        """Tell whether an operation that does not wait may come in: what is about to start takes nobody's room."""
        if self.admission.has_room(operation):
            return True
        if self.is_paused or self.start_limit is not None or self.signalling.is_holding:
            return False
        free = self._limit - len(self.window.running)
        return free > 0 and self.admission.has_room(operation, self.schedule.ready(free))

    def accept(self, operation: Operation[Any]) -> None:
        """Take an operation in; from here on it ends in exactly one final state."""
        clock, counts, draft = self.clock, self.counts, operation._draft
        operation._order = counts.enqueued
        draft._enqueued = clock.monotonic()
        draft._wall = clock.time()
        self.schedule.push(operation)  # first, because a key's own comparison may raise
        counts.enqueued += 1
        pending = self.window.pending
        if not pending and not self.window.running:
            keep_while_busy(self)
        pending[operation.id] = operation
        if not self._scheduled:
            self.wake()

    def refusal(self) -> Exception:
        """Return what is raised for an item that comes too late."""
        if self.broken is None:
            return CoordinatorClosed(self.name)
        refusal = CoordinatorBroken(self.name)
        refusal.__cause__ = self.broken
        return refusal

    def why_full(self, operation: Operation[Any]) -> str:
        """Say why there is no room for an operation."""
        if self.schedule.has_compartments and self.admission.compartment_without_room(operation) is not None:
            return "too much is waiting for its key or lane"
        return f"{len(self.window.pending)} items are waiting"

    def _drop_for(self, operation: Operation[Any]) -> bool:
        """Cancel those that wait longest, where the newcomer wants to be, until it has room."""
        while not self._has_room_now(operation):
            compartment: Hashable | None = None
            if self.schedule.has_compartments:
                compartment = self.admission.compartment_without_room(operation)
            victim = next((each for each in self.window.pending.values() if self._waits_in(each, compartment)), None)
            if victim is None:
                return False
            self.counts.dropped += 1
            log(logging.WARNING, "coordinator %s dropped operation %s to make room", self.name, format_id(victim.id))
            self.settlement.withdraw(victim, "it was dropped to make room for a newer one")
        return True

    def _waits_in(self, operation: Operation[Any], compartment: Hashable | None) -> bool:
        return compartment is None or any(each == compartment for each, _ in self.schedule.compartments(operation))

    # The pump.

    def wake(self) -> None:
        """Have the pump run in this turn of the loop if there may be something to start."""
        if (
            not self._scheduled
            and self.window.pending
            and len(self.window.running) < self._limit
            and not self.is_paused
        ):
            self._schedule_pump()

    def _schedule_pump(self) -> None:
        if not self._scheduled and self.loop is not None:
            self._scheduled = True
            try:
                self.loop.call_soon(self._pump, context=self.context)
            except RuntimeError:  # its loop was closed: what is left is settled when it is used again
                self._scheduled = False

    def _pump(self) -> None:
        """Start what may start, a bounded number at a time."""
        self._scheduled = False
        loop = self.loop
        if loop is None:
            return
        try:
            self.execution.begin(loop)
            if self._start_some(loop) or self.execution.is_starting:
                self._schedule_pump()
        except Exception as error:  # noqa: BLE001 - an internal error must be heard by everybody who waits
            self.settlement.break_off(error)

    def _start_some(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Start what may start; tell whether it stopped only to give others a turn."""
        pending, running, pop = self.window.pending, self.window.running, self.schedule.pop
        start, gate, limit = self.execution.start, self.signalling.gate, self.start_limit
        for _ in range(_PER_TURN):
            if not pending or len(running) >= self._limit or self.is_paused:
                break
            if (gate is not None and gate.holds_back()) or (limit is not None and not limit.allows()):
                break
            if (operation := pop()) is None:
                break
            if gate is not None and (event := gate.skips(operation)) is not None:
                self.settlement.skip(operation, event.name)
                continue
            if limit is not None:
                limit.take()
            start(operation, loop)
        else:
            return True
        if limit is not None:
            limit.give_back_unused()
        return False

    def _readmit(self, operation: Operation[Any]) -> None:
        """Take an operation that is to be tried again back among those that may start."""
        self.schedule.readmit(operation)
        self.wake()

    # Control.

    @property
    def limit(self) -> int:
        """Return how many may run at once."""
        return self._limit

    def set_limit(self, limit: int) -> None:
        """Change how many may run at once: a raise takes hold at once, a cut as running ones end."""
        self._limit = as_count("max_concurrency", limit)
        self.waits.end_deadlock()
        self.wake()

    def pause(self) -> None:
        """Start nothing more until `resume`."""
        self.is_paused = True

    def resume(self) -> None:
        """Start again."""
        self.is_paused = False
        self.waits.end_deadlock()
        self.wake()

    def look_again(self) -> None:
        """Look whether something may start, because a condition has changed."""
        self.waits.end_deadlock()
        self.wake()
        if self.loop is not None:
            self.loop.call_soon(self.signalling.end_episodes, context=self.context)

    def cancel_one(self, operation: Operation[Any]) -> bool:
        """Cancel an operation; tell whether that had an effect."""
        if operation._draft._finished is not None:
            return False
        if operation._status is _PENDING and operation.id not in self.window.pending:
            return False
        if self.is_orphaned:
            self.leave_loop()
        elif not self.is_on_own_loop and self.loop is not None and self.loop.is_running():
            self.on_own_loop(self.cancel_one, operation)  # a body in a thread asks
        elif operation._status is _PENDING:
            self.settlement.withdraw(operation, None)
        else:
            self.execution.stop(operation, "cancelled")
        return True

    def cancel_all(self) -> None:
        """Close the intake, cancel what waits without starting it, and ask what runs to stop."""
        self.complete()
        if self.retrying is not None:
            self.retrying.cut_all_short()
        self.settlement.cancel_pending()
        for operation in list(self.window.running.values()):
            self.cancel_one(operation)

    def begin_drain(self) -> None:
        """Close the intake and let everything that was accepted run, whatever holds it back."""
        self.complete()
        self.resume()
        self.signalling.lift_endless()

    def complete(self) -> None:
        """Close the intake; those who wait for room are refused."""
        if not self.is_closed:
            if self.is_orphaned:
                self.leave_loop()
            self.is_closed = True
            self.admission.close(self.refusal)
            for listener in self._closed_listeners:
                listener()

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing is pending, running or about to come in."""
        return not self.window.running and not self.window.pending and self.admission.is_quiet

    def became_idle(self) -> None:
        """Let go of everything that only work needs, and wake those who waited for this."""
        let_go(self)
        self.execution.deadlines.clear()
        if self.start_limit is not None:
            self.start_limit.leave()
        if self.admission.is_quiet:
            self.waits.became_idle()

    async def close(self, grace: float | None, cancel_grace: float | None) -> DrainReport:
        """Let work end by itself for `grace` seconds, cancel, wait `cancel_grace`, then let go of everything."""
        self.begin_drain()
        if not await self.wait_idle(grace):
            self.cancel_all()
            if not await self.wait_idle(cancel_grace):
                log(
                    logging.WARNING,
                    "coordinator %s closes while operations are still running: %s",
                    self.name,
                    ", ".join(f"{format_id(each.id)} ({each.name})" for each in self.window.running.values()),
                )
        report = self.report()
        if not self.is_released:
            await self.signalling.finish_hooks(cancel_grace)
        self.release()
        return report

    def release(self) -> None:
        """Finalize what the window holds, and let threads, timers and subscriptions go."""
        if self.is_released:
            return
        self.is_released = True
        self.signalling.cancel()
        self.window.close()
        self.execution.pool.shutdown()

    # Loops.

    def bind(self) -> asyncio.AbstractEventLoop:
        """Take the running loop as this engine's, at first use or when the one before is closed."""
        loop = asyncio.get_running_loop()
        if loop is not self.loop:
            if self.loop is not None:
                if not self.loop.is_closed():
                    raise WrongLoop(self.name, self.loop, loop)
                self.leave_loop()
            self.loop = loop
            if self.started_at is None:
                self.started_at = self.clock.monotonic()
            self.window.bind(loop, self.context)
            self.signalling.bind(loop)
        return loop

    @property
    def is_orphaned(self) -> bool:
        """Tell whether its loop has been closed."""
        return self.loop is not None and self.loop.is_closed()

    def leave_loop(self) -> None:
        """Settle what a loop that was closed has left behind; nobody can be waiting there any more."""
        self.loop = None
        self._scheduled = False
        self.signalling.bind(None)
        self.waits.abandon()
        self.execution.abandon()
        self.window.unbind()
        if self.start_limit is not None:
            self.start_limit.abandon()
        if self.retrying is not None:
            self.retrying.cut_all_short()
        self.admission = Admission(self.options.max_pending, self.schedule, self.window.pending)
        self.schedule.clear()
        self.settlement.abandon()

    @property
    def is_on_own_loop(self) -> bool:
        """Tell whether this is a place from which the engine may be changed: its loop runs here, or it has none."""
        return self.loop is None or asyncio._get_running_loop() is self.loop

    def on_own_loop(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function where the engine may be changed: here, or soon on its loop; never if that is closed."""
        loop = self.loop
        if loop is None or self.is_on_own_loop:
            function(*arguments)
            return
        with suppress(RuntimeError):  # closed, maybe this very moment
            loop.call_soon_threadsafe(function, *arguments, context=contextvars.Context())

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle | None:
        """Call back after some seconds; `None` if there is no loop to do so."""
        loop = self.loop
        if loop is None or loop.is_closed():
            return None
        return loop.call_later(seconds, callback, context=self.context)

    # What operations, hooks and faces ask for.

    @property
    def sink(self) -> SignalSink:
        """Return the sink: the shared one, or its own, made when first needed."""
        return self.signalling.sink

    def emit(self, operation: Operation[Any], name: str | SignalKey[Any], data: Any) -> SignalEvent | None:
        """Emit a signal in the name of an operation."""
        return self.signalling.emit(operation, name, data)

    def retract(self, operation: Operation[Any], name: str) -> int:
        """Take back an operation's signals of a name."""
        return self.signalling.retract(operation, name)

    def add_waiter(self, operation: Operation[Any]) -> asyncio.Future[BaseException | None]:
        """Return a future that is resolved when an operation ends, with the exception to raise or `None`."""
        return self.waits.add(operation)

    def remove_waiter(self, operation: Operation[Any], waiter: asyncio.Future[BaseException | None]) -> None:
        """Forget a waiter, woken or cancelled."""
        self.waits.remove(operation, waiter)

    async def wait_idle(self, within: float | None = None) -> bool:
        """Wait until idle, for at most `within` seconds (`None`: no limit); tell whether it is."""
        return await self.waits.until_idle(within)

    def call_hook(self, name: str, hook: Callable[..., object], *arguments: Any) -> None:
        """Call a hook of the user; whatever it raises is counted and logged, and breaks nothing."""
        try:
            hook(*arguments)
        except (KeyboardInterrupt, SystemExit) as error:
            if self.loop is not None:
                raise_in_loop(self.loop, error)
        except BaseException as error:  # noqa: BLE001 - a hook may raise anything
            self.counts.hook_errors += 1
            log(logging.WARNING, "%s of coordinator %s raised %s", name, self.name, type(error).__qualname__)

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        return self.clock.monotonic()

    def show_key(self, key: Any) -> Any:
        """Return a key as it may be shown."""
        return hashed_key(key) if self._hashes_keys else key

    def pin(self, operation_id: int) -> bool:
        """Pin an operation in the window."""
        return self.window.pin(operation_id)

    def unpin(self, operation_id: int) -> bool:
        """Unpin an operation in the window."""
        return self.window.unpin(operation_id)

    def is_pinned(self, operation_id: int) -> bool:
        """Tell whether an operation is pinned."""
        return self.window.is_pinned(operation_id)

    async def acknowledged(
        self,
        operation: Operation[Any],
        pattern: PatternLike | SignalKey[Any],
        timeout: float | timedelta | None,  # noqa: ASYNC109 - running out of time is a result
    ) -> Acknowledgement:
        """Wait until somebody acknowledges an operation."""
        return await acknowledged(self, operation, pattern, timeout)

    def listen(
        self,
        *,
        on_end: Callable[[Operation[Any]], None] | None = None,
        on_attempt: Callable[[Operation[Any], BaseException | None], object] | None = None,
        on_closed: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        """Call `on_end` with each operation at its end, and `on_closed` when the intake is closed.

        `on_attempt` is called with an operation and its error, or `None`, after each attempt that was not cancelled.
        Return a function that stops all.
        """
        if on_end is not None:
            self.settlement.listeners = (*self.settlement.listeners, on_end)
        if on_attempt is not None:
            self.settlement.observers = (*self.settlement.observers, on_attempt)
        if on_closed is not None:
            self._closed_listeners = (*self._closed_listeners, on_closed)

        def stop() -> None:
            self.settlement.listeners = tuple(each for each in self.settlement.listeners if each is not on_end)
            self.settlement.observers = tuple(each for each in self.settlement.observers if each is not on_attempt)
            self._closed_listeners = tuple(each for each in self._closed_listeners if each is not on_closed)

        return stop

    def report(self) -> DrainReport:
        """Return what has come of everything so far."""
        return self.counts.report(self)

    def statistics(self) -> CoordinatorStatistics:
        """Return all counts and limits as they are now."""
        return self.counts.statistics(self)

    def leftovers(self) -> dict[str, int]:
        """Count everything that must be gone when it is idle, for tests."""
        reactions = self.signalling.leftovers()
        return {
            "pending": len(self.window.pending),
            "running": len(self.window.running),
            "waiting for room": self.admission.waiting,
            **self.waits.leftovers(),
            "timers": self.window.has_timer + self.execution.deadlines.has_timer + reactions.pop("timers", 0),
            **self.schedule.leftovers(),
            **reactions,
            **({} if self.retrying is None else self.retrying.leftovers()),
        }


def _fresh_context() -> contextvars.Context:
    """Return an empty context that continues the chain of signals which led here, or constraints would not hold."""
    context = contextvars.Context()
    if (link := cause.get()) is not None:
        context.run(cause.set, link)
    return context
