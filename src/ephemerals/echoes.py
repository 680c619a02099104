"""What stays for a moment of an operation that has left the window: a few fields, no item, no result."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from .clock import utc
from .errors import shown_fields

if TYPE_CHECKING:
    from datetime import datetime

    from .signals import SignalEvent
    from .snapshot import OperationSnapshot, OperationStatus

__all__ = ["Echo", "EchoStore", "FinalizationReason"]


class FinalizationReason(StrEnum):
    """Say why an operation left the window: too many, too old, asked for, forgotten at once, or the end."""

    SIZE = "size"
    AGE = "age"
    EVICTED = "evicted"
    KILLED = "killed"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """Be what is left of an operation for a while after it has left the window."""

    id: int
    key: Any
    name: str
    status: OperationStatus
    error_type: str | None
    signals: tuple[SignalEvent, ...]
    reason: FinalizationReason
    left_at: datetime

    def __repr__(self) -> str:
        """Show all fields, whatever the text of a key does."""
        return shown_fields(self)


_Record = tuple[
    float, float, FinalizationReason, int, Any, str, "OperationStatus", str | None, "tuple[SignalEvent, ...]"
]
"""When it expires (monotonic), when the operation left (wall), and the other fields of an `Echo`."""


class EchoStore:
    """Keep at most `capacity` echoes, each for `retention` seconds."""

    __slots__ = ("_records", "retention")

    def __init__(self, *, capacity: int, retention: float) -> None:
        self._records: deque[_Record] = deque(maxlen=capacity)
        self.retention = retention if capacity else 0.0

    def add(self, snapshot: OperationSnapshot[Any], reason: FinalizationReason, now: float) -> float:
        """Remember what has just left the window, pushing out the oldest echo when full; return when it expires."""
        error, expiry = snapshot.error, now + self.retention
        self._records.append(  # the cheapest form: most are never looked at
            (
                expiry,
                snapshot._wall + now - snapshot._enqueued,
                reason,
                snapshot.id,
                snapshot.key,
                snapshot.name,
                snapshot.status,
                None if error is None else error.type,
                snapshot.signals,
            )
        )
        return expiry

    def expire(self, now: float) -> None:
        """Drop what is too old."""
        while self._records and self._records[0][0] <= now:
            self._records.popleft()

    @property
    def next_expiry(self) -> float | None:
        """Return the monotonic time at which the oldest echo goes; `None` if there is none."""
        return self._records[0][0] if self._records else None

    def read(self, now: float) -> list[Echo]:
        """Return the echoes that are left, oldest first."""
        self.expire(now)
        return [
            Echo(
                id=operation_id,
                key=key,
                name=name,
                status=status,
                error_type=error_type,
                signals=signals,
                reason=reason,
                left_at=utc(wall),
            )
            for _, wall, reason, operation_id, key, name, status, error_type, signals in self._records
        ]

    def clear(self) -> None:
        """Forget everything."""
        self._records.clear()
