"""What does it cost to await the result of every item?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.bodies import none, through
from benchmarks.rows import Bound, against
from ephemerals import ResultCoordinator, WorkCoordinator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Row

TITLE = "Results"

_BATCH = 500


def ask(plan: Plan) -> Iterator[Row]:
    """Compare with the same work without results; handles are awaited a batch at a time, so that few are held."""

    async def ours() -> None:
        async with ResultCoordinator(none, max_concurrency=8) as coordinator:
            for first in range(0, plan.items, _BATCH):
                numbers = range(first, min(first + _BATCH, plan.items))
                for handle in [await coordinator.enqueue(number) for number in numbers]:
                    await handle

    peer = "WorkCoordinator", through(partial(WorkCoordinator, none, max_concurrency=8), range(plan.items))
    yield against(plan, "ResultCoordinator, every handle awaited", ours, peer, Bound(1.3))
