"""Waits that could never end: a body that waits for room, or for work, that only its own end could make.

A task that a body has started holds the body up only if the body awaits it, alone, gathered or in a task group; a
body that does something else meanwhile may still end. What another coordinator does is not looked at.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from ephemerals.snapshot import OperationStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from ephemerals.operation import Operation

    from .schedule import Schedule

__all__ = ["Wait", "stuck_operations"]


class Wait(NamedTuple):
    """Say that a running operation waits for another one to end, or for room to enqueue another."""

    waiting: Operation[Any]
    target: Operation[Any]
    for_room: bool
    task: asyncio.Task[Any] | None = None

    @property
    def holds_the_body(self) -> bool:
        """Tell whether the operation's own task can go on only when this wait has ended; `task` waits.

        Without a task it is a thread that waits, and nothing tells whether its body does.
        """
        own = self.waiting._task
        return own is None or self.task is None or own is self.task or _awaits(own, self.task)

    def may_end(
        self, stuck: set[Operation[Any]], schedule: Schedule, pending: Collection[Operation[Any]], limit: int
    ) -> bool:
        """Tell whether the wait can end while `stuck` go on running."""
        if not self.for_room and self.target.status is not OperationStatus.PENDING:
            return self.target not in stuck
        if len(stuck) >= limit:
            return False  # nothing more can start
        if not self.for_room:
            return not schedule.saturated_by(self.target, stuck)
        movable = [each for each in pending if not schedule.saturated_by(each, stuck)]
        full = (each for each, bound in schedule.compartments(self.target) if schedule.count(each) >= bound)
        return bool(movable) and all(any(_is_in(each, where, schedule) for each in movable) for where in full)


def _awaits(task: asyncio.Task[Any], other: asyncio.Task[Any]) -> bool:
    """Tell whether a task is suspended until another has ended."""
    awaited: Any = getattr(task, "_fut_waiter", None)
    while awaited is not None:
        if awaited is other:
            return True
        if isinstance(awaited, asyncio.Task):
            awaited = getattr(awaited, "_fut_waiter", None)
            continue
        gathered = getattr(awaited, "_children", ())
        if any(each is other or (isinstance(each, asyncio.Task) and _awaits(each, other)) for each in gathered):
            return True
        groups = (getattr(callback, "__self__", None) for callback, _ in getattr(other, "_callbacks", None) or ())
        return any(
            isinstance(each, asyncio.TaskGroup) and getattr(each, "_on_completed_fut", None) is awaited
            for each in groups
        )
    return False


def _is_in(operation: Operation[Any], where: Hashable, schedule: Schedule) -> bool:
    return any(each == where for each, _ in schedule.compartments(operation))


def stuck_operations(
    waits: Collection[Wait],
    schedule: Schedule,
    pending: Collection[Operation[Any]],
    limit: int,
    newest: Wait | None = None,
) -> set[Operation[Any]]:
    """Return the running operations that can never go on, whatever the others do.

    Start from all that wait, and set free, again and again, those whose waits can all end while the rest stay.
    What remains is stuck. If only the `newest` of the waits can have brought that about, it is looked at first.
    """
    stuck = {each.waiting for each in waits}
    if newest is not None and newest.may_end(stuck, schedule, pending, limit):
        return set()
    while stuck:
        held = {each.waiting for each in waits if not each.may_end(stuck, schedule, pending, limit)}
        if held == stuck:
            break
        stuck = held
        waits = [each for each in waits if each.waiting in stuck]
    return stuck
