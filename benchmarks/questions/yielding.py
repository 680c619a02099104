"""What does an item cost when its body lets others run once?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.bodies import once, through
from benchmarks.handwritten import queue_and_workers, task_group
from benchmarks.rows import Bound, against
from ephemerals import WorkCoordinator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Row

TITLE = "A body that yields once"

PEERS = {"queue + workers": queue_and_workers, "TaskGroup + Semaphore": task_group}
BOUNDS = {"queue + workers": Bound(2.5, 3.0), "TaskGroup + Semaphore": Bound(1.0, 1.3)}


def ask(plan: Plan) -> Iterator[Row]:
    """Compare with the two peers that everybody writes by hand, 8 and 64 at once."""
    items = range(plan.items)
    for at_once in (8, 64):
        ours = through(partial(WorkCoordinator, once, max_concurrency=at_once), items)
        for name, bound in BOUNDS.items():
            side = name, PEERS[name](once, at_once, items)
            yield against(plan, f"body that yields once, {at_once} at once", ours, side, bound)
