"""Wait until enough have voted.

async def decide(sink):
    result = await quorum(sink, "vote.yes", 3, veto="vote.no", timeout=10)
    if result:
        ...  # three different voters
    elif result.outcome is QuorumOutcome.VETOED:
        ...  # result.veto says who
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ephemerals.errors import SinkClosed
from ephemerals.functions import as_callback

from .pattern import Pattern
from .stream import resolve
from .subscription import Subscription
from .validation import as_count, as_pattern, as_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from datetime import timedelta

    from .event import SignalEvent
    from .pattern import PatternLike
    from .sink import SignalSink
    from .validation import Moment

__all__ = ["QuorumOutcome", "QuorumResult", "quorum", "voter_of"]


class QuorumOutcome(StrEnum):
    """Say how a vote ended."""

    REACHED = "reached"
    VETOED = "vetoed"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumResult:
    """Tell how a vote ended, and who voted, in the order of the first votes; true if the quorum was reached.

    `veto` is the event that ended it; `None` unless it was vetoed.
    """

    outcome: QuorumOutcome
    voters: tuple[Hashable, ...]
    veto: SignalEvent[Any] | None = None

    @property
    def count(self) -> int:
        """Return how many different voters there were."""
        return len(self.voters)

    def __bool__(self) -> bool:
        return self.outcome is QuorumOutcome.REACHED


def voter_of(event: SignalEvent[Any]) -> Hashable:
    """Return who voted: the key of the event; without one, its operation; without that, its name."""
    if event.key is not None:
        key: Hashable = event.key
        return key
    return event.name if event.operation_id is None else event.operation_id


async def quorum(  # noqa: PLR0913 - what is waited for, and what may end it
    sink: SignalSink,
    pattern: PatternLike,
    required: int,
    *,
    by: Callable[[SignalEvent[Any]], Hashable] = voter_of,
    veto: PatternLike | None = None,
    since: Moment | None = None,
    timeout: float | timedelta | None = None,  # noqa: ASYNC109 - running out of time is a result
) -> QuorumResult:
    """Wait until matching events have come from `required` different voters.

    A voter counts once; `by(event)` says who it is. An event that matches `veto` ends the vote. With `since`, an aware
    datetime or wall-clock seconds, the events in the window that are not older have voted already. `timeout` is in
    seconds (`None`: wait for ever). Being cancelled raises `CancelledError`; closing the sink raises `SinkClosed`.
    """
    as_count("required", required)
    as_callback("by", by, "event", optional=False)
    counted, vetoing = as_pattern(pattern), Pattern.of_optional(veto)
    seconds = None if timeout is None else as_seconds("timeout", timeout)
    voters: dict[Hashable, None] = {}
    vetoes: list[SignalEvent[Any]] = []
    decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def hear(event: SignalEvent[Any]) -> None:
        if vetoes or len(voters) >= required:
            return
        if vetoing is not None and vetoing.matches(event.name):
            vetoes.append(event)
        else:
            voters[by(event)] = None
        if vetoes or len(voters) >= required:
            resolve(decided)

    heard = counted if vetoing is None else Pattern.of([counted, vetoing])
    listener = sink._subscribe(Subscription(sink, heard, hear, retractions=False, on_end=lambda: resolve(decided)))
    with listener:
        for event in [] if since is None else sink.events(pattern=heard, since=since):
            hear(event)
        try:
            async with asyncio.timeout(seconds):
                await decided
        except TimeoutError:
            return QuorumResult(outcome=QuorumOutcome.TIMED_OUT, voters=tuple(voters))
    if vetoes:
        return QuorumResult(outcome=QuorumOutcome.VETOED, voters=tuple(voters), veto=vetoes[0])
    if len(voters) < required:
        raise SinkClosed(sink.name)
    return QuorumResult(outcome=QuorumOutcome.REACHED, voters=tuple(voters))
