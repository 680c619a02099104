"""A part of a sink's names: what is said under a prefix, nested as deep as wanted, like loggers.

    >>> from ephemerals.signals import SignalSink
    >>> sink = SignalSink()
    >>> orders = sink.scoped("shop").scoped("orders")
    >>> orders.emit("placed", key="42").name
    'shop.orders.placed'
    >>> orders.has("placed"), sink.has_matching("shop.*"), orders.count_matching("*")
    (True, True, 1)

A scope keeps nothing: it puts its prefix before names and patterns, and the sink does the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ephemerals.errors import InvalidOption

from .pattern import Pattern
from .validation import as_name, as_pattern

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from datetime import timedelta

    from .event import SignalEvent
    from .pattern import PatternLike
    from .sink import SignalSink
    from .stream import SignalStream
    from .subscription import Subscription
    from .typed import SignalKey
    from .validation import Moment
    from .watch import Watch

__all__ = ["SignalScope"]


class SignalScope:
    """Emit to a sink and ask it, below `prefix`; `source`, if given, is the source of what is emitted."""

    __slots__ = ("prefix", "sink", "source")

    def __init__(self, sink: SignalSink, prefix: str, *, source: str | None = None) -> None:
        prefix = as_name(prefix)
        if prefix.strip(".") != prefix or any(each in prefix for each in "*?,"):
            raise InvalidOption("prefix", prefix, "a name without '*', '?' and ',' that does not begin or end in a dot")
        self.sink = sink
        self.prefix = prefix
        self.source = source

    def scoped(self, prefix: str, *, source: str | None = None) -> SignalScope:
        """Return the scope below this one; without a `source` it has this one's."""
        return SignalScope(self.sink, f"{self.prefix}.{prefix}", source=self.source if source is None else source)

    def name_of(self, name: str | SignalKey[Any]) -> str:
        """Return a name as the sink knows it."""
        return f"{self.prefix}.{as_name(name)}"

    def pattern_of(self, pattern: PatternLike | SignalKey[Any]) -> Pattern:
        """Return a pattern as the sink knows it: each alternative matches below the prefix only."""
        return Pattern(", ".join(f"{self.prefix}.{each}" for each in as_pattern(pattern).text.split(", ")))

    def emit(
        self,
        name: str | SignalKey[Any],
        data: Any = None,
        *,
        key: Any = None,
        operation_id: int | None = None,
    ) -> SignalEvent[Any] | None:
        """Emit a signal of this scope; return the event, or `None` if a constraint blocked it."""
        return self.sink.emit(self.name_of(name), data, key=key, operation_id=operation_id, source=self.source)

    def hold(
        self, name: str | SignalKey[Any], data: Any = None, *, key: Any = None, operation_id: int | None = None
    ) -> AbstractContextManager[SignalEvent[Any] | None]:
        """Let a condition of this scope be present inside a `with` block."""
        return self.sink.hold(self.name_of(name), data, key=key, operation_id=operation_id, source=self.source)

    def retract(self, name: str | SignalKey[Any], *, key: Any = None) -> int:
        """Take back the events of a name; return how many were present."""
        return self.sink.retract(self.name_of(name), key=key)

    def retract_matching(self, pattern: PatternLike | SignalKey[Any], *, key: Any = None) -> int:
        """Take back the events that match a pattern; return how many were present."""
        return self.sink.retract_matching(self.pattern_of(pattern), key=key)

    def clear(self) -> int:
        """Forget every event of this scope; return how many there were."""
        return self.sink.clear_matching(self.pattern_of("*"))

    def has(self, name: str | SignalKey[Any], *, key: Any = None) -> bool:
        """Tell whether an event of this name is present, with this key if one is given."""
        return self.sink.has(self.name_of(name), key=key)

    def has_matching(self, pattern: PatternLike | SignalKey[Any]) -> bool:
        """Tell whether an event is present whose name matches a pattern."""
        return self.sink.has_matching(self.pattern_of(pattern))

    def count(self, name: str | SignalKey[Any] | None = None) -> int:
        """Count the events of a name; all of this scope if it is `None`."""
        return self.count_matching("*") if name is None else self.sink.count(self.name_of(name))

    def count_matching(self, pattern: PatternLike | SignalKey[Any]) -> int:
        """Count the events whose name matches a pattern."""
        return self.sink.count_matching(self.pattern_of(pattern))

    def events(
        self,
        pattern: PatternLike | SignalKey[Any] = "*",
        *,
        key: Any = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int | None = None,
    ) -> list[SignalEvent[Any]]:
        """Return the events of this scope that meet every condition given, newest last."""
        return self.sink.events(pattern=self.pattern_of(pattern), key=key, since=since, until=until, limit=limit)

    def last(self, pattern: PatternLike | SignalKey[Any] = "*", *, key: Any = None) -> SignalEvent[Any] | None:
        """Return the newest event that matches a pattern; `None` if none does."""
        return self.sink.last(self.pattern_of(pattern), key=key)

    def subscribe(
        self,
        pattern: PatternLike | SignalKey[Any],
        handler: Callable[[SignalEvent[Any]], object],
        *,
        retractions: bool = False,
    ) -> Subscription:
        """Call `handler(event)` for each event of this scope that matches, from now on."""
        return self.sink.subscribe(self.pattern_of(pattern), handler, retractions=retractions)

    def stream(self, pattern: PatternLike | SignalKey[Any] = "*", *, since: Moment | None = None) -> SignalStream:
        """Return an asynchronous iterator over the events of this scope that match, from now on or from `since`."""
        return self.sink.stream(self.pattern_of(pattern), since=since)

    async def wait_for(
        self,
        pattern: PatternLike | SignalKey[Any],
        *,
        key: Any = None,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - handed on
        since: Moment | None = None,
    ) -> SignalEvent[Any]:
        """Wait for the next event of this scope that matches, and return it."""
        return await self.sink.wait_for(self.pattern_of(pattern), key=key, timeout=timeout, since=since)

    def watch(self, pattern: PatternLike | SignalKey[Any], on_change: Callable[[Watch], object] | None = None) -> Watch:
        """Keep track of whether an event of this scope that matches is present."""
        return self.sink.watch(self.pattern_of(pattern), on_change)

    def __repr__(self) -> str:
        return f"<SignalScope {self.prefix!r} of {self.sink!r}>"
