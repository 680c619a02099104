"""How events leave a sink before their time: taken back, cleared, or because there is less room.

To retract is to say that something no longer holds: whoever subscribed to retractions hears of each event. To
clear is to forget what was said: whoever subscribed to `sink.cleared` hears of it once.
"""

from __future__ import annotations

from contextvars import copy_context
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ephemerals.errors import InvalidOption

from .event import _Draft, unstored
from .propagation import cause
from .queries import SignalQueries
from .validation import as_age, as_count, as_pattern, as_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import timedelta

    from .event import SignalEvent
    from .index import Cell
    from .pattern import PatternLike
    from .propagation import SignalConstraints
    from .typed import SignalKey

__all__ = ["Forgetting"]

CLEARED: Final = "sink.cleared"

_UNCHANGED: Final[Any] = object()


class Forgetting(SignalQueries):
    """Take events back, clear them, and change the bounds of the window; a `SignalSink` does all that."""

    __slots__ = ("constraints",)

    constraints: SignalConstraints

    # Taking back.

    def retract(
        self,
        name: str | SignalKey[Any],
        *,
        key: Any = None,
        operation_id: int | None = None,
        source: str | None = None,
    ) -> int:
        """Take back the events of a name that meet every condition given; return how many were present."""
        return self._retract(name, None, key=key, operation_id=operation_id, source=source)

    def retract_matching(
        self,
        pattern: PatternLike | SignalKey[Any],
        *,
        key: Any = None,
        operation_id: int | None = None,
        source: str | None = None,
    ) -> int:
        """Take back the events that match a pattern and meet every condition given; return how many."""
        return self._retract(None, pattern, key=key, operation_id=operation_id, source=source)

    def retract_event(self, event: SignalEvent[Any]) -> bool:
        """Take back exactly this event; False if it is not present."""
        with self._lock:
            self._refresh()
            cells = [cell for cell in self._index.cells_of(event.name) if cell[0] is event]
            self._take(cells, retracted=True)
        self._flush()
        return bool(cells)

    def _retract(self, name: str | SignalKey[Any] | None, pattern: Any, **conditions: Any) -> int:
        with self._lock:
            removed = self._take(list(self._select(name, pattern, **conditions)), retracted=True)
        self._flush()
        return removed

    # Forgetting.

    def clear(self) -> int:
        """Forget every event; return how many there were.

        Clearing is no retraction. Whoever subscribes to `sink.cleared` hears of it, if there was something to
        clear: `data` has the `count` and what was cleared. That notice itself is not stored.
        """
        return self._clear(self._index.cells, {})

    def clear_matching(self, pattern: PatternLike | SignalKey[Any]) -> int:
        """Forget the events that match a pattern; return how many there were."""
        compiled = as_pattern(pattern)
        return self._clear(lambda: self._select(None, compiled), {"pattern": str(compiled)})

    def clear_operation(self, operation_id: int) -> int:
        """Forget the events of an operation; return how many there were."""
        return self._clear(lambda: self._select(None, None, operation_id=operation_id), {"operation_id": operation_id})

    def clear_key(self, key: Any) -> int:
        """Forget the events with a key; return how many there were."""
        if key is None:
            raise InvalidOption("key", key, "a key")
        return self._clear(lambda: self._select(None, None, key=key), {"key": key})

    def clear_oldest(self, number: int) -> int:
        """Forget the oldest events, at most so many; return how many there were."""
        if number < 0:
            raise InvalidOption("number", number, "0 or more")
        return self._clear(lambda: list(self._index.cells())[::-1][:number], {"oldest": number})

    def clear_older_than(self, age: float | timedelta) -> int:
        """Forget the events that are at least so many seconds old; return how many there were."""
        seconds = as_seconds("age", age) if age else 0.0
        latest = self.clock.monotonic() - seconds
        return self._clear(
            lambda: (cell for cell in self._index.cells() if cell[0].monotonic <= latest),
            {"older_than": seconds},
        )

    def _clear(self, select: Callable[[], Iterable[Cell]], what: dict[str, Any]) -> int:
        with self._lock:
            self._refresh()
            removed = self._take(list(select()), retracted=False)
            if removed and self._listeners:
                self._announce(CLEARED, {"count": removed, **what})
        self._flush()
        return removed

    def _announce(self, name: str, data: dict[str, Any]) -> None:
        """Queue an event that is delivered but not stored; the caller holds the lock."""
        caused_by = cause.get()
        route = self._route(name)
        if not route.listeners:
            return
        if caused_by is not None and self.constraints.check(self._number, name, caused_by) is not None:
            return  # whoever heard of this clearing has cleared again
        draft: _Draft[Any] = _Draft()
        draft.name, draft.data, draft._cause = name, data, caused_by
        draft.key = draft.operation_id = draft.source = None
        event = unstored(draft, self.clock)
        self._queue.append((event, route.listeners, copy_context() if route.has_async else None))

    @property
    def max_capacity(self) -> int:
        """Return how many events are remembered at most."""
        return self._index.capacity

    @property
    def max_age(self) -> float | None:
        """Return for how many seconds an event is remembered; `None` is no limit."""
        return None if self._index.max_age == inf else self._index.max_age

    def resize(self, max_capacity: int | None = None, max_age: float | timedelta | None = _UNCHANGED) -> None:
        """Change the bounds, and forget at once what is outside; what is not given stays as it is."""
        capacity = self.max_capacity if max_capacity is None else as_count("max_capacity", max_capacity)
        age = self._index.max_age if max_age is _UNCHANGED else as_age(max_age)
        with self._lock:
            now = self.clock.monotonic()
            self._index.resize(capacity, age, now)
            self._settle(now)
            self._arm(now)
        self._flush()
