"""What do lanes cost?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.bodies import none, through
from benchmarks.rows import Bound, against
from ephemerals import Lane, PriorityWorkCoordinator, WorkCoordinator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Row

TITLE = "Lanes"

LANES = (Lane("hot"), Lane("normal"), Lane("cold"))


def ask(plan: Plan) -> Iterator[Row]:
    """Put a third of the items into each of three lanes."""
    names = [lane.name for lane in LANES]

    async def ours() -> None:
        async with PriorityWorkCoordinator(none, lanes=LANES, max_concurrency=8) as coordinator:
            for item in range(plan.items):
                await coordinator.enqueue(item, lane=names[item % 3])

    plain = through(partial(WorkCoordinator, none, max_concurrency=8), range(plan.items))
    yield against(plan, "PriorityWorkCoordinator, 3 lanes", ours, ("WorkCoordinator", plain), Bound(1.3))
