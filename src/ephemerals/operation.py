"""One piece of work while it lives: what the body emits through and the caller holds as a handle.

An operation owns its outcome, so result and exception live exactly as long as somebody holds the handle. The engine
holds it only until it ends; what is remembered afterwards is an `OperationSnapshot`.
"""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast, overload

from .errors import InvalidOption, InvalidOptionType, OperationCancelled, OperationSkipped, shown
from .failure import kept_form
from .ids import format_id
from .options import as_count
from .signals.progress import Progress
from .snapshot import Draft, OperationSnapshot, OperationStatus, duration, waiting_time

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator, Mapping
    from contextvars import Context
    from datetime import datetime, timedelta

    from .clock import Clock
    from .coordination.responsibility import Acknowledgement
    from .failure import ErrorInfo
    from .signals import PatternLike, SignalEvent, SignalKey

__all__ = ["Operation", "current_operation"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    R = TypeVarWithDefault("R", default=object)  # a bare `Operation` hides no type from a checker
else:
    R = TypeVar("R")
T = TypeVar("T")

_PENDING: Final = OperationStatus.PENDING
_MAX_METADATA_TEXT: Final = 4096
_MAX_METADATA_DEPTH: Final = 16


class Owner(Protocol):
    """Say what an operation asks of the engine that runs it."""

    @property
    def clock(self) -> Clock: ...
    @property
    def is_paused(self) -> bool: ...
    def now(self) -> float: ...
    def show_key(self, key: Any) -> Any: ...
    def cancel_one(self, operation: Operation[Any]) -> bool: ...
    def pin(self, operation_id: int) -> bool: ...
    def unpin(self, operation_id: int) -> bool: ...
    async def acknowledged(
        self,
        operation: Operation[Any],
        pattern: PatternLike | SignalKey[Any],
        timeout: float | timedelta | None,  # noqa: ASYNC109
    ) -> Acknowledgement: ...
    def is_pinned(self, operation_id: int) -> bool: ...
    def add_waiter(self, operation: Operation[Any]) -> asyncio.Future[BaseException | None]: ...
    def remove_waiter(self, operation: Operation[Any], waiter: asyncio.Future[BaseException | None]) -> None: ...
    def emit(self, operation: Operation[Any], name: str | SignalKey[Any], data: Any) -> SignalEvent | None: ...
    def retract(self, operation: Operation[Any], name: str) -> int: ...


class Operation(Generic[R]):
    """Follow one piece of work, and await its outcome.

    `await operation` gives the body's result, or raises the body's exception; `OperationCancelled` if the operation
    was cancelled, `OperationSkipped` if a signal kept it from running. Any number of tasks may wait, before or after
    the end; cancelling a waiter does not touch the operation. Who waits when it fails gets the exception with its
    traceback; who comes later gets it without, and a note that names the places.

    >>> import asyncio
    >>> from ephemerals import WorkCoordinator
    >>> async def double(number: int) -> int:
    ...     return number * 2
    >>> async def main() -> int:
    ...     async with WorkCoordinator(double) as coordinator:
    ...         operation = await coordinator.enqueue(21)
    ...         return await operation
    >>> asyncio.run(main())
    42
    """

    _emitted: int
    _order: int
    _is_ready: bool

    __slots__ = (
        "__weakref__",
        "_context",
        "_draft",
        "_emitted",
        "_is_ready",
        "_item",
        "_key",
        "_order",
        "_outcome",
        "_owner",
        "_signals",
        "_status",
        "_stop",
        "_task",
        "_timeout",
        "_waiters",
        "id",
        "key",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - the engine fills every field in one call, on the hot path
        self,
        operation_id: int,
        name: str,
        owner: Owner,
        item: Any,
        context: Context | None,
        key: Any,
        schedule_key: Any,
        shown_key: Any,
        lane: str | None,
        timeout: float | None,
    ) -> None:
        self.id = operation_id
        self.key = key
        self._key = schedule_key
        self._draft: Draft[R] = Draft(operation_id, name, shown_key, lane)
        self._owner = owner
        self._item = item
        self._context = context
        self._timeout = timeout
        self._status = _PENDING
        self._stop: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._outcome: Any = None
        self._waiters: dict[asyncio.Future[BaseException | None], None] | None = None
        self._signals: deque[SignalEvent] | None = None

    @property
    def name(self) -> str:
        """Return the name of what it runs."""
        return self._draft.name

    @property
    def lane(self) -> str | None:
        """Return the lane it came in; `None` without lanes."""
        return self._draft.lane

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return what the caller said about it, frozen."""
        return self._draft.metadata

    @property
    def attempt(self) -> int:
        """Return which attempt this is, or waits to be, from 1; start, end and duration are of the last one.

        A coordinator with `retry=` counts; a body that tries again by itself sets it.
        """
        return self._draft.attempt

    @attempt.setter
    def attempt(self, number: int) -> None:
        self._draft.attempt = as_count("attempt", number)

    @property
    def status(self) -> OperationStatus:
        """Return the state it is in now."""
        return self._status

    @property
    def has_ended(self) -> bool:
        """Tell whether its outcome is settled, so that awaiting it returns at once."""
        return self._draft._finished is not None

    @property
    def enqueued_at(self) -> datetime:
        """Return when it was accepted, in UTC."""
        return self.snapshot().enqueued_at

    @property
    def started_at(self) -> datetime | None:
        """Return when its body started, in UTC; `None` if it has not."""
        return self.snapshot().started_at

    @property
    def finished_at(self) -> datetime | None:
        """Return when it ended, in UTC; `None` while it has not."""
        return self.snapshot().finished_at

    @property
    def duration(self) -> float:
        """Return the seconds its body has run; 0.0 if it has not started."""
        draft = self._draft
        return duration(draft._started, draft._finished, self._owner.now())

    @property
    def waiting_time(self) -> float:
        """Return the seconds it waited for its start, so far if it still waits."""
        draft = self._draft
        return waiting_time(draft._enqueued, draft._started, draft._finished, self._owner.now())

    @property
    def error(self) -> ErrorInfo | None:
        """Return what is known of its failure; `None` if it did not fail."""
        return self._draft.error

    @property
    def stop_requested(self) -> bool:
        """Tell whether it was cancelled or timed out while running; a plain function asks this to leave early."""
        return self._stop is not None

    @property
    def is_pinned(self) -> bool:
        """Tell whether it is pinned in its coordinator's window."""
        return self._owner.is_pinned(self.id)

    @property
    def signals(self) -> tuple[SignalEvent, ...]:
        """Return the newest signals it emitted, oldest first."""
        return self._draft.signals if self._signals is None else tuple(self._signals)

    @property
    def signal_count(self) -> int:
        """Return how many signals it emitted in all."""
        return self._draft.signal_count if self._signals is None else self._emitted

    @overload
    def emit(self, name: SignalKey[T], data: T) -> SignalEvent[T] | None: ...

    @overload
    def emit(self, name: str, data: Any = None) -> SignalEvent | None: ...

    def emit(self, name: str | SignalKey[Any], data: Any = None) -> SignalEvent | None:
        """Emit a signal in its name; return the event, or `None` if a constraint blocked it.

        It carries the operation's id and key. After the end it still reaches the sink, but is not remembered here.
        """
        return self._owner.emit(self, name, data)

    def retract(self, name: str | SignalKey[Any]) -> int:
        """Take back all its signals of this name; return how many were present in the sink.

        While it runs, it forgets them too; `signal_count` still counts them.
        """
        return self._owner.retract(self, str(name))

    def has_signal(self, name: str | SignalKey[Any]) -> bool:
        """Tell whether one of its signals has exactly this name."""
        plain = str(name)
        return any(event.name == plain for event in self.signals)

    def progress(
        self,
        total: float | None = None,
        *,
        min_interval: float | timedelta = 0.5,
        name: str | SignalKey[Any] = "progress",
    ) -> Progress:
        """Return a bar that tells by signals how far it has come: `with operation.progress(total=n) as bar`.

        `bar.update()` counts a step. A signal is emitted at most every `min_interval` seconds (0: for every step), and
        always for the last state. `total` is more than 0 steps (`None`: nobody knows); `name` tells several apart.
        """
        return Progress(self.emit, total, min_interval=min_interval, name=name, clock=self._owner.clock)

    def cancel(self) -> bool:
        """Cancel it: waiting, it never starts; running, its task is cancelled.

        Return whether that had an effect: False once it has ended.
        """
        return self._owner.cancel_one(self)

    def pin(self) -> bool:
        """Keep it in the window beyond size and age; raise `PinLimitReached` if too many are.

        Return False if the window has forgotten it. Pinning twice is the same as once.
        """
        return self._owner.pin(self.id)

    def unpin(self) -> bool:
        """Let size and age bounds apply to it again; return False if it was not pinned."""
        return self._owner.unpin(self.id)

    async def acknowledged(
        self,
        pattern: PatternLike | SignalKey[Any],
        *,
        timeout: float | timedelta | None,  # noqa: ASYNC109 - running out of time is a result
    ) -> Acknowledgement:
        """Keep it pinned until a signal that matches acknowledges it, or for `timeout` seconds after it has ended.

        A signal acknowledges it if it carries the operation's id, or, once it has ended, if it carries its key and no
        id; one that is in the sink already will do. What it said itself while it ran does not count. How it ended does
        not matter. `timeout=None` waits for ever. The result is true if it was acknowledged; else its `outcome` tells.

        Afterwards, and if the wait is cancelled, it is pinned only if others hold it, or `pin` was called. Raises
        `PinLimitReached` if too many are pinned, `SinkClosed` if nobody can be heard any more, `DeadlockError` if it
        waits for itself.
        """
        return await self._owner.acknowledged(self, pattern, timeout)

    def snapshot(self) -> OperationSnapshot[R]:
        """Return what it looks like now: metadata only, frozen."""
        if self.has_ended:
            return cast("OperationSnapshot[R]", self._draft)  # sealed at the end
        draft = self._draft
        draft.status = self._status
        draft.signals = self.signals
        draft.signal_count = self.signal_count
        draft.is_pinned = self.is_pinned
        return draft._copy(self._owner.now())

    def __await__(self) -> Generator[Any, None, R]:
        """Wait for the outcome."""
        if self._draft._finished is None:
            waiter = self._owner.add_waiter(self)
            try:
                failure = yield from waiter
            finally:
                self._owner.remove_waiter(self, waiter)
                del waiter
            if failure is not None:
                try:
                    raise failure
                finally:
                    del failure  # this frame is in its traceback now
        return self._unwrap()

    def _record(self, event: SignalEvent, limit: int) -> None:
        """Add to its signals, until it has ended; the oldest go first."""
        if self._draft._finished is not None:
            return
        signals = self._signals
        if signals is None:
            signals = self._signals = deque(maxlen=limit)
            self._emitted = 0
        signals.append(event)
        self._emitted += 1

    def _forget_signal(self, name: str) -> None:
        if self._signals is not None and self._draft._finished is None:
            self._signals = deque((each for each in self._signals if each.name != name), self._signals.maxlen)

    def _unwrap(self) -> R:
        match self._status:
            case OperationStatus.COMPLETED:
                outcome: R = self._outcome
                return outcome
            case OperationStatus.FAILED:
                error: BaseException = self._outcome
                self._outcome = kept_form(
                    error, is_shared=True
                )  # raising gives this one a traceback; what is kept has none
                try:
                    raise error
                finally:
                    del error
            case OperationStatus.SKIPPED:
                message = f"operation {format_id(self.id)} ({self.name}) was skipped: {self._outcome} is present"
                raise OperationSkipped(message, self.id, self._outcome)
            case _:
                reason = f": {self._outcome}" if self._outcome else ""
                message = f"operation {format_id(self.id)} ({self.name}) was cancelled{reason}"
                raise OperationCancelled(message, self.id)

    def __repr__(self) -> str:
        """Show id, name and status."""
        return f"<Operation {format_id(self.id)} {self.name} {self._status}>"


_current: ContextVar[tuple[Mapping[int, Operation[Any]], int] | None] = ContextVar(
    "ephemerals_current_operation", default=None
)
"""Where the running operation is to be found: the table of those that run, and its id."""


def current_operation() -> Operation[Any] | None:
    """Return the operation whose body is running here: in its task, in tasks and threads it started, or `None`.

    Contexts outlive bodies, so they hold an id and not the operation, and one that has ended is not found.
    """
    found = _current.get()
    return None if found is None else found[0].get(found[1])


def freeze_metadata(metadata: object) -> Mapping[str, Any]:
    """Return a frozen copy of a caller's metadata; refuse what is not small and JSON-like."""
    if not hasattr(metadata, "items"):
        raise InvalidOptionType("metadata", metadata, "a mapping of texts to JSON-like values")
    budget = [_MAX_METADATA_TEXT]
    frozen: Mapping[str, Any] = _freeze(metadata, budget, 0)
    if budget[0] < 0:
        shown = f"<{_MAX_METADATA_TEXT - budget[0]} characters>"
        raise InvalidOption(
            "metadata", shown, f"at most {_MAX_METADATA_TEXT} characters: it describes the work, it does not carry it"
        )
    return frozen


def _freeze(value: Any, budget: list[int], depth: int) -> Any:
    budget[0] -= 1
    if isinstance(value, str):
        budget[0] -= len(value)
        return value
    if isinstance(value, float) and not isfinite(value):
        raise InvalidOption("metadata", value, "numbers that JSON knows, which are finite")
    if value is None or isinstance(value, bool | int | float):
        if isinstance(value, int):
            budget[0] -= value.bit_length() // 3
        return value
    if budget[0] < 0:
        return None
    if depth == _MAX_METADATA_DEPTH:
        raise InvalidOption("metadata", "<deeper>", f"lists and mappings at most {_MAX_METADATA_DEPTH} deep")
    if isinstance(value, list | tuple):
        return tuple(_freeze(each, budget, depth + 1) for each in value)
    if hasattr(value, "items"):
        for name in value:
            if not isinstance(name, str):
                raise InvalidOptionType("metadata", f"{{{shown(name)}: …}}", "texts as names")
            budget[0] -= len(name)
        return MappingProxyType({name: _freeze(each, budget, depth + 1) for name, each in value.items()})
    allowed = "JSON-like values: text, numbers, True, False, None, lists and mappings of them"
    raise InvalidOptionType("metadata", f"<{type(value).__qualname__}>", allowed)
