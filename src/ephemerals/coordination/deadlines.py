"""Time limits of running operations, with one timer for all of them.

Operations with the same limit end in the order they started, so each limit has a table in that order and the first
of each table is the next to expire. Adding and removing are constant; nothing is left of an operation that ended.
The timer is not moved for each of them: it may ring for one that has ended, and is then set for the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from contextvars import Context

    from ephemerals.clock import Clock
    from ephemerals.operation import Operation

__all__ = ["Deadlines"]


class Deadlines:
    """Call `expired` with each operation that has run for as long as its limit allows."""

    __slots__ = ("_armed_for", "_clock", "_expired", "_tables", "_timer")

    def __init__(self, clock: Clock, expired: Callable[[Operation[Any]], None]) -> None:
        self._clock = clock
        self._expired = expired
        self._tables: dict[float, dict[int, Operation[Any]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = float("inf")

    @property
    def has_timer(self) -> bool:
        """Tell whether the timer is armed."""
        return self._timer is not None

    def add(self, operation: Operation[Any], limit: float, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        """Watch an operation that has just started."""
        table = self._tables.get(limit)
        if table is None:
            table = self._tables[limit] = {}
        table[operation.id] = operation
        deadline = (operation._draft._started or 0.0) + limit
        if deadline < self._armed_for:
            self._arm(deadline, loop, context)

    def discard(self, operation: Operation[Any], limit: float) -> None:
        """Stop watching an operation; it may have expired before."""
        table = self._tables.get(limit)
        if table is not None:
            table.pop(operation.id, None)

    def clear(self) -> None:
        """Note that nothing runs any more: forget the tables, which are empty, and stop the timer."""
        if self._tables:
            self._tables.clear()
            self.disarm()

    def disarm(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._armed_for = float("inf")

    def _arm(self, deadline: float, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self.disarm()
        self._armed_for = deadline
        delay = max(0.0, deadline - self._clock.monotonic())
        self._timer = loop.call_at(loop.time() + delay, self._on_timer, loop, context, context=context)

    def _on_timer(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self._timer = None
        self._armed_for = float("inf")
        now = self._clock.monotonic()
        for limit, table in list(self._tables.items()):
            while table:
                operation = next(iter(table.values()))
                if (operation._draft._started or 0.0) + limit > now:
                    break
                self.discard(operation, limit)
                self._expired(operation)
        firsts = ((limit, next(iter(table.values()))) for limit, table in self._tables.items() if table)
        earliest = min(((first._draft._started or 0.0) + limit for limit, first in firsts), default=None)
        if earliest is not None:
            self._arm(earliest, loop, context)
