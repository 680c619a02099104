"""Operations between two attempts: they hold no slot, and come back when their time has come.

Such an operation is pending again. It keeps its place in its key, so that nothing of that key overtakes it, and
returns to the schedule as the oldest of those that wait. One timer serves all of them. What the next attempt needs,
the item and the context, is kept until the operation has ended.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from contextvars import ContextVar, Token
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from ephemerals.failure import qualified_name
from ephemerals.operation import _current
from ephemerals.snapshot import OperationStatus

from .alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextvars import Context

    from ephemerals.clock import Clock
    from ephemerals.operation import Operation
    from ephemerals.policies import Retries

__all__ = ["Retrying", "delay_after", "is_retried_already", "mark_retried", "retried"]

_logger: Final = logging.getLogger("ephemerals")
_FEW: Final = 32

_OUTSIDE: Final = object()
_retried: Final[ContextVar[object]] = ContextVar("ephemerals_retried", default=None)
"""For which operation (or outside of any) somebody up the stack retries already."""


class _Origin:
    """Hold what every attempt of an operation begins with, and which one it is at."""

    __slots__ = ("attempt", "context", "item", "started")

    def __init__(self, item: Any, context: Context, started: float) -> None:
        self.item = item
        self.context = context
        self.started = started
        self.attempt = 1


class Retrying:
    """Keep what is to be tried again; `readmit` is called with each operation whose time has come."""

    __slots__ = ("_alarm", "_clock", "_due", "_held", "_origins", "_policy", "_readmit", "count")

    def __init__(self, policy: Retries, clock: Clock, readmit: Callable[[Operation[Any]], None]) -> None:
        self._policy = policy
        self._clock = clock
        self._readmit = readmit
        self._alarm = Alarm(clock, self._on_alarm)
        self._origins: dict[int, _Origin] = {}
        self._held: dict[int, Operation[Any]] = {}
        self._due: list[tuple[float, int]] = []
        self.count = 0

    def begin(self, operation: Operation[Any]) -> None:
        """Remember what a next attempt would need, before an attempt starts."""
        context = operation._context
        if operation.id not in self._origins and context is not None:
            self._origins[operation.id] = _Origin(operation._item, context.copy(), self._clock.monotonic())

    def delay_after(self, operation: Operation[Any], error: Exception) -> float | None:
        """Return the seconds to wait before an operation that failed is tried again; `None`: it is not."""
        origin = self._origins.get(operation.id)
        if origin is None:
            return None
        elapsed = self._clock.monotonic() - origin.started
        return delay_after(self._policy, error, origin.attempt, elapsed)

    def attempt_of(self, operation: Operation[Any]) -> int:
        """Return which attempt an operation is at, from 1."""
        origin = self._origins.get(operation.id)
        return 1 if origin is None else origin.attempt

    def hold(self, operation: Operation[Any], delay: float) -> None:
        """Make an operation pending again, and keep it for so many seconds."""
        origin = self._origins[operation.id]
        operation._status = OperationStatus.PENDING
        operation._draft._started = None
        origin.attempt += 1
        operation._draft.attempt = origin.attempt
        operation._item = origin.item
        operation._context = origin.context.copy()
        operation._task = operation._stop = None
        self.count += 1
        due = self._clock.monotonic() + delay
        self._held[operation.id] = operation
        heappush(self._due, (due, operation.id))
        self._alarm.set(due)

    def cut_short(self, operation: Operation[Any]) -> None:
        """Readmit an operation now, if it is held."""
        if self._held.pop(operation.id, None) is not None:
            self._readmit(operation)
            self._tidy()

    def cut_all_short(self) -> None:
        """Readmit all that are held now."""
        for operation in list(self._held.values()):
            self.cut_short(operation)
        self._alarm.stop()

    def forget(self, operation: Operation[Any]) -> None:
        """Drop what was kept of an operation that has ended."""
        self._origins.pop(operation.id, None)

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when nothing is pending or runs."""
        left = len(self._origins) + len(self._held) + len(self._due)
        return {"to be retried": left, "retry timers": int(self._alarm.is_set)}

    def _on_alarm(self) -> None:
        now = self._clock.monotonic()
        while self._due and self._due[0][0] <= now:
            operation = self._held.pop(heappop(self._due)[1], None)
            if operation is not None:
                self._readmit(operation)
        if self._due:
            self._alarm.set(self._due[0][0])

    def _tidy(self) -> None:
        """Keep what is left of cut waits below what is held."""
        if not self._held:
            self._due.clear()
            self._alarm.stop()
        elif len(self._due) > 2 * len(self._held) + _FEW:
            self._due = [entry for entry in self._due if entry[1] in self._held]
            heapify(self._due)


def delay_after(policy: Retries, error: Exception, attempt: int, elapsed: float) -> float | None:
    """Ask a policy; if it raises itself, log that and give up, so that the real error is what is seen."""
    try:
        return policy.delay_after(error, attempt, elapsed)
    except Exception as failure:  # noqa: BLE001 - a predicate of the user may raise anything
        _logger.warning("a retry policy raised %s: nothing is retried", qualified_name(type(failure)))
        return None


def mark_retried() -> Token[object]:
    """Note in this context that what runs here is retried."""
    return _retried.set(_current.get() or _OUTSIDE)


@contextmanager
def retried() -> Generator[None]:
    """Note for a block that what runs in it is retried."""
    token = mark_retried()
    try:
        yield
    finally:
        _retried.reset(token)


def is_retried_already() -> bool:
    """Tell whether somebody up the stack, in the same operation, retries what runs here."""
    return _retried.get() is (_current.get() or _OUTSIDE)
