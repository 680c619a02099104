"""What stays for a moment of an operation that has left the window: a few fields, no item, no result."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from .clock import utc

if TYPE_CHECKING:
    from datetime import datetime

    from .clock import Clock
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


class _Record(NamedTuple):
    """Keep an echo in the cheapest form; most are never looked at."""

    expires: float
    wall: float
    reason: FinalizationReason
    id: int
    key: Any
    name: str
    status: OperationStatus
    error_type: str | None
    signals: tuple[SignalEvent, ...]


class EchoStore:
    """Keep at most `capacity` echoes, each for `retention` seconds."""

    __slots__ = ("_clock", "_records", "retention")

    def __init__(self, *, capacity: int, retention: float, clock: Clock) -> None:
        self._records: deque[_Record] = deque(maxlen=capacity if retention else 0)
        self.retention = retention
        self._clock = clock

    def add(self, snapshot: OperationSnapshot[Any], reason: FinalizationReason, now: float) -> None:
        """Remember what has just left the window, pushing out the oldest echo when full."""
        if not self._records.maxlen:
            return
        error = snapshot.error
        self._records.append(
            _Record(
                now + self.retention,
                self._clock.time(),
                reason,
                snapshot.id,
                snapshot.key,
                snapshot.name,
                snapshot.status,
                None if error is None else error.type,
                snapshot.signals,
            )
        )

    def expire(self, now: float) -> None:
        """Drop what is too old."""
        while self._records and self._records[0].expires <= now:
            self._records.popleft()

    @property
    def next_expiry(self) -> float | None:
        """Return the monotonic time at which the oldest echo goes; `None` if there is none."""
        return self._records[0].expires if self._records else None

    def read(self, now: float) -> list[Echo]:
        """Return the echoes that are left, oldest first."""
        self.expire(now)
        return [
            Echo(
                id=record.id,
                key=record.key,
                name=record.name,
                status=record.status,
                error_type=record.error_type,
                signals=record.signals,
                reason=record.reason,
                left_at=utc(record.wall),
            )
            for record in self._records
        ]

    def clear(self) -> None:
        """Forget everything."""
        self._records.clear()
