"""How far something has come, told now and then instead of at every step.

    >>> from ephemerals.signals import SignalSink
    >>> sink = SignalSink()
    >>> with Progress(sink.emit, 3, min_interval=60) as bar:
    ...     for row in ("a", "b", "c"):
    ...         bar.update()
    >>> [event.data["current"] for event in sink.events("progress")]
    [0, 3]

Steps may come by the million; what is told is limited by time, and the last state always is.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Self

from ephemerals.clock import system_clock
from ephemerals.errors import InvalidOption, InvalidOptionType
from ephemerals.options import as_seconds

from .validation import as_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from types import TracebackType

    from ephemerals.clock import Clock

    from .event import SignalEvent
    from .typed import SignalKey

__all__ = ["Progress"]


class Progress:
    """Count steps inside a `with` block, and emit the count: at its begin, now and then, and at its end.

    The data of each signal is `{"current": …, "total": …}`. `total` is how many steps there will be, whole or not
    (`None`: nobody knows). Between two signals at least `min_interval` seconds pass (0: every step is told), except for
    the step that reaches the total and for the end of the block, however that comes about: the last state is always
    told, once. `name` tells several bars of one operation apart. Steps may be counted in any thread.
    """

    __slots__ = ("_clock", "_current", "_emit", "_is_told", "_lock", "_min_interval", "_name", "_told_at", "total")

    def __init__(
        self,
        emit: Callable[[str, Any], SignalEvent[Any] | None],
        total: float | None = None,
        *,
        min_interval: float | timedelta = 0.5,
        name: str | SignalKey[Any] = "progress",
        clock: Clock = system_clock,
    ) -> None:
        if total is not None and not _as_number("total", total) > 0:
            raise InvalidOption("total", total, "more than 0 steps, or None")
        self.total: Final = total
        self._emit = emit
        self._name = as_name(name)
        self._min_interval = as_seconds("min_interval", min_interval, zero=True)
        self._clock = clock
        self._lock = Lock()
        self._current: float = 0
        self._is_told = False
        self._told_at = float("-inf")

    @property
    def current(self) -> float:
        """Return how many steps have been counted."""
        return self._current

    @property
    def fraction(self) -> float | None:
        """Return which part of the total that is, at most 1.0; `None` if there is no total."""
        return None if self.total is None else min(1.0, self._current / self.total)

    def update(self, steps: float = 1) -> None:
        """Count some more steps; a total that turns out too small is passed."""
        if _as_number("steps", steps) < 0:
            raise InvalidOption("steps", steps, "0 or more; `set` goes back")
        with self._lock:
            self._move(self._current + steps)
        self._tell()

    def set(self, current: float) -> None:
        """Say how many steps there have been, also fewer than before."""
        if _as_number("current", current) < 0:
            raise InvalidOption("current", current, "0 or more")
        with self._lock:
            self._move(current)
        self._tell()

    def _move(self, current: float) -> None:
        """Take a new count; the caller holds the lock."""
        if self.total is not None and self._current < self.total <= current:
            self._told_at = float("-inf")  # all is done: that is told at once
        self._is_told = self._is_told and current == self._current
        self._current = current

    def _tell(self, *, at_once: bool = False) -> None:
        """Emit the count if it is new and its time has come."""
        with self._lock:
            now = self._clock.monotonic()
            if self._is_told or not (at_once or now - self._told_at >= self._min_interval):
                return
            self._is_told, self._told_at = True, now
            data = {"current": self._current, "total": self.total}
        if self._emit(self._name, data) is None:
            self._is_told = False  # a constraint blocked it; there may be a better moment

    def __enter__(self) -> Self:
        self._tell(at_once=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell(at_once=True)

    def __repr__(self) -> str:
        return f"<Progress {self._name!r} {self._current}/{'?' if self.total is None else self.total}>"


def _as_number(option: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidOptionType(option, value, "a number")
    if not abs(value) < float("inf"):
        raise InvalidOption(option, value, "a finite number")
    return value
