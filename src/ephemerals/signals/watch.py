"""Whether a condition holds: kept up to date by whoever emits, so that asking costs next to nothing.

Reactions ask for each item, so they must not search. A watch knows the newest event that matches its pattern
and is present: neither retracted, nor cleared, nor pushed out, nor expired. The sink tells it when that
changes.

    >>> from ephemerals.signals import SignalSink
    >>> sink = SignalSink()
    >>> overload = sink.watch("backpressure.*")
    >>> with sink.hold("backpressure.db"):
    ...     overload.present
    True
    >>> overload.present
    False
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from .event import SignalEvent
    from .pattern import Pattern
    from .sink import SignalSink

__all__ = ["Watch"]


class Watch:
    """Tell whether an event that matches `pattern` is present, at any moment; a context manager.

    `on_change(watch)` is called after `present` or `event` has changed, where the sink calls its handlers,
    and once for several changes in a row. Reading is exact: an expired event is not present, whether or not
    the timer that calls `on_change` has run yet. The watch does not keep the sink.
    """

    __slots__ = ("_sink", "is_active", "is_due", "is_set", "on_change", "pattern")

    def __init__(self, sink: SignalSink, pattern: Pattern, on_change: Callable[[Watch], object] | None) -> None:
        self.pattern: Final = pattern
        self.on_change: Final = on_change
        self.is_active = True
        self.is_due = False  # a call of `on_change` is on its way
        self.is_set = False  # the sink knows an event for it, which may just have expired
        self._sink = weakref.ref(sink)

    @property
    def event(self) -> SignalEvent[Any] | None:
        """Return the newest matching event that is present; `None` if there is none.

        Compare `sequence` to tell which of two conditions came later.
        """
        sink = self._sink() if self.is_set else None
        return None if sink is None else sink._event_of(self)

    @property
    def present(self) -> bool:
        """Tell whether a matching event is present."""
        return self.is_set and self.event is not None

    def cancel(self) -> None:
        """Stop watching: nothing is present any more, and `on_change` is not called again."""
        self.is_active = False
        if (sink := self._sink()) is not None:
            sink._forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def __repr__(self) -> str:
        state = ("present" if self.present else "absent") if self.is_active else "cancelled"
        return f"<Watch {str(self.pattern)!r} {state}>"
