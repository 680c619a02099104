"""map_each yields results while the work goes on, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import itertools

import pytest

from ephemerals import (
    InvalidOption,
    InvalidOptionType,
    OperationCancelled,
    OperationSkipped,
    OperationTimeout,
    map_each,
)
from ephemerals.testing import Payload, assert_forgotten, assert_quiet


class Source:
    """An async generator's worth of numbers, which remembers who read it, how far, and who closed it."""

    def __init__(self, count=10**9, *, error=None, close_error=None, waits=False):
        self.count = count
        self.error = error
        self.close_error = close_error
        self.waits = waits
        self.pulled = 0
        self.read_by = set()
        self.closed_by = []

    async def items(self):
        self.read_by.add(asyncio.current_task())
        try:
            while self.pulled < self.count:
                self.pulled += 1
                yield self.pulled
            if self.waits:
                await asyncio.Event().wait()
            if self.error is not None:
                raise self.error
        finally:
            self.closed_by.append(asyncio.current_task())
            if self.close_error is not None:
                raise self.close_error


class Sleeper:
    """Sleep as many seconds as the item says, then give it back tenfold; remember starts and cancellations."""

    def __init__(self):
        self.started = {}
        self.running = 0

    async def __call__(self, item):
        self.started[item] = asyncio.get_running_loop().time() - 1000
        self.running += 1
        try:
            await asyncio.sleep(item)
            return item * 10
        finally:
            self.running -= 1


async def at_once(item):
    return item


async def fails_at_two(item):
    await asyncio.sleep(item)
    if item == 2:
        raise ValueError(item)
    return item


async def read(mapped, into):
    """Read all results, in the block, into a list."""
    async with mapped as results:
        async for result in results:
            into.append(result)


class TestResults:
    async def test_they_come_as_bodies_complete(self):
        async with map_each([3, 1, 2], Sleeper(), max_concurrency=3) as results:
            assert [result async for result in results] == [10, 20, 30]
        assert_quiet()

    async def test_they_come_in_the_order_of_the_items_if_asked(self):
        async with map_each([3, 1, 2], Sleeper(), max_concurrency=3, ordered=True) as results:
            assert [result async for result in results] == [30, 10, 20]
        assert_quiet()

    async def test_each_comes_as_soon_as_it_is_there(self):
        loop = asyncio.get_running_loop()
        async with map_each([1, 5, 3], Sleeper(), max_concurrency=3, ordered=True) as results:
            times = [(result, loop.time() - 1000) async for result in results]
        assert times == [(10, 1), (50, 5), (30, 5)]

    @pytest.mark.parametrize("ordered", [False, True])
    async def test_any_iterable_will_do(self, ordered):
        for items in ([1, 2], iter([1, 2]), (each for each in [1, 2]), Source(2).items()):
            async with map_each(items, at_once, ordered=ordered) as results:
                assert sorted([result async for result in results]) == [1, 2]
        async with map_each([], at_once, ordered=ordered) as results:
            assert [result async for result in results] == []

    async def test_plain_functions_run_in_threads(self):
        async with map_each(range(5), lambda item: item * item, ordered=True, max_concurrency=2) as results:
            assert [result async for result in results] == [0, 1, 4, 9, 16]

    async def test_the_order_within_a_key_is_kept(self):
        body = Sleeper()
        async with map_each([5, 3, 4, 2], body, key=lambda item: item % 2, max_concurrency=4) as results:
            assert [result async for result in results] == [40, 50, 20, 30]
        assert body.started == {5: 0, 4: 0, 2: 4, 3: 5}

    async def test_a_result_may_be_none(self):
        async with map_each(range(3), asyncio.sleep, ordered=True) as results:
            assert [result async for result in results] == [None] * 3

    @pytest.mark.parametrize("ordered", [False, True])
    async def test_every_result_comes_once_however_many(self, ordered):
        async with map_each(Source(5000).items(), at_once, ordered=ordered, max_concurrency=7) as results:
            assert sorted([result async for result in results]) == list(range(1, 5001))

    @pytest.mark.real_loop("asyncio", "uvloop")
    async def test_it_runs_on_real_loops(self):
        async with map_each(range(1000), at_once, ordered=True, max_concurrency=8) as results:
            assert [result async for result in results] == list(range(1000))


class TestBounds:
    async def test_an_ordered_slow_first_item_does_not_keep_others_from_starting(self):
        """R52."""
        body = Sleeper()
        async with map_each([10, 6, 2, *[0] * 40], body, ordered=True, max_concurrency=4) as results:
            assert await anext(results) == 100
            assert body.started[0] == 0
            assert [result async for result in results] == [60, 20, *[0] * 40]

    @pytest.mark.parametrize("ordered", [False, True])
    async def test_no_more_is_pulled_than_may_be_outstanding(self, ordered):
        source = Source()
        async with map_each(source.items(), at_once, ordered=ordered, max_concurrency=2, max_pending=6) as results:
            await asyncio.sleep(1)
            assert source.pulled == 8
            await anext(results)
            await asyncio.sleep(1)
            assert source.pulled == 9

    @pytest.mark.parametrize(("concurrency", "most"), [(2, 2 + 64), (50, 50 + 100)])
    async def test_the_default_bound_is_larger_than_the_concurrency(self, concurrency, most):
        source = Source()
        async with map_each(source.items(), Sleeper(), max_concurrency=concurrency):
            await asyncio.sleep(0.5)
            assert source.pulled == most

    async def test_without_a_bound_everything_is_pulled(self):
        source = Source(500)
        async with map_each(source.items(), at_once, max_pending=None, max_concurrency=1) as results:
            await asyncio.sleep(1)
            assert source.pulled == 500
            assert len([result async for result in results]) == 500


class TestErrors:
    @pytest.mark.parametrize("ordered", [False, True])
    async def test_a_failure_is_raised_in_its_place_and_the_rest_is_cancelled(self, ordered):
        body_error = []
        results = []

        async def body(item):
            await asyncio.sleep(item)
            if item == 2:
                body_error.append(ValueError(item))
                raise body_error[0]
            return item

        with pytest.raises(ValueError, match="2") as caught:
            await read(map_each([1, 2, 60], body, ordered=ordered, max_concurrency=3), results)
        assert caught.value is body_error[0]
        assert "raised at" in caught.value.__notes__[0]
        assert results == [1]
        assert asyncio.get_running_loop().time() == 1002
        assert_quiet()

    async def test_who_catches_it_can_go_on(self):
        async with map_each([1, 2, 3], fails_at_two, ordered=True) as results:
            assert await anext(results) == 1
            with pytest.raises(ValueError, match="2"):
                await anext(results)
            assert await anext(results) == 3
            with pytest.raises(StopAsyncIteration):
                await anext(results)

    @pytest.mark.parametrize("ordered", [False, True])
    async def test_skipping_passes_over_whatever_did_not_complete(self, ordered):
        async def body(item):
            if item == 3:
                raise asyncio.CancelledError
            return await fails_at_two(item)

        async with map_each([1, 2, 3, 4], body, ordered=ordered, errors="skip") as results:
            assert [result async for result in results] == [1, 4]

    async def test_a_cancelled_operation_does_not_cancel_the_reader(self):
        """R41."""

        async def body(item):
            raise asyncio.CancelledError

        async with map_each([1], body) as results:
            with pytest.raises(OperationCancelled):
                await anext(results)

    async def test_a_skipped_item_is_told_apart(self):
        async def body(item, operation):
            operation.emit("rate.limited")
            return item

        options = {"max_concurrency": 1, "cancel_on_signals": "rate.*"}
        async with map_each([1, 2, 3], body, **options) as results:
            assert await anext(results) == 1
            with pytest.raises(OperationSkipped):
                await anext(results)
        async with map_each([1, 2, 3], body, errors="skip", **options) as results:
            assert [result async for result in results] == [1]

    async def test_running_out_of_time_is_told_from_an_error_of_the_body(self):
        """R43."""

        async def body(item):
            if item:
                raise TimeoutError
            await asyncio.sleep(60)

        async with map_each([1, 0], body, operation_timeout=5, ordered=True) as results:
            with pytest.raises(TimeoutError) as own:
                await anext(results)
            assert type(own.value) is TimeoutError
            with pytest.raises(OperationTimeout):
                await anext(results)

    @pytest.mark.parametrize("ordered", [False, True])
    async def test_when_the_source_fails_the_results_of_accepted_items_come_first(self, ordered):
        """R42."""
        source = Source(3, error=LookupError("no more"))
        results = []
        with pytest.raises(LookupError) as caught:
            await read(map_each(source.items(), Sleeper(), max_concurrency=1, ordered=ordered), results)
        assert caught.value is source.error
        assert results == [10, 20, 30]

    async def test_after_the_error_of_the_source_there_is_nothing(self):
        async with map_each(Source(0, error=LookupError()).items(), at_once) as results:
            with pytest.raises(LookupError):
                await anext(results)
            with pytest.raises(StopAsyncIteration):
                await anext(results)

    async def test_an_error_in_closing_an_exhausted_source_is_its_error(self):
        with pytest.raises(OSError, match="close"):
            async with map_each(Source(1, close_error=OSError("close")).items(), at_once) as results:
                assert [result async for result in results] == [1]

    async def test_a_key_that_cannot_be_told_ends_it_like_an_error_of_the_source(self):
        async with map_each([2, 0, 1], at_once, key=lambda item: 1 / item) as results:
            assert await anext(results) == 2
            with pytest.raises(ZeroDivisionError):
                await anext(results)


class TestLeaving:
    @pytest.mark.parametrize("ordered", [False, True])
    @pytest.mark.parametrize("waits", [False, True])
    async def test_leaving_early_cancels_what_runs_and_closes_the_source_where_it_is_read(self, ordered, waits):
        """R42."""
        body, source = Sleeper(), Source(3 if waits else 10**9, waits=waits)
        async with map_each(source.items(), body, ordered=ordered, max_concurrency=3, max_pending=2) as results:
            async for _ in results:
                break
            assert body.running > 0
        assert body.running == 0
        assert source.closed_by == list(source.read_by)
        assert source.closed_by != [asyncio.current_task()]
        assert_quiet()

    async def test_leaving_with_an_exception_does_so_too_and_raises_that(self, caplog):
        body, source = Sleeper(), Source(close_error=OSError("close"))

        async def leave():
            async with map_each(source.items(), body):
                await asyncio.sleep(0.5)
                raise KeyError

        with pytest.raises(KeyError):
            await leave()
        assert "raised OSError" in caplog.text
        assert body.running == 0
        assert_quiet()

    async def test_a_cancelled_reader_does_so_too(self):
        body, source = Sleeper(), Source()

        task = asyncio.create_task(read(map_each(source.items(), body), []))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert body.running == 0
        assert len(source.closed_by) == 1
        assert_quiet()

    async def test_an_error_in_closing_the_source_is_raised_on_leaving_early(self):
        source = Source(close_error=OSError("close"))
        with pytest.raises(OSError, match="close"):
            async with map_each(source.items(), at_once) as results:
                await anext(results)
        assert_quiet()

    async def test_an_error_of_the_source_that_the_reader_did_not_get_to_is_logged(self, caplog):
        async with map_each(Source(2, error=LookupError()).items(), at_once, name="convert") as results:
            await anext(results)
            await asyncio.sleep(1)
        assert "the source of coordinator convert raised LookupError" in caplog.text

    async def test_a_body_that_does_not_end_cannot_hold_it_for_ever(self):
        """R3."""
        release = asyncio.Event()

        async def stubborn(item):
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        async with map_each([1], stubborn):
            await asyncio.sleep(1)
        assert asyncio.get_running_loop().time() == 1006
        release.set()
        await asyncio.sleep(1)
        assert_quiet()

    async def test_being_cancelled_while_leaving_waits_for_the_bodies_and_is_raised(self):
        ended = []

        async def body(item):
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(2)
                ended.append(item)

        async def read():
            async with map_each([1], body):
                await asyncio.sleep(1)

        task = asyncio.create_task(read())
        await asyncio.sleep(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [1]
        assert_quiet()

    async def test_outside_the_block_there_is_nothing_to_iterate(self):
        results = map_each([1], at_once)
        with pytest.raises(RuntimeError, match="async with"):
            await anext(results)
        async with results:
            pass
        with pytest.raises(RuntimeError, match="left"):
            await anext(results)
        with pytest.raises(RuntimeError, match="call map_each\\(\\) again"):
            await results.__aenter__()

    async def test_a_reader_in_another_task_is_sent_away_on_leaving(self):
        release = asyncio.Event()

        async def stubborn(item):
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        async with map_each([1], stubborn) as results:
            reader = asyncio.create_task(anext(results, "end"))
            await asyncio.sleep(1)
            with pytest.raises(RuntimeError, match="one reader"):
                await anext(results)
        assert await reader == "end"
        release.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert_quiet()


class TestArguments:
    @pytest.mark.parametrize("wrong", [{"errors": "collect"}, {"max_concurrency": 0}, {"overflow": "reject"}])
    async def test_a_wrong_option_is_named_at_the_call(self, wrong):
        with pytest.raises(InvalidOption, match=next(iter(wrong))):
            map_each([1], at_once, **wrong)

    def test_calling_it_needs_no_loop(self):
        with pytest.raises(InvalidOptionType, match="items"):
            map_each(None, at_once)
        map_each(itertools.count(), at_once)
        gc.collect()


class TestPrivacy:
    @pytest.mark.parametrize("ordered", [False, True])
    @pytest.mark.parametrize("fails", [False, True])
    async def test_an_item_is_forgotten_once_its_body_has_ended(self, ordered, fails):
        async def body(item):
            await asyncio.sleep(1 if isinstance(item, Payload) else 60)
            if fails:
                raise ValueError

        blocks = []

        async def use(item):
            results = map_each(iter([item, 1]), body, ordered=ordered, max_concurrency=2)
            del item
            blocks.append(await results.__aenter__())
            await asyncio.sleep(2)

        await assert_forgotten(use)
        with pytest.raises(ValueError) if fails else pytest.raises(StopAsyncIteration):
            while True:
                assert await anext(blocks[0]) is None
        await blocks[0].__aexit__(None, None, None)

    @pytest.mark.parametrize("fails", [False, True])
    async def test_an_item_of_a_thread_is_forgotten(self, fails):
        def body(item):
            if fails:
                raise ValueError

        async def use(item):
            async with map_each(iter([item]), body) as results:
                del item
                try:
                    return [result async for result in results]
                except ValueError as error:
                    return error

        await assert_forgotten(use, within=1)

    async def test_items_and_results_that_were_not_taken_are_forgotten_on_leaving(self):
        async def use(item):
            results = map_each(iter([item, item, item]), at_once, max_concurrency=1)
            del item
            async with results:
                await asyncio.sleep(1)
            return results

        await assert_forgotten(use)

    async def test_the_last_item_that_was_pulled_is_forgotten_while_no_other_may_be(self):
        async def body(item):
            pass

        def each_of(items):
            while items:
                yield items.pop()

        blocks = []

        async def use(item):
            results = map_each(each_of([3, item, 1]), body, max_concurrency=1, max_pending=1)
            del item
            blocks.append(await results.__aenter__())
            await asyncio.sleep(1)

        await assert_forgotten(use)
        await blocks[0].__aexit__(None, None, None)

    async def test_a_result_that_was_taken_is_not_kept(self):
        async def use(item):
            results = map_each(iter([item, 1]), at_once, max_concurrency=1)
            del item
            await results.__aenter__()
            await anext(results)
            kept.append(results)

        kept = []
        await assert_forgotten(use)
        await kept[0].__aexit__(None, None, None)


async def test_after_the_block_nothing_can_be_iterated():
    async def double(number):
        return number * 2

    async with map_each([1, 2, 3], double) as results:
        assert await anext(results) == 2
    for _ in range(2):
        with pytest.raises(RuntimeError, match="block of these results has been left"):
            await anext(results)
