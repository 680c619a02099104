"""Every coordinator, made in the same way, for tests of what all of them share; and what must always add up."""

from __future__ import annotations

from functools import partial

import pytest

from ephemerals import KeyedWorkCoordinator, Lane, PriorityWorkCoordinator, ResultCoordinator, WorkCoordinator

LANES = (Lane("hot"), Lane("normal"))


def fair(body, **options):
    return KeyedWorkCoordinator(id, body, fair_scheduling=True, **options)


# `id` gives a key to every item, and keeps no item as one.
EVERY = {
    "work": WorkCoordinator,
    "keyed": partial(KeyedWorkCoordinator, id),
    "fair": fair,
    "result": ResultCoordinator,
    "keyed-result": partial(ResultCoordinator, key=id),
    "priority": partial(PriorityWorkCoordinator, lanes=LANES),
    "keyed-priority": partial(PriorityWorkCoordinator, lanes=LANES, key=id),
}

every_coordinator = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY.keys())


def assert_adds_up(coordinator):
    """Assert that every item accepted is counted in exactly one place."""
    counts = coordinator.statistics()
    parts = [
        counts.pending,
        counts.active,
        counts.completed,
        counts.failed,
        counts.cancelled,
        counts.skipped,
    ]
    assert min(parts) >= 0, counts
    assert counts.enqueued == sum(parts), counts
    assert counts.pending == coordinator.pending_count
    assert counts.active == coordinator.active_count
