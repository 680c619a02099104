"""What do the options cost that many will turn on?"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.bodies import none, through
from benchmarks.rows import Bound, against
from ephemerals import WorkCoordinator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Row
    from benchmarks.timing import Side

TITLE = "Options"


def ask(plan: Plan) -> Iterator[Row]:
    """Compare with the defaults; items enough to fill the large window."""
    count = max(plan.items, 12_000 if plan.pairs > 1 else 0)
    items = range(count)
    make = partial(WorkCoordinator, none, max_concurrency=8)
    plain = "the defaults", through(make, items)
    large = through(partial(make, max_tracked_operations=10_000), items)
    yield against(plan, "window of 10,000 instead of 200", large, plain, Bound(1.15), items=count)
    yield against(plan, "100 signals per second", with_signals(make, items), plain, Bound(1.1), items=count)
    timeouts = through(partial(make, operation_timeout=60.0), items)
    yield against(plan, "timeouts on", timeouts, plain, Bound(1.5), items=count)


def with_signals(make: partial[WorkCoordinator[int, None]], items: range) -> Side:
    """Let a coordinator that reacts to signals hear a hundred others each second."""

    async def run() -> None:
        async with make(
            cancel_on_signals="work.cancelled", defer_on_signals="load.high, service.down.*", on_signal=lambda _: None
        ) as coordinator:

            async def emit() -> None:
                while True:
                    coordinator.signals.emit("load.measured", 0.5)
                    await asyncio.sleep(0.01)

            emitting = asyncio.create_task(emit())
            for item in items:
                await coordinator.enqueue(item)
            await coordinator.drain()
            emitting.cancel()

    return run
