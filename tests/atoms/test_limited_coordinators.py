"""A limiter as an option of every coordinator."""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinators import assert_adds_up, every_coordinator

from ephemerals import (
    Background,
    CoordinatorRegistry,
    KeyedWorkCoordinator,
    Lane,
    PriorityWorkCoordinator,
    WorkCoordinator,
    for_each,
    map_each,
)
from ephemerals.atoms import GCRA, AdaptiveRate, RetryAfter, RetryPolicy, SlidingWindowLimiter, TokenBucket
from ephemerals.signals import SignalSink
from ephemerals.testing import VirtualClock, assert_quiet


def now():
    return VirtualClock.current().monotonic() - 1000


def noting(starts):
    async def body(item):
        starts.append((item, now()))

    return body


@every_coordinator
async def test_every_coordinator_starts_no_faster_than_its_limiter_allows(make):
    starts = []
    limiter = SlidingWindowLimiter(2, window=10)
    async with make(noting(starts), limiter=limiter, max_concurrency=8) as coordinator:
        for item in "abcde":
            await coordinator.enqueue(item)
        await asyncio.sleep(1)
        assert_adds_up(coordinator)
        assert (coordinator.active_count, coordinator.pending_count) == (0, 3)
    assert sorted(starts) == [("a", 0), ("b", 0), ("c", 10), ("d", 10), ("e", 20)]
    assert_quiet(coordinator, limiter)


async def test_a_one_shot_run_is_limited():
    starts = []
    await for_each(range(4), noting(starts), limiter=GCRA(1), max_concurrency=4)
    assert [when for _, when in starts] == pytest.approx([0, 1, 2, 3])


@pytest.mark.parametrize("ordered", [False, True])
async def test_mapping_is_limited(ordered):
    starts = []
    async with map_each(range(4), noting(starts), limiter=GCRA(1), max_concurrency=4, ordered=ordered) as results:
        assert [each async for each in results] == [None] * 4
    assert [when for _, when in starts] == pytest.approx([0, 1, 2, 3])


async def test_functions_in_the_background_are_limited():
    starts, limiter = [], GCRA(1)
    async with Background(limiter=limiter, max_concurrency=4) as background:
        for item in range(4):
            background.add_task(noting(starts), item)
    assert starts == [(item, pytest.approx(item)) for item in range(4)]
    assert_quiet(background, limiter)


@pytest.mark.parametrize("kind", ["register", "register_keyed", "register_result", "register_priority"])
async def test_a_coordinator_of_a_registry_is_limited_and_retries(kind):
    starts, registry = [], CoordinatorRegistry()
    note = noting(starts)

    async def body(item, operation):
        await note(item)
        if operation.attempt < 2:
            raise OSError

    arguments = ("work", id) if kind == "register_keyed" else ("work",)
    limiter, policy = GCRA(1), RetryPolicy(initial=0.1, jitter=False)
    getattr(registry, kind)(*arguments, body, limiter=limiter, retry=policy, max_concurrency=4)
    async with registry:
        operations = [await registry["work"].enqueue(item) for item in "ab"]
        await asyncio.gather(*operations)
        assert [each.attempt for each in operations] == [2, 2]
    assert [when for _, when in starts] == pytest.approx([0, 1, 2, 3])
    assert_quiet(limiter)


async def test_coordinators_that_share_a_limiter_take_turns():
    starts, limiter = [], GCRA(1)
    first = WorkCoordinator(noting(starts), limiter=limiter)
    second = WorkCoordinator(noting(starts), limiter=limiter)
    async with first, second:
        await first.enqueue_many(["a1", "a2", "a3"])
        await second.enqueue_many(["b1", "b2", "b3"])
        await asyncio.sleep(0.5)
        direct = asyncio.create_task(limiter.acquire())  # and so does somebody else
    await direct
    assert [item for item, _ in starts] == ["a1", "a2", "b1", "a3", "b2", "b3"]
    assert [when for _, when in starts] == pytest.approx([0, 1, 2, 4, 5, 6])
    assert_quiet(first, second, limiter)


async def test_who_is_next_is_chosen_when_there_is_a_permit():
    starts = []
    lanes = [Lane("hot"), Lane("cold")]
    async with PriorityWorkCoordinator(noting(starts), lanes=lanes, limiter=GCRA(1), max_concurrency=8) as coordinator:
        for item in range(3):
            await coordinator.enqueue(item, lane="cold")
        await asyncio.sleep(0.5)
        await coordinator.enqueue("urgent", lane="hot")
    assert [item for item, _ in starts] == [0, "urgent", 1, 2]


async def test_a_permit_that_nothing_can_use_is_given_back():
    limiter = GCRA(1, burst=3)

    async def body(item):
        await asyncio.sleep(10)

    async with KeyedWorkCoordinator(lambda item: "k", body, limiter=limiter, max_concurrency=8) as coordinator:
        await coordinator.enqueue_many(range(2))  # the second waits for its key
        await asyncio.sleep(0)
        assert limiter.statistics().granted == 1
        assert limiter.try_acquire(2)
    assert_quiet(coordinator, limiter)


async def test_a_pause_starts_nothing_though_a_permit_comes():
    starts, limiter = [], GCRA(1)
    async with WorkCoordinator(noting(starts), limiter=limiter) as coordinator:
        await coordinator.enqueue_many(["a", "b"])
        await asyncio.sleep(0.5)
        coordinator.pause()
        await asyncio.sleep(10)
        assert [item for item, _ in starts] == ["a"]
        assert limiter.try_acquire()  # it is not kept
        coordinator.resume()
    assert [item for item, _ in starts] == ["a", "b"]
    assert_quiet(coordinator, limiter)


async def test_cancelling_what_waits_leaves_no_place_in_the_line():
    starts, limiter = [], GCRA(0.01)
    async with WorkCoordinator(noting(starts), limiter=limiter) as coordinator:
        await coordinator.enqueue("a")
        second = await coordinator.enqueue("b")
        await asyncio.sleep(1)
        assert limiter.statistics().waiting == 1
        second.cancel()
        assert limiter.statistics().waiting == 0
    assert now() == 1
    assert_quiet(coordinator, limiter)


async def test_closing_ends_the_wait_when_the_grace_is_over():
    limiter = GCRA(0.01)
    coordinator = WorkCoordinator(noting([]), limiter=limiter)
    await coordinator.enqueue_many("abc")
    report = await coordinator.aclose(grace=5)
    assert (report.completed, report.cancelled, now()) == (1, 2, 5)
    assert_quiet(coordinator, limiter)


async def test_what_is_skipped_costs_no_permit():
    starts, limiter, sink = [], GCRA(1, burst=2), SignalSink()
    async with WorkCoordinator(noting(starts), limiter=limiter, signals=sink, cancel_on_signals="stop") as coordinator:
        with sink.hold("stop"):
            await coordinator.enqueue_many("abcd")
            await coordinator.join()
        assert limiter.statistics().granted == 0
        await coordinator.enqueue_many("ef")
    assert [when for _, when in starts] == [0, 0]


async def test_each_attempt_takes_a_permit():
    starts = []

    async def body(item, operation):
        starts.append(now())
        if operation.attempt < 3:
            raise OSError

    policy = RetryPolicy(initial=0.1, jitter=False)
    async with WorkCoordinator(body, limiter=GCRA(1), retry=policy) as coordinator:
        await coordinator.run("x")
    assert starts == pytest.approx([0, 1, 2])


async def test_an_adaptive_rate_learns_from_every_attempt_and_nothing_is_lost():
    rate, upstream, done = AdaptiveRate(100), TokenBucket(20, burst=5), []

    async def body(item):
        if not upstream.try_acquire():
            raise RetryAfter(0.2)
        done.append(item)

    policy = RetryPolicy(attempts=None, retry_on=RetryAfter, random=lambda: 0.5)
    async with WorkCoordinator(body, limiter=rate, retry=policy, max_concurrency=8) as coordinator:
        await coordinator.enqueue_many(range(400))
    assert sorted(done) == list(range(400))
    assert 10 <= rate.rate <= 30
    assert now() < 400 / 20 * 1.5
    assert_quiet(coordinator, rate)


async def test_an_observer_that_fails_breaks_nothing():
    class Broken(GCRA):
        def observe(self, error):
            raise ZeroDivisionError

    async with WorkCoordinator(noting([]), limiter=Broken(10)) as coordinator:
        await coordinator.run("x")
        assert coordinator.statistics().hook_errors == 1


async def test_ten_thousand_items_cost_the_limiter_one_waiter():
    limiter = GCRA(1)
    async with WorkCoordinator(noting([]), limiter=limiter, max_pending=None) as coordinator:
        await coordinator.enqueue_many(range(10_000))
        await asyncio.sleep(0)
        assert limiter.statistics().waiting == 1
        await coordinator.cancel()
    assert_quiet(coordinator, limiter)
