"""An interleaving timer: both sides in turns, in one process, so that a slow stretch of the machine meets both.

What is counted is the processor time of this process: where nothing waits it is what a clock on the wall would tell on
a machine that does nothing else. What waits, or has threads, is timed with `perf_counter`.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["Now", "Side", "Timed", "compare", "timed"]

Now = Callable[[], float]
"""A clock, in seconds."""

Side = Callable[[], float | None] | Callable[[], Awaitable[float | None]]
"""Something to time: a whole run, as a function or a coroutine function. It may return the seconds that count."""

_MOST_PAIRS = 25


@dataclass(frozen=True, slots=True)
class Timed:
    """Hold the seconds of each run of both sides, pair by pair."""

    ours: tuple[float, ...]
    peer: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Return how many times as long ours takes: the median over the pairs."""
        return statistics.median(ours / peer for ours, peer in zip(self.ours, self.peer, strict=True))


def timed(side: Side, plan: Plan, now: Now = process_time) -> float:
    """Return the seconds one run takes, on a fresh loop if it is a coroutine function, after a collection."""
    gc.collect()
    if not asyncio.iscoroutinefunction(side):
        began = now()
        counted = side()
        return now() - began if counted is None else counted

    async def run() -> float:
        began = now()
        counted = await side()
        return now() - began if counted is None else counted

    return plan.run(run())


def compare(ours: Side, peer: Side, plan: Plan, now: Now = process_time) -> Timed:
    """Time both sides in turns, after one run of each that does not count; every second pair in reverse order."""
    timed(ours, plan, now)
    timed(peer, plan, now)
    taken: list[tuple[float, float]] = []
    began = perf_counter()
    while len(taken) < plan.pairs or (len(taken) < _MOST_PAIRS and perf_counter() - began < plan.seconds):
        if len(taken) % 2:
            second = timed(peer, plan, now)
            taken.append((timed(ours, plan, now), second))
        else:
            first = timed(ours, plan, now)
            taken.append((first, timed(peer, plan, now)))
    return Timed(tuple(each for each, _ in taken), tuple(each for _, each in taken))
