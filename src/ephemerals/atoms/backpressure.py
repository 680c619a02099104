"""Pressure as a condition: present from a high mark on, until the depth is down at a low one."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from ephemerals.errors import InvalidOption
from ephemerals.options import as_count

from .waiting import WaitingLine

if TYPE_CHECKING:
    from collections.abc import Generator

    from ephemerals.signals import SignalSink

__all__ = ["Backpressure"]


class Backpressure:
    """Measure a depth, and hold the signal `name` in `signals` while there is too much.

    The condition begins when the depth reaches `high`, and ends when it is down at `low` (by default half of it), so
    that it does not flicker in between. Say how deep it is with `update`, or count with `add`, `remove`, and
    `with pressure.item():`. Coordinators hold back with `defer_on_signals="backpressure.*"`, a `SignalGate` with
    `block=`, anybody with `await pressure.relieved()`.

    Signals: `name` ("backpressure.depth"), held while there is pressure, with `{"depth": …}` as it was when that
    began.

    >>> from ephemerals.signals import SignalSink
    >>> sink = SignalSink()
    >>> pressure = Backpressure(sink, high=10, low=2, name="backpressure.db")
    >>> states = []
    >>> for depth in (9, 10, 3, 2, 9):
    ...     pressure.update(depth)
    ...     states.append(sink.has("backpressure.db"))
    >>> states
    [False, True, True, False, False]
    """

    def __init__(
        self, signals: SignalSink, *, high: int, low: int | None = None, name: str = "backpressure.depth"
    ) -> None:
        self._high = as_count("high", high)
        self._low = self._high // 2 if low is None else as_count("low", low, least=0)
        if self._low >= self._high:
            raise InvalidOption("low", low, f"less than high={high}")
        self.name = name
        self._signals = signals
        self._held: ExitStack | None = None
        self._depth = 0
        self._times = 0
        self._line: WaitingLine[None] = WaitingLine(lambda _: None, lambda: None)

    @property
    def depth(self) -> int:
        """Return the depth that was said or counted last."""
        return self._depth

    @property
    def is_high(self) -> bool:
        """Tell whether there is pressure."""
        return self._held is not None

    def update(self, depth: int) -> None:
        """Say how deep it is now."""
        self._depth = as_count("depth", depth, least=0)
        if self._held is None and depth >= self._high:
            self._times += 1
            self._held = ExitStack()
            self._held.enter_context(self._signals.hold(self.name, {"depth": depth}))
        elif self._held is not None and depth <= self._low:
            self.close()

    def add(self, count: int = 1) -> None:
        """Count so many more."""
        self.update(self._depth + count)

    def remove(self, count: int = 1) -> None:
        """Count so many less."""
        self.update(self._depth - count)

    @contextmanager
    def item(self) -> Generator[None]:
        """Count one more for a block."""
        self.add()
        try:
            yield
        finally:
            self.remove()

    async def relieved(self) -> None:
        """Wait until there is no pressure; return at once if there is none."""
        if self._held is not None:
            await self._line.wait(None)

    def close(self) -> None:
        """End the condition by hand, as if the depth were down; twice is the same as once."""
        held, self._held = self._held, None
        if held is not None:
            held.close()
        while self._line and self._held is None:
            self._line.wake_first()

    def statistics(self) -> dict[str, int]:
        """Return the depth, how often there was pressure, and how many wait for its end."""
        return {"depth": self._depth, "times": self._times, "waiting": len(self._line)}

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when all is done, for tests."""
        return {"waiters": len(self._line), "held conditions": int(self._held is not None)}
