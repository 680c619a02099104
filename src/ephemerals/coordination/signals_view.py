"""What a coordinator's own operations have said, as far as its window remembers."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ephemerals.options import as_count
from ephemerals.signals import Pattern

if TYPE_CHECKING:
    from datetime import datetime

    from ephemerals.operation import Operation
    from ephemerals.signals import PatternLike, SignalEvent, SignalSink
    from ephemerals.snapshot import OperationSnapshot

    from .engine import Engine

__all__ = ["CoordinatorSignals"]


class CoordinatorSignals:
    """Ask about the signals of a coordinator's operations, and emit in the coordinator's own name.

    The questions are a sink's, limited to the operations that the coordinator's window holds; an operation keeps its
    newest signals only (`max_operation_signals`). What else is in the sink is asked of `sink`.
    """

    __slots__ = ("_engine",)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def sink(self) -> SignalSink:
        """Return the sink, shared or its own."""
        return self._engine.sink

    def emit(self, name: str, data: Any = None, *, key: Any = None) -> SignalEvent[Any] | None:
        """Emit a signal with the coordinator as its source; return the event, or `None` if a constraint blocked it."""
        return self.sink.emit(name, data, key=key, source=self._engine.source)

    def has(self, name: str) -> bool:
        """Tell whether an operation has emitted a signal of this name."""
        return any(event.name == name for event in self._all())

    def has_matching(self, pattern: PatternLike) -> bool:
        """Tell whether an operation has emitted a signal whose name matches."""
        compiled = Pattern.of(pattern)
        return any(compiled.matches(event.name) for event in self._all())

    def count(self, name: str | None = None) -> int:
        """Count the signals of a name, or (`None`) all of them."""
        return sum(1 for event in self._all() if name is None or event.name == name)

    def count_matching(self, pattern: PatternLike) -> int:
        """Count the signals whose name matches."""
        compiled = Pattern.of(pattern)
        return sum(1 for event in self._all() if compiled.matches(event.name))

    def events(  # noqa: PLR0913 - each is one condition, all are optional
        self,
        name: str | None = None,
        *,
        pattern: PatternLike | None = None,
        key: Any = None,
        operation_id: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> list[SignalEvent[Any]]:
        """Return the signals that meet every condition given, newest last; `limit` keeps the newest so many.

        `key` is a key as it is, also with `key_privacy="hashed"`; `since` and `until` are aware datetimes, included.
        """
        if limit is not None:
            as_count("limit", limit, least=0)
        compiled = None if pattern is None else Pattern.of(pattern)
        shown = None if key is None else self._engine.show_key(key)
        found = [
            event
            for event in self._all()
            if (name is None or event.name == name)
            and (compiled is None or compiled.matches(event.name))
            and (shown is None or event.key == shown)
            and (operation_id is None or event.operation_id == operation_id)
            and (since is None or event.time >= since)
            and (until is None or event.time <= until)
        ]
        found.sort(key=attrgetter("sequence"))
        return found if limit is None else found[len(found) - min(limit, len(found)) :]

    def last(self, pattern: PatternLike | None = None) -> SignalEvent[Any] | None:
        """Return the newest signal, or the newest that matches; `None` if there is none."""
        found = self.events(pattern=pattern, limit=1)
        return found[0] if found else None

    def _all(self) -> list[SignalEvent[Any]]:
        window = self._engine.window
        holders: list[OperationSnapshot[Any] | Operation[Any]] = [*window.ended(), *window.running.values()]
        return [event for holder in holders for event in holder.signals]
