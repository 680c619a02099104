"""The window as an event log: what happened, in true order, and played again in its original rhythm."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ephemerals.clock import utc
from ephemerals.errors import shown_fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from datetime import datetime

    from ephemerals.snapshot import OperationSnapshot

__all__ = ["TimelineEntry", "replay", "timeline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """Say that something happened to an operation.

    `detail` is the name of a signal, or the state in which an operation finished; `time` is in UTC, `monotonic` in
    seconds.
    """

    event: Literal["enqueued", "started", "signal", "finished"]
    operation_id: int
    name: str
    key: Any
    detail: str
    time: datetime
    monotonic: float

    def __repr__(self) -> str:
        """Show all fields, whatever the text of a key does."""
        return shown_fields(self)


def timeline(snapshots: Iterable[OperationSnapshot[Any]], since: datetime | None = None) -> list[TimelineEntry]:
    """Return what happened to some operations, oldest first, from `since` on (`None`: all of it).

    What the clock cannot tell apart is in the order of the signals.
    """
    found = [pair for snapshot in snapshots for pair in _entries(snapshot)]
    found.sort(key=lambda pair: (pair[1].monotonic, pair[0]))
    entries = [entry for _, entry in found]
    return entries if since is None else [entry for entry in entries if entry.time >= since]


def _entries(snapshot: OperationSnapshot[Any]) -> Iterator[tuple[float, TimelineEntry]]:
    """Yield entries, each with its place among the signals: their sequence, or just before or after one."""

    def entry(
        event: Literal["enqueued", "started", "signal", "finished"], monotonic: float, detail: str = ""
    ) -> TimelineEntry:
        return TimelineEntry(
            event=event,
            operation_id=snapshot.id,
            name=snapshot.name,
            key=snapshot.key,
            detail=detail,
            time=utc(snapshot._wall + monotonic - snapshot._enqueued),
            monotonic=monotonic,
        )

    before = snapshot.signals[0].sequence - 0.5 if snapshot.signals else 0
    after = snapshot.signals[-1].sequence + 0.5 if snapshot.signals else 0
    yield before, entry("enqueued", snapshot._enqueued)
    if snapshot._started is not None:
        yield before, entry("started", snapshot._started)
    for signal in snapshot.signals:
        yield signal.sequence, entry("signal", signal.monotonic, signal.name)
    if snapshot._finished is not None:
        yield after, entry("finished", snapshot._finished, str(snapshot.status))


async def replay(entries: list[TimelineEntry], speed: float | None) -> AsyncIterator[TimelineEntry]:
    """Yield entries with the pauses that lay between them, `speed` times as fast; `None`: without pauses."""
    before: TimelineEntry | None = None
    for entry in entries:
        if speed is not None and before is not None and entry.monotonic > before.monotonic:
            await asyncio.sleep((entry.monotonic - before.monotonic) / speed)
        before = entry
        yield entry
