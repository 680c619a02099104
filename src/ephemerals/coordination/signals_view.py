"""What a coordinator's own operations have said, as far as its window remembers."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ephemerals.options import as_count
from ephemerals.signals.validation import as_name, as_pattern, as_wall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ephemerals.operation import Operation
    from ephemerals.signals import Moment, PatternLike, SignalEvent, SignalKey, SignalSink
    from ephemerals.snapshot import OperationSnapshot

    from .engine import Engine

__all__ = ["CoordinatorSignals"]

T = TypeVar("T")


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

    @overload
    def emit(self, name: SignalKey[T], data: T, *, key: Any = None) -> SignalEvent[T] | None: ...

    @overload
    def emit(self, name: str, data: Any = None, *, key: Any = None) -> SignalEvent[Any] | None: ...

    def emit(self, name: str | SignalKey[Any], data: Any = None, *, key: Any = None) -> SignalEvent[Any] | None:
        """Emit a signal with the coordinator as its source; return the event, or `None` if a constraint blocked it.

        With `key_privacy="hashed"` the event carries a digest of `key`.
        """
        shown = None if key is None else self._engine.show_key(key)
        return self.sink.emit(name, data, key=shown, source=self._engine.signalling.source)

    def has(self, name: str | SignalKey[Any]) -> bool:
        """Tell whether an operation has emitted a signal of this name."""
        plain = as_name(name)
        return any(event.name == plain for event in self._all())

    def has_matching(self, pattern: PatternLike | SignalKey[Any]) -> bool:
        """Tell whether an operation has emitted a signal whose name matches."""
        compiled = as_pattern(pattern)
        return any(compiled.matches(event.name) for event in self._all())

    def count(self, name: str | SignalKey[Any] | None = None) -> int:
        """Count the signals of a name, or (`None`) all of them."""
        plain = None if name is None else as_name(name)
        return sum(1 for event in self._all() if plain is None or event.name == plain)

    def count_matching(self, pattern: PatternLike | SignalKey[Any]) -> int:
        """Count the signals whose name matches."""
        compiled = as_pattern(pattern)
        return sum(1 for event in self._all() if compiled.matches(event.name))

    def events(  # noqa: PLR0913 - each is one condition, all are optional
        self,
        name: str | SignalKey[Any] | None = None,
        *,
        pattern: PatternLike | SignalKey[Any] | None = None,
        key: Any = None,
        operation_id: int | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int | None = None,
    ) -> list[SignalEvent[Any]]:
        """Return the signals that meet every condition given, newest last; `limit` keeps the newest so many.

        `key` is a key as it is, also with `key_privacy="hashed"`. `since` and `until` are aware datetimes or
        wall-clock seconds, both included.
        """
        if limit is not None:
            as_count("limit", limit, least=0)
        earliest, latest = as_wall("since", since), as_wall("until", until)
        plain = None if name is None else as_name(name)
        compiled = None if pattern is None else as_pattern(pattern)
        shown = None if key is None else self._engine.show_key(key)
        found = [
            event
            for event in self._all()
            if (plain is None or event.name == plain)
            and (compiled is None or compiled.matches(event.name))
            and (shown is None or event.key == shown)
            and (operation_id is None or event.operation_id == operation_id)
            and (earliest is None or event._wall >= earliest)
            and (latest is None or event._wall <= latest)
        ]
        found.sort(key=attrgetter("sequence"))
        return found if limit is None else found[len(found) - min(limit, len(found)) :]

    def last(self, pattern: PatternLike | SignalKey[Any] | None = None) -> SignalEvent[Any] | None:
        """Return the newest signal, or the newest that matches; `None` if there is none."""
        found = self.events(pattern=pattern, limit=1)
        return found[0] if found else None

    def _all(self) -> Iterator[SignalEvent[Any]]:
        window = self._engine.window
        holders: list[OperationSnapshot[Any] | Operation[Any]] = [*window.ended(), *window.running.values()]
        return (event for holder in holders for event in holder.signals)
