"""What a sink can be asked about the events it remembers.

Every question is answered from the window as it is now: what has expired a moment ago is not in it. A
question about a name costs the same whatever the window holds; one about a pattern looks at the names, not at
the events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ephemerals.errors import InvalidOption
from ephemerals.ids import as_id

from .core import SinkCore
from .pattern import Pattern
from .validation import as_name, as_pattern, as_wall

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from .event import SignalEvent
    from .index import Cell, EventIndex
    from .pattern import PatternLike
    from .typed import SignalKey
    from .validation import Moment

__all__ = ["SignalQueries", "SignalSummary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSummary:
    """Sum up the events of one operation; `key` is that of the first, `events` are oldest first."""

    operation_id: int
    key: Any
    events: tuple[SignalEvent[Any], ...]

    @property
    def count(self) -> int:
        """Return how many events there are; at least 1."""
        return len(self.events)

    @property
    def first_at(self) -> datetime:
        """Return the time of the first event, in UTC."""
        return self.events[0].time

    @property
    def last_at(self) -> datetime:
        """Return the time of the last event, in UTC."""
        return self.events[-1].time

    @property
    def duration(self) -> float:
        """Return the seconds from the first event to the last, by the monotonic clock."""
        return self.events[-1].monotonic - self.events[0].monotonic

    def has(self, pattern: PatternLike) -> bool:
        """Tell whether an event matches a pattern."""
        return bool(self.matching(pattern))

    def matching(self, pattern: PatternLike) -> tuple[SignalEvent[Any], ...]:
        """Return the events that match a pattern, oldest first."""
        compiled = Pattern.of(pattern)
        return tuple(event for event in self.events if compiled.matches(event.name))


class SignalQueries(SinkCore):
    """Answer questions about a window of events; a `SignalSink` does."""

    __slots__ = ()

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True

    def has(self, name: str | SignalKey[Any], *, key: Any = None) -> bool:
        """Tell whether an event of this name is present, with this key if one is given."""
        name = as_name(name)
        with self._lock:
            self._refresh()
            if key is None:
                return self._index.count_of(name) > 0
            return any(cell[0].key == key for cell in self._index.cells_of(name))

    def has_matching(self, pattern: PatternLike | SignalKey[Any]) -> bool:
        """Tell whether an event is present whose name matches a pattern."""
        compiled = as_pattern(pattern)
        with self._lock:
            self._refresh()
            if compiled.is_exact:
                return any(map(self._index.count_of, compiled.names))
            return any(map(compiled.matches, self._index.names()))

    def count(self, name: str | SignalKey[Any] | None = None) -> int:
        """Count the events of a name; of all names if it is `None`."""
        with self._lock:
            self._refresh()
            return self._index.indexed if name is None else self._index.count_of(as_name(name))

    def count_matching(self, pattern: PatternLike | SignalKey[Any]) -> int:
        """Count the events whose name matches a pattern."""
        compiled = as_pattern(pattern)
        return sum(count for name, count in self.counts().items() if compiled.matches(name))

    def counts(self) -> dict[str, int]:
        """Return how many events there are of each name."""
        with self._lock:
            self._refresh()
            return self._index.counts()

    def events(  # noqa: PLR0913 - one for each condition
        self,
        name: str | SignalKey[Any] | None = None,
        *,
        pattern: PatternLike | SignalKey[Any] | None = None,
        key: Any = None,
        operation_id: int | None = None,
        source: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int | None = None,
    ) -> list[SignalEvent[Any]]:
        """Return the events that meet every condition, newest last; `limit` keeps so many, the newest.

        `since` and `until` are aware datetimes or wall-clock seconds, both included. `None` is no condition.
        """
        earliest, latest = as_wall("since", since), as_wall("until", until)
        if limit is not None and limit < 0:
            raise InvalidOption("limit", limit, "0 or more, or None for no limit")
        with self._lock:
            cells = self._select(name, pattern, key=key, operation_id=operation_id, source=source)
            found: list[SignalEvent[Any]] = []
            for cell in cells:
                event: SignalEvent[Any] = cell[0]
                if len(found) == limit:
                    break
                if (earliest is None or event._wall >= earliest) and (latest is None or event._wall <= latest):
                    found.append(event)
        found.reverse()
        return found

    def last(
        self,
        pattern: PatternLike | SignalKey[Any] | None = None,
        *,
        key: Any = None,
        operation_id: int | None = None,
        source: str | None = None,
    ) -> SignalEvent[Any] | None:
        """Return the newest event that meets every condition given; `None` if none does."""
        found = self.events(pattern=pattern, key=key, operation_id=operation_id, source=source, limit=1)
        return found[0] if found else None

    def summary(self, operation_id: int) -> SignalSummary | None:
        """Sum up the events of one operation; `None` if there are none."""
        events = self.events(operation_id=as_id(operation_id))
        if not events:
            return None
        return SignalSummary(operation_id=operation_id, key=events[0].key, events=tuple(events))

    def _select(
        self,
        name: str | SignalKey[Any] | None,
        pattern: PatternLike | SignalKey[Any] | None,
        *,
        key: Any = None,
        operation_id: int | None = None,
        source: str | None = None,
    ) -> Iterable[Cell]:
        """Yield the cells that meet every condition, newest first; the caller holds the lock."""
        if operation_id is not None:
            as_id(operation_id)
        index = self._index
        self._refresh()
        names: Iterable[str] | None = None if name is None else [as_name(name)]
        if pattern is not None:
            compiled = as_pattern(pattern)
            if names is None:
                names = compiled.names if compiled.is_exact else index.names()
            names = compiled.select(names)
        cells = index.cells() if names is None else _cells_of(index, [each for each in names if index.count_of(each)])
        for cell in cells:
            event: SignalEvent[Any] = cell[0]
            if (
                (operation_id is None or event.operation_id == operation_id)
                and (source is None or event.source == source)
                and (key is None or event.key == key)
            ):
                yield cell


def _cells_of(index: EventIndex, names: list[str]) -> Iterable[Cell]:
    """Yield the cells of some names, newest first."""
    if len(names) == 1:
        return index.cells_of(names[0])
    wanted = set(names)
    return (cell for cell in index.cells() if cell[0].name in wanted)
