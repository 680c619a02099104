"""Limiters: how much they grant, in which order, and what waiting costs."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals import InvalidOption
from ephemerals.atoms import GCRA, SlidingWindowLimiter, TokenBucket
from ephemerals.testing import VirtualClock, assert_quiet, run

LIMITERS = {
    "bucket": lambda: TokenBucket(10, burst=1),
    "gcra": lambda: GCRA(10),
    "window": lambda: SlidingWindowLimiter(1, window=0.1),
}
every_limiter = pytest.mark.parametrize("make", LIMITERS.values(), ids=LIMITERS.keys())
rates = st.floats(math.log(0.1), math.log(100_000)).map(math.exp)
counts = st.lists(st.integers(1, 5), min_size=1, max_size=40)


def now():
    return VirtualClock.current().monotonic()


async def grant_times(limiter, arrivals, cancelled=()):
    """Let callers arrive at `(seconds after the last, permits)`; return when how many permits were granted."""
    granted = []

    async def call(n):
        await limiter.acquire(n)
        granted.extend([now()] * n)

    calls = []
    for place, (gap, n) in enumerate(arrivals):
        await asyncio.sleep(gap)
        calls.append(asyncio.create_task(call(n)))
        if place in cancelled:
            await asyncio.sleep(0)
            calls[place // 2].cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert_quiet(limiter)
    return granted


def most_in_any_span(times, allowed):
    """Return by how much the grants in any span that begins and ends with a grant exceed what is `allowed(span)`."""
    return max(
        (last - first + 1 - allowed(times[last] - times[first]))
        for first in range(len(times))
        for last in range(first, len(times))
    )


@st.composite
def arrivals(draw, rate):
    permits = draw(counts)
    gaps = draw(st.lists(st.floats(0, 4), min_size=len(permits), max_size=len(permits)))
    return [(gap / rate, n) for gap, n in zip(gaps, permits, strict=True)]


@pytest.mark.parametrize("kind", [TokenBucket, GCRA])
@given(data=st.data(), rate=rates, burst=st.integers(5, 12), cancelled=st.sets(st.integers(0, 39), max_size=8))
def test_no_span_has_more_than_the_burst_and_what_the_rate_brings(kind, data, rate, burst, cancelled):
    plan = data.draw(arrivals(rate))
    times = run(scenario(lambda: kind(rate, burst), plan, cancelled))
    if times:
        assert most_in_any_span(times, lambda span: burst + rate * span) <= 1e-6 * len(times)


@given(data=st.data(), rate=rates, limit=st.integers(5, 12), cancelled=st.sets(st.integers(0, 39), max_size=8))
def test_no_window_has_more_than_the_limit(data, rate, limit, cancelled):
    plan = data.draw(arrivals(rate))
    window = limit / rate
    times = run(scenario(lambda: SlidingWindowLimiter(limit, window=window), plan, cancelled))
    for first in times:
        assert sum(1 for each in times if first <= each and first + window > each) <= limit


async def scenario(make, plan, cancelled):
    return await grant_times(make(), plan, cancelled)


@given(data=st.data(), rate=rates, factors=st.lists(st.floats(0.2, 5), min_size=1, max_size=10))
@pytest.mark.parametrize("kind", [TokenBucket, GCRA])
def test_changing_the_rate_grants_no_new_burst(kind, data, rate, factors):
    async def main():
        limiter = kind(rate, 5)
        fastest = rate * max(1, *factors)

        async def change():
            for factor in factors:
                await asyncio.sleep(data.draw(st.floats(0.1, 3)) / rate)
                limiter.set_rate(rate * factor)

        changing = asyncio.create_task(change())
        times = await grant_times(limiter, [(0, 1)] * 40)
        await changing
        assert most_in_any_span(times, lambda span: 5 + fastest * span) <= 1e-4

    run(main())


@pytest.mark.parametrize("rate", [0.1, 0.75, 3, 1_000, 100_000])
@pytest.mark.parametrize("kind", [TokenBucket, GCRA])
async def test_a_saturated_limiter_keeps_its_rate_within_one_percent(kind, rate):
    limiter = kind(rate, burst=1)
    await limiter.acquire()
    started = now()
    await asyncio.gather(*(limiter.acquire() for _ in range(500)))
    assert 500 / (now() - started) == pytest.approx(rate, rel=0.01)
    assert_quiet(limiter)


@pytest.mark.parametrize("rate", [0.1, 3, 100_000])
async def test_a_saturated_window_keeps_its_rate_within_one_percent(rate):
    limiter = SlidingWindowLimiter(10, window=10 / rate)
    started = now()
    await asyncio.gather(*(limiter.acquire() for _ in range(1010)))
    assert 1000 / (now() - started) == pytest.approx(rate, rel=0.01)


@pytest.mark.real_loop("asyncio", "uvloop")
async def test_a_saturated_bucket_keeps_a_high_rate_in_real_time():
    loop = asyncio.get_running_loop()
    limiter = TokenBucket(20_000, burst=2_000)
    await limiter.acquire(2_000)
    started = loop.time()
    for _ in range(40):
        await asyncio.gather(*(limiter.acquire() for _ in range(100)))
    assert 0.19 <= loop.time() - started <= 1.0  # a busy machine loses time, never wins it
    assert_quiet(limiter)


@every_limiter
async def test_who_comes_first_is_served_first(make):
    limiter, order = make(), []

    async def call(number):
        await limiter.acquire()
        order.append(number)

    await asyncio.gather(*(call(number) for number in range(30)))
    assert order == list(range(30))
    assert now() == pytest.approx(1002.9)


@every_limiter
async def test_trying_never_overtakes_a_waiter(make):
    limiter = make()
    await limiter.acquire()
    waiter = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    VirtualClock.current().advance(0.1)  # there is a permit, and it belongs to the waiter
    assert not limiter.try_acquire()
    await waiter
    assert limiter.statistics().refused == 1


@every_limiter
async def test_a_cancelled_waiter_gives_its_place_back(make):
    limiter = make()
    await limiter.acquire()
    waiters = [asyncio.create_task(limiter.acquire()) for _ in range(3)]
    await asyncio.sleep(0.05)
    waiters[0].cancel()
    waiters[1].cancel()
    await waiters[2]
    assert now() == pytest.approx(1000.1)
    assert limiter.statistics().cancelled == 2
    assert_quiet(limiter)


@every_limiter
async def test_a_waiter_that_is_granted_and_cancelled_in_one_tick_passes_the_permit_on(make):
    limiter = make()
    await limiter.acquire()
    first = asyncio.create_task(limiter.acquire())
    second = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    VirtualClock.current().advance(0.1)
    limiter._serve()  # what the timer does: the first is granted, and has not run yet
    first.cancel()
    await second
    assert first.cancelled()
    assert now() == pytest.approx(1000.1)
    assert_quiet(limiter)


@every_limiter
async def test_ten_thousand_waiters_cost_one_timer(make):
    limiter = make()
    await limiter.acquire()
    waiters = [asyncio.create_task(limiter.acquire()) for _ in range(10_000)]
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    assert len([timer for timer in loop._scheduled if not timer.cancelled()]) == 1
    assert limiter.statistics().waiting == 10_000
    assert limiter.retry_after() == pytest.approx(1000.1)
    for waiter in waiters:
        waiter.cancel()
    await asyncio.gather(*waiters, return_exceptions=True)
    assert_quiet(limiter)


@pytest.mark.parametrize("kind", [TokenBucket, GCRA])
async def test_a_changed_rate_times_the_waiters_anew(kind):
    limiter = kind(0.1, burst=1)
    await limiter.acquire()
    waiters = [asyncio.create_task(limiter.acquire()) for _ in range(2)]
    await asyncio.sleep(5)  # half a permit has come
    limiter.set_rate(1)
    await waiters[0]
    assert now() == pytest.approx(1005.5)
    limiter.set_rate(0.5)
    await waiters[1]
    assert now() == pytest.approx(1007.5)
    assert limiter.rate == pytest.approx(0.5)


@pytest.mark.parametrize("kind", [TokenBucket, GCRA])
async def test_a_larger_burst_is_not_granted_at_once(kind):
    limiter = kind(1, burst=2)
    assert limiter.try_acquire(2)
    limiter.set_burst(5)
    assert not limiter.try_acquire()
    await asyncio.sleep(5)
    assert limiter.try_acquire(5)
    limiter.set_burst(2)
    await asyncio.sleep(60)
    assert limiter.retry_after(2) == 0
    assert limiter.try_acquire(2)
    assert not limiter.try_acquire()


async def test_a_larger_limit_lets_waiters_through_at_once():
    limiter = SlidingWindowLimiter(1, window=60)
    await limiter.acquire()
    waiter = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(1)
    limiter.set_limit(2)
    await waiter
    assert now() == 1001


@pytest.mark.parametrize("kind", [TokenBucket, GCRA])
async def test_who_waits_for_more_than_a_smaller_burst_is_refused(kind):
    limiter = kind(1, burst=4)
    await limiter.acquire(4)
    many = asyncio.create_task(limiter.acquire(4))
    one = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    limiter.set_burst(3)
    with pytest.raises(InvalidOption, match="n=4 is not allowed: expected at most 3"):
        await many
    await one
    assert now() == pytest.approx(1001)


@every_limiter
async def test_more_than_it_could_ever_grant_is_refused_at_once(make):
    limiter = make()
    for call in (limiter.try_acquire, limiter.retry_after, lambda n: limiter.reserve(n, print)):
        with pytest.raises(InvalidOption, match="at most 1"):
            call(2)
    with pytest.raises(InvalidOption):
        await limiter.acquire(2)
    with pytest.raises(InvalidOption):
        await limiter.acquire(0)


@every_limiter
async def test_retry_after_says_when_trying_will_work(make):
    limiter = make()
    assert limiter.retry_after() == 0
    assert limiter.try_acquire()
    wait = limiter.retry_after()
    assert wait == pytest.approx(0.1)
    await asyncio.sleep(wait * 0.99)
    assert not limiter.try_acquire()
    await asyncio.sleep(limiter.retry_after() + 1e-9)
    assert limiter.try_acquire()


@every_limiter
async def test_a_pause_holds_everybody_and_keeps_the_order(make):
    limiter = make()
    limiter.pause_for(5)
    limiter.pause_for(1)  # the longer one counts
    assert not limiter.try_acquire()
    assert limiter.statistics().is_paused
    await asyncio.gather(limiter.acquire(), limiter.acquire())
    assert now() == pytest.approx(1005.1)
    assert limiter.statistics().waited == pytest.approx(10.1)


@every_limiter
async def test_as_a_context_manager_it_takes_one_permit(make):
    limiter = make()
    async with limiter:
        assert limiter.statistics().granted == 1


@pytest.mark.parametrize("kind", [TokenBucket, GCRA])
@pytest.mark.parametrize("rate", [0, -1, math.inf, math.nan, "10", True])
def test_a_wrong_rate_is_refused(kind, rate):
    with pytest.raises(InvalidOption, match="rate="):
        kind(rate)


def test_a_burst_is_by_default_what_a_second_brings():
    assert TokenBucket(2.4).burst == 2
    assert TokenBucket(0.1).burst == 1
    assert GCRA(50).burst == 1


def test_a_bucket_shows_its_tokens():
    bucket = TokenBucket(10, burst=5)
    assert bucket.try_acquire(3)
    assert bucket.tokens == pytest.approx(2, abs=0.1)
    assert (bucket.rate, bucket.burst, SlidingWindowLimiter(3).limit, SlidingWindowLimiter(3).window) == (10, 5, 3, 1)


@every_limiter
def test_a_limiter_works_on_one_loop_after_another(make):
    limiter = make()

    async def leave_a_waiter_behind():
        await limiter.acquire()
        limiter.reserve(1, lambda: None)

    asyncio.run(leave_a_waiter_behind())
    asyncio.run(limiter.acquire())
    assert limiter.statistics().waiting == 0


@every_limiter
async def test_a_limiter_with_waiters_refuses_another_loop(make):
    limiter = make()
    await limiter.acquire()
    held = limiter.reserve(1, lambda: None)

    def elsewhere():
        other = asyncio.new_event_loop()
        try:
            return other.run_until_complete(limiter.acquire())
        finally:
            other.close()

    with pytest.raises(RuntimeError, match="another event loop"):
        await asyncio.to_thread(elsewhere)
    held.cancel()


async def test_a_reservation_counts_when_it_is_taken():
    limiter = TokenBucket(1, burst=1)
    reservation = limiter.reserve(1, lambda: None)
    assert reservation.is_granted
    assert not limiter.try_acquire()
    reservation.cancel()
    reservation.take()  # given back is given back
    assert limiter.statistics().granted == 0
    assert limiter.try_acquire()
