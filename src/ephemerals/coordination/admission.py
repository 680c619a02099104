"""Who may come in: the bounds on what waits, and those who wait for room, in first-come order.

An item is accepted in one synchronous step. Somebody for whom there is no room waits; when room appears a place is
*reserved* for the first in line, who accepts its own item when it wakes, or gives the place back if it was cancelled.
So a cancelled `enqueue` has accepted nothing, and no wake-up is lost. While anybody waits nobody overtakes.

Some items have bounds of their own besides the common one: the waiting items of a key or of a lane. Who waits for
such a compartment is parked beside the line, and never holds up those behind.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sized

    from ephemerals.operation import Operation

    from .schedule import Schedule

__all__ = ["Admission", "Waiter"]

Waiter = asyncio.Future[Exception | None]
_Line = OrderedDict[Waiter, "Operation[Any]"]


class Admission:
    """Decide whether an operation may come in, and let those who must wait do so in order."""

    __slots__ = (
        "_has_compartments",
        "_limit",
        "_parked_in",
        "_pending",
        "_reserved",
        "_reserved_in",
        "_schedule",
        "line",
        "parked",
    )

    def __init__(self, limit: int | None, schedule: Schedule, pending: Sized) -> None:
        self._limit = limit
        self._schedule = schedule
        self._has_compartments = schedule.has_compartments
        self._pending = pending
        self.line: _Line = OrderedDict()
        self.parked: dict[Hashable, _Line] = {}
        self._parked_in: dict[Waiter, Hashable] = {}
        self._reserved = 0
        self._reserved_in: dict[Hashable, int] = {}

    @property
    def waiting(self) -> int:
        """Return how many wait for room or are about to use it."""
        return len(self.line) + sum(map(len, self.parked.values())) + self._reserved

    @property
    def is_quiet(self) -> bool:
        """Tell whether nobody waits."""
        return not (self.line or self.parked or self._reserved)

    def has_room(self, operation: Operation[Any]) -> bool:
        """Tell whether an operation may come in now, without overtaking anybody."""
        if self.line or self._reserved or (self._limit is not None and len(self._pending) >= self._limit):
            return False
        return not self._has_compartments or self.compartment_without_room(operation) is None

    def compartment_without_room(self, operation: Operation[Any]) -> Hashable | None:
        """Return the compartment that keeps a newcomer out: full, or others wait for it; `None` if there is none."""
        for compartment, _ in self._schedule.compartments(operation):
            if compartment in self.parked:
                return compartment
        return self._full_compartment(operation)

    async def wait(self, operation: Operation[Any], note_waiting: Callable[[Waiter], None]) -> None:
        """Wait for a reserved place; the caller then accepts at once and calls `used`, or calls `give_back`.

        Raise what `close` was given if the intake closes first. `note_waiting` is called with the future that is
        about to be waited on, and may refuse by raising.
        """
        waiter: Waiter = asyncio.get_running_loop().create_future()
        compartment = self.compartment_without_room(operation) if self._has_compartments else None
        if compartment is None:
            self.line[waiter] = operation
        else:
            self._park(waiter, operation, compartment)
        try:
            note_waiting(waiter)
            refusal = await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled() and waiter.result() is None:
                self.give_back(operation)
            else:
                self._unlink(waiter)
            raise
        if refusal is not None:
            self._unlink(waiter)
            raise refusal

    def used(self, operation: Operation[Any]) -> None:
        """Note that a reserved place was taken by accepting its operation."""
        self._release(operation)
        self.room_made()

    def give_back(self, operation: Operation[Any]) -> None:
        """Note that a reserved place will not be used."""
        self._release(operation)
        for compartment, _ in self._schedule.compartments(operation):
            self._unpark_one(compartment)
        self.room_made()

    def left(self, operation: Operation[Any]) -> None:
        """Note that an accepted operation waits no longer, so that there is room where it was."""
        if self.parked:
            for compartment, _ in self._schedule.compartments(operation):
                self._unpark_one(compartment)
        if self.line:
            self.room_made()

    def room_made(self) -> None:
        """Reserve places for those first in line, as far as there is room."""
        line = self.line
        while line and (self._limit is None or len(self._pending) + self._reserved < self._limit):
            waiter, operation = line.popitem(last=False)
            if waiter.done():
                continue  # cancelled; it unlinks itself when it wakes
            if self._has_compartments and (full := self._full_compartment(operation)) is not None:
                self._park(waiter, operation, full).move_to_end(waiter, last=False)
                continue
            self._reserved += 1
            for each, _ in self._schedule.compartments(operation):
                self._reserved_in[each] = self._reserved_in.get(each, 0) + 1
            waiter.set_result(None)

    def close(self, refusal: Callable[[], Exception]) -> None:
        """Wake everybody who has no place yet, with an exception made for each."""
        lines = [self.line, *self.parked.values()]
        self.line = OrderedDict()
        self.parked = {}
        self._parked_in = {}
        for line in lines:
            for waiter in line:
                if not waiter.done():
                    waiter.set_result(refusal())

    def _full_compartment(self, operation: Operation[Any]) -> Hashable | None:
        for compartment, bound in self._schedule.compartments(operation):
            if self._schedule.count(compartment) + self._reserved_in.get(compartment, 0) >= bound:
                return compartment
        return None

    def _park(self, waiter: Waiter, operation: Operation[Any], compartment: Hashable) -> _Line:
        parked = self.parked.setdefault(compartment, OrderedDict())
        parked[waiter] = operation
        self._parked_in[waiter] = compartment
        return parked

    def _unpark_one(self, compartment: Hashable) -> None:
        """Move the first who waits for a compartment into the line; it came before most of those there."""
        parked = self.parked.get(compartment)
        if parked is None:
            return
        waiter = next(iter(parked))
        operation = parked[waiter]
        self._unlink(waiter)
        self.line[waiter] = operation
        self.line.move_to_end(waiter, last=False)
        self.room_made()

    def _release(self, operation: Operation[Any]) -> None:
        self._reserved -= 1
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
