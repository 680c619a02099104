"""Those who wait for an engine: for the end of an operation, or until nothing is left to do.

A body that waits for work of its own coordinator, or for room in it, may wait for what can never come. That is looked
at when a wait begins, and again when something happens that can make it so.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ephemerals.errors import DeadlockError, OperationCancelled
from ephemerals.ids import format_id
from ephemerals.operation import current_operation

from .deadlock import Wait, stuck_operations

if TYPE_CHECKING:
    from collections.abc import Collection

    from ephemerals.operation import Operation

    from .engine import Engine

__all__ = ["Waits"]

_DOUBTS: Final = (0.0, 0.1, 1.0, 10.0)
"""Seconds after which it is looked again whether a body awaits a task of its own that waits."""


class Waits:
    """Hold the futures of those who wait, and wake them."""

    __slots__ = ("_blocked", "_doubt", "_engine", "_until_idle")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._blocked: dict[asyncio.Future[Any], Wait] = {}
        self._until_idle: dict[asyncio.Future[None], None] = {}
        self._doubt: asyncio.TimerHandle | None = None

    # For the end of an operation.

    def add(self, operation: Operation[Any]) -> asyncio.Future[BaseException | None]:
        """Return a future that is resolved when an operation ends, with the exception to raise or `None`."""
        engine = self._engine
        loop = engine.bind()
        if engine.window.live(operation.id) is not operation:
            message = (
                f"operation {format_id(operation.id)} ({operation.name}) was left behind: its loop or process is gone"
            )
            raise OperationCancelled(message, operation.id)
        waiter: asyncio.Future[BaseException | None] = loop.create_future()
        if operation._waiters is None:
            operation._waiters = {}
        operation._waiters[waiter] = None
        try:
            self.note(waiter, operation, for_room=False)
        except BaseException:
            self.remove(operation, waiter)
            raise
        return waiter

    def remove(self, operation: Operation[Any], waiter: asyncio.Future[BaseException | None]) -> None:
        """Forget a waiter, woken or cancelled."""
        if operation._waiters is not None:
            operation._waiters.pop(waiter, None)
        self._unblock(waiter)

    # What could never end.

    def note(self, waiter: asyncio.Future[Any], operation: Operation[Any], *, for_room: bool) -> None:
        """Remember that a body of this engine waits; raise `DeadlockError` if that could never end."""
        caller = current_operation()
        if caller is None or caller._owner is not self._engine:
            return
        if caller is operation:
            raise DeadlockError(self._engine.name, (caller.id,), f"{caller!r} awaits itself")
        is_async = self._engine.body.kind == "async"
        self._blocked[waiter] = wait = Wait(caller, operation, for_room, asyncio.current_task() if is_async else None)
        if for_room:
            waiter.add_done_callback(self._unblock)
        if not wait.holds_the_body:
            self._look_again(0)
        elif (error := self._deadlock(wait)) is not None:
            self._unblock(waiter)
            try:
                raise error
            finally:
                del error  # this frame is in its traceback now

    def end_deadlock(self) -> None:
        """Wake those whose waits can never end, the newest first, until the others can go on.

        A wait is looked at when it begins; this is for what happens later: a lower limit, the end of a pause, others
        who took the room.
        """
        told: set[Operation[Any]] = set()
        while (error := self._deadlock(besides=told)) is not None:
            told.add(
                next(wait.waiting for wait in reversed(self._blocked.values()) if wait.waiting.id in error.operations)
            )
            for waiter, wait in self._blocked.items():
                if wait.waiting in told and not waiter.done():
                    waiter.set_result(error)

    def _unblock(self, waiter: asyncio.Future[Any]) -> None:
        self._blocked.pop(waiter, None)
        if self._doubt is not None and not self._blocked:
            self._doubt.cancel()
            self._doubt = None

    def _look_again(self, number: int) -> None:
        """Look again at a task that waits for a body, because nothing tells when the body begins to await it."""
        if self._doubt is None and number < len(_DOUBTS):
            self._doubt = self._engine.call_later(_DOUBTS[number], lambda: self._on_doubt(number))

    def _on_doubt(self, number: int) -> None:
        self._doubt = None
        self.end_deadlock()
        if not all(wait.holds_the_body for wait in self._blocked.values()):
            self._look_again(number + 1)

    def _deadlock(
        self, newest: Wait | None = None, *, besides: Collection[Operation[Any]] = ()
    ) -> DeadlockError | None:
        """Look for operations that can never go on, besides some that will be told so."""
        engine = self._engine
        if not self._blocked or engine.is_paused or engine.signalling.is_holding:
            return None
        waits = [
            wait
            for waiter, wait in self._blocked.items()
            if wait.holds_the_body and not (waiter.done() or wait.waiting.has_ended or wait.waiting in besides)
        ]
        pending = [*engine.window.pending.values(), *engine.admission.reserved]
        stuck = stuck_operations(waits, engine.schedule, pending, engine.limit, newest)
        if not stuck:
            return None
        listing = ", ".join(f"{format_id(each.id)} {each.name}" for each in stuck)
        return DeadlockError(engine.name, [each.id for each in stuck], listing)

    # Until nothing is left to do.

    async def until_idle(self, within: float | None = None) -> bool:
        """Wait until idle, for at most `within` seconds (`None`: no limit); tell whether it is."""
        engine = self._engine
        loop = engine.bind()
        caller = current_operation()
        if within is None and caller is not None and caller._owner is engine and _is_own_task(caller):
            raise DeadlockError(engine.name, (caller.id,), f"{caller!r} awaits the end of all, its own included")
        deadline = None if within is None else loop.time() + within
        while not engine.is_idle:  # what woke it may have gone: an item was dropped for another, say
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                return False
            waiter: asyncio.Future[None] = loop.create_future()
            self._until_idle[waiter] = None
            try:
                await asyncio.wait((waiter,), timeout=left)
            finally:
                self._until_idle.pop(waiter, None)
        return True

    def became_idle(self) -> None:
        """Wake those who wait until nothing is left."""
        for waiter in self._until_idle:
            if not waiter.done():
                waiter.set_result(None)

    def abandon(self) -> None:
        """Forget everybody: the loop on which they waited is closed."""
        self._doubt = None
        self._blocked.clear()
        self._until_idle.clear()

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when nothing is left to do."""
        doubts = int(self._doubt is not None)
        return {"waiting for idle": len(self._until_idle), "blocked": len(self._blocked), "deadlock timers": doubts}


def _is_own_task(operation: Operation[Any]) -> bool:
    """Tell whether an operation's own task runs here, and not one that it has started."""
    return operation._task is None or operation._task is asyncio.current_task()  # none yet in its first step
