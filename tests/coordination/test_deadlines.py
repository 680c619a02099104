"""Time limits: everything that runs too long expires, at the very moment, and nothing that has ended does."""

from __future__ import annotations

from contextvars import Context
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from tests.invariants.stepping import SteppedLoop

from ephemerals.coordination.deadlines import Deadlines


@given(
    starts=st.lists(
        st.tuples(
            st.sampled_from((0.0, 0.5, 2.0)), st.sampled_from((1.0, 2.5, 10.0)), st.sampled_from((None, 0.5, 2.5))
        ),
        max_size=15,
    )
)
def test_each_operation_expires_at_its_own_moment_unless_it_ended_before(starts):
    stepped = SteppedLoop()
    clock, loop = stepped.clock, stepped.loop
    expired = {}
    deadlines = Deadlines(clock, lambda operation: expired.setdefault(operation.id, clock.monotonic()))
    expected = {}
    now = clock.monotonic()
    for number, (pause, limit, ends_after) in enumerate(starts):
        now += pause
        operation = SimpleNamespace(id=number, _draft=SimpleNamespace(_started=now))
        loop.call_at(now, deadlines.add, operation, limit, loop, Context())
        if ends_after is not None and ends_after < limit:
            loop.call_at(now + ends_after, deadlines.discard, operation, limit)
        else:
            expected[number] = now + limit
    stepped.pass_time(100)
    assert expired == expected
    assert not deadlines.has_timer
    stepped.close()


def test_when_the_loop_was_blocked_all_that_are_late_expire_in_one_turn():
    stepped = SteppedLoop()
    expired = []
    deadlines = Deadlines(stepped.clock, lambda operation: expired.append(operation.id))
    for number, limit in enumerate((1.0, 2.0, 1.0, 50.0)):
        operation = SimpleNamespace(id=number, _draft=SimpleNamespace(_started=stepped.clock.monotonic()))
        deadlines.add(operation, limit, stepped.loop, Context())
    stepped.leap(10)
    stepped.turn()
    assert sorted(expired) == [0, 1, 2]
    assert deadlines.has_timer
    deadlines.clear()
    assert not deadlines.has_timer
    stepped.close()
