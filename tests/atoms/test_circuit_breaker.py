"""The circuit breaker: when it opens, whom it lets through to find out, and what it is not fooled by."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools

import pytest

from ephemerals import InvalidBody, InvalidOption, WorkCoordinator
from ephemerals.atoms import CircuitBreaker, CircuitOpen, RetryPolicy
from ephemerals.signals import SignalSink
from ephemerals.testing import VirtualClock, assert_forgotten, assert_quiet


class Upstream:
    """Take a second, then fail or not; count who gets through."""

    def __init__(self, error=OSError):
        self.works = False
        self.error = error
        self.calls = 0

    async def __call__(self, seconds=1):
        self.calls += 1
        await asyncio.sleep(seconds)
        if not self.works:
            raise self.error


async def attempt(breaker, upstream, *args):
    """Tell what comes of a call: "ok", "refused", or the name of the error."""
    try:
        await breaker.call(upstream, *args)
    except CircuitOpen:
        return "refused"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        return type(error).__name__
    return "ok"


async def opened(**options):
    breaker, upstream = CircuitBreaker(threshold=2, recovery=10, **options), Upstream()
    assert [await attempt(breaker, upstream) for _ in range(3)] == ["OSError", "OSError", "refused"]
    upstream.calls = 0
    return breaker, upstream


async def test_it_opens_at_the_threshold_and_refuses_without_calling():
    breaker, upstream = await opened()
    assert (breaker.state, upstream.calls) == ("open", 0)
    assert breaker.retry_after == 10
    with pytest.raises(CircuitOpen, match="circuit is open: try again in 10 seconds") as refusal:
        await breaker.call(upstream)
    assert refusal.value.retry_after == 10
    assert breaker.statistics().rejected == 2


async def test_failures_that_lie_too_far_apart_do_not_open_it():
    breaker, upstream = CircuitBreaker(threshold=2, window=30), Upstream()
    for _ in range(5):
        await attempt(breaker, upstream)
        await asyncio.sleep(31)
    assert breaker.state == "closed"
    await attempt(breaker, upstream)
    await attempt(breaker, upstream)
    assert breaker.state == "open"


async def test_a_ratio_needs_enough_outcomes():
    breaker, upstream = CircuitBreaker(threshold=10, ratio=0.5, window=1000), Upstream()
    for number in range(9):
        upstream.works = number % 3 != 0
        await attempt(breaker, upstream)
    assert breaker.state == "closed"
    upstream.works = False
    await attempt(breaker, upstream)
    assert breaker.state == "closed"  # 4 of 10
    await attempt(breaker, upstream)
    assert breaker.state == "closed"  # 5 of 11
    await attempt(breaker, upstream)
    assert breaker.state == "open"  # 6 of 12


async def test_half_open_exactly_one_of_many_callers_gets_through():
    """R75 (a)."""
    breaker, upstream = await opened()
    await asyncio.sleep(10)
    assert breaker.state == "half_open"
    upstream.works = True
    outcomes = await asyncio.gather(*(attempt(breaker, upstream) for _ in range(10)))
    assert sorted(outcomes) == ["ok", *["refused"] * 9]
    assert (breaker.state, upstream.calls) == ("closed", 1)


async def test_half_open_as_many_as_allowed_get_through_and_all_must_succeed():
    breaker, upstream = await opened(probes=3)
    await asyncio.sleep(10)
    upstream.works = True
    first = asyncio.gather(*(attempt(breaker, upstream) for _ in range(10)))
    await first
    assert first.result().count("ok") == 3
    assert breaker.state == "closed"
    breaker.trip()
    await asyncio.sleep(10)
    upstream.works = False
    assert sorted(await asyncio.gather(*(attempt(breaker, upstream, n) for n in range(3)))) == ["OSError"] * 3
    assert breaker.statistics().opened == 3
    assert breaker.statistics().late == 2


@pytest.mark.parametrize("late_outcome", [True, False])
async def test_what_started_before_it_opened_decides_nothing(late_outcome):
    """R75 (b)."""
    breaker, upstream = CircuitBreaker(threshold=2, recovery=10), Upstream()
    late = asyncio.create_task(attempt(breaker, upstream, 15))
    later = asyncio.create_task(attempt(breaker, upstream, 5))
    await asyncio.gather(attempt(breaker, upstream), attempt(breaker, upstream))
    assert breaker.state == "open"
    upstream.works = late_outcome
    await later
    assert breaker.state == "open"
    await asyncio.sleep(8)
    assert breaker.state == "half_open"
    await late
    assert breaker.state == "half_open"
    upstream.works = True
    assert await attempt(breaker, upstream) == "ok"
    assert breaker.state == "closed"
    assert breaker.statistics().late == 2


@pytest.mark.parametrize("neutral", ["cancelled", "no failure", "KeyboardInterrupt"])
async def test_a_probe_that_says_nothing_gives_its_place_to_the_next_caller(neutral):
    """R75 (c)."""
    breaker, upstream = await opened(failures=lambda error: not isinstance(error, KeyError))
    await asyncio.sleep(10)
    probe = asyncio.create_task(attempt(breaker, upstream))
    await asyncio.sleep(0)
    assert await attempt(breaker, upstream) == "refused"
    if neutral == "cancelled":
        probe.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await probe
    elif neutral == "no failure":
        upstream.error = KeyError
        assert await probe == "KeyError"
    else:
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)
        with contextlib.suppress(KeyboardInterrupt):
            async with breaker:
                raise KeyboardInterrupt
    assert breaker.state == "half_open"
    upstream.works = True
    assert await attempt(breaker, upstream) == "ok"
    assert breaker.state == "closed"
    assert breaker.statistics().neutral >= 1
    assert_quiet(breaker)


async def test_a_probe_that_hangs_does_not_keep_it_open_for_ever():
    """R75 (d)."""
    breaker, upstream = await opened(probe_timeout=5)
    await asyncio.sleep(10)
    hanging = asyncio.create_task(attempt(breaker, upstream, 1_000_000))
    await asyncio.sleep(0)
    assert breaker.retry_after == 5
    await asyncio.sleep(5)
    assert breaker.state == "open"
    await asyncio.sleep(9.9)
    assert breaker.state == "open"
    await asyncio.sleep(0.1)
    upstream.works = True
    assert await attempt(breaker, upstream) == "ok"
    assert breaker.state == "closed"
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    assert breaker.state == "closed"


async def test_a_probe_without_a_time_limit_keeps_the_others_out():
    breaker, upstream = await opened(probe_timeout=None)
    await asyncio.sleep(10)
    probe = asyncio.create_task(attempt(breaker, upstream, 500))
    await asyncio.sleep(400)
    assert await attempt(breaker, upstream) == "refused"
    assert breaker.retry_after == 10
    await probe
    assert breaker.state == "open"


async def test_a_failed_probe_opens_it_again_for_the_whole_time():
    breaker, upstream = await opened()
    await asyncio.sleep(10)
    assert await attempt(breaker, upstream) == "OSError"
    await asyncio.sleep(9.5)
    assert (breaker.state, breaker.retry_after) == ("open", 0.5)
    await asyncio.sleep(0.5)
    assert (breaker.state, breaker.retry_after) == ("half_open", 0)


async def test_rounds_of_opening_and_closing_under_fifty_callers():
    sink = SignalSink(max_age=None)
    breaker, upstream = CircuitBreaker("api", threshold=5, recovery=10, signals=sink), Upstream()
    concurrent = most_while_half_open = 0

    async def guarded():
        nonlocal concurrent, most_while_half_open
        async with breaker:
            concurrent += 1
            if breaker.state == "half_open":
                most_while_half_open = max(most_while_half_open, concurrent)
            try:
                await upstream(0.5)
            finally:
                concurrent -= 1

    async def caller(number):
        for _ in range(300):
            with contextlib.suppress(CircuitOpen, OSError):
                await guarded()
            await asyncio.sleep(0.1 + number / 100)

    callers = [asyncio.create_task(caller(number)) for number in range(50)]
    for _ in range(4):
        upstream.works = False
        await asyncio.sleep(25)
        assert breaker.state != "closed"
        upstream.works = True
        await asyncio.sleep(15)
        assert breaker.state == "closed"
    for each in callers:
        each.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    assert most_while_half_open == 1
    names = [event.name for event in sink.events(pattern="circuit.*", key="api")]
    assert names.count("circuit.closed") == 4
    assert names[:2] == ["circuit.opened", "circuit.half_opened"]
    for before, after in itertools.pairwise(names):
        assert (
            after
            in {
                "circuit.opened": {"circuit.half_opened"},
                "circuit.half_opened": {"circuit.opened", "circuit.closed"},
                "circuit.closed": {"circuit.opened"},
            }[before]
        )
    assert_quiet(breaker)


async def test_it_may_follow_failures_that_others_report():
    sink = SignalSink()
    breaker = CircuitBreaker(threshold=2, recovery=10, signals=sink, failure_signals="api.failed.*")
    upstream = Upstream()
    for _ in range(3):
        assert await attempt(breaker, upstream) == "OSError"  # its own outcomes do not count
    sink.emit("api.failed.timeout")
    sink.emit("api.succeeded")
    assert breaker.state == "closed"
    sink.emit("api.failed.refused")
    assert breaker.state == "open"
    await asyncio.sleep(10)
    assert breaker.state == "half_open"
    sink.emit("api.failed.refused")
    assert breaker.state == "open"
    await asyncio.sleep(10)
    upstream.works = True
    assert await attempt(breaker, upstream) == "ok"
    assert breaker.state == "closed"


async def test_a_breaker_that_is_dropped_stops_listening():
    sink = SignalSink()
    breaker = CircuitBreaker(signals=sink, failure_signals="x")
    assert sink.statistics().subscriptions == 1
    del breaker
    gc.collect()
    assert sink.statistics().subscriptions == 0


async def test_the_wall_clock_has_no_say():
    breaker, _ = await opened()
    VirtualClock.current().step_wall(86_400)
    assert breaker.state == "open"
    VirtualClock.current().step_wall(-2 * 86_400)
    await asyncio.sleep(10)
    assert breaker.state == "half_open"


async def test_a_decorated_function_is_guarded():
    breaker = CircuitBreaker(threshold=1)

    @breaker
    async def fetch(symbol, *, fails):
        """Fetch."""
        if fails:
            raise OSError
        return symbol

    assert (fetch.__name__, fetch.__doc__) == ("fetch", "Fetch.")
    assert await fetch("ACME", fails=False) == "ACME"
    with pytest.raises(OSError):
        await fetch("ACME", fails=True)
    with pytest.raises(CircuitOpen):
        await fetch("ACME", fails=False)
    with pytest.raises(InvalidBody):
        breaker(print)


async def test_uses_of_one_breaker_may_be_nested_in_a_task():
    breaker = CircuitBreaker()
    async with breaker, breaker:
        assert breaker.leftovers()["calls"] == 1
    assert breaker.statistics().succeeded == 2
    assert_quiet(breaker)


async def test_it_is_opened_and_closed_by_hand():
    breaker, upstream = CircuitBreaker(), Upstream()
    upstream.works = True
    breaker.trip()
    assert await attempt(breaker, upstream) == "refused"
    breaker.reset()
    assert await attempt(breaker, upstream) == "ok"


async def test_a_predicate_that_fails_counts_the_call_as_failed():
    def broken(error):
        raise ZeroDivisionError

    breaker = CircuitBreaker(threshold=1, failures=broken)
    assert await attempt(breaker, Upstream()) == "OSError"
    assert breaker.state == "open"


async def test_retries_of_a_coordinator_wait_until_the_circuit_lets_them_through():
    breaker, upstream = CircuitBreaker(threshold=2, recovery=60), Upstream()

    async def body(item):
        await breaker.call(upstream)

    policy = RetryPolicy(attempts=10, initial=1, jitter=False)
    async with WorkCoordinator(body, retry=policy) as coordinator:
        operation = await coordinator.enqueue("x")
        await asyncio.sleep(10)
        assert operation.status == "pending"
        upstream.works = True
        await operation
    assert upstream.calls == 3
    assert VirtualClock.current().monotonic() == pytest.approx(1065, abs=1.1)


async def test_it_keeps_nothing_of_a_call_that_failed():
    breaker = CircuitBreaker()

    async def fail(item):
        raise OSError(item.secret)

    async def use(item):
        with contextlib.suppress(OSError):
            await breaker.call(fail, item)

    await assert_forgotten(use)


@pytest.mark.parametrize(
    ("option", "value"),
    [("threshold", 0), ("ratio", 0), ("ratio", 1.5), ("window", 0), ("recovery", -1), ("probes", 0)],
)
def test_a_wrong_option_is_refused(option, value):
    with pytest.raises(InvalidOption, match=option):
        CircuitBreaker(**{option: value})


def test_signals_to_follow_need_a_sink():
    with pytest.raises(InvalidOption, match="failure_signals"):
        CircuitBreaker(failure_signals="api.failed")
