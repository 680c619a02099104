"""What does an id cost that cannot be guessed from the one before?"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from benchmarks.rows import Bound, against
from ephemerals.ids import next_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Row

TITLE = "Ids"


def ask(plan: Plan) -> Iterator[Row]:
    """Compare with counting."""
    counter = itertools.count()

    def ours() -> None:
        for _ in range(plan.items):
            next_id()

    def peer() -> None:
        for _ in range(plan.items):
            next(counter)

    yield against(plan, "id", ours, ("next(itertools.count())", peer), Bound(5.0))
