"""An interleaving timer: both sides in turns, in one process, so that a slow stretch of the machine meets both."""

from __future__ import annotations

import asyncio
import gc
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter

__all__ = ["Side", "Timed", "compare", "timed"]

Side = Callable[[], None] | Callable[[], Awaitable[None]]
"""Something to time: a whole run, as a function or a coroutine function."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Hold the seconds of each run of both sides, pair by pair."""

    ours: tuple[float, ...]
    peer: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Return how many times as long ours takes: the median over the pairs."""
        return statistics.median(ours / peer for ours, peer in zip(self.ours, self.peer, strict=True))


def timed(side: Side) -> float:
    """Return the seconds one run takes, on a fresh loop if it is a coroutine function, after a collection."""
    gc.collect()
    if not asyncio.iscoroutinefunction(side):
        began = perf_counter()
        side()
        return perf_counter() - began

    async def run() -> float:
        began = perf_counter()
        await side()
        return perf_counter() - began

    return asyncio.run(run())


def compare(ours: Side, peer: Side, pairs: int) -> Timed:
    """Time both sides in turns, after one run of each that does not count; every second pair in reverse order."""
    timed(ours)
    timed(peer)
    taken: list[tuple[float, float]] = []
    for number in range(pairs):
        if number % 2:
            second = timed(peer)
            taken.append((timed(ours), second))
        else:
            first = timed(ours)
            taken.append((first, timed(peer)))
    return Timed(tuple(each for each, _ in taken), tuple(each for _, each in taken))
