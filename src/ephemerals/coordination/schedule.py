"""Who is next: first in first out, or per key.

A schedule holds the pending operations of an engine and answers one question in constant time: which one may start
now? It is told what starts (by being asked), what ends and what is withdrawn. A withdrawn operation is passed over
when its turn comes; once such leftovers outnumber the rest they are swept, so they never pile up, and none outlives
the last that waits.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from ephemerals.snapshot import OperationStatus

from .stable_key import lookup_key

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ephemerals.operation import Operation

__all__ = ["FifoSchedule", "KeyCompartment", "KeyTable", "KeyedSchedule", "Schedule"]

_PENDING: Final = OperationStatus.PENDING
_FEW: Final = 32


class Schedule(Protocol):
    """Say what an engine asks of a schedule."""

    @property
    def has_compartments(self) -> bool:
        """Tell whether some items have bounds of their own, besides the common one."""
        ...

    def push(self, operation: Operation[Any]) -> None:
        """Take in an operation that has just been accepted."""
        ...

    def pop(self) -> Operation[Any] | None:
        """Give out the next operation that may start; `None` if there is none."""
        ...

    def ready(self, free: int) -> int:
        """Return how many would be given out, one after the other, while `free` slots are."""
        ...

    def finished(self, operation: Operation[Any]) -> None:
        """Note that an operation given out has ended."""
        ...

    def withdrawn(self, operation: Operation[Any]) -> None:
        """Note that an operation not yet given out is no longer pending."""
        ...

    def held(self, operation: Operation[Any]) -> None:
        """Note that an operation given out is pending again, outside the schedule, and keeps its place in its key."""
        ...

    def readmit(self, operation: Operation[Any]) -> None:
        """Take an operation that was held back in, at its place in the order."""
        ...

    def compartments(self, operation: Operation[Any]) -> Iterable[tuple[Hashable, int]]:
        """Return the compartments an operation waits in, each with the most that may wait there."""
        ...

    def count(self, compartment: Hashable) -> int:
        """Return how many wait in a compartment."""
        ...

    def saturated_by(self, operation: Operation[Any], stuck: Iterable[Operation[Any]]) -> bool:
        """Tell whether a pending operation can never start while all of `stuck` run."""
        ...

    def leftovers(self) -> dict[str, int]:
        """Count what the schedule holds, for tests: keys with state, withdrawn operations."""
        ...

    def clear(self) -> None:
        """Forget all that is pending."""
        ...


class FifoSchedule:
    """Start operations in the order they were accepted."""

    __slots__ = ("_queue", "_withdrawn")

    @property
    def has_compartments(self) -> bool:
        """Tell whether some items have bounds of their own; here none has."""
        return False

    def __init__(self) -> None:
        self._queue: deque[Operation[Any]] = deque()
        self._withdrawn = 0

    def push(self, operation: Operation[Any]) -> None:
        """Take in an operation that has just been accepted."""
        self._queue.append(operation)

    def pop(self) -> Operation[Any] | None:
        """Give out the next operation that may start; `None` if there is none."""
        queue = self._queue
        while queue:
            operation = queue.popleft()
            if operation._status is _PENDING:
                if self._withdrawn and self._withdrawn == len(queue):
                    self.clear()
                return operation
            self._withdrawn -= 1
        return None

    def ready(self, free: int) -> int:
        """Return how many would be given out, one after the other, while `free` slots are."""
        return min(free, len(self._queue) - self._withdrawn)

    def finished(self, operation: Operation[Any]) -> None:
        """Note that an operation given out has ended."""

    def withdrawn(self, operation: Operation[Any]) -> None:  # noqa: ARG002 - which one does not matter here
        """Note that an operation not yet given out is no longer pending."""
        self._withdrawn += 1
        if self._withdrawn == len(self._queue):
            self.clear()
        elif self._withdrawn > _FEW and self._withdrawn * 2 > len(self._queue):
            self._queue = deque(each for each in self._queue if each._status is _PENDING)
            self._withdrawn = 0

    def held(self, operation: Operation[Any]) -> None:
        """Note that an operation given out is pending again, outside the schedule."""

    def readmit(self, operation: Operation[Any]) -> None:
        """Take an operation that was held back in, at its place in the order."""
        _insert(self._queue, operation)

    def compartments(self, operation: Operation[Any]) -> Iterable[tuple[Hashable, int]]:  # noqa: ARG002 - see protocol
        """Return the compartments an operation waits in, each with the most that may wait there."""
        return ()

    def count(self, compartment: Hashable) -> int:  # noqa: ARG002 - see protocol
        """Return how many wait in a compartment."""
        return 0

    def saturated_by(self, operation: Operation[Any], stuck: Iterable[Operation[Any]]) -> bool:  # noqa: ARG002
        """Tell whether a pending operation can never start while all of `stuck` run."""
        return False

    def leftovers(self) -> dict[str, int]:
        """Count what is held: keys with state, withdrawn operations."""
        return {"withdrawn": self._withdrawn}

    def clear(self) -> None:
        """Forget all that is pending."""
        self._queue.clear()
        self._withdrawn = 0


class KeyTable:
    """Count the running operations of each key, for one schedule or for several that share it."""

    __slots__ = ("active", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.active: dict[Any, int] = {}

    def start(self, key: Any) -> None:
        """Count one more of a key."""
        if key is not None:
            self.active[key] = self.active.get(key, 0) + 1

    def finish(self, key: Any) -> None:
        """Count one less of a key."""
        if key is None:
            return
        left = self.active.pop(key) - 1
        if left:
            self.active[key] = left


class KeyCompartment(NamedTuple):
    """Name what waits for one key, in one lane or (`None`) without lanes."""

    lane: str | None
    key: Any


class _Key:
    """Hold what one key has waiting: how many are ready to start, and the queue behind them."""

    __slots__ = ("queue", "ready", "waiting")

    def __init__(self) -> None:
        self.ready = 0
        self.waiting = 0
        self.queue: deque[Operation[Any]] | None = None


class KeyedSchedule:
    """Keep the order within each key, with at most so many of a key running; keys never block one another.

    An operation is *ready* when its key has a free place; the others wait in their key's queue. Ready ones start
    oldest first: those that were ready on arrival stand in a queue that is sorted by itself, those that became ready
    when another ended in a small heap. With `fair`, each key has one ready operation at a time, and they take turns.
    State of a key exists only while it has operations. `None` is no key: such operations are ready at once.
    """

    __slots__ = (
        "_fair",
        "_keys",
        "_lane",
        "_live",
        "_queue",
        "_ready",
        "_released",
        "_table",
        "_threshold",
        "_withdrawn",
    )

    def __init__(
        self,
        table: KeyTable,
        *,
        fair: bool = False,
        threshold: int | None = None,
        lane: str | None = None,
    ) -> None:
        self._table = table
        self._fair = fair
        self._threshold = threshold if fair else None
        self._lane = lane
        self._keys: dict[Any, _Key] = {}
        self._queue: deque[Operation[Any]] = deque()
        self._released: list[tuple[int, Operation[Any]]] = []
        self._ready = 0
        self._live = 0
        self._withdrawn = 0

    @property
    def has_compartments(self) -> bool:
        """Tell whether some items have bounds of their own, besides the common one."""
        return self._threshold is not None

    def push(self, operation: Operation[Any]) -> None:
        """Take in an operation that has just been accepted."""
        key = operation._key
        state = self._keys.get(key)
        if state is None:
            state = self._keys[key] = _Key()
        self._live += 1
        if not state.waiting and self._has_place(key, state):
            state.ready += 1
            self._ready += 1
            operation._is_ready = True
            self._queue.append(operation)
            return
        operation._is_ready = False
        state.waiting += 1
        if state.queue is None:
            state.queue = deque()
        state.queue.append(operation)

    def pop(self) -> Operation[Any] | None:
        """Give out the next operation that may start; `None` if there is none."""
        while (operation := self._oldest_ready()) is not None:
            if operation._status is not _PENDING:
                self._withdrawn -= 1
                continue
            key = operation._key
            state = self._keys[key]
            state.ready -= 1
            self._ready -= 1
            operation._is_ready = False
            if self._table.active.get(key, 0) >= self._table.limit:
                self._put_back(operation, state)  # a schedule that shares the table took the place
                continue
            self._table.start(key)
            if state.waiting:
                self._promote(key, state)
            elif not state.ready:
                del self._keys[key]
            self._live -= 1
            if self._withdrawn and not self._live:
                self.clear()
            return operation
        return None

    def ready(self, free: int) -> int:
        """Return how many would be given out, one after the other, while `free` slots are."""
        return min(free, self._ready)

    def finished(self, operation: Operation[Any]) -> None:
        """Note that an operation given out has ended."""
        self._table.finish(operation._key)
        self.place_freed(operation._key)

    def held(self, operation: Operation[Any]) -> None:
        """Note that an operation given out is pending again, outside the schedule; its key's place stays taken."""

    def readmit(self, operation: Operation[Any]) -> None:
        """Take an operation that was held back in; the place it had in its key makes it ready."""
        key = operation._key
        state = self._keys.get(key)
        if state is None:
            state = self._keys[key] = _Key()
        self._live += 1
        state.ready += 1
        self._ready += 1
        operation._is_ready = True
        self._table.finish(key)
        heappush(self._released, (operation._order, operation))

    def place_freed(self, key: Any) -> None:
        """Let the next of a key become ready, after one of its operations ended here or in a sharing schedule."""
        state = self._keys.get(key)
        if state is not None and state.waiting:
            self._promote(key, state)

    def withdrawn(self, operation: Operation[Any]) -> None:
        """Note that an operation not yet given out is no longer pending."""
        key = operation._key
        state = self._keys[key]
        self._live -= 1
        self._withdrawn += 1
        if operation._is_ready:
            operation._is_ready = False
            state.ready -= 1
            self._ready -= 1
            if state.waiting:
                self._promote(key, state)
        else:
            state.waiting -= 1
        if not state.ready and not state.waiting:
            if state.queue:
                self._withdrawn -= len(state.queue)
            del self._keys[key]
        if not self._live:
            self.clear()
        elif self._withdrawn > _FEW and self._withdrawn > self._live:
            self._sweep()

    def compartments(self, operation: Operation[Any]) -> Iterable[tuple[Hashable, int]]:
        """Return the compartments an operation waits in, each with the most that may wait there."""
        if self._threshold is None or operation._key is None:
            return ()
        return ((KeyCompartment(self._lane, operation._key), self._threshold),)

    def count(self, compartment: Hashable) -> int:
        """Return how many wait in a compartment."""
        return self.pending_for(cast("KeyCompartment", compartment).key)

    def pending_for(self, key: Any) -> int:
        """Return how many of a key wait."""
        state = self._keys.get(lookup_key(key))
        return 0 if state is None else state.ready + state.waiting

    def saturated_by(self, operation: Operation[Any], stuck: Iterable[Operation[Any]]) -> bool:
        """Tell whether a pending operation can never start while all of `stuck` run."""
        if operation._key is None:
            return False
        return sum(1 for each in stuck if each._key == operation._key) >= self._table.limit

    def keys(self) -> set[Any]:
        """Return the keys that have state here."""
        return set(self._keys)

    def leftovers(self) -> dict[str, int]:
        """Count what is held: keys with state, withdrawn operations."""
        return {"keys": len(self._keys.keys() | self._table.active.keys()), "withdrawn": self._withdrawn}

    def clear(self) -> None:
        """Forget all that is pending."""
        self._keys.clear()
        self._queue.clear()
        self._released.clear()
        self._ready = 0
        self._live = 0
        self._withdrawn = 0

    def _has_place(self, key: Any, state: _Key) -> bool:
        if key is None:
            return True
        if self._fair and state.ready:
            return False
        return self._table.active.get(key, 0) + state.ready < self._table.limit

    def _oldest_ready(self) -> Operation[Any] | None:
        queue, released = self._queue, self._released
        if released and (not queue or released[0][0] < queue[0]._order):
            return heappop(released)[1]
        return queue.popleft() if queue else None

    def _promote(self, key: Any, state: _Key) -> None:
        """Move the first of a key's queue among the ready ones, as far as there are places."""
        queue = state.queue
        while queue and state.waiting and self._has_place(key, state):
            operation = queue.popleft()
            if operation._status is not _PENDING:
                self._withdrawn -= 1
                continue
            state.waiting -= 1
            state.ready += 1
            self._ready += 1
            operation._is_ready = True
            if self._fair:
                self._queue.append(operation)
            else:
                heappush(self._released, (operation._order, operation))
        if not state.waiting and queue:
            self._withdrawn -= len(queue)
            queue.clear()
        if not state.waiting:
            state.queue = None  # an empty deque is larger than all the rest of the state

    def _put_back(self, operation: Operation[Any], state: _Key) -> None:
        """Return an operation to its key's queue, at its place in the order."""
        if state.queue is None:
            state.queue = deque()
        _insert(state.queue, operation)
        state.waiting += 1

    def _sweep(self) -> None:
        self._queue = deque(each for each in self._queue if each._status is _PENDING)
        self._released = [each for each in self._released if each[1]._status is _PENDING]
        heapify(self._released)
        for state in self._keys.values():
            if state.queue is not None:
                state.queue = deque(each for each in state.queue if each._status is _PENDING)
        self._withdrawn = 0


def _insert(queue: deque[Operation[Any]], operation: Operation[Any]) -> None:
    """Put an operation back into a queue at its place in the order, which is near the front, or at the very end."""
    if not queue or queue[-1]._order < operation._order:
        queue.append(operation)
        return
    place = 0
    while place < len(queue) and queue[place]._order < operation._order:
        place += 1
    queue.insert(place, operation)
