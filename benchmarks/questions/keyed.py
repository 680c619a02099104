"""What does order within each key cost?"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.bodies import none, through
from benchmarks.handwritten import ACROSS
from benchmarks.rows import Bound, against
from ephemerals import KeyedWorkCoordinator, WorkCoordinator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Row

TITLE = "Order within each key"

LOCKS = "queue + workers + dict of locks"


def keys_of(count: int, keys: int, *, skewed: bool) -> list[int]:
    """Return a key for each item, the same on every call; skewed: half of the items have one key in sixteen."""
    chance = random.Random(count + keys)
    power = 4 if skewed else 1
    return [int(keys * chance.random() ** power) for _ in range(count)]


def ask(plan: Plan) -> Iterator[Row]:
    """Compare with the same work without keys, and with what is usually written by hand."""
    for keys in (100, 100_000):
        for skewed in (False, True):
            items = keys_of(plan.items, keys, skewed=skewed)
            work = f"KeyedWorkCoordinator, {keys:,} keys, {'skewed' if skewed else 'even'}"
            ours = through(partial(KeyedWorkCoordinator, int, none, max_concurrency=8), items)
            plain = through(partial(WorkCoordinator, none, max_concurrency=8), items)
            yield against(plan, work, ours, ("WorkCoordinator", plain), Bound(1.25))
            yield against(plan, work, ours, (LOCKS, ACROSS[LOCKS](none, 8, items)), Bound(2.0, 3.0))
    queues = "dict of queues", ACROSS["dict of queues"](none, 8, items)
    yield against(plan, work, ours, queues, None)
