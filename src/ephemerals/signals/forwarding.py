"""Signals from one sink in another.

    >>> from ephemerals.signals import SignalSink
    >>> shop, office = SignalSink(), SignalSink()
    >>> forwarding = forward(shop, office, "order.*")
    >>> _ = shop.emit("order.placed", key="42")
    >>> office.has("order.placed", key="42")
    True

What is forwarded continues the chain of causes, so sinks may forward to each other in any shape: an event does not
come back to where it has been. (If two ways lead to a sink, it comes there twice.) A condition that is retracted in the
one sink is retracted in the other.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Self

from ephemerals.errors import InvalidOption

from .propagation import cause, passed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from .event import SignalEvent
    from .pattern import PatternLike
    from .sink import SignalSink

__all__ = ["Forwarding", "forward"]


def forward(
    source: SignalSink,
    target: SignalSink,
    pattern: PatternLike = "*",
    *,
    rename: Callable[[SignalEvent[Any]], str | None] | None = None,
) -> Forwarding:
    """Emit in `target` what is emitted in `source` and matches, from now on, until the result is cancelled.

    Data, key, operation and source are the same. `rename(event)` gives the name in the target; `None` leaves the event
    out. Forwarding a sink to itself is an `InvalidOption`.
    """
    if source is target:
        raise InvalidOption("target", target, "another sink than the source")
    return Forwarding(source, target, pattern, rename)


class Forwarding:
    """Stand for a forwarding that `forward` began; a context manager. `forwarded` counts its events."""

    __slots__ = ("_emitted", "_rename", "_room", "_subscriptions", "_target", "forwarded")

    def __init__(
        self,
        source: SignalSink,
        target: SignalSink,
        pattern: PatternLike,
        rename: Callable[[SignalEvent[Any]], str | None] | None,
    ) -> None:
        self.forwarded = 0
        self._target = target
        self._rename = rename
        self._room = source.max_capacity
        # Numbers and names only: the events are not kept.
        self._emitted: OrderedDict[int, tuple[str, int]] = OrderedDict()
        self._subscriptions = [
            source.subscribe(pattern, self._forward),
            source.subscribe(pattern, self._retract, retractions=True),
        ]

    def cancel(self) -> None:
        """Forward nothing more; repeating it does nothing."""
        for subscription in self._subscriptions:
            subscription.cancel()
        self._emitted.clear()

    def _forward(self, event: SignalEvent[Any]) -> None:
        name = event.name if self._rename is None else self._rename(event)
        if name is None or passed(cause.get(), self._target._number, name):
            return
        copy = self._target.emit(name, event.data, key=event.key, operation_id=event.operation_id, source=event.source)
        if copy is None:
            return
        self.forwarded += 1
        self._emitted[event.sequence] = (copy.name, copy.sequence)
        if len(self._emitted) > self._room:
            self._emitted.popitem(last=False)

    def _retract(self, event: SignalEvent[Any]) -> None:
        name, sequence = self._emitted.pop(event.sequence, ("", 0))
        for copy in self._target.events(name) if name else ():
            if copy.sequence == sequence:
                self._target.retract_event(copy)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
