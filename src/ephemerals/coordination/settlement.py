"""The end of an operation: its outcome goes to those who wait, its snapshot to the window, and the engine lets go.

However it ends, it ends once, through `_conclude`, in one synchronous step in which nobody can look.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from ephemerals.errors import OperationFailed
from ephemerals.failure import ErrorInfo, kept_form, qualified_name
from ephemerals.ids import format_id
from ephemerals.snapshot import OperationStatus

from .logs import log
from .privacy import key_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemerals.operation import Operation

    from .engine import Engine

__all__ = ["Settlement"]

_COMPLETED: Final = OperationStatus.COMPLETED
_FAILED: Final = OperationStatus.FAILED
_CANCELLED: Final = OperationStatus.CANCELLED
_SKIPPED: Final = OperationStatus.SKIPPED


class Settlement:
    """Settle operations; `listeners` are called with each at its end.

    `observers` are called with each attempt that ended by itself: its operation, and the error, or `None`.
    """

    __slots__ = ("_clock", "_engine", "_keeps_results", "_samples", "_window", "listeners", "observers")

    def __init__(self, engine: Engine, *, keeps_results: bool) -> None:
        self._engine = engine
        self._clock = engine.clock
        self._window = engine.window
        self._keeps_results = keeps_results
        self._samples = engine.options.on_sample is not None
        self.listeners: tuple[Callable[[Operation[Any]], None], ...] = ()
        self.observers: tuple[Callable[[Operation[Any], BaseException | None], object], ...] = ()

    # One that runs.

    def end(self, operation: Operation[Any], status: OperationStatus, outcome: Any) -> None:
        """Settle an operation that was running."""
        engine, window = self._engine, self._window
        if window.running.pop(operation.id, None) is None:
            return  # it belongs to the process this one was forked from, or to a loop that has gone
        if operation._timeout is not None:
            engine.execution.deadlines.discard(operation, operation._timeout)
        try:
            engine.schedule.finished(operation)
            if status is _COMPLETED and (self.observers or engine.start_limit is not None):
                self._observe(operation, None)
            self._conclude(operation, status, outcome)
        except Exception as error:  # noqa: BLE001 - an internal error must be heard by everybody who waits
            if operation._draft._finished is None:
                window.running[operation.id] = operation
            self.break_off(error)
            return
        if window.pending:
            engine.wake()

    def fail(self, operation: Operation[Any], error: BaseException, *, travels_on: bool = False) -> None:
        """Settle a running operation as failed, unless it is to be tried again: then it waits for that instead."""
        if operation.id not in self._engine.window.running:
            return
        try:
            self._fail(operation, error, travels_on=travels_on)
        except Exception as trouble:  # noqa: BLE001 - an exception of the user may raise whatever is asked of it
            text = f"operation {format_id(operation.id)} raised an exception that cannot be described"
            log(logging.WARNING, "%s: that raises %s", text, type(trouble).__name__)
            self._fail(operation, OperationFailed(text, operation.id, "unknown"), travels_on=travels_on)

    def _fail(self, operation: Operation[Any], error: BaseException, *, travels_on: bool) -> None:
        """Describe the error, hand it to those who wait, keep a released form."""
        engine = self._engine
        if isinstance(error, Exception) and self._goes_on(operation, error):
            return
        detail = engine.options.error_detail
        info = ErrorInfo.of(error, detail)
        log(
            logging.WARNING,
            "operation %s (%s) of coordinator %s failed: %s at %s%s",
            format_id(operation.id),
            operation.name,
            engine.name,
            info.type,
            info.place or "an unknown place",
            "" if operation.key is None else f" [key {key_text(operation._draft.key)}]",
        )
        kept = kept_form(error, is_shared=travels_on or bool(operation._waiters))
        operation._draft.error = info.with_exception(kept) if detail == "exception" else info
        self._wake(operation, error)
        self.end(operation, _FAILED, kept)

    # One that waits.

    def withdraw(self, operation: Operation[Any], reason: str | None) -> None:
        """Cancel an operation that has not started, or waits to start again."""
        engine = self._engine
        if engine.retrying is not None:
            engine.retrying.cut_short(operation)
        del engine.window.pending[operation.id]
        operation._status = _CANCELLED
        try:
            engine.schedule.withdrawn(operation)
        except Exception as error:  # noqa: BLE001 - as above
            engine.window.pending[operation.id] = operation
            self.break_off(error)
            return
        self._leave_admission(operation)
        self._conclude(operation, _CANCELLED, reason)

    def skip(self, operation: Operation[Any], signal: str) -> None:
        """Settle an operation that was about to start, because of a signal."""
        engine = self._engine
        del engine.window.pending[operation.id]
        engine.schedule.finished(operation)
        self._leave_admission(operation)
        operation_id = format_id(operation.id)
        log(logging.INFO, "operation %s of coordinator %s was skipped: %s", operation_id, engine.name, signal)
        self._conclude(operation, _SKIPPED, signal)

    # All at once.

    def cancel_pending(self) -> None:
        """Cancel everything that waits, without starting it."""
        pending = self._engine.window.pending
        for operation in list(pending.values()):
            if pending.pop(operation.id, None) is not None:  # a hook may have cancelled it meanwhile
                self._conclude(operation, _CANCELLED, None)
        self._engine.schedule.clear()

    def abandon(self) -> None:
        """Settle what a loop that was closed has left behind; nobody can be waiting there any more."""
        window, schedule = self._engine.window, self._engine.schedule
        for operation in [*window.pending.values(), *window.running.values()]:
            operation._waiters = None
            if window.running.pop(operation.id, None) is not None:
                schedule.finished(operation)
            elif window.pending.pop(operation.id, None) is None:
                continue  # a hook has cancelled it meanwhile
            self._conclude(operation, _CANCELLED, "its event loop was closed")

    def break_off(self, error: BaseException) -> None:
        """End everything after an internal error: nobody may wait for something that will never come."""
        engine = self._engine
        log(logging.CRITICAL, "coordinator %s is broken by an internal error", engine.name, exc_info=error)
        engine.broken = kept_form(error, is_shared=False)
        engine.complete()
        window = engine.window
        for operation in [*window.pending.values(), *window.running.values()]:
            if operation._draft._finished is not None:
                continue  # a hook has cancelled it meanwhile
            window.pending.pop(operation.id, None)
            window.running.pop(operation.id, None)
            if operation._timeout is not None:
                engine.execution.deadlines.discard(operation, operation._timeout)
            if operation._task is not None:
                operation._task.cancel()
            refusal = engine.refusal()
            operation._draft.error = ErrorInfo.of(refusal, engine.options.error_detail)
            self._conclude(operation, _FAILED, refusal)
        engine.schedule.clear()

    # What all have in common.

    def _conclude(self, operation: Operation[Any], status: OperationStatus, outcome: Any) -> None:
        """Make an operation history: count it, tell those who wait, remember its snapshot, let go of it."""
        engine, window, draft = self._engine, self._window, operation._draft
        draft._finished = now = self._clock.monotonic()
        draft.status = operation._status = status
        operation._outcome = outcome
        operation._item = operation._context = operation._task = None
        if engine.retrying is not None:
            engine.retrying.forget(operation)
        if status is _COMPLETED:
            engine.counts.completed += 1
            if self._keeps_results:
                draft._result = outcome
        else:
            self._count(status)
        if operation._signals is not None:
            engine.signalling.settle(operation)
        if operation._waiters:
            self._wake(operation, None)
        if window.pinned:
            draft.is_pinned = operation.id in window.pinned
        snapshot = draft._seal()
        if status is _FAILED:
            window.failures.append(snapshot)
        if self.listeners:
            for listener in self.listeners:
                listener(operation)
        window.add(snapshot, now)
        if self._samples:
            window.sample(now)
        if not window.running and not window.pending:
            engine.became_idle()

    def _wake(self, operation: Operation[Any], error: BaseException | None) -> None:
        waiters, operation._waiters = operation._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(error)

    def _count(self, status: OperationStatus) -> None:
        counts = self._engine.counts
        if status is _FAILED:
            counts.failed += 1
        elif status is _CANCELLED:
            counts.cancelled += 1
        else:
            counts.skipped += 1

    def _leave_admission(self, operation: Operation[Any]) -> None:
        admission = self._engine.admission
        if admission.line or admission.parked:
            admission.left(operation)

    def _observe(self, operation: Operation[Any], error: BaseException | None) -> None:
        limit = self._engine.start_limit
        if limit is not None and limit.observe is not None:
            self._engine.call_hook("observe", limit.observe, error)
        for observer in self.observers:
            self._engine.call_hook("observe", observer, operation, error)

    def _goes_on(self, operation: Operation[Any], error: Exception) -> bool:
        """Tell who observes of a failed attempt; hold the operation for another one if the policy wants that."""
        engine = self._engine
        self._observe(operation, error)
        retrying = engine.retrying
        if retrying is None or operation._stop == "cancelled":
            return False
        attempt, delay = retrying.attempt_of(operation), retrying.delay_after(operation, error)
        said = {"attempt": attempt, "error": qualified_name(type(error))}
        if delay is None:
            if attempt > 1:
                engine.signalling.emit(operation, "retry.exhausted", said)
            return False
        window = engine.window
        if window.running.pop(operation.id, None) is None:
            return True  # the policy, or the limiter, has ended it
        if operation._timeout is not None:
            engine.execution.deadlines.discard(operation, operation._timeout)
        window.pending[operation.id] = operation
        engine.schedule.held(operation)
        retrying.hold(operation, delay)
        kept_form(error, is_shared=False)  # nobody gets it, and a body may have tied it into a cycle with the item
        log(
            logging.INFO,
            "attempt %d of operation %s (%s) of coordinator %s failed: %s; the next one in %g seconds",
            attempt,
            format_id(operation.id),
            operation.name,
            engine.name,
            said["error"],
            delay,
        )
        engine.waits.end_deadlock()
        engine.wake()
        engine.signalling.emit(operation, "retry.scheduled", {**said, "delay": delay})
        return True
