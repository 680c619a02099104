"""The two pools under the names people look for."""

from __future__ import annotations

import asyncio

import pytest

from ephemerals import EphemeralOptions, InvalidOption
from ephemerals.atoms import FixedWork, KeyedSequential, RetryPolicy
from ephemerals.testing import VirtualClock, assert_quiet


class Body:
    """Take ten seconds; note what ran, and how many at once, in all and of one key."""

    def __init__(self):
        self.done = []
        self.running = []
        self.most = self.most_of_a_key = 0

    async def __call__(self, item):
        self.running.append(str(item)[0])
        self.most = max(self.most, len(self.running))
        self.most_of_a_key = max(self.most_of_a_key, *map(self.running.count, self.running))
        await asyncio.sleep(10)
        self.running.remove(str(item)[0])
        self.done.append(item)


async def test_a_fixed_pool_runs_so_many_at_once_and_drains():
    body = Body()
    async with FixedWork(body, 3, max_tracked_operations=10) as pool:
        ids = {(await pool.enqueue(number)).id for number in range(10)}
        assert len(ids) == 10
        await asyncio.sleep(1)
        counts = pool.statistics()
        assert (counts.pending, counts.active) == (7, 3)
        assert len(pool.snapshot()) == 10
        await pool.drain()
        assert (pool.statistics().completed, len(pool.snapshot())) == (10, 10)
    assert (body.most, sorted(body.done)) == (3, list(range(10)))
    assert VirtualClock.current().monotonic() == 1040
    assert_quiet(pool)


async def test_by_default_a_pool_is_as_wide_as_there_are_processors():
    async with FixedWork(Body()) as pool:
        assert pool.max_concurrency == EphemeralOptions().max_concurrency
    async with KeyedSequential(str, Body(), options=EphemeralOptions(max_concurrency=7)) as pool:
        assert pool.max_concurrency == 7


async def test_leaving_a_pool_with_an_exception_cancels():
    with pytest.raises(ZeroDivisionError):
        async with FixedWork(Body(), 1) as pool:
            await pool.enqueue_many(range(3))
            raise ZeroDivisionError
    assert pool.total_cancelled == 3


async def test_keys_go_side_by_side_and_one_after_the_other_within():
    body = Body()
    async with KeyedSequential(lambda item: item[0], body, 4, retry=RetryPolicy()) as pool:
        await pool.enqueue_many(["a1", "a2", "b1", "a3", "b2", "c1"])
        await asyncio.sleep(1)
        assert pool.pending_count_for("a") == 2
    assert body.most == 3
    assert body.most_of_a_key == 1
    assert [item for item in body.done if item[0] == "a"] == ["a1", "a2", "a3"]
    assert_quiet(pool)


async def test_with_fair_scheduling_a_busy_key_does_not_hold_up_another():
    body = Body()
    async with KeyedSequential(lambda item: item[0], body, 2, fair_scheduling=True) as pool:
        await pool.enqueue_many([*[f"a{number}" for number in range(10)], "b0", "b1", "b2"])
    assert body.done.index("b0") < body.done.index("a9")


def test_a_sequential_pool_stays_sequential():
    with pytest.raises(InvalidOption, match="use a KeyedWorkCoordinator"):
        KeyedSequential(str, Body(), max_concurrency_per_key=2)
    for make in (lambda: FixedWork(Body(), 0), lambda: KeyedSequential(str, Body(), 0)):
        with pytest.raises(InvalidOption, match="concurrency=0"):
            make()
