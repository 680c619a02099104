"""A rate that follows what the upstream can take."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from types import SimpleNamespace

import pytest

from ephemerals import InvalidOption
from ephemerals.atoms import GCRA, AdaptiveRate, RetryAfter, is_throttled, retry_after_of
from ephemerals.signals import SignalSink
from ephemerals.testing import VirtualClock, assert_quiet


class HTTPError(Exception):
    def __init__(self, status=429, **headers):
        super().__init__(status)
        self.response = SimpleNamespace(
            status_code=status, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (RetryAfter(2.5), 2.5),
        (RetryAfter(timedelta(minutes=1)), 60),
        (HTTPError(retry_after="7"), 7),
        (HTTPError(503, Retry_After="0.5"), 0.5),
        (HTTPError(retry_after="soon"), None),
        (HTTPError(retry_after="-3"), None),
        (HTTPError(retry_after="inf"), None),
        (HTTPError(), None),
        (ValueError("no"), None),
    ],
)
def test_what_an_exception_says_about_trying_again(error, seconds):
    assert retry_after_of(error) == seconds


async def test_a_date_is_counted_from_the_clock(ephemeral_clock):
    error = HTTPError(retry_after="Thu, 01 Jan 2026 00:00:30 GMT")
    assert retry_after_of(error, ephemeral_clock) == 30
    await asyncio.sleep(60)
    assert retry_after_of(error, ephemeral_clock) == 0


def test_what_counts_as_a_complaint():
    assert is_throttled(HTTPError(429))
    assert is_throttled(RetryAfter(1))
    assert is_throttled(HTTPError(503, retry_after="1"))
    assert not is_throttled(HTTPError(503))
    assert not is_throttled(TimeoutError())


async def test_a_complaint_pauses_all_and_halves_the_rate(ephemeral_clock):
    sink = SignalSink()
    rate = AdaptiveRate(100, signals=sink, name="api")
    with pytest.raises(RetryAfter):
        async with rate:
            raise RetryAfter(3)
    assert rate.rate == pytest.approx(50)
    await asyncio.gather(*(rate.acquire() for _ in range(2)))
    assert ephemeral_clock.monotonic() == pytest.approx(1003.02)
    (event,) = sink.events("rate.cut")
    assert event.key == "api"
    assert event.data == {"rate": pytest.approx(50), "pause": 3}
    assert_quiet(rate)


async def test_many_complaints_at_once_cut_once():
    rate = AdaptiveRate(100)
    for _ in range(10):
        rate.observe(HTTPError(retry_after="1"))
    assert rate.rate == pytest.approx(50)
    await asyncio.sleep(1)
    rate.observe(HTTPError(retry_after="1"))
    assert rate.rate == pytest.approx(25)


async def test_a_failure_that_is_no_complaint_teaches_nothing():
    rate = AdaptiveRate(100)
    rate.observe(ValueError())
    rate.observe(asyncio.CancelledError())
    assert rate.rate == pytest.approx(100)
    assert not rate.statistics().is_paused


async def test_the_rate_stays_within_its_bounds():
    rate = AdaptiveRate(10, minimum=4, maximum=11)
    for _ in range(5):
        rate.observe(HTTPError())
        await asyncio.sleep(1)
    assert rate.rate == pytest.approx(4)
    for _ in range(1000):
        rate.observe(None)
    assert rate.rate == pytest.approx(11)


def test_wrong_bounds_are_refused():
    with pytest.raises(InvalidOption, match="cut="):
        AdaptiveRate(10, cut=1)
    with pytest.raises(InvalidOption, match="rate="):
        AdaptiveRate(10, maximum=5)


async def test_it_settles_near_what_the_upstream_can_take_also_when_that_changes():
    upstream = SimpleNamespace(limiter=GCRA(200, burst=20), accepted=0, refused=0)
    rate = AdaptiveRate(50, step=2)

    def answer():
        if not upstream.limiter.try_acquire():
            upstream.refused += 1
            raise RetryAfter(0.1)
        upstream.accepted += 1

    async def call():
        with contextlib.suppress(RetryAfter):
            async with rate:
                answer()

    async def throughput(seconds):
        before, until = upstream.accepted, VirtualClock.current().monotonic() + seconds
        while VirtualClock.current().monotonic() < until:
            await call()
        return (upstream.accepted - before) / seconds

    await throughput(120)
    upstream.refused = 0
    assert await throughput(60) == pytest.approx(200, rel=0.1)
    assert upstream.refused < 60  # of some 12,000
    upstream.limiter.set_rate(40)
    await throughput(60)
    assert await throughput(60) == pytest.approx(40, rel=0.1)
    upstream.limiter.set_rate(120)
    await throughput(60)
    assert await throughput(60) == pytest.approx(120, rel=0.1)
