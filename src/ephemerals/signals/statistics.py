"""How a sink is doing, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SignalStatistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalStatistics:
    """Show the counts of a sink at one moment.

    `emitted` counts the events that were stored, `blocked` those that a constraint kept back. `undelivered`
    events wait for the loop's thread. The rest is about asynchronous handlers: calls that wait, run, have
    ended well, were dropped because too many waited, failed, or were cancelled. `handler_errors` counts the
    failures of all handlers.
    """

    count: int
    max_capacity: int
    max_age: float | None
    subscriptions: int
    emitted: int
    blocked: int
    undelivered: int
    handler_errors: int
    queued: int
    running: int
    processed: int
    dropped: int
    failed: int
    cancelled: int
