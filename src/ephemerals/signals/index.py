"""The window of events: in order, bounded by number and age, with an index by name.

A new event is only put at the end, in `fresh`. It is indexed when somebody asks, so a window that nobody asks
costs an emission hardly anything. Then it sits in a cell, `[event, older cell of the same name]`. The cells
stand in order of emission, and for each name a bucket knows the newest cell and how many are live. So the
questions about a name cost the same whatever the window holds, an event in the middle is taken out in no
time, and nothing refers to it afterwards: its cell is emptied at once, and thrown away later. No method
locks; the sink does.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .event import SignalEvent

__all__ = ["EventIndex"]

Cell: TypeAlias = list[Any]
"""An event, or `None` once it has left; and the next older cell of the same name, or `None`."""

_TOLERATED: Final = 32
"""Empty cells that may stay, besides as many as there are live ones."""


class _Bucket:
    """Know the events of one name: how many, and the newest; a bucket without events does not exist."""

    __slots__ = ("count", "newest")

    def __init__(self, newest: Cell) -> None:
        self.count = 1
        self.newest = newest


class EventIndex:
    """Keep the newest `capacity` events, each for less than `max_age` seconds (`inf`: whatever its age).

    To add one, append it to `fresh`, and call `tidy` if `now >= next or indexed`. An event that is held stays
    whatever its age, and leaves for want of room only after all others, the one just added excepted.
    """

    __slots__ = (
        "_aside",
        "_buckets",
        "_empty",
        "_held",
        "_order",
        "capacity",
        "fresh",
        "indexed",
        "max_age",
        "next",
    )

    def __init__(self, capacity: int, max_age: float) -> None:
        self.capacity = capacity
        self.max_age = max_age
        self.fresh: deque[SignalEvent] = deque(maxlen=capacity)  # newer than all others, and not indexed
        self.indexed = 0  # live cells
        self.next = -inf  # nothing expires before this moment
        self._buckets: dict[str, _Bucket] = {}
        self._order: deque[Cell] = deque()
        self._aside: list[Cell] = []  # held ones that are older than all in `_order`
        self._held: set[int] = set()
        self._empty = 0  # cells whose event was taken out

    # What comes.

    def tidy(self, now: float) -> None:
        """Drop what is too old, and then what is too much."""
        if now >= self.next:
            self._expire(now)
        while self.indexed + len(self.fresh) > self.capacity:
            if self._order:
                self._shift()
            elif len(self.fresh) > 1:
                self.fresh.popleft()
            elif (cell := self._aside.pop(0))[0] is None:
                self._empty -= 1
            else:
                self._drop(cell)

    def refresh(self, now: float) -> bool:
        """Drop what is too old, and index the rest, before anything is asked; True if some may have gone."""
        is_due = now >= self.next
        if is_due:
            self._expire(now)
        buckets, order, fresh = self._buckets, self._order, self.fresh
        self.indexed += len(fresh)
        while fresh:
            event = fresh.popleft()
            bucket = buckets.get(event.name)
            if bucket is None:
                cell: Cell = [event, None]
                buckets[event.name] = _Bucket(cell)
            else:
                cell = [event, bucket.newest]
                bucket.newest = cell
                bucket.count += 1
            order.append(cell)
        return is_due

    def hold(self, event: SignalEvent) -> None:
        """Exempt an event from age; nothing happens if it has left already."""
        if self.contains(event):
            self._held.add(event.sequence)

    # What goes.

    def _expire(self, now: float) -> None:
        """Drop everything that has reached the age."""
        order, fresh, age = self._order, self.fresh, self.max_age
        while order:
            event = order[0][0]
            if event is not None and event.monotonic + age > now:
                self.next = event.monotonic + age
                return
            self._shift()
        while fresh and fresh[0].monotonic + age <= now:
            fresh.popleft()
        self.next = fresh[0].monotonic + age if fresh else -inf

    def resize(self, capacity: int, max_age: float, now: float) -> None:
        """Change the bounds, and drop at once what is outside."""
        self.refresh(now)
        self.capacity = capacity
        self.max_age = max_age
        self.fresh = deque(maxlen=capacity)
        self.next = -inf
        self.tidy(now)

    def remove(self, cells: Iterable[Cell]) -> int:
        """Take out events; return how many there were."""
        removed = 0
        for cell in cells:
            if cell[0] is not None:
                self._drop(cell)
                self._empty += 1
                removed += 1
        if self._empty > self.indexed + _TOLERATED:
            self._compact()
        return removed

    def _shift(self) -> None:
        """Move the head of the order out; held, it steps aside, for nothing there is older than it."""
        cell = self._order.popleft()
        event = cell[0]
        if event is None:
            self._empty -= 1
        elif event.sequence in self._held:
            self._aside.append(cell)
        else:
            self._drop(cell)

    def _drop(self, cell: Cell) -> None:
        """Be the one place where an event leaves."""
        event: SignalEvent = cell[0]
        cell[0] = None
        older = cell[1] = _live(cell[1])
        bucket = self._buckets[event.name]
        bucket.count -= 1
        self.indexed -= 1
        if not bucket.count:
            del self._buckets[event.name]
        elif bucket.newest is cell:
            assert older is not None  # there is another one, and it is not newer
            bucket.newest = older
        if self._held:
            self._held.discard(event.sequence)

    def _compact(self) -> None:
        """Throw away the empty cells, and link each live one to the live one before it."""
        newest: dict[str, Cell] = {}
        self._aside = [cell for cell in self._aside if cell[0] is not None]
        self._order = deque(cell for cell in self._order if cell[0] is not None)
        self._empty = 0
        for cell in (*self._aside, *self._order):
            name = cell[0].name
            cell[1] = newest.get(name)
            newest[name] = cell

    # What is asked. Whoever asks has called `refresh` before.

    @property
    def next_expiry(self) -> float:
        """Return a moment before which nothing expires, `inf` if nothing does."""
        for cell in self._order:
            if cell[0] is not None and cell[0].sequence not in self._held:
                return cell[0].monotonic + self.max_age  # type: ignore[no-any-return]
        return self.fresh[0].monotonic + self.max_age if self.fresh else inf

    def contains(self, event: SignalEvent) -> bool:
        """Tell whether exactly this event is here."""
        for cell in self.cells_of(event.name):
            if cell[0].sequence <= event.sequence:
                return cell[0] is event
        return False

    def counts(self) -> dict[str, int]:
        """Return how many events each name has."""
        return {name: bucket.count for name, bucket in self._buckets.items()}

    def names(self) -> list[str]:
        """Return the names that have events."""
        return list(self._buckets)

    def count_of(self, name: str) -> int:
        """Return how many events a name has."""
        bucket = self._buckets.get(name)
        return 0 if bucket is None else bucket.count

    def newest_of(self, name: str) -> SignalEvent | None:
        """Return the newest event of a name; `None` if it has none."""
        bucket = self._buckets.get(name)
        return None if bucket is None else bucket.newest[0]

    def is_held(self, event: SignalEvent) -> bool:
        """Tell whether an event is exempt from age."""
        return event.sequence in self._held

    def cells(self) -> Iterator[Cell]:
        """Yield the live cells, the newest first."""
        for group in (self._order, self._aside):
            for cell in reversed(group):
                if cell[0] is not None:
                    yield cell

    def cells_of(self, name: str) -> Iterator[Cell]:
        """Yield the live cells of a name, the newest first."""
        bucket = self._buckets.get(name)
        cell = None if bucket is None else bucket.newest
        while cell is not None:
            older = cell[1]
            if cell[0] is not None:
                yield cell
            cell = older


def _live(cell: Cell | None) -> Cell | None:
    """Find the first live cell of a chain."""
    while cell is not None and cell[0] is None:
        cell = cell[1]
    return cell
