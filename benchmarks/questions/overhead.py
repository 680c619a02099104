"""What does an item cost when its body does nothing?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.bodies import none, through
from benchmarks.peers import PEERS
from benchmarks.rows import Bound, against
from ephemerals import WorkCoordinator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Row

TITLE = "A body that does nothing"

BOUNDS = {
    "queue + workers": Bound(5.5, 8.0),
    "TaskGroup + Semaphore": Bound(1.0, 1.4),
    "aiojobs": Bound(0.35, 0.5),
    "aiometer": Bound(0.12, 0.2),
}


def ask(plan: Plan) -> Iterator[Row]:
    """Compare with every peer, 8 and 64 at once."""
    items = range(plan.items)
    for at_once in (8, 64):
        ours = through(partial(WorkCoordinator, none, max_concurrency=at_once), items)
        for name, peer in PEERS.items():
            if at_once == 8 or name in BOUNDS:  # noqa: PLR2004 - the others are there to be looked at once
                side = name, peer(none, at_once, items)
                yield against(plan, f"no-op body, {at_once} at once", ours, side, BOUNDS.get(name))
