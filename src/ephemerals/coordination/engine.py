"""The one engine under every coordinator: it accepts, starts and ends operations.

    item ──► admission ──► schedule ──► start ──► body ──► end ──► window

Starting is the work of the pump, a plain callback of the loop that is scheduled when there may be something to
start, and takes from the schedule while there are free slots. Each operation runs in a task of its own, in its own
context, started eagerly where Python can. Everything happens on the loop's thread, in synchronous steps, so the
counts add up at every point where somebody else can look.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ephemerals.errors import (
    CoordinatorBroken,
    CoordinatorClosed,
    CoordinatorFull,
    DeadlockError,
    OperationCancelled,
    OperationTimeout,
    WrongLoop,
)
from ephemerals.failure import ErrorInfo, kept_form, qualified_name
from ephemerals.ids import format_id, next_id
from ephemerals.operation import Operation, _current, current_operation, freeze_metadata
from ephemerals.options import as_count
from ephemerals.signals import SignalSink
from ephemerals.signals.propagation import cause
from ephemerals.snapshot import OperationStatus
from ephemerals.window import OperationWindow

from .admission import Admission
from .deadlines import Deadlines
from .deadlock import Wait, stuck_operations
from .lifetime import keep_while_busy, let_go, register
from .pools import ProcessPool, ThreadPool
from .privacy import hashed_key, key_text
from .reactions import Reactions, check_options, has_conditions
from .report import CoordinatorStatistics, DrainReport, Quantiles
from .retrying import Retrying, mark_retried
from .signal_hooks import has_hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping

    from ephemerals.options import EphemeralOptions
    from ephemerals.policies import Limits, Permit
    from ephemerals.signals import SignalEvent, SignalKey

    from .body import Body
    from .schedule import Schedule

__all__ = ["Engine"]

_logger: Final = logging.getLogger("ephemerals")
_PER_TURN: Final = 64
"""Items accepted, or started, before others on the loop get a turn."""

_PENDING: Final = OperationStatus.PENDING
_RUNNING: Final = OperationStatus.RUNNING
_COMPLETED: Final = OperationStatus.COMPLETED
_FAILED: Final = OperationStatus.FAILED
_CANCELLED: Final = OperationStatus.CANCELLED
_SKIPPED: Final = OperationStatus.SKIPPED

_TIMED_OUT: Final = "timed out"


class Source(str):
    """Be the name of a coordinator as the source of its signals: two of one name are told apart by identity."""

    __slots__ = ()


class Engine:
    """Run operations; the coordinators are faces of this.

    `make_schedule` is called once, and again in a forked child, where everything starts anew.
    """

    __slots__ = (
        "__weakref__",
        "_accepted_in_turn",
        "_blocked",
        "_broken",
        "_clock",
        "_closed_listeners",
        "_context",
        "_deadlines",
        "_gate",
        "_hashes_keys",
        "_idle_waiters",
        "_inherits_context",
        "_keeps_results",
        "_limit",
        "_limiter",
        "_listeners",
        "_lock",
        "_make_schedule",
        "_observe",
        "_permit",
        "_pool",
        "_reactions",
        "_results_ttl",
        "_retrying",
        "_samples",
        "_scheduled",
        "_sink",
        "_starting",
        "_task_factory",
        "_task_name",
        "_timeout",
        "admission",
        "body",
        "dropped",
        "hook_errors",
        "is_closed",
        "is_paused",
        "is_released",
        "loop",
        "name",
        "options",
        "rejected",
        "schedule",
        "source",
        "started_at",
        "total_cancelled",
        "total_completed",
        "total_enqueued",
        "total_failed",
        "total_skipped",
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
        self.source = Source(name)
        self._clock = options.clock
        self._make_schedule = make_schedule
        self._keeps_results = keeps_results
        self._results_ttl = results_ttl
        self._task_name = f"ephemerals {name}"
        self._sink: SignalSink | None = options.signals
        self._reactions: Reactions | None = None
        self._gate: Reactions | None = None
        self.start_anew()
        register(self)

    def start_anew(self) -> None:
        """Be new and empty, with no loop; done at construction, and again in a forked child."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.schedule = self._make_schedule()
        check_options(self.options, self.schedule)
        self._lock = threading.RLock()
        self.window = OperationWindow(self.options, self.call_hook, results_ttl=self._results_ttl)
        self.admission = Admission(self.options.max_pending, self.schedule, self.window.pending)
        self._deadlines = Deadlines(self._clock, self._time_out)
        self._pool = ProcessPool() if self.body.kind == "process" else ThreadPool()
        self._context = contextvars.Context()
        retry, limiter = self.options.retry, self.options.limiter
        self._retrying = None if retry is None else Retrying(retry, self._clock, self._readmit)
        self._limiter: Limits | None = limiter
        self._observe: Callable[[BaseException | None], object] | None = getattr(limiter, "observe", None)
        self._permit: Permit | None = None
        self._limit = self.options.max_concurrency
        self._timeout = self.options.operation_timeout
        self._hashes_keys = self.options.key_privacy == "hashed"
        self._inherits_context = self.options.context == "inherit"
        self._samples = self.options.on_sample is not None
        self._scheduled = False
        self._accepted_in_turn = 0
        self._starting: list[Operation[Any]] = []
        self._task_factory: object = None
        self._blocked: dict[asyncio.Future[Any], Wait] = {}
        self._idle_waiters: dict[asyncio.Future[None], None] = {}
        self._broken: BaseException | None = None
        self._listeners: tuple[Callable[[Operation[Any]], None], ...] = ()
        self._closed_listeners: tuple[Callable[[], None], ...] = ()
        self.is_paused = False
        self.is_closed = False
        self.is_released = False
        self.started_at: float | None = None
        self.rejected = 0
        self.dropped = 0
        self.hook_errors = 0
        self.total_enqueued = 0
        self.total_completed = 0
        self.total_failed = 0
        self.total_cancelled = 0
        self.total_skipped = 0
        if self._sink is not None:
            self._react(self._sink)
        elif has_conditions(self.options, self.schedule) or has_hooks(self.options):
            self._make_sink()  # a body that starts at once must find its conditions watched

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
            raise self._refusal()
        operation: Operation[Any] = Operation(
            next_id(),
            name or self.body.name,
            self,
            item,
            contextvars.copy_context() if self._inherits_context else _fresh_context(),
            key,
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
            raise self._refusal()

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
            raise CoordinatorFull(self.name, self._why_full(operation))

    async def _wait_for_room(self, operation: Operation[Any]) -> None:
        try:
            await self.admission.wait(operation, lambda waiter: self._note_wait(waiter, operation, for_room=True))
            try:
                self.check_open()
                self.accept(operation)
            except BaseException:
                self.admission.give_back(operation)
                raise
        except BaseException:
            if self.is_idle:
                self._became_idle()  # nobody is about to come in any more
            raise
        self.admission.used(operation)
        if self._blocked:
            self._end_deadlock()  # a body may wait behind this one for room that it alone could make

    def enqueue_nowait(self, operation: Operation[Any]) -> bool:
        """Accept an operation if there is room or room can be made by dropping; tell whether it was accepted."""
        if not self.admission.has_room(operation) and not (
            self.options.overflow == "drop_oldest" and self._drop_for(operation)
        ):
            self.rejected += 1
            _log(logging.INFO, "coordinator %s refused an item: %s", self.name, self._why_full(operation))
            return False
        self.accept(operation)
        return True

    def accept(self, operation: Operation[Any]) -> None:
        """Take an operation in; from here on it ends in exactly one final state."""
        operation._order = self.total_enqueued
        operation._draft._enqueued = self._clock.monotonic()
        operation._draft._wall = self._clock.time()
        self.schedule.push(operation)  # first, because a key's own comparison may raise
        self.total_enqueued += 1
        pending = self.window.pending
        if not pending and not self.window.running:
            keep_while_busy(self)
        pending[operation.id] = operation
        if not self._scheduled:
            self.wake()

    def _refusal(self) -> Exception:
        if self._broken is None:
            return CoordinatorClosed(self.name)
        refusal = CoordinatorBroken(self.name)
        refusal.__cause__ = self._broken
        return refusal

    def _why_full(self, operation: Operation[Any]) -> str:
        if self.schedule.has_compartments and self.admission.compartment_without_room(operation) is not None:
            return "too much is waiting for its key or lane"
        return f"{len(self.window.pending)} items are waiting"

    def _drop_for(self, operation: Operation[Any]) -> bool:
        """Cancel those that wait longest, where the newcomer wants to be, until it has room."""
        while not self.admission.has_room(operation):
            compartment: Hashable | None = None
            if self.schedule.has_compartments:
                compartment = self.admission.compartment_without_room(operation)
            victim = next((each for each in self.window.pending.values() if self._waits_in(each, compartment)), None)
            if victim is None:
                return False
            self.dropped += 1
            _log(logging.WARNING, "coordinator %s dropped operation %s to make room", self.name, format_id(victim.id))
            self._withdraw(victim, _CANCELLED, "it was dropped to make room for a newer one")
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
            and self.loop is not None
        ):
            self._scheduled = True
            with suppress(RuntimeError):  # its loop was closed: what is left is settled when it is used again
                self.loop.call_soon(self._pump, context=self._context)

    def _pump(self) -> None:  # noqa: PLR0912 - a call for each item would cost more than the branches
        """Start what may start."""
        self._scheduled = False
        try:
            if self._starting:
                self._check_started()
            pending, running, pop = self.window.pending, self.window.running, self.schedule.pop
            gate, limiter = self._gate, self._limiter
            if self.loop is not None:
                self._task_factory = self.loop.get_task_factory()
            for _ in range(_PER_TURN):
                if not pending or len(running) >= self._limit or self.is_paused:
                    break
                if gate is not None and gate.holds_back():
                    break
                if limiter is not None and not self._is_permitted(limiter):
                    break
                if (operation := pop()) is None:
                    break
                if gate is not None and (event := gate.skips(operation)) is not None:
                    self._skip(operation, event.name)
                else:
                    if self._permit is not None:
                        self._take_permit(self._permit)
                    self._start(operation)
            else:
                self.wake()
            if self._permit is not None and self._permit.is_granted:
                self._give_permit_back()
            if self._starting and not self._scheduled and self.loop is not None:
                self._scheduled = True
                self.loop.call_soon(self._pump, context=self._context)
        except Exception as error:  # noqa: BLE001 - an internal error must be heard by everybody who waits
            self._break(error)

    def _is_permitted(self, limiter: Limits) -> bool:
        """Tell whether the limiter lets one more start; if not, stand in its line."""
        if self._permit is None:
            self._permit = limiter.reserve(1, self._permitted)
        return self._permit.is_granted

    def _permitted(self) -> None:
        if not self._scheduled and self.loop is not None:
            self._scheduled = True
            self.loop.call_soon(self._pump, context=self._context)

    def _take_permit(self, permit: Permit) -> None:
        self._permit = None
        permit.take()

    def _give_permit_back(self) -> None:
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.cancel()

    def _start(self, operation: Operation[Any]) -> None:
        loop = self.loop
        assert loop is not None
        window, admission, context = self.window, self.admission, operation._context
        del window.pending[operation.id]
        window.running[operation.id] = operation
        operation._status = _RUNNING
        operation._draft._started = self._clock.monotonic()
        if admission.line or admission.parked:
            admission.left(operation)
        if operation._timeout is not None:
            self._deadlines.add(operation, operation._timeout, loop, self._context)
        if self._retrying is not None:
            self._retrying.begin(operation)
        coroutine = self._drive(operation)
        try:
            if sys.version_info >= (3, 12) and self._task_factory is None:
                task = asyncio.Task(coroutine, loop=loop, name=self._task_name, context=context, eager_start=True)
            else:
                task = loop.create_task(coroutine, name=self._task_name, context=context)
        except Exception as error:  # noqa: BLE001 - a task factory of the user may raise anything
            coroutine.close()
            self._fail(operation, error)
            return
        if operation.id in window.running:
            operation._task = task
            if operation._context is not None:
                self._starting.append(operation)
            elif operation._stop is not None:
                task.cancel()

    def _check_started(self) -> None:
        """End operations whose task was cancelled by a stranger before its first step.

        Such a task is done and has never run a line of `_drive`. Others are looked at again by the next pump.
        """
        starting, self._starting = self._starting, []
        for operation in starting:
            if operation._context is None or operation._draft._finished is not None:
                continue
            if operation._task is None or operation._task.done():
                self._end(operation, _CANCELLED, None)
            else:
                self._starting.append(operation)

    async def _drive(self, operation: Operation[Any]) -> None:
        """Be the task of one operation: run the body and settle what comes out of it, whatever it is."""
        operation._context = None
        if operation._stop is not None:
            self._end(operation, _CANCELLED, None)
            return
        _current.set((self.window.running, operation.id))
        if self._retrying is not None:
            mark_retried()
        body = self.body
        try:
            item = operation._item
            operation._item = None
            if body.kind == "async":
                call = body.function(item, operation) if body.takes_operation else body.function(item)
                del item
                result = await call
            else:
                box: list[Any] = [(item, operation) if body.takes_operation else (item,), {}]
                del item
                result = await self.run_plain(operation, body.function, box)
        except asyncio.CancelledError as error:
            self._stopped(operation, error)
        except (KeyboardInterrupt, SystemExit) as error:
            self._fail(operation, error, travels_on=True)
            asyncio.get_running_loop().call_soon(_raise, error)
        except StopAsyncIteration as error:
            failure = RuntimeError("the body raised StopAsyncIteration")
            failure.__cause__ = error
            self._fail(operation, failure.with_traceback(error.__traceback__))
            del failure
        except GeneratorExit:
            if self.is_orphaned:
                operation._waiters = None  # nobody can be told
                self._idle_waiters.clear()
            self._end(operation, _CANCELLED, "its event loop went away")
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a body raises belongs to its operation
            self._fail(operation, error)
        else:
            self._end(operation, _COMPLETED, result)

    def _stopped(self, operation: Operation[Any], error: asyncio.CancelledError) -> None:
        """Settle an operation whose body was cancelled, by its handle, by the clock, or by a stranger."""
        if operation._stop is _TIMED_OUT:
            self._fail(operation, self._timeout_error(operation).with_traceback(error.__traceback__))
        else:
            error.__traceback__ = None  # a body may have tied it into a cycle
            self._end(operation, _CANCELLED, None)

    async def run_plain(self, operation: Operation[Any], function: Callable[..., Any], box: list[Any]) -> Any:
        """Run a plain function, with the arguments in the box, in this engine's own threads or processes."""
        return await self._pool.run(operation, max(self._limit, len(self.window.running)), function, box)

    # Ending.

    def _end(self, operation: Operation[Any], status: OperationStatus, outcome: Any) -> None:
        """Settle an operation that was running."""
        if self.window.running.pop(operation.id, None) is None:
            return  # it belongs to the process this one was forked from, or to a loop that has gone
        if operation._timeout is not None:
            self._deadlines.discard(operation, operation._timeout)
        try:
            self.schedule.finished(operation)
            if self._observe is not None and status is _COMPLETED:
                self.call_hook("observe", self._observe, None)
            self._conclude(operation, status, outcome)
        except Exception as error:  # noqa: BLE001 - an internal error must be heard by everybody who waits
            if operation._draft._finished is None:
                self.window.running[operation.id] = operation
            self._break(error)
            return
        if not self._scheduled and self.window.pending:
            self.wake()

    def _fail(self, operation: Operation[Any], error: BaseException, *, travels_on: bool = False) -> None:
        """Settle a running operation as failed: describe the error, hand it to those who wait, keep a released form."""
        if operation.id not in self.window.running:
            return
        if isinstance(error, Exception) and self._goes_on(operation, error):
            return
        info = ErrorInfo.of(error, self.options.error_detail)
        _log(
            logging.WARNING,
            "operation %s (%s) of coordinator %s failed: %s at %s%s",
            format_id(operation.id),
            operation.name,
            self.name,
            info.type,
            info.place or "an unknown place",
            "" if operation.key is None else f" [key {key_text(operation._draft.key)}]",
        )
        waiters, operation._waiters = operation._waiters, None
        kept = kept_form(error, is_shared=travels_on or bool(waiters))
        operation._draft.error = info.with_exception(kept) if self.options.error_detail == "exception" else info
        if waiters:
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(error)
        self._end(operation, _FAILED, kept)

    def _goes_on(self, operation: Operation[Any], error: Exception) -> bool:
        """Tell the limiter of a failed attempt; hold the operation for another one if the policy wants that."""
        if self._observe is not None:
            self.call_hook("observe", self._observe, error)
        retrying = self._retrying
        if retrying is None or operation._stop not in {None, _TIMED_OUT}:
            return False
        attempt, delay = retrying.attempt_of(operation), retrying.delay_after(operation, error)
        said = {"attempt": attempt, "error": qualified_name(type(error))}
        if delay is None:
            if attempt > 1:
                self.emit(operation, "retry.exhausted", said)
            return False
        if self.window.running.pop(operation.id, None) is None:
            return True  # the policy, or the limiter, has ended it
        if operation._timeout is not None:
            self._deadlines.discard(operation, operation._timeout)
        self.window.pending[operation.id] = operation
        self.schedule.held(operation)
        retrying.hold(operation, delay)
        kept_form(error, is_shared=False)  # nobody gets it, and a body may have tied it into a cycle with the item
        _log(
            logging.INFO,
            "attempt %d of operation %s (%s) of coordinator %s failed: %s; the next one in %g seconds",
            attempt,
            format_id(operation.id),
            operation.name,
            self.name,
            said["error"],
            delay,
        )
        self._end_deadlock()
        if not self._scheduled:
            self.wake()
        self.emit(operation, "retry.scheduled", {**said, "delay": delay})
        return True

    def _readmit(self, operation: Operation[Any]) -> None:
        self.schedule.readmit(operation)
        if not self._scheduled:
            self.wake()

    def _conclude(self, operation: Operation[Any], status: OperationStatus, outcome: Any) -> None:
        """Make an operation history: count it, tell those who wait, remember its snapshot, let go of it."""
        now = self._clock.monotonic()
        draft = operation._draft
        draft._finished = now
        draft.status = operation._status = status
        operation._outcome = outcome
        operation._item = operation._context = operation._task = None
        if self._retrying is not None:
            self._retrying.forget(operation)
        if status is _COMPLETED:
            self.total_completed += 1
            if self._keeps_results:
                draft._result = outcome
        else:
            self._count(status)
        if operation._signals is not None:
            with self._lock:
                draft.signals = tuple(operation._signals)
                draft.signal_count = operation._emitted
                operation._signals = None
        if operation._waiters:
            self._wake_waiters(operation)
        window = self.window
        draft.is_pinned = operation.id in window.pinned
        snapshot = draft.seal()
        if status is _FAILED:
            window.failures.append(snapshot)
        for listener in self._listeners:
            listener(operation)
        window.add(snapshot, now)
        if self._samples:
            window.sample(now)
        if not window.running and not window.pending:
            self._became_idle()

    def _count(self, status: OperationStatus) -> None:
        if status is _FAILED:
            self.total_failed += 1
        elif status is _CANCELLED:
            self.total_cancelled += 1
        else:
            self.total_skipped += 1

    def _wake_waiters(self, operation: Operation[Any]) -> None:
        for waiter in operation._waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        operation._waiters = None

    def _withdraw(self, operation: Operation[Any], status: OperationStatus, outcome: Any) -> None:
        """Settle an operation that has not started, or waits to start again."""
        if self._retrying is not None:
            self._retrying.cut_short(operation)
        del self.window.pending[operation.id]
        operation._status = status
        try:
            self.schedule.withdrawn(operation)
        except Exception as error:  # noqa: BLE001 - as above
            self.window.pending[operation.id] = operation
            self._break(error)
            return
        if self.admission.line or self.admission.parked:
            self.admission.left(operation)
        self._conclude(operation, status, outcome)

    def _skip(self, operation: Operation[Any], signal: str) -> None:
        """Settle an operation that was about to start, because of a signal."""
        del self.window.pending[operation.id]
        self.schedule.finished(operation)
        if self.admission.line or self.admission.parked:
            self.admission.left(operation)
        _log(logging.INFO, "operation %s of coordinator %s was skipped: %s", format_id(operation.id), self.name, signal)
        self._conclude(operation, _SKIPPED, signal)

    def _time_out(self, operation: Operation[Any]) -> None:
        if operation._stop is None:
            operation._stop = _TIMED_OUT
        if operation._task is not None:
            operation._task.cancel()

    def _timeout_error(self, operation: Operation[Any]) -> OperationTimeout:
        limit = operation._timeout or 0.0
        message = f"operation {format_id(operation.id)} ({operation.name}) ran longer than {limit:g} seconds"
        return OperationTimeout(message, operation.id, limit)

    def _break(self, error: BaseException) -> None:
        """End everything after an internal error: nobody may wait for something that will never come."""
        _log(logging.CRITICAL, "coordinator %s is broken by an internal error", self.name, exc_info=error)
        self._broken = kept_form(error, is_shared=False)
        self.complete()
        window = self.window
        for operation in [*window.pending.values(), *window.running.values()]:
            if operation._draft._finished is not None:
                continue  # a hook has cancelled it meanwhile
            window.pending.pop(operation.id, None)
            window.running.pop(operation.id, None)
            if operation._timeout is not None:
                self._deadlines.discard(operation, operation._timeout)
            if operation._task is not None:
                operation._task.cancel()
            refusal = self._refusal()
            operation._draft.error = ErrorInfo.of(refusal, self.options.error_detail)
            self._conclude(operation, _FAILED, refusal)
        self.schedule.clear()

    # What the user's hooks and the operation's own methods ask for.

    def call_hook(self, name: str, hook: Callable[..., object], *arguments: Any) -> None:
        """Call a hook of the user; whatever it raises is counted and logged, and breaks nothing."""
        try:
            hook(*arguments)
        except (KeyboardInterrupt, SystemExit) as error:
            if self.loop is not None:
                self.loop.call_soon(_raise, error)
        except BaseException as error:  # noqa: BLE001 - a hook may raise anything
            self.hook_errors += 1
            _log(logging.WARNING, "%s of coordinator %s raised %s", name, self.name, type(error).__qualname__)

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        return self._clock.monotonic()

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

    @property
    def sink(self) -> SignalSink:
        """Return the sink: the shared one, or its own, made when first needed."""
        return self._make_sink() if self._sink is None else self._sink

    def _make_sink(self) -> SignalSink:
        """Make a sink of its own; a body's thread may be the first to need it."""
        with self._lock:
            if self._sink is None:
                self._sink = SignalSink(clock=self._clock, name=self.name)
                if not self.is_released:
                    self._react(self._sink)
            sink = self._sink
        if self.loop is not None and not self.is_on_own_loop:
            self.on_own_loop(sink.bind)
        return sink

    def _react(self, sink: SignalSink) -> None:
        """Listen to the sink, for as long as this engine exists and is not closed."""
        if self._reactions is not None:
            self._reactions.cancel()
        self._reactions = reactions = Reactions(self, sink)
        self._gate = reactions if reactions.is_gate else None
        weakref.finalize(self, reactions.cancel).atexit = False

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

    def look_again(self) -> None:
        """Look whether something may start, because a condition has changed."""
        self._end_deadlock()
        self.wake()
        if self._reactions is not None and self.loop is not None:
            self.loop.call_soon(self._reactions.settle, context=self._context)

    def begin_drain(self) -> None:
        """Close the intake and let everything that was accepted run, whatever holds it back."""
        self.complete()
        self.resume()
        if self._reactions is not None:
            self._reactions.lift_endless()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle | None:
        """Call back after some seconds; `None` if there is no loop to do so."""
        loop = self.loop
        if loop is None or loop.is_closed():
            return None
        return loop.call_later(seconds, callback, context=self._context)

    def emit(self, operation: Operation[Any], name: str | SignalKey[Any], data: Any) -> SignalEvent | None:
        """Emit a signal in the name of an operation."""
        key = operation._draft.key
        event = self.sink.emit(name, data, key=key, operation_id=operation.id, source=self.source)
        if event is not None:
            with self._lock:
                operation._record(event, self.options.max_operation_signals)
        return event

    def retract(self, operation: Operation[Any], name: str) -> int:
        """Take back an operation's signals of a name."""
        with self._lock:
            operation._forget_signal(name)
        return self.sink.retract(name, operation_id=operation.id)

    def add_waiter(self, operation: Operation[Any]) -> asyncio.Future[BaseException | None]:
        """Return a future that is resolved when an operation ends, with the exception to raise or `None`."""
        loop = self.bind()
        if self.window.live(operation.id) is not operation:
            message = (
                f"operation {format_id(operation.id)} ({operation.name}) was left behind: its loop or process is gone"
            )
            raise OperationCancelled(message, operation.id)
        waiter: asyncio.Future[BaseException | None] = loop.create_future()
        if operation._waiters is None:
            operation._waiters = {}
        operation._waiters[waiter] = None
        try:
            self._note_wait(waiter, operation, for_room=False)
        except BaseException:
            self.remove_waiter(operation, waiter)
            raise
        return waiter

    def remove_waiter(self, operation: Operation[Any], waiter: asyncio.Future[BaseException | None]) -> None:
        """Forget a waiter, woken or cancelled."""
        if operation._waiters is not None:
            operation._waiters.pop(waiter, None)
        self._blocked.pop(waiter, None)

    def _note_wait(self, waiter: asyncio.Future[Any], operation: Operation[Any], *, for_room: bool) -> None:
        """Remember that a body of this engine waits; raise `DeadlockError` if that could never end."""
        caller = current_operation()
        if caller is None or caller._owner is not self:
            return
        if caller is operation:
            raise DeadlockError(self.name, (caller.id,), f"{caller!r} awaits itself")
        self._blocked[waiter] = wait = Wait(caller, operation, for_room)
        if for_room:
            waiter.add_done_callback(self._unblock)
        if (error := self._deadlock(wait)) is not None:
            self._blocked.pop(waiter, None)
            try:
                raise error
            finally:
                del error  # this frame is in its traceback now

    def _unblock(self, waiter: asyncio.Future[Any]) -> None:
        self._blocked.pop(waiter, None)

    def _deadlock(
        self, newest: Wait | None = None, *, besides: Collection[Operation[Any]] = ()
    ) -> DeadlockError | None:
        """Look for operations that can never go on, besides some that will be told so."""
        if self.is_paused or not self._blocked or (self._gate is not None and self._gate.is_holding):
            return None
        waits = [
            wait
            for waiter, wait in self._blocked.items()
            if not (waiter.done() or wait.waiting.has_ended or wait.waiting in besides)
        ]
        pending = [*self.window.pending.values(), *self.admission.reserved]
        stuck = stuck_operations(waits, self.schedule, pending, self._limit, newest)
        if not stuck:
            return None
        listing = ", ".join(f"{format_id(each.id)} {each.name}" for each in stuck)
        return DeadlockError(self.name, [each.id for each in stuck], listing)

    def _end_deadlock(self) -> None:
        """Wake those whose waits can never end, the newest first, until the others can go on.

        A wait is looked at when it begins; this is for what happens later: a lower limit, the end of a pause, others
        who took the room.
        """
        told: set[Operation[Any]] = set()
        while (error := self._deadlock(besides=told)) is not None:
            told.add(
                next(wait.waiting for wait in reversed(self._blocked.values()) if wait.waiting.id in error.operations)
            )
            for waiter, wait in self._blocked.items():
                if wait.waiting in told and not waiter.done():
                    waiter.set_result(error)

    # Control.

    @property
    def limit(self) -> int:
        """Return how many may run at once."""
        return self._limit

    def set_limit(self, limit: int) -> None:
        """Change how many may run at once: a raise takes hold at once, a cut as running ones end."""
        self._limit = as_count("max_concurrency", limit)
        self._end_deadlock()
        self.wake()

    def pause(self) -> None:
        """Start nothing more until `resume`."""
        self.is_paused = True

    def resume(self) -> None:
        """Start again."""
        self.is_paused = False
        self._end_deadlock()
        self.wake()

    def cancel_one(self, operation: Operation[Any]) -> bool:
        """Cancel an operation; tell whether that had an effect."""
        if operation._draft._finished is not None:
            return False
        if operation._status is _PENDING:
            if operation.id not in self.window.pending:
                return False
            if self.is_orphaned:
                self.leave_loop()
            else:
                self._withdraw(operation, _CANCELLED, None)
            return True
        if self.is_orphaned:
            self.leave_loop()
            return True
        if operation._stop is None:
            operation._stop = "cancelled"
        if operation._task is not None and operation._context is None:
            operation._task.cancel()
        return True

    def cancel_all(self) -> None:
        """Close the intake, cancel what waits without starting it, and ask what runs to stop."""
        self.complete()
        if self._retrying is not None:
            self._retrying.cut_all_short()
        pending = self.window.pending
        for operation in list(pending.values()):
            if pending.pop(operation.id, None) is not None:  # a hook may have cancelled it meanwhile
                self._conclude(operation, _CANCELLED, None)
        self.schedule.clear()
        for operation in list(self.window.running.values()):
            self.cancel_one(operation)

    def complete(self) -> None:
        """Close the intake; those who wait for room are refused."""
        if not self.is_closed:
            if self.is_orphaned:
                self.leave_loop()
            self.is_closed = True
            self.admission.close(self._refusal)
            for listener in self._closed_listeners:
                listener()

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing is pending, running or about to come in."""
        return not self.window.running and not self.window.pending and self.admission.is_quiet

    async def wait_idle(self, within: float | None = None) -> bool:
        """Wait until idle, for at most `within` seconds (`None`: no limit); tell whether it is."""
        loop = self.bind()
        deadline = None if within is None else loop.time() + within
        while not self.is_idle:  # what woke it may have gone: an item was dropped for another, say
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                return False
            waiter: asyncio.Future[None] = loop.create_future()
            self._idle_waiters[waiter] = None
            try:
                await asyncio.wait((waiter,), timeout=left)
            finally:
                self._idle_waiters.pop(waiter, None)
        return True

    def _became_idle(self) -> None:
        let_go(self)
        self._deadlines.clear()
        if self._permit is not None:
            self._give_permit_back()
        if self._idle_waiters and self.admission.is_quiet:
            for waiter in self._idle_waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def close(self, grace: float | None, cancel_grace: float | None) -> DrainReport:
        """Let work end by itself for `grace` seconds, cancel, wait `cancel_grace`, then let go of everything."""
        self.begin_drain()
        if not await self.wait_idle(grace):
            self.cancel_all()
            if not await self.wait_idle(cancel_grace):
                _log(
                    logging.WARNING,
                    "coordinator %s closes while operations are still running: %s",
                    self.name,
                    ", ".join(f"{format_id(each.id)} ({each.name})" for each in self.window.running.values()),
                )
        report = self.report()
        if self._reactions is not None and not self.is_released:
            await self._reactions.finish_hooks(cancel_grace)
        self.release()
        return report

    def release(self) -> None:
        """Finalize what the window holds, and let threads, timers and subscriptions go."""
        if self.is_released:
            return
        self.is_released = True
        if self._reactions is not None:
            self._reactions.cancel()
        self.window.close()
        self._pool.shutdown()

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
                self.started_at = self._clock.monotonic()
            self.window.bind(loop, self._context)
            if self._sink is not None:
                self._sink.bind()
            if self._reactions is not None:
                self._reactions.bind(loop)
        return loop

    @property
    def is_orphaned(self) -> bool:
        """Tell whether its loop has been closed."""
        return self.loop is not None and self.loop.is_closed()

    def leave_loop(self) -> None:
        """Settle what a loop that was closed has left behind; nobody can be waiting there any more."""
        window = self.window
        self.loop = None
        if self._reactions is not None:
            self._reactions.bind(None)
        self._scheduled = False
        self._starting.clear()
        self._blocked.clear()
        self._idle_waiters.clear()
        self._pool.shutdown()
        window.unbind()
        self._deadlines.disarm()
        self._permit = None
        if self._retrying is not None:
            self._retrying.cut_all_short()
        self.admission = Admission(self.options.max_pending, self.schedule, window.pending)
        self.schedule.clear()
        for operation in [*window.pending.values(), *window.running.values()]:
            operation._waiters = None
            if window.running.pop(operation.id, None) is not None:
                self.schedule.finished(operation)
            elif window.pending.pop(operation.id, None) is None:
                continue  # a hook has cancelled it meanwhile
            self._conclude(operation, _CANCELLED, "its event loop was closed")

    # Looking.

    def listen(
        self,
        *,
        on_end: Callable[[Operation[Any]], None] | None = None,
        on_closed: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        """Call `on_end` with each operation at its end, and `on_closed` when the intake is closed.

        Return a function that stops both.
        """
        if on_end is not None:
            self._listeners = (*self._listeners, on_end)
        if on_closed is not None:
            self._closed_listeners = (*self._closed_listeners, on_closed)

        def stop() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not on_end)
            self._closed_listeners = tuple(each for each in self._closed_listeners if each is not on_closed)

        return stop

    def report(self) -> DrainReport:
        """Return what has come of everything so far."""
        return DrainReport(
            enqueued=self.total_enqueued,
            completed=self.total_completed,
            failed=self.total_failed,
            cancelled=self.total_cancelled,
            skipped=self.total_skipped,
            failures=tuple(self.window.failures),
            duration=0.0 if self.started_at is None else self._clock.monotonic() - self.started_at,
            remaining=len(self.window.pending) + len(self.window.running),
            stragglers=tuple(self.window.running),
        )

    def statistics(self) -> CoordinatorStatistics:
        """Return all counts and limits as they are now."""
        ended = self.window.ended()
        started = [each for each in ended if each.started_at is not None]
        return CoordinatorStatistics(
            name=self.name,
            pending=len(self.window.pending),
            active=len(self.window.running),
            waiting=self.admission.waiting,
            enqueued=self.total_enqueued,
            completed=self.total_completed,
            failed=self.total_failed,
            cancelled=self.total_cancelled,
            skipped=self.total_skipped,
            retries=0 if self._retrying is None else self._retrying.count,
            rejected=self.rejected,
            dropped=self.dropped,
            hook_errors=self.hook_errors,
            max_concurrency=self._limit,
            max_pending=self.options.max_pending,
            tracked=len(ended),
            pinned=self.window.pinned_count,
            is_paused=self.is_paused,
            is_closed=self.is_closed,
            waiting_time=Quantiles.of([each.waiting_time for each in started]),
            run_time=Quantiles.of([each.duration for each in started]),
        )

    def leftovers(self) -> dict[str, int]:
        """Count everything that must be gone when it is idle, for tests."""
        reactions = {} if self._reactions is None else self._reactions.leftovers()
        return {
            "pending": len(self.window.pending),
            "running": len(self.window.running),
            "waiting for room": self.admission.waiting,
            "waiting for idle": len(self._idle_waiters),
            "blocked": len(self._blocked),
            "timers": self.window.has_timer + self._deadlines.has_timer + reactions.pop("timers", 0),
            **self.schedule.leftovers(),
            **reactions,
            **({} if self._retrying is None else self._retrying.leftovers()),
        }


def _raise(error: BaseException) -> None:
    raise error


def _fresh_context() -> contextvars.Context:
    """Return an empty context that continues the chain of signals which led here, or constraints would not hold."""
    context = contextvars.Context()
    if (link := cause.get()) is not None:
        context.run(cause.set, link)
    return context


def _log(level: int, message: str, *arguments: object, exc_info: BaseException | None = None) -> None:
    """Log, and let nothing break if a handler or filter of the user raises."""
    with suppress(Exception):
        _logger.log(level, message, *arguments, exc_info=exc_info, stacklevel=2)
