"""The pipeline: what flows through arrives once, no stage runs far ahead, and nothing is left behind."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals import EphemeralsError, InvalidBody, InvalidOption
from ephemerals.atoms import RetryPolicy
from ephemerals.patterns import Pipeline
from ephemerals.testing import VirtualClock, assert_forgotten, assert_quiet, run


def now():
    return VirtualClock.current().monotonic() - 1000


class Source:
    """Be read one by one; note how far, and whether it was closed."""

    def __init__(self, count, pause=0.0):
        self.count = count
        self.pause = pause
        self.read = 0
        self.is_closed = False

    async def __aiter__(self):
        try:
            for number in range(self.count):
                await asyncio.sleep(self.pause)
                self.read += 1
                yield number
        finally:
            self.is_closed = True


class Work:
    """Take some seconds for an item; count what runs; note what began when; fail on some items."""

    def __init__(self, seconds=0.0, *, bad=()):
        self.seconds = seconds
        self.bad = bad
        self.began, self.ended = [], []
        self.running = self.most = 0

    async def __call__(self, item):
        self.began.append(item)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running -= 1
        self.ended.append(item)
        if item in self.bad:
            raise OSError("no")
        return item


async def test_items_go_through_the_stages_and_each_stage_has_its_own_concurrency():
    source, fetch, store = Source(40), Work(1), Work(3)
    pipeline = Pipeline(source).stage(fetch, 6).stage(store, 2)
    async with pipeline as results:
        assert sorted([number async for number in results]) == list(range(40))
    assert (fetch.most, store.most) == (6, 2)
    assert now() == 1 + 40 / 2 * 3
    assert [each.completed for each in pipeline.statistics()] == [40, 40]
    assert source.is_closed
    assert_quiet(pipeline)


async def test_a_slow_reader_holds_up_every_stage_and_the_source():
    source, first, second = Source(1000), Work(), Work()
    pipeline = Pipeline(source).stage(first, 2, max_pending=3).stage(second, 1, max_pending=4)
    async with pipeline as results:
        taken = 0
        async for _ in results:
            taken += 1
            await asyncio.sleep(10)
            assert source.read - taken <= (2 + 3) + (1 + 4)
            assert len(second.began) - taken <= 1 + 4
            if taken == 20:
                break
    assert source.is_closed
    assert source.read <= 30
    assert_quiet(pipeline)


async def test_a_slow_stage_holds_up_the_source():
    source, slow = Source(1000), Work(100)
    pipeline = Pipeline(source).stage(Work(), 2, max_pending=3).stage(slow, 1, max_pending=4)
    async with pipeline:
        await asyncio.sleep(150)
        assert source.read <= 1 + (2 + 3) + (1 + 4)
        assert source.read >= 10
    assert_quiet(pipeline)


async def test_the_end_travels_downstream():
    """RFO-1: a stage is not closed before all that come before it have handed on what they had."""
    first, second, third = Work(5), Work(7), Work(11)
    pipeline = Pipeline(range(9)).stage(first, 3).stage(second, 1).stage(third, 2)
    async with pipeline as results:
        reader = asyncio.create_task(anext(results))
        closed = {}
        while len(closed) < 3:
            await asyncio.sleep(1)
            for number, each in enumerate(pipeline.statistics()):
                if each.is_closed and each.pending == each.active == 0:
                    closed.setdefault(number, now())
            if reader.done():
                reader = asyncio.create_task(anext(results, None))
        assert closed[0] < closed[1] < closed[2]
        await reader
    assert len(third.ended) == 9


async def test_draining_reads_no_more_and_loses_nothing():
    source, first, last = Source(1000, pause=1), Work(7), Work(3)
    pipeline = Pipeline(source).stage(first, 3).stage(last, 2)
    async with pipeline as results:
        taken = [await anext(results), await anext(results)]
        read = source.read
        rest = await pipeline.drain()
        assert source.read == read
        assert source.is_closed
        assert sorted(taken + rest) == list(range(read))
        assert await pipeline.drain() == []
    assert [each.cancelled for each in pipeline.statistics()] == [0, 0]
    assert_quiet(pipeline)


async def test_leaving_early_leaves_nothing_running():
    source, first, last = Source(1000), Work(7), Work(3)
    pipeline = Pipeline(source).stage(first, 3).stage(last, 2)
    async with pipeline as results:
        async for _ in results:
            break
        assert first.running + last.running > 0
    assert (first.running, last.running, source.is_closed) == (0, 0, True)
    assert_quiet(pipeline)
    assert len(asyncio.all_tasks()) == 1


async def test_a_cancelled_reader_leaves_nothing_running():
    source, first, last = Source(1000), Work(7), Work(3)
    pipeline = Pipeline(source).stage(first, 3).stage(last, 2)
    reading = asyncio.create_task(pipeline.run())
    await asyncio.sleep(20)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert (first.running, last.running, source.is_closed) == (0, 0, True)
    assert_quiet(pipeline)


async def test_the_first_failure_ends_it_after_what_was_past_it():
    source, first, last = Source(1000), Work(1, bad=[5]), Work(3)
    pipeline = Pipeline(source).stage(first, 2, ordered=True).stage(last, 1, ordered=True)
    seen = []
    async with pipeline as results:
        with pytest.raises(OSError, match="no"):
            async for number in results:
                seen += [number]
        assert seen == [0, 1, 2, 3, 4]
        assert first.running == 0
        assert source.is_closed
        assert await anext(results, "over") == "over"
    assert 5 not in last.began
    assert first.began[-1] < 20
    assert_quiet(pipeline)


async def test_the_source_is_not_read_on_once_a_stage_has_failed():
    source, slow = Source(10**6, pause=1), Work(1000)
    pipeline = Pipeline(source).stage(Work(bad=[3]), 1).stage(slow, 1)
    async with pipeline as results:
        with pytest.raises(OSError, match="no"):
            async for _ in results:
                pass
    assert source.read <= 5


async def test_what_is_skipped_is_counted_and_holds_up_nobody():
    first, last = Work(1, bad=[2, 3, 7]), Work(1, bad=[4])
    pipeline = Pipeline(range(10)).stage(first, 2, errors="skip").stage(last, 2, errors="skip")
    async with pipeline as results:
        assert sorted([number async for number in results]) == [0, 1, 5, 6, 8, 9]
    assert [each.failed for each in pipeline.statistics()] == [3, 1]
    assert_quiet(pipeline)


async def test_an_error_of_the_source_comes_after_what_it_gave():
    def source():
        yield from range(3)
        raise KeyError("gone")

    pipeline = Pipeline(source()).stage(Work(1), 1, ordered=True).stage(Work(1), 1, ordered=True)
    seen = []
    with pytest.raises(KeyError):
        async with pipeline as results:
            async for number in results:
                seen += [number]
    assert seen == [0, 1, 2]
    assert_quiet(pipeline)


async def test_a_stage_takes_every_option_of_a_coordinator():
    attempts = []

    async def flaky(number):
        attempts.append(number)
        if attempts.count(number) == 1:
            raise OSError
        return number

    pipeline = Pipeline(range(3)).stage(flaky, 1, ordered=True, retry=RetryPolicy(initial=1), name="flaky")
    (counts,) = await pipeline.run()
    assert (counts.name, counts.completed, counts.retries) == ("flaky", 3, 3)
    assert_quiet(pipeline)


async def test_plain_functions_run_in_threads():
    pipeline = Pipeline(["a", "bb"]).stage(len, 2, ordered=True).stage(lambda number: number * 2, ordered=True)
    async with pipeline as results:
        assert [number async for number in results] == [2, 4]
    assert_quiet(pipeline)


async def test_one_pipeline_may_be_built_on_in_two_ways_but_used_once():
    base = Pipeline([1, 2]).stage(Work())
    longer = base.stage(Work())
    assert [each.completed for each in await longer.run()] == [2, 2]
    assert [each.completed for each in await base.run()] == [2]
    with pytest.raises(EphemeralsError, match="build a new one"):
        await base.run()


async def test_wrong_uses_are_told_at_once():
    with pytest.raises(InvalidOption, match="concurrency"):
        Pipeline([]).stage(Work(), 0)
    with pytest.raises(InvalidOption, match="overflow"):
        Pipeline([]).stage(Work(), overflow="reject")
    with pytest.raises(InvalidOption, match="errors"):
        Pipeline([]).stage(Work(), errors="ignore")
    with pytest.raises(InvalidBody):
        Pipeline([]).stage(asyncio.sleep(0))
    with pytest.raises(EphemeralsError, match="needs a stage"):
        await Pipeline([]).run()
    with pytest.raises(EphemeralsError, match="in a block"):
        await anext(Pipeline([]).stage(Work()))
    with pytest.raises(InvalidOption, match="items"):
        await Pipeline(3).stage(Work()).run()
    idle = Pipeline([]).stage(Work())
    idle.stop()
    assert idle.statistics() == ()


class Random(Work):
    def __init__(self, seconds, bad):
        super().__init__(bad=bad)
        self.each = seconds

    async def __call__(self, item):
        self.seconds = self.each[item % len(self.each)]
        return await super().__call__(item)


durations = st.lists(st.floats(0, 3), min_size=1, max_size=7)
stages = st.lists(
    st.tuples(durations, st.integers(1, 4), st.integers(1, 4), st.booleans(), st.sets(st.integers(0, 40), max_size=3)),
    min_size=1,
    max_size=4,
)


@given(
    st.integers(0, 40),
    st.sampled_from([0, 0.5]),
    stages,
    durations,
    st.none() | st.integers(0, 40),
    st.none() | st.integers(0, 40),
)
def test_whatever_the_schedule_every_item_arrives_once_and_no_stage_runs_far_ahead(  # noqa: PLR0917 - hypothesis
    count, pause, plan, reading, leaves_after, drains_after
):
    works = [Random(seconds, bad) for seconds, *_, bad in plan]
    room = sum(limit + pending for _, limit, pending, *_ in plan)

    async def main():
        source = Source(count, pause)
        pipeline = Pipeline(source)
        for work, (_, limit, pending, ordered, _) in zip(works, plan, strict=True):
            pipeline = pipeline.stage(work, limit, max_pending=pending, ordered=ordered, errors="skip")
        taken = []
        async with pipeline as results:
            async for number in results:
                taken.append(number)
                failed = sum(each.failed for each in pipeline.statistics())
                assert source.read - len(taken) - failed <= room
                await asyncio.sleep(reading[number % len(reading)])
                if len(taken) == leaves_after:
                    break
                if len(taken) == drains_after:
                    taken += await pipeline.drain()
                    break
        assert all(work.running == 0 for work in works)
        assert_quiet(pipeline)
        assert len(asyncio.all_tasks()) == 1
        return source.read, taken, len(taken) != leaves_after

    read, taken, is_whole = run(main())
    assert all(work.most <= limit for work, (_, limit, *_) in zip(works, plan, strict=True))
    good = [number for number in range(read) if not any(number in bad for *_, bad in plan)]
    assert len(set(taken)) == len(taken)
    assert set(taken) <= set(good)
    if is_whole:
        assert sorted(taken) == good
        if all(ordered for *_, ordered, _ in plan):
            assert taken == good


@pytest.mark.parametrize("end", ["success", "failure", "skip", "leave", "drain"])
async def test_nothing_that_passes_through_is_kept(end):
    async def first(item):
        await asyncio.sleep(1)
        if end in {"failure", "skip"}:
            raise OSError(item.secret)
        return item

    async def last(item):
        await asyncio.sleep(1)
        return item

    async def use(item):
        pipeline = Pipeline(iter([item])).stage(first, errors="skip" if end == "skip" else "raise").stage(last)
        del item
        if end == "failure":
            with pytest.raises(OSError):
                await pipeline.run()
        elif end in {"success", "skip"}:
            await pipeline.run()
        else:
            async with pipeline:
                await asyncio.sleep(1.5)
                if end == "drain":
                    await pipeline.drain()
        assert_quiet(pipeline)
        return pipeline, pipeline.statistics()

    await assert_forgotten(use)
