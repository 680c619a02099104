"""A primary and its backups: nothing is lost when one fails, and it gets its work back when it works again."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from ephemerals import InvalidBody, InvalidOption
from ephemerals.atoms import CircuitState
from ephemerals.patterns import FailoverExhausted, PriorityFailover
from ephemerals.signals import SignalSink
from ephemerals.testing import assert_forgotten, assert_quiet


class Leg:
    """Answer with its name, unless it is broken."""

    def __init__(self, name, error=None, seconds=0.0):
        self.name, self.error, self.seconds = name, error, seconds
        self.calls = 0

    async def __call__(self, item):
        self.calls += 1
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return self.name, item


def failover(*legs, **options):
    return PriorityFailover({leg.name: leg for leg in legs}, **options)


async def test_a_healthy_primary_does_all():
    primary, backup = Leg("primary"), Leg("backup")
    call = failover(primary, backup)
    assert [await call(number) for number in range(3)] == [("primary", number) for number in range(3)]
    assert (primary.calls, backup.calls) == (3, 0)
    assert call.statistics().failed_over == 0


async def test_every_call_that_fails_goes_to_the_backup_not_only_the_one_that_crosses_the_threshold():
    primary, backup = Leg("primary", OSError()), Leg("backup")
    call = failover(primary, backup, threshold=3)
    assert [await call(number) for number in range(10)] == [("backup", number) for number in range(10)]
    assert primary.calls == 3  # one that is not healthy is not asked
    assert call.health() == {"primary": CircuitState.OPEN, "backup": CircuitState.CLOSED}
    assert call.statistics().failed_over == 10
    assert call.statistics().legs["primary"].rejected == 7


async def test_one_call_finds_out_whether_it_works_again_and_costs_nobody_an_answer():
    primary, backup = Leg("primary", OSError(), seconds=0.1), Leg("backup")
    call = failover(primary, backup, threshold=1, probe_every=5)
    await call(0)
    await asyncio.sleep(5)
    answers = await asyncio.gather(*(call(number) for number in range(20)))
    assert answers == [("backup", number) for number in range(20)]
    assert primary.calls == 2
    primary.error = None
    await asyncio.sleep(5)
    answers = await asyncio.gather(*(call(number) for number in range(20)))
    assert [name for name, _ in answers].count("primary") == 1
    assert (await call(1))[0] == "primary"
    assert_quiet(call)


async def test_when_no_leg_can_do_it_all_their_errors_are_told():
    call = failover(Leg("a", OSError("no")), Leg("b", ValueError("bad")), name="geo", threshold=1, probe_every=5)
    with pytest.raises(
        FailoverExhausted, match="every leg of failover 'geo' has failed \\(a: OSError, b: ValueError"
    ) as e:
        await call(0)
    assert {leg: type(error) for leg, error in e.value.errors.items()} == {"a": OSError, "b": ValueError}
    assert e.value.retry_after is None
    await asyncio.sleep(2)
    with pytest.raises(FailoverExhausted, match="CircuitOpen") as e:
        await call(0)
    assert e.value.retry_after == pytest.approx(3)  # a RetryPolicy waits so long
    assert call.statistics().exhausted == 2


async def test_a_leg_that_is_too_slow_has_failed():
    slow, backup = Leg("slow", seconds=10), Leg("backup")
    call = failover(slow, backup, timeout=1, threshold=1)
    assert await call(1) == ("backup", 1)
    assert call.health()["slow"] == "open"


async def test_errors_that_are_no_failures_are_the_callers():
    primary, backup = Leg("primary", KeyError("unknown city")), Leg("backup")
    call = failover(primary, backup, failures=OSError, threshold=1)
    with pytest.raises(KeyError):
        await call(0)
    assert backup.calls == 0
    assert call.health()["primary"] == "closed"


async def test_cancellation_goes_through_and_says_nothing_about_health():
    primary, backup = Leg("primary", seconds=10), Leg("backup")
    call = failover(primary, backup, threshold=1)
    task = asyncio.create_task(call(0))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (backup.calls, call.health()["primary"]) == (0, "closed")
    assert_quiet(call)


async def test_who_serves_is_said_when_it_changes():
    sink = SignalSink(max_age=None)
    primary, backup = Leg("primary"), Leg("backup")
    call = failover(primary, backup, name="geo", signals=sink, threshold=2, probe_every=5)
    for error in (None, OSError(), OSError(), OSError(), None):
        primary.error = error
        await call(0)
    await asyncio.sleep(5)
    await call(0)
    primary.error = backup.error = OSError()
    with pytest.raises(FailoverExhausted):
        await call(0)
    assert [(event.name, event.data) for event in sink.events(key="geo")] == [
        ("failover.switched", {"leg": "backup", "was": "primary"}),
        ("failover.switched", {"leg": "primary", "was": "backup"}),
        ("failover.exhausted", {"errors": {"primary": "OSError", "backup": "OSError"}}),
    ]
    names = [event.name for event in sink.events(key="primary")]
    assert names == ["circuit.opened", "circuit.half_opened", "circuit.closed"]


async def test_a_circuit_that_is_open_within_a_leg_is_that_legs_failure():
    inner = failover(Leg("x", OSError()), threshold=1)

    async def primary(item):
        return await inner(item)

    call = PriorityFailover({"primary": primary, "backup": Leg("backup")}, threshold=3)
    for _ in range(2):
        assert (await call(0))[0] == "backup"
    assert call.statistics().legs["primary"].failed == 2


@pytest.mark.parametrize("broken", list(itertools.product([False, True], repeat=2)))
async def test_arguments_are_forgotten_however_it_ends(broken):
    legs = [Leg(name, OSError() if is_broken else None) for name, is_broken in zip("ab", broken, strict=True)]

    async def use(item):
        call = PriorityFailover({leg.name: quiet(leg) for leg in legs})
        try:
            await call(item)
        except FailoverExhausted as error:
            return call, error.errors
        return call

    await assert_forgotten(use)


def quiet(leg):
    async def call(item):
        await leg(item)

    return call


def test_wrong_uses_are_refused():
    with pytest.raises(InvalidOption, match="legs="):
        PriorityFailover({})
    with pytest.raises(InvalidOption, match="legs="):
        PriorityFailover([Leg("a")])
    with pytest.raises(InvalidBody, match="leg 'a' is no async function"):
        PriorityFailover({"a": print})
    for option, value in [("threshold", 0), ("window", 0), ("probe_every", -1), ("timeout", 0), ("failures", 3)]:
        with pytest.raises(InvalidOption, match=f"{option}="):
            failover(Leg("a"), **{option: value})
