"""What is left of the overhead when a body takes a millisecond?"""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from benchmarks.bodies import compute, through, wait
from benchmarks.rows import Bound, against
from ephemerals import WorkCoordinator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Row
    from benchmarks.timing import Side

TITLE = "A body that takes a millisecond"


def ask(plan: Plan) -> Iterator[Row]:
    """Compare with nothing but the body, as many at once, for a body that computes and one that waits."""
    for what, body, count, now in (
        ("computes", compute, plan.items // 100, process_time),
        ("waits", wait, plan.items // 20, perf_counter),
    ):
        items = max(count // 8, 1) * 8
        ours = through(partial(WorkCoordinator, body, max_concurrency=8), range(items))
        work = f"body that {what} for 1 ms, 8 at once"
        peer = "the body alone", alone(body, 8, items)
        yield against(plan, work, ours, peer, Bound(1.02), items=items, now=now)


def alone(body: Callable[[int], Awaitable[None]], at_once: int, items: int) -> Side:
    """Run the body in a few tasks, each its share of the items: no queue, no bookkeeping, no choice."""

    async def run() -> None:
        async def share() -> None:
            for item in range(items // at_once):
                await body(item)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(share())

    return run
