"""Does an item cost more where there are many of them?"""

from __future__ import annotations

import asyncio
import gc
import statistics
from time import process_time
from typing import TYPE_CHECKING

from benchmarks.bodies import none
from benchmarks.rows import Bound, Curve, Row, climb
from ephemerals import KeyedWorkCoordinator, WorkCoordinator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from benchmarks.plan import Plan

    Measure = Callable[[int], Awaitable[float]]

TITLE = "Growth"

STRAIGHT = Bound(2.0)
"""A straight line, read through caches: a plain list of a million objects costs up to half more for each than one of
a thousand. What is not straight is 1,000 times dearer over the same way, or at least ten times."""


def ask(plan: Plan) -> Iterator[Row | Curve]:
    """Measure each curve, and judge how much dearer an item ever gets on it."""
    million = plan.most
    for title, axis, first, last, lines in (
        ("accept and run", "items pending", 1_000, million, {"ours": pending, "asyncio.Queue": pending_in_queue}),
        ("choose the next, by key", "items pending", 1_000, million, {"ours": pending_by_key}),
        ("hand over to those who wait for room", "waiting enqueuers", 1, min(million, 10_000), {"ours": waiting}),
        ("accept and run by key", "keys", 1, million, {"ours": keys_for(million)}),
        ("stop", "items pending", 1_000, million, {"ours": stopping}),
        ("get, pin, unpin, evict", "operations remembered", 1_000, min(million, 100_000), {"ours": looking_up}),
    ):
        curve = Curve(
            title=title, axis=axis, lines={name: trace(plan, each, first, last) for name, each in lines.items()}
        )
        ours = curve.lines["ours"]
        cost = ours[-1][1]
        work = f"{title}: {first:,} to {last:,} {axis}"
        yield Row(work=work, against="the cheapest on the way", measured=climb(ours), bound=STRAIGHT, ours=cost)
        yield curve


def trace(plan: Plan, measure: Measure, first: int, last: int) -> list[tuple[int, float]]:
    """Return points from `first` to `last`, tenfold each; the smaller the number, the more runs have a median."""
    points = []
    number = min(first, last)
    while number <= last:
        runs = max(1, min(plan.pairs, plan.most // number))
        costs = []
        for _ in range(runs):
            gc.collect()
            costs.append(plan.run(measure(number)))
        points.append((number, statistics.median(costs)))
        number *= 10
    return points


async def pending(number: int) -> float:
    """Accept so many, then run them."""
    began = process_time()
    async with WorkCoordinator(none, max_concurrency=8, max_pending=None) as coordinator:
        coordinator.pause()
        for item in range(number):
            await coordinator.enqueue(item)
    return (process_time() - began) / number


async def pending_in_queue(number: int) -> float:
    """Put so many into a queue, then let workers take them."""
    began = process_time()
    queue: asyncio.Queue[int] = asyncio.Queue()

    async def work() -> None:
        while not queue.empty():
            await none(queue.get_nowait())

    for item in range(number):
        await queue.put(item)
    await asyncio.gather(*(work() for _ in range(8)))
    return (process_time() - began) / number


async def pending_by_key(number: int) -> float:
    """Run so many that wait on a hundred keys in turn, one at a time: what is timed is choosing and running."""
    coordinator = KeyedWorkCoordinator(lambda item: item % 100, none, max_concurrency=1, max_pending=None)
    async with coordinator:
        coordinator.pause()
        for item in range(number):
            await coordinator.enqueue(item)
        began = process_time()
        await coordinator.drain()
        return (process_time() - began) / number


async def waiting(number: int) -> float:
    """Let so many tasks wait for one place, again and again, until each item has run."""
    rounds = max(1, 10_000 // number)
    async with WorkCoordinator(none, max_concurrency=1, max_pending=1) as coordinator:

        async def insist() -> None:
            for item in range(rounds):
                await coordinator.enqueue(item)

        began = process_time()
        await asyncio.gather(*(insist() for _ in range(number)))
        await coordinator.drain()
        return (process_time() - began) / (rounds * number)


def keys_for(most: int) -> Measure:
    """Return a measure of the same number of items over so many keys, in turn."""
    total = min(most, 100_000)

    async def keys(number: int) -> float:
        count = max(number, total)
        began = process_time()
        async with KeyedWorkCoordinator(lambda item: item % number, none, max_concurrency=8) as coordinator:
            for item in range(count):
                await coordinator.enqueue(item)
        return (process_time() - began) / count

    return keys


async def stopping(number: int) -> float:
    """Cancel so many that have not started."""
    coordinator = WorkCoordinator(none, max_pending=None)
    coordinator.pause()
    for item in range(number):
        await coordinator.enqueue(item)
    began = process_time()
    await coordinator.cancel()
    return (process_time() - began) / number


async def looking_up(number: int) -> float:
    """Get, pin, unpin and evict some out of the middle of so many."""
    coordinator = WorkCoordinator(none, max_pending=None, max_tracked_operations=None, max_concurrency=64)
    ids = [(await coordinator.enqueue(item)).id for item in range(number)]
    await coordinator.join()
    chosen = ids[number // 2 :][:500]
    began = process_time()
    for each in chosen:
        coordinator.get(each)
        coordinator.pin(each)
        coordinator.unpin(each)
        coordinator.evict(each)
    cost = (process_time() - began) / len(chosen)
    await coordinator.cancel()
    return cost
