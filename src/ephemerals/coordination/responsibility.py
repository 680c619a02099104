"""Who answers for a finished operation: it stays pinned until somebody acknowledges it, or time runs out.

async def hand_over(operation: Operation[Path]) -> None:
    result = await operation.acknowledged("file.fetched", timeout=300)
    if not result:
        ...  # nobody has fetched it: result.outcome says why the wait is over
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from ephemerals.errors import SinkClosed
from ephemerals.ids import format_id
from ephemerals.signals import Subscription
from ephemerals.signals.stream import resolve
from ephemerals.signals.validation import as_pattern, as_seconds

from .logs import log

if TYPE_CHECKING:
    from datetime import timedelta

    from ephemerals.operation import Operation
    from ephemerals.signals import PatternLike, SignalEvent, SignalKey

    from .engine import Engine

__all__ = ["Acknowledgement", "AcknowledgementOutcome", "acknowledged"]


class AcknowledgementOutcome(StrEnum):
    """Say how a wait for an acknowledgement ended."""

    ACKNOWLEDGED = "acknowledged"
    TIMED_OUT = "timed_out"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """Tell how a wait for an acknowledgement ended; true if there was one, and then `event` is it, else `None`.

    `FORGOTTEN` means that nothing was left to acknowledge: the window no longer held the operation, or it was evicted,
    unpinned, or finalized with its coordinator.
    """

    outcome: AcknowledgementOutcome
    event: SignalEvent[Any] | None = None

    def __bool__(self) -> bool:
        return self.outcome is AcknowledgementOutcome.ACKNOWLEDGED


async def acknowledged(
    engine: Engine,
    operation: Operation[Any],
    pattern: PatternLike | SignalKey[Any],
    timeout: float | timedelta | None,  # noqa: ASYNC109 - running out of time is a result
) -> Acknowledgement:
    """Do what `Operation.acknowledged` says."""
    compiled = as_pattern(pattern)
    seconds = None if timeout is None else as_seconds("timeout", timeout)
    sink, window = engine.sink, engine.window
    wait = _Wait(operation, engine.signalling.source, engine.bind().create_future())
    is_late = False
    listener = sink._subscribe(Subscription(sink, compiled, wait.hear, retractions=False, on_end=wait.end))
    with listener:
        for event in sink.events(pattern=compiled):
            wait.hear(event)
        if wait.event is None and not window.hold(operation.id, wait.lose):
            return Acknowledgement(outcome=AcknowledgementOutcome.FORGOTTEN)
        try:
            await _end_of(engine, operation)
            async with asyncio.timeout(seconds):
                await wait.decided
        except TimeoutError:
            is_late = True
        finally:
            window.release(operation.id, wait.lose)
    if wait.event is not None:
        return Acknowledgement(outcome=AcknowledgementOutcome.ACKNOWLEDGED, event=wait.event)
    if wait.is_lost:
        return Acknowledgement(outcome=AcknowledgementOutcome.FORGOTTEN)
    if is_late:
        log(logging.WARNING, "nobody acknowledged operation %s (%s) in time", format_id(operation.id), operation.name)
        engine.emit(operation, "responsibility.expired", None)
        return Acknowledgement(outcome=AcknowledgementOutcome.TIMED_OUT)
    raise SinkClosed(sink.name)


async def _end_of(engine: Engine, operation: Operation[Any]) -> None:
    """Wait until an operation has ended, whatever came of it."""
    if operation.has_ended:
        return
    waiter = engine.add_waiter(operation)
    failure: BaseException | None = None
    try:
        failure = await waiter
        if failure is not None and not operation.has_ended:
            raise failure  # the wait could never end
    finally:
        engine.remove_waiter(operation, waiter)
        del waiter, failure


class _Wait:
    """Be one wait: `event` is what acknowledged, `is_lost` that there is nothing left to acknowledge."""

    __slots__ = ("_keys", "_operation", "_own", "decided", "event", "is_lost")

    def __init__(self, operation: Operation[Any], own: str, decided: asyncio.Future[None]) -> None:
        self._operation: Final = operation
        self._own: Final = own
        self._keys: Final = (operation.key, operation._draft.key)  # as it is, and as it is shown
        self.decided: Final = decided
        self.event: SignalEvent[Any] | None = None
        self.is_lost = False

    def hear(self, event: SignalEvent[Any]) -> None:
        """Take an event that matches, if it is for the operation."""
        if self.event is None and self._is_meant(event):
            self.event = event
            self.end()

    def lose(self) -> None:
        """Have nothing left to acknowledge."""
        self.is_lost = True
        self.end()

    def end(self) -> None:
        """Wait no more."""
        resolve(self.decided)

    def _is_meant(self, event: SignalEvent[Any]) -> bool:
        """Tell whether an event acknowledges the operation: by its id at any time, by its key once it has ended.

        What it said itself while it ran does not count.
        """
        operation = self._operation
        finished = operation._draft._finished
        is_later = finished is not None and event.monotonic >= finished
        if event.operation_id is None:
            return is_later and event.key is not None and event.key in self._keys
        if event.operation_id != operation.id:
            return False
        return event.source is not self._own or (is_later and not any(each is event for each in operation.signals))
