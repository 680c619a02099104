"""Results: kept in the window for a while, and streamed as they come."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from ephemerals import InvalidOption, ResultCoordinator
from ephemerals.testing import Payload, VirtualClock, assert_quiet


async def double(item):
    await asyncio.sleep(item)
    if item == 13:
        raise ValueError(item)
    return item * 2


async def settle():
    await VirtualClock.current().settle()


class TestKept:
    async def test_a_result_is_kept(self):  # reference test 27
        async def body(item):
            await asyncio.sleep(0.01)
            return f"Result:{item}"

        async with ResultCoordinator(body) as coordinator:
            await coordinator.enqueue(42)
            await coordinator.drain()
            assert coordinator.results() == ["Result:42"]

    async def test_results_come_in_completion_order(self):  # reference test 28
        async with ResultCoordinator(double, max_concurrency=4) as coordinator:
            await coordinator.enqueue_many([3, 1, 2])
            await coordinator.drain()
            assert coordinator.results() == [2, 4, 6]

    async def test_successes_and_failures_are_told_apart(self):  # reference test 29, fault R2
        async with ResultCoordinator(double, max_concurrency=4) as coordinator:
            operations = [await coordinator.enqueue(each) for each in (1, 13, 3, 4)]
            operations[3].cancel()
            await coordinator.join()
            assert [each.result for each in coordinator.successful()] == [2, 6]
            assert [each.id for each in coordinator.failed()] == [operations[1].id]
            assert coordinator.results() == [2, 6]
            assert [each.has_result for each in coordinator.snapshot()].count(True) == 2
            assert not coordinator.cancelled()[0].has_result

    async def test_as_many_as_the_window_holds(self):  # reference test 30, fault R1
        async def body(item):
            return item * 2

        async with ResultCoordinator(body, max_tracked_operations=64, max_concurrency=16) as coordinator:
            operations = [await coordinator.enqueue(each) for each in range(1000)]
            await coordinator.join()
            assert len(coordinator.results()) == 64
            assert all(each % 2 == 0 for each in coordinator.results())
            assert [await each for each in operations] == [each * 2 for each in range(1000)]

    async def test_the_base_snapshot_is_the_snapshot_without_results(self):
        async with ResultCoordinator(double) as coordinator:
            await coordinator.run(1)
            assert [each.has_result for each in coordinator.snapshot()] == [True]
            (base,) = coordinator.base_snapshot()
            assert not base.has_result
            assert base.result is None
            assert base.id == coordinator.snapshot()[0].id

    async def test_a_result_leaves_with_its_snapshot(self):
        async def body(_item):
            return Payload()

        async with ResultCoordinator(body, max_operation_lifetime=5) as coordinator:
            reference = weakref.ref(await coordinator.run(1))
            assert reference() is not None
            await asyncio.sleep(5)
            assert reference() is None

    @pytest.mark.parametrize("ttl", [0, -1, "5"])
    def test_a_wrong_ttl_is_refused(self, ttl):
        with pytest.raises(InvalidOption, match="results_ttl="):
            ResultCoordinator(double, results_ttl=ttl)


class TestAsCompleted:
    async def test_each_result_comes_once_while_the_producer_goes_on(self):
        async def produce():
            for item in (5, 1, 3, 13, 2):
                await coordinator.enqueue(item)
                await asyncio.sleep(1)
            coordinator.complete()

        async with ResultCoordinator(double, max_concurrency=8) as coordinator:
            producer = asyncio.ensure_future(produce())
            async with coordinator.as_completed() as stream:
                got = [(each, VirtualClock.current().monotonic() - 1000) async for each in stream]
            await producer
        assert got == [(2, 2), (10, 5), (6, 5), (4, 6)]

    async def test_it_begins_with_what_the_window_holds(self):
        async with ResultCoordinator(double) as coordinator:
            await coordinator.run(1)
            async with coordinator.as_completed() as stream:
                await coordinator.enqueue(2)
                coordinator.complete()
                assert [each async for each in stream] == [2, 4]

    async def test_results_of_one_step_are_not_lost(self):
        async with ResultCoordinator(double, max_concurrency=50) as coordinator:
            async with coordinator.as_completed() as stream:
                await coordinator.enqueue_many([1] * 50)
                coordinator.complete()
                assert [each async for each in stream] == [2] * 50

    async def test_failures_cancellations_and_nothing_at_all_end_it_without_results(self):
        async with ResultCoordinator(double) as coordinator:
            stream = coordinator.as_completed()
            operation = await coordinator.enqueue(5)
            await coordinator.enqueue(13)
            operation.cancel()
            coordinator.complete()
            assert [each async for each in stream] == []
            assert [each async for each in stream] == []

    async def test_closing_an_idle_coordinator_ends_a_stream_that_waits(self):
        async with ResultCoordinator(double) as coordinator:
            stream = coordinator.as_completed()
            reader = asyncio.ensure_future(anext(stream, "ended"))
            await settle()
            coordinator.complete()
            assert await reader == "ended"

    async def test_two_streams_get_everything_each(self):
        async def read():
            async with coordinator.as_completed() as stream:
                return [each async for each in stream]

        async with ResultCoordinator(double, max_concurrency=4) as coordinator:
            readers = [asyncio.ensure_future(read()) for _ in range(2)]
            await settle()
            await coordinator.enqueue_many([1, 2, 3])
            coordinator.complete()
            assert [await each for each in readers] == [[2, 4, 6]] * 2

    async def test_leaving_early_lets_go_of_what_was_not_taken_and_stops_nothing(self):  # report R42
        async def body(_item):
            await asyncio.sleep(1)
            return Payload()

        async with ResultCoordinator(body, max_concurrency=1, max_tracked_operations=0) as coordinator:
            async with coordinator.as_completed() as stream:
                await coordinator.enqueue_many([1, 2, 3, 4])
                async for result in stream:
                    reference = weakref.ref(result)
                    break
                await asyncio.sleep(1)
            del result
            assert reference() is None
            assert coordinator.engine.settlement.listeners == ()
            stream.close()
            assert [each async for each in stream] == []
            await coordinator.join()
            assert coordinator.total_completed == 4

    async def test_closing_from_elsewhere_wakes_the_reader(self):
        async with ResultCoordinator(double) as coordinator:
            stream = coordinator.as_completed()
            reader = asyncio.ensure_future(anext(stream, "ended"))
            await settle()
            stream.close()
            assert await reader == "ended"

    async def test_a_reader_that_gives_up_loses_nothing(self):
        async with ResultCoordinator(double) as coordinator, coordinator.as_completed() as stream:
            await coordinator.enqueue(2)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await anext(stream)
            assert await anext(stream) == 4

    async def test_a_reader_cancelled_in_the_step_of_the_result_loses_nothing(self):
        async with ResultCoordinator(double) as coordinator, coordinator.as_completed() as stream:
            reader = asyncio.ensure_future(anext(stream))
            operation = await coordinator.enqueue(2)
            await operation
            reader.cancel()
            await asyncio.wait((reader,))
            if reader.cancelled():
                assert await anext(stream) == 4
            else:
                assert reader.result() == 4

    async def test_two_readers_of_one_stream_are_refused(self):
        async with ResultCoordinator(double) as coordinator, coordinator.as_completed() as stream:
            reader = asyncio.ensure_future(anext(stream))
            await settle()
            with pytest.raises(RuntimeError, match="one reader"):
                await anext(stream)
            await coordinator.enqueue(1)
            assert await reader == 2

    async def test_a_slow_reader_gets_results_that_have_left_the_window(self):
        async with ResultCoordinator(double, max_tracked_operations=1, max_concurrency=8) as coordinator:
            async with coordinator.as_completed() as stream:
                await coordinator.enqueue_many([1, 2, 3])
                await coordinator.join()
                coordinator.complete()
                assert [each async for each in stream] == [2, 4, 6]

    async def test_reading_to_the_end_leaves_nothing_behind(self):
        coordinator = ResultCoordinator(double)
        await coordinator.enqueue(1)
        coordinator.complete()
        assert [each async for each in coordinator.as_completed()] == [2]
        assert coordinator.engine.settlement.listeners == ()
        assert coordinator.engine._closed_listeners == ()
        await coordinator.aclose()
        assert_quiet(coordinator)
        gc.collect()

    async def test_a_stream_of_a_source_starts_it(self):
        async def source():
            for each in (1, 2):
                yield each

        async with ResultCoordinator.from_async_iterable(source(), double) as coordinator:
            assert [each async for each in coordinator.as_completed()] == [2, 4]
