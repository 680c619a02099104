"""What is remembered of an operation: plain metadata, frozen.

The history of an operation is written while it lives, into a draft, and sealed when it ends: the draft becomes a
snapshot by changing its class, so that ending costs no copy. Datetimes are computed when somebody asks for them.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

from .clock import utc
from .errors import shown
from .ids import format_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from typing import Self

    from .failure import ErrorInfo
    from .signals import SignalEvent, SignalKey

__all__ = ["OperationSnapshot", "OperationStatus"]

R = TypeVar("R")


class OperationStatus(StrEnum):
    """Name the states of an operation; the last four are final.

    `CANCELLING` is running: a thread or process that was asked to stop and has not returned yet.
    """

    PENDING = "pending"
    RUNNING = "running"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"

    @property
    def is_final(self) -> bool:
        """Tell whether an operation in this state has ended."""
        return self in _FINAL


_FINAL: Final = frozenset(
    {OperationStatus.COMPLETED, OperationStatus.FAILED, OperationStatus.CANCELLED, OperationStatus.SKIPPED}
)
_NO_RESULT: Final[Any] = object()
EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


class Draft(Generic[R]):
    """Be the history of an operation that has not ended."""

    __slots__ = (
        "_enqueued",
        "_finished",
        "_result",
        "_seen",
        "_started",
        "_wall",
        "attempt",
        "error",
        "id",
        "is_pinned",
        "key",
        "lane",
        "metadata",
        "name",
        "signal_count",
        "signals",
        "status",
    )

    id: int
    key: Any
    name: str
    lane: str | None
    status: OperationStatus
    metadata: Mapping[str, Any]
    signals: tuple[SignalEvent, ...]
    signal_count: int
    error: ErrorInfo | None
    is_pinned: bool
    attempt: int
    _wall: float
    _enqueued: float
    _started: float | None
    _finished: float | None
    _seen: float
    _result: R

    def __init__(self, operation_id: int, name: str, key: Any, lane: str | None) -> None:
        self.id = operation_id
        self.name = name
        self.key = key
        self.lane = lane
        self.status = OperationStatus.PENDING
        self.metadata = EMPTY
        self.signals = ()
        self.signal_count = 0
        self.error = None
        self.is_pinned = False
        self.attempt = 1
        self._started = None
        self._finished = None
        self._seen = 0.0
        self._result = _NO_RESULT

    def _seal(self) -> OperationSnapshot[R]:
        """Become a snapshot; this object itself, from now on frozen. Repeating it changes nothing."""
        if type(self) is Draft:
            self.__class__ = OperationSnapshot
        return self  # type: ignore[return-value] # a cast would be one call more for each operation

    def _copy(self, now: float) -> OperationSnapshot[R]:
        """Return a snapshot of how things are at the monotonic time `now`."""
        duplicate: Draft[R] = Draft.__new__(Draft)
        for slot in Draft.__slots__:
            setattr(duplicate, slot, getattr(self, slot))
        duplicate._seen = now
        return duplicate._seal()


class OperationSnapshot(Draft[R]):
    """Show what happened to one operation, at one moment; nothing in it changes afterwards.

    `key` is the key as `key_privacy` shows it; `signals` are the newest ones, `signal_count` counts all;
    `error` is `None` unless the operation failed. Only a `ResultCoordinator`'s snapshots carry a result.

    It can be pickled, if its key can: the metadata travels, but no result, exception, or data of a signal. A copy is
    the snapshot itself.
    """

    __slots__ = ()

    def __init__(self) -> None:
        """Refuse: snapshots come from an operation or a coordinator."""
        message = "an OperationSnapshot is not created by hand: ask an operation or a coordinator for one"
        raise TypeError(message)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: a snapshot is frozen."""
        message = f"cannot set {name!r}: an OperationSnapshot is frozen"
        raise AttributeError(message)

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse: a snapshot is frozen."""
        message = f"cannot delete {name!r}: an OperationSnapshot is frozen"
        raise AttributeError(message)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as metadata, without the result."""
        fields = {name: getattr(self, name) for name in Draft.__slots__ if name != "_result"}
        return _restored, (fields | {"metadata": as_plain(self.metadata)},)

    def __copy__(self) -> Self:
        """Return itself, which never changes."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return itself, which never changes."""
        return self

    @property
    def enqueued_at(self) -> datetime:
        """Return when it was accepted, in UTC."""
        return utc(self._wall)

    @property
    def started_at(self) -> datetime | None:
        """Return when its body started, in UTC; `None` if it never did."""
        return None if self._started is None else utc(self._wall + self._started - self._enqueued)

    @property
    def finished_at(self) -> datetime | None:
        """Return when it ended, in UTC; `None` while it has not."""
        return None if self._finished is None else utc(self._wall + self._finished - self._enqueued)

    @property
    def duration(self) -> float:
        """Return the seconds its body ran, so far if it runs; 0.0 if it never started."""
        return duration(self._started, self._finished, self._seen)

    @property
    def waiting_time(self) -> float:
        """Return the seconds it waited for its start, so far if it still waits."""
        return waiting_time(self._enqueued, self._started, self._finished, self._seen)

    @property
    def has_result(self) -> bool:
        """Tell whether it completed and its result is kept."""
        return self._result is not _NO_RESULT

    @property
    def result(self) -> R | None:
        """Return its result; `None` if there is none or it is not kept (see `has_result`)."""
        return self._result if self.has_result else None

    @property
    def is_faulted(self) -> bool:
        """Tell whether it failed."""
        return self.status is OperationStatus.FAILED

    def has_signal(self, name: str | SignalKey[Any]) -> bool:
        """Tell whether one of `signals` has exactly this name."""
        plain = str(name)
        return any(event.name == plain for event in self.signals)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON: the id and the key as text, times as ISO 8601, never the result."""
        return {
            "id": format_id(self.id),
            "name": self.name,
            "key": None if self.key is None else shown(self.key, str),
            "lane": self.lane,
            "status": str(self.status),
            "enqueued_at": self.enqueued_at.isoformat(),
            "started_at": self.started_at.isoformat() if self.started_at else None,
            "finished_at": self.finished_at.isoformat() if self.finished_at else None,
            "duration": self.duration,
            "waiting_time": self.waiting_time,
            "attempt": self.attempt,
            "is_pinned": self.is_pinned,
            "metadata": as_plain(self.metadata),
            "signals": [event.name for event in self.signals],
            "error": None
            if self.error is None
            else {
                "type": self.error.type,
                "place": self.error.place,
                "message": self.error.message,
                "trace": list(self.error.trace),
            },
        }

    def __repr__(self) -> str:
        """Show id, name and status."""
        return f"<OperationSnapshot {format_id(self.id)} {self.name} {self.status}>"


def duration(started: float | None, finished: float | None, now: float) -> float:
    """Return the seconds between start and end, or until now."""
    if started is None:
        return 0.0
    return (now if finished is None else finished) - started


def waiting_time(enqueued: float, started: float | None, finished: float | None, now: float) -> float:
    """Return the seconds from acceptance to the start, or to the end without one, or until now."""
    if started is not None:
        return started - enqueued
    return (now if finished is None else finished) - enqueued


def with_pin(snapshot: OperationSnapshot[R], *, is_pinned: bool) -> OperationSnapshot[R]:
    """Return a copy with another `is_pinned`."""
    return _changed(snapshot, "is_pinned", is_pinned)


def without_result(snapshot: OperationSnapshot[R]) -> OperationSnapshot[R]:
    """Return a copy that carries no result."""
    return _changed(snapshot, "_result", _NO_RESULT)


def _restored(fields: dict[str, Any]) -> OperationSnapshot[Any]:
    draft: Draft[Any] = Draft.__new__(Draft)
    for name, value in fields.items():
        setattr(draft, name, value)
    draft.metadata = as_frozen(draft.metadata)
    draft._result = _NO_RESULT
    return draft._seal()


def _changed(snapshot: OperationSnapshot[R], name: str, value: object) -> OperationSnapshot[R]:
    duplicate: OperationSnapshot[R] = object.__new__(OperationSnapshot)
    for slot in Draft.__slots__:
        object.__setattr__(duplicate, slot, value if slot == name else getattr(snapshot, slot))
    return duplicate


def as_plain(value: Any) -> Any:
    """Return frozen metadata as dicts and lists."""
    if hasattr(value, "items"):
        return {name: as_plain(each) for name, each in value.items()}
    return [as_plain(each) for each in value] if isinstance(value, tuple) else value


def as_frozen(value: Any) -> Any:
    """Return plain metadata frozen again."""
    if isinstance(value, dict):
        return MappingProxyType({name: as_frozen(each) for name, each in value.items()})
    return tuple(as_frozen(each) for each in value) if isinstance(value, list) else value
