"""Ending is idempotent, in any order, from any number of tasks at once, and bounded where a bound was given (3)."""

from __future__ import annotations

import logging

from hypothesis import given
from hypothesis import strategies as st
from tests.invariants.checks import check_fates, check_finalized
from tests.invariants.plans import Plan
from tests.invariants.scripts import GATE, QUIET, Script

from ephemerals import KeyedWorkCoordinator, WorkCoordinator

STUBBORN = Script((GATE, GATE, GATE), reaction="ignore")
"""It swallows three cancellations, and goes on until the gates open."""

endings = st.lists(
    st.tuples(
        st.sampled_from(("complete", "drain", "drain for a while", "cancel", "cancel and wait", "aclose")),
        st.sampled_from((0.0, 0.5, 5.0)),
        st.sampled_from((0.0, 0.5, 5.0)),
        st.sampled_from((0.0, 0.0, 1.0)),
    ),
    min_size=1,
    max_size=4,
)


@given(
    keyed=st.booleans(),
    bodies=st.lists(st.one_of(st.just(STUBBORN), st.sampled_from(QUIET)), max_size=5),
    endings=endings,
    paused=st.booleans(),
)
def test_however_many_ways_to_end_are_mixed_all_of_them_end_and_nothing_runs_on(keyed, bodies, endings, paused):
    options = {"max_concurrency": 2, "max_pending": 3}
    world = Plan(KeyedWorkCoordinator if keyed else WorkCoordinator, options).world()
    coordinator, stepped = world.coordinator, world.stepped
    for number, script in enumerate(bodies):
        world.offer(script, number % 2)
    stepped.turn()
    if paused:
        coordinator.pause()
    for how, grace, cancel_grace, pause in endings:
        world.end(how, grace, cancel_grace)
        if how == "aclose":
            closing, limit = world.endings[-1], grace + cancel_grace
            stepped.pass_time(limit)
            assert closing.done(), "aclose() takes longer than it was given"
        stepped.pass_time(pause)
        assert coordinator.is_closed
        world.check_counts()
    world.open_all_gates()
    stepped.pass_time(100)
    if coordinator.is_paused:  # only complete() leaves it so
        stepped.call(coordinator.resume)
        stepped.settle()
    first = stepped.complete(coordinator.aclose())
    assert all(each.done() for each in world.endings)
    assert not world.facts.inside
    assert stepped.complete(coordinator.drain()).completed == first.completed
    stepped.call(coordinator.cancel)
    coordinator.complete()
    again = stepped.complete(coordinator.aclose(grace=0))
    assert (again.enqueued, again.remaining, again.stragglers) == (first.enqueued, 0, ())
    check_fates(world)
    check_finalized(world)
    assert not any(coordinator.engine.leftovers().values())
    assert not world.facts.problems
    world.collect()
    world.close()


def test_an_ending_that_hangs_is_named_in_the_log_and_the_report(caplog):
    world = Plan(WorkCoordinator, {"max_concurrency": 1}).world()
    logging.disable(logging.NOTSET)
    ticket = world.offer(STUBBORN)
    world.stepped.settle()
    report = world.stepped.complete(world.coordinator.aclose(grace=1, cancel_grace=1))
    assert report.stragglers == (ticket.operation.id,)
    assert report.remaining == 1
    assert any("still running" in each.getMessage() for each in caplog.records)
    world.open_all_gates()
    world.stepped.settle()
    assert ticket.operation.status == "completed"
    check_finalized(world)
    world.close()
