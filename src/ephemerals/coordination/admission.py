"""Who may come in: the bounds on what waits, and those who wait for room, in first-come order.

An item is accepted in one synchronous step. Somebody for whom there is no room waits; when room appears a place is
*reserved* for the first of those it is good for, who accepts its own item when it wakes, or gives the place back if
it was cancelled. So a cancelled `enqueue` has accepted nothing, and no wake-up is lost. While anybody waits nobody
overtakes.

Some items have bounds of their own besides the common one: the waiting items of a key or of a lane. Who waits for
such a compartment is parked beside the line, and never holds up others; once the compartment has room again, its
first is as good as if it stood in the line, at the place that its arrival gives it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sized

    from ephemerals.operation import Operation

    from .schedule import Schedule

__all__ = ["Admission", "Waiter"]

Waiter = asyncio.Future[Exception | None]


class _Place(NamedTuple):
    """Say who waits, and as the how manieth it came."""

    number: int
    operation: Operation[Any]


_Line = OrderedDict[Waiter, _Place]


class Admission:
    """Decide whether an operation may come in, and let those who must wait do so in order."""

    __slots__ = (
        "_arrivals",
        "_has_compartments",
        "_limit",
        "_open",
        "_parked_in",
        "_pending",
        "_reserved_in",
        "_schedule",
        "line",
        "parked",
        "reserved",
    )

    def __init__(self, limit: int | None, schedule: Schedule, pending: Sized) -> None:
        self._limit = limit
        self._schedule = schedule
        self._has_compartments = schedule.has_compartments
        self._pending = pending
        self.line: _Line = OrderedDict()
        self.parked: dict[Hashable, _Line] = {}
        self.reserved: set[Operation[Any]] = set()
        self._arrivals = 0
        self._open: dict[Hashable, None] = {}  # every compartment that has room, and somebody parked for it
        self._parked_in: dict[Waiter, Hashable] = {}
        self._reserved_in: dict[Hashable, int] = {}

    @property
    def waiting(self) -> int:
        """Return how many wait for room or are about to use it."""
        return len(self.line) + sum(map(len, self.parked.values())) + len(self.reserved)

    @property
    def is_quiet(self) -> bool:
        """Tell whether nobody waits."""
        return not (self.line or self.parked or self.reserved)

    def has_room(self, operation: Operation[Any], about_to_start: int = 0) -> bool:
        """Tell whether an operation may come in now, overtaking nobody; what is about to start leaves room."""
        if self.line or self.reserved:
            return False
        if self._limit is not None and len(self._pending) - about_to_start >= self._limit:
            return False
        return not self._has_compartments or self.compartment_without_room(operation) is None

    def compartment_without_room(self, operation: Operation[Any]) -> Hashable | None:
        """Return the first compartment that is full, with those counted who are about to come in; `None`: none is."""
        for compartment, bound in self._schedule.compartments(operation):
            if self._is_full(compartment, bound):
                return compartment
        return None

    async def wait(self, operation: Operation[Any], note_waiting: Callable[[Waiter], None]) -> None:
        """Wait for a reserved place; the caller then accepts at once and calls `used`, or calls `give_back`.

        Raise what `close` was given if the intake closes first. `note_waiting` is called with the future that is
        about to be waited on, and may refuse by raising.
        """
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        place = _Place(self._arrivals, operation)
        compartment = self.compartment_without_room(operation) if self._has_compartments else None
        if compartment is None:
            self.line[waiter] = place
        else:
            self._park(waiter, place, compartment)
        try:
            note_waiting(waiter)
            refusal = await waiter
        except BaseException:
            if operation in self.reserved:
                self.give_back(operation)
            else:
                self._unlink(waiter)
            raise
        if refusal is not None:
            self._unlink(waiter)
            try:
                raise refusal
            finally:
                del refusal, waiter  # this frame is in its traceback now

    def used(self, operation: Operation[Any]) -> None:
        """Note that a reserved place was taken by accepting its operation."""
        self._release(operation)
        self.room_made()

    def give_back(self, operation: Operation[Any]) -> None:
        """Note that a reserved place will not be used."""
        self._release(operation)
        self._open_compartments(operation)
        self.room_made()

    def left(self, operation: Operation[Any]) -> None:
        """Note that an accepted operation waits no longer, so that there is room where it was."""
        self._open_compartments(operation)
        self.room_made()

    def room_made(self) -> None:
        """Reserve places for those who came first, as far as there is room."""
        while self._limit is None or len(self._pending) + len(self.reserved) < self._limit:
            if (first := self._first_in_line()) is None:
                return
            waiter, place = first
            self._unlink(waiter)
            operation = place.operation
            if self._has_compartments and (full := self.compartment_without_room(operation)) is not None:
                self._park(waiter, place, full)
                continue
            self.reserved.add(operation)
            for each, _ in self._schedule.compartments(operation):
                self._reserved_in[each] = self._reserved_in.get(each, 0) + 1
            waiter.set_result(None)

    def close(self, refusal: Callable[[], Exception]) -> None:
        """Wake everybody who has no place yet, with an exception made for each."""
        lines = [self.line, *self.parked.values()]
        self.line = OrderedDict()
        self.parked = {}
        self._parked_in = {}
        self._open = {}
        for line in lines:
            for waiter in line:
                if not waiter.done():
                    waiter.set_result(refusal())

    def _is_full(self, compartment: Hashable, bound: int) -> bool:
        return self._schedule.count(compartment) + self._reserved_in.get(compartment, 0) >= bound

    def _first_in_line(self) -> tuple[Waiter, _Place] | None:
        """Find who came first: at the head of the line, or parked for a compartment that has room."""
        first = self._head(self.line)
        for compartment in list(self._open):
            head = self._head(self.parked.get(compartment))
            if head is None or self._full_compartment_is(compartment, head[1].operation):
                self._open.pop(compartment, None)
            elif first is None or head[1].number < first[1].number:
                first = head
        return first

    def _head(self, line: _Line | None) -> tuple[Waiter, _Place] | None:
        """Return the first of a line; whoever was cancelled and has not yet woken is not in it any more."""
        while line:
            first = next(iter(line.items()))
            if not first[0].done():
                return first
            self._unlink(first[0])
        return None

    def _full_compartment_is(self, compartment: Hashable, operation: Operation[Any]) -> bool:
        bounds = dict(self._schedule.compartments(operation))
        return self._is_full(compartment, bounds[compartment])

    def _open_compartments(self, operation: Operation[Any]) -> None:
        """Look again at those who are parked where an operation was, or was to come."""
        if self.parked:
            for compartment, _ in self._schedule.compartments(operation):
                if compartment in self.parked:
                    self._open[compartment] = None

    def _park(self, waiter: Waiter, place: _Place, compartment: Hashable) -> None:
        """Let somebody wait for a compartment, behind those who came before."""
        parked = self.parked.setdefault(compartment, OrderedDict())
        last = next(reversed(parked.values()), place)
        parked[waiter] = place
        if last.number > place.number:
            for each in [other for other, its in parked.items() if its.number > place.number]:
                parked.move_to_end(each)
        self._parked_in[waiter] = compartment

    def _release(self, operation: Operation[Any]) -> None:
        self.reserved.discard(operation)
        for each, _ in self._schedule.compartments(operation):
            left = self._reserved_in[each] - 1
            if left:
                self._reserved_in[each] = left
            else:
                del self._reserved_in[each]

    def _unlink(self, waiter: Waiter) -> None:
        compartment = self._parked_in.pop(waiter, None)
        if compartment is None:
            self.line.pop(waiter, None)
            return
        parked = self.parked[compartment]
        del parked[waiter]
        if not parked:
            del self.parked[compartment]
            self._open.pop(compartment, None)
