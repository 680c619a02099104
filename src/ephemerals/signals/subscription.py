"""A handler and the events it is called for."""

from __future__ import annotations

import inspect
import weakref
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from .isolation import describe

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from .event import SignalEvent
    from .pattern import Pattern
    from .sink import SignalSink

__all__ = ["Handler", "Subscription"]

Handler: TypeAlias = "Callable[[SignalEvent[Any]], object]"


class Subscription:
    """Call a handler for each matching event, until `cancel()` or the end of a `with` block.

    The sink refers to the subscription, and so to the handler, for as long as that; the subscription does not
    keep the sink. `retractions` tells that it hears of retracted events instead of emitted ones.
    """

    __slots__ = ("_on_end", "_sink", "call", "handler", "is_active", "is_async", "pattern", "retractions")

    def __init__(
        self,
        sink: SignalSink,
        pattern: Pattern,
        handler: Handler,
        *,
        retractions: bool,
        on_end: Callable[[], object] | None = None,
    ) -> None:
        self.pattern: Final = pattern
        self.handler: Final = handler
        self.retractions: Final = retractions
        self.is_async: Final = is_async(handler)
        self.is_active = True
        self.call = None if self.is_async else handler  # what to call on the spot, while active
        self._sink = weakref.ref(sink)
        self._on_end = on_end

    def cancel(self) -> None:
        """End it at once, also for an event that is being delivered; repeating it does nothing."""
        self.is_active = False
        self.call = None
        if (sink := self._sink()) is not None:
            sink._forget(self)
        if self._on_end is not None:
            self._on_end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def __repr__(self) -> str:
        state = "" if self.is_active else " (cancelled)"
        return f"<Subscription {str(self.pattern)!r} of {describe(self.handler)}{state}>"


def is_async(handler: object) -> bool:
    if inspect.iscoroutinefunction(handler):
        return True
    return not inspect.isfunction(handler) and inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004
