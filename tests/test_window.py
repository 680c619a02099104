"""The window: what is remembered, for how long, and how it is forgotten."""

from __future__ import annotations

import asyncio
import tracemalloc
import weakref

import pytest
from tests.coordinators import assert_adds_up, every_coordinator

from ephemerals import (
    FinalizationReason,
    KeyedWorkCoordinator,
    OperationStatus,
    PinLimitReached,
    ResultCoordinator,
    WorkCoordinator,
)
from ephemerals.testing import Payload, VirtualClock, assert_quiet


async def work(seconds):
    await asyncio.sleep(seconds)
    return seconds


async def fail(item):
    raise ValueError(item)


class Departures:
    """Be an `on_finalized` hook that remembers."""

    def __init__(self):
        self.seen = []

    def __call__(self, snapshot, reason):
        self.seen.append((snapshot.id, reason))

    @property
    def ids(self):
        return [each for each, _ in self.seen]

    @property
    def reasons(self):
        return {str(each) for _, each in self.seen}


class TestSize:
    @every_coordinator
    async def test_the_newest_ended_operations_are_remembered(self, make):  # reference test 11
        departures = Departures()
        coordinator = make(work, max_concurrency=1, max_tracked_operations=3, on_finalized=departures)
        async with coordinator:
            operations = [await coordinator.enqueue(each) for each in (0.1, 0.2, 0.3, 0.4, 0.5)]
            await coordinator.join()
            ids = [each.id for each in operations]
            assert [each.id for each in coordinator.snapshot()] == ids[2:]
            assert departures.seen == [(each, FinalizationReason.SIZE) for each in ids[:2]]
            assert coordinator.get(ids[0]) is None
            assert coordinator.get(ids[4]).id == ids[4]

    async def test_zero_remembers_nothing(self):
        async with WorkCoordinator(work, max_tracked_operations=0) as coordinator:
            await coordinator.run(1)
            assert coordinator.snapshot() == []

    async def test_none_remembers_everything_for_its_lifetime(self):
        async with WorkCoordinator(work, max_tracked_operations=None, max_concurrency=100) as coordinator:
            await coordinator.enqueue_many([1] * 500)
            await coordinator.join()
            assert len(coordinator.snapshot()) == 500

    @every_coordinator
    async def test_running_and_pending_operations_are_always_visible(self, make):  # faults W1, W5
        departures = Departures()
        coordinator = make(work, max_concurrency=4, max_tracked_operations=1, on_finalized=departures)
        async with coordinator:
            operations = [await coordinator.enqueue(5 + each / 10) for each in range(8)]
            await asyncio.sleep(1)
            assert [each.id for each in coordinator.running()] == [each.id for each in operations[:4]]
            assert [each.id for each in coordinator.pending()] == [each.id for each in operations[4:]]
            assert [each.id for each in coordinator.snapshot()] == [each.id for each in operations]
            assert departures.seen == []

    async def test_a_failure_after_eviction_of_others_is_still_visible(self):  # fault W1
        async with WorkCoordinator(fail, max_tracked_operations=2, max_concurrency=4) as coordinator:
            await coordinator.enqueue_many(range(4))
            await coordinator.join()
            assert len(coordinator.failed()) == 2
            assert coordinator.total_failed == 4

    async def test_memory_for_a_finished_operation_is_small(self):
        async def nothing(_item):
            pass

        async with WorkCoordinator(nothing, max_tracked_operations=None, max_pending=None) as coordinator:
            await coordinator.enqueue_many([None] * 500)
            await coordinator.join()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            await coordinator.enqueue_many([None] * 2000)
            pending = tracemalloc.get_traced_memory()[0] - before
            await coordinator.join()
            ended = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            assert pending / 2000 < 2000, "bytes for one that waits, its context included"
            assert ended / 2000 < 600, "bytes for one that is remembered"


class TestAge:
    @every_coordinator
    async def test_age_counts_from_the_end_and_is_exact(self, make):  # faults W2, W3
        departures = Departures()
        async with make(work, max_operation_lifetime=10, on_finalized=departures) as coordinator:
            operation = await coordinator.enqueue(100)
            await asyncio.sleep(100)
            assert await operation == 100
            await asyncio.sleep(9.999)
            assert coordinator.get(operation.id) is not None
            assert len(coordinator.completed()) == 1
            await asyncio.sleep(0.001)
            assert coordinator.get(operation.id) is None
            assert coordinator.snapshot() == []
            assert departures.seen == [(operation.id, FinalizationReason.AGE)]

    async def test_a_running_operation_does_not_age(self):  # fault W2
        async with WorkCoordinator(work, max_operation_lifetime=0.1, max_concurrency=2) as coordinator:
            long = await coordinator.enqueue(5)
            for _ in range(40):
                await coordinator.run(0.1)
            assert coordinator.get(long.id).status is OperationStatus.RUNNING

    async def test_an_idle_window_empties_itself_with_one_timer(self):  # fault W3
        departures = Departures()
        coordinator = WorkCoordinator(
            work, max_operation_lifetime=10, echo_retention=0, on_finalized=departures, max_concurrency=4
        )
        async with coordinator:
            await coordinator.enqueue_many([1, 2, 3])
            await coordinator.join()
            loop = asyncio.get_running_loop()
            timers = [each for each in loop._scheduled if not each.cancelled()]
            assert len(timers) == 1
            await asyncio.sleep(8.5)
            assert len(departures.seen) == 1
            await asyncio.sleep(1)
            assert len(departures.seen) == 2
            await asyncio.sleep(1)
            assert len(departures.seen) == 3
            assert_quiet(coordinator)

    async def test_a_read_never_shows_an_expired_one_though_the_timer_is_late(self):
        async with WorkCoordinator(work, max_operation_lifetime=10) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
            VirtualClock.current().advance(10)  # as if something blocked the loop
            assert coordinator.snapshot() == []
            assert coordinator.get(operation.id) is None
            assert coordinator.statistics().tracked == 0
            assert not coordinator.pin(operation.id)
            assert not coordinator.evict(operation.id)

    async def test_results_and_queries_filter_by_age_too(self):  # fault W12
        async with ResultCoordinator(work, max_operation_lifetime=10) as coordinator:
            await coordinator.run(1)
            VirtualClock.current().advance(10)
            assert coordinator.results() == []
            assert coordinator.successful() == []
            assert coordinator.base_snapshot() == []

    async def test_the_wall_clock_makes_nothing_older_or_younger(self):  # fault O6
        async with WorkCoordinator(work, max_operation_lifetime=10) as coordinator:
            await coordinator.run(1)
            VirtualClock.current().step_wall(3600)
            assert len(coordinator.snapshot()) == 1
            VirtualClock.current().step_wall(-7200)
            await asyncio.sleep(10)
            assert coordinator.snapshot() == []

    async def test_without_a_lifetime_nothing_ages(self):
        async with WorkCoordinator(work, max_operation_lifetime=None, echo_retention=0) as coordinator:
            await coordinator.run(1)
            await asyncio.sleep(1_000_000)
            assert len(coordinator.snapshot()) == 1
            assert_quiet(coordinator)

    async def test_only_age_evicts_where_there_is_room(self):  # reference test 13, with a window of 100
        async with WorkCoordinator(work, max_operation_lifetime=30, max_tracked_operations=100) as coordinator:
            pinned = await coordinator.enqueue(1)
            pinned.pin()
            await coordinator.join()
            await asyncio.sleep(180)
            second = await coordinator.enqueue(1)
            await coordinator.join()
            await asyncio.sleep(180)
            third = await coordinator.enqueue(1)
            await coordinator.join()
            assert [each.id for each in coordinator.snapshot()] == [pinned.id, third.id]
            assert coordinator.get(second.id) is None


class TestPins:
    @every_coordinator
    async def test_a_pinned_one_survives_size_and_age(self, make):  # reference tests 12, 25, 31
        async with make(work, max_concurrency=1, max_tracked_operations=2, max_operation_lifetime=60) as coordinator:
            first = await coordinator.enqueue(1.5)
            await first
            assert coordinator.pin(first.id)
            for each in (0.1, 0.2, 0.3):
                await coordinator.enqueue(each)
            await coordinator.join()
            assert [each.id for each in coordinator.snapshot()][0] == first.id
            assert len(coordinator.snapshot()) == 3, "the pinned one does not use up the size"
            await asyncio.sleep(1000)
            assert [each.id for each in coordinator.snapshot()] == [first.id]
            assert coordinator.snapshot()[0].is_pinned

    async def test_a_pinned_one_keeps_its_place_in_the_order(self):  # fault W4
        async with WorkCoordinator(work, max_concurrency=1, max_tracked_operations=2) as coordinator:
            one, two, three, four, five = [await coordinator.enqueue(each) for each in (1, 2, 3, 4, 5)]
            one.pin()
            three.pin()
            await coordinator.join()
            assert [each.id for each in coordinator.snapshot()] == [one.id, three.id, four.id, five.id]
            assert coordinator.get(two.id) is None
            one.unpin()
            assert [each.id for each in coordinator.snapshot()] == [three.id, four.id, five.id]
            three.unpin()
            assert [each.id for each in coordinator.snapshot()] == [four.id, five.id]

    async def test_as_many_pins_as_the_window_is_large_evict_nobody_that_runs(self):  # fault W5
        async with WorkCoordinator(work, max_concurrency=1, max_tracked_operations=1) as coordinator:
            first = await coordinator.enqueue(1)
            first.pin()
            await first
            second = await coordinator.enqueue(5)
            await asyncio.sleep(1)
            assert [each.id for each in coordinator.snapshot()] == [first.id, second.id]

    async def test_pins_have_a_bound_of_their_own(self):
        async with WorkCoordinator(work, max_pinned=2) as coordinator:
            one, two, three = [await coordinator.enqueue(1) for _ in range(3)]
            one.pin()
            two.pin()
            assert two.pin(), "again"
            with pytest.raises(PinLimitReached, match="max_pinned=2.*unpin or evict"):
                three.pin()
            assert not three.is_pinned
            assert one.unpin()
            assert three.pin()
            await coordinator.join()
            coordinator.evict(three.id)
            assert one.pin(), "an evicted one is no longer pinned"
            assert coordinator.statistics().pinned == 2

    async def test_a_bound_of_zero_refuses_every_pin(self):
        async with WorkCoordinator(work, max_pinned=0) as coordinator:
            operation = await coordinator.enqueue(1)
            with pytest.raises(PinLimitReached):
                operation.pin()

    async def test_none_is_no_bound(self):
        async with WorkCoordinator(work, max_pinned=None, max_pending=None) as coordinator:
            assert all([(await coordinator.enqueue(0)).pin() for _ in range(300)])

    async def test_an_unknown_id_cannot_be_pinned_unpinned_or_evicted(self):
        async with WorkCoordinator(work) as coordinator:
            assert not coordinator.pin(1)
            assert not coordinator.unpin(1)
            assert not coordinator.evict(1)

    async def test_unpinning_applies_the_bounds_at_once(self):
        departures = Departures()
        coordinator = WorkCoordinator(work, max_operation_lifetime=10, on_finalized=departures)
        async with coordinator:
            operation = await coordinator.enqueue(1)
            operation.pin()
            await operation
            await asyncio.sleep(50)
            assert coordinator.get(operation.id) is not None
            assert operation.unpin()
            assert departures.seen == [(operation.id, FinalizationReason.AGE)]

    async def test_unpinning_in_time_lets_it_age(self):
        async with WorkCoordinator(work, max_operation_lifetime=10, echo_retention=0) as coordinator:
            operation = await coordinator.enqueue(1)
            operation.pin()
            await operation
            await asyncio.sleep(5)
            coordinator.snapshot()
            operation.unpin()
            assert not coordinator.get(operation.id).is_pinned
            await asyncio.sleep(5)
            assert len(coordinator.engine.window._ended) == 0
            assert_quiet(coordinator)

    async def test_many_pins_and_a_small_window_stay_cheap_and_right(self):
        coordinator = WorkCoordinator(work, max_pinned=None, max_tracked_operations=10, max_concurrency=50)
        async with coordinator:
            pinned = []
            for number in range(500):
                operation = await coordinator.enqueue(0)
                if number % 2:
                    operation.pin()
                    pinned.append(operation)
            await coordinator.join()
            assert len(coordinator.snapshot()) == 260
            for operation in reversed(pinned):
                operation.unpin()
            kept = [each.id for each in coordinator.snapshot()]
            assert len(kept) == 10


class TestEviction:
    async def test_evict_forgets_an_ended_one_now_pinned_or_not(self):  # fault W7
        departures = Departures()
        async with WorkCoordinator(work, max_concurrency=1, on_finalized=departures) as coordinator:
            one, two = [await coordinator.enqueue(1) for _ in range(2)]
            one.pin()
            await coordinator.join()
            assert coordinator.evict(one.id)
            assert coordinator.evict(two.id)
            assert not coordinator.evict(two.id)
            assert coordinator.snapshot() == []
            assert departures.seen == [(each.id, FinalizationReason.EVICTED) for each in (one, two)]

    async def test_a_pinned_one_that_stepped_aside_is_evicted_too(self):
        async with WorkCoordinator(work, max_concurrency=1, max_tracked_operations=1) as coordinator:
            one, two, three = [await coordinator.enqueue(1) for _ in range(3)]
            one.pin()
            await coordinator.join()
            assert coordinator.get(one.id).is_pinned
            assert coordinator.evict(one.id)
            assert [each.id for each in coordinator.snapshot()] == [three.id]
            assert not coordinator.unpin(one.id)
            assert coordinator.get(two.id) is None

    async def test_what_waits_or_runs_cannot_be_evicted(self):
        async with WorkCoordinator(work, max_concurrency=1) as coordinator:
            running, pending = [await coordinator.enqueue(1) for _ in range(2)]
            await asyncio.sleep(0.5)
            assert not coordinator.evict(running.id)
            assert not coordinator.evict(pending.id)
            assert len(coordinator.snapshot()) == 2


class TestFinalization:
    @every_coordinator
    async def test_each_operation_is_finalized_once_whatever_becomes_of_it(self, make):  # faults W13, 7
        departures = Departures()
        coordinator = make(
            work, max_concurrency=2, max_tracked_operations=3, max_operation_lifetime=5, on_finalized=departures
        )
        operations = [await coordinator.enqueue(1 + each / 100) for each in range(12)]
        operations[0].pin()
        operations[10].cancel()
        await asyncio.sleep(4.5)
        coordinator.evict(coordinator.completed()[-1].id)
        await asyncio.sleep(8)
        await coordinator.enqueue(1)
        await asyncio.sleep(0.5)
        await coordinator.aclose(grace=0)
        assert sorted(departures.ids) == sorted(set(departures.ids))
        assert len(departures.seen) == coordinator.total_enqueued == 13
        assert departures.reasons == {"size", "age", "evicted", "shutdown"}

    async def test_last_words_are_spoken_at_shutdown_by_pinned_ones_too(self):  # fault W13
        departures = Departures()
        coordinator = WorkCoordinator(work, on_finalized=departures, max_concurrency=1)
        one, two = [await coordinator.enqueue(1) for _ in range(2)]
        one.pin()
        await coordinator.drain()
        assert departures.seen == []
        await coordinator.aclose()
        assert departures.seen == [(each.id, FinalizationReason.SHUTDOWN) for each in (one, two)]
        await coordinator.aclose()
        assert len(departures.seen) == 2

    async def test_the_hook_gets_the_final_snapshot_with_its_error(self):  # fault L7
        seen = []
        coordinator = WorkCoordinator(
            fail, max_tracked_operations=10, on_finalized=lambda snapshot, _reason: seen.append(snapshot)
        )
        async with coordinator:
            await coordinator.enqueue_many(range(50))
        assert len(seen) == 50
        assert sorted(int(each.error.message) for each in seen) == list(range(50))

    async def test_the_hook_may_use_the_coordinator(self):
        seen = []

        def hook(snapshot, _reason):
            seen.append((snapshot.id, coordinator.get(snapshot.id), coordinator.total_completed))
            if coordinator.total_enqueued < 5:
                coordinator.try_enqueue(0)

        coordinator = WorkCoordinator(work, max_tracked_operations=0, on_finalized=hook)
        async with coordinator:
            await coordinator.enqueue(0)
            await asyncio.sleep(1)
            assert [entry[1] for entry in seen] == [None] * 5
            assert_adds_up(coordinator)

    @every_coordinator
    async def test_a_hook_that_cancels_everything_breaks_nothing(self, make):
        def hook(_snapshot, _reason):
            coordinator.cancel()

        coordinator = make(work, max_concurrency=1, max_tracked_operations=0, on_finalized=hook)
        operations = [await coordinator.enqueue(each) for each in range(1, 8)]
        operations[5].cancel()
        await coordinator.join()
        assert coordinator.total_cancelled == 7
        assert all(each.has_ended for each in operations)
        await coordinator.aclose()
        assert_quiet(coordinator)

    @every_coordinator
    async def test_a_hook_that_cancels_others_while_everything_is_cancelled_breaks_nothing(self, make):
        def hook(_snapshot, _reason):
            for each in operations:
                each.cancel()

        coordinator = make(work, max_concurrency=1, max_tracked_operations=0, on_finalized=hook)
        operations = [await coordinator.enqueue(each) for each in range(1, 8)]
        await asyncio.sleep(0)
        await coordinator.cancel()
        assert coordinator.total_cancelled == 7
        assert coordinator.statistics().hook_errors == 0
        await coordinator.aclose()
        assert_adds_up(coordinator)
        assert_quiet(coordinator)

    @pytest.mark.parametrize("error", [RuntimeError("hook"), asyncio.CancelledError(), GeneratorExit()])
    @every_coordinator
    async def test_a_raising_hook_is_isolated_counted_and_logged(self, make, error, caplog):  # fault W9
        def hook(_snapshot, _reason):
            raise error

        coordinator = make(work, max_concurrency=1, max_tracked_operations=1, on_finalized=hook, name="noisy")
        async with coordinator:
            for each in (1, 2, 3):
                await coordinator.enqueue(each)
            await coordinator.join()
            assert coordinator.total_completed == 3
            assert coordinator.statistics().hook_errors == 2
            assert len(coordinator.snapshot()) == 1
        assert coordinator.statistics().hook_errors == 3
        assert f"on_finalized of coordinator noisy raised {type(error).__name__}" in caplog.text


class TestSampling:
    async def test_it_is_called_after_completions_at_most_once_an_interval(self):  # fault W11
        calls = []
        coordinator = WorkCoordinator(work, max_concurrency=1, sample_interval=5, on_sample=calls.append)
        async with coordinator:
            await coordinator.enqueue_many([1] * 12)
            await coordinator.join()
        assert len(calls) == 3

    async def test_zero_samples_every_completion(self):
        lengths = []
        coordinator = WorkCoordinator(
            work, max_concurrency=1, sample_interval=0, on_sample=lambda view: lengths.append(len(view))
        )
        async with coordinator:
            await coordinator.enqueue_many([1, 1, 1])
        assert lengths == [3, 3, 3]

    async def test_the_view_shows_the_window_as_it_is_when_looked_at(self):
        views = []
        async with WorkCoordinator(work, on_sample=views.append, sample_interval=10) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
            await coordinator.run(2)
            (view,) = views
            assert len(view) == 2
            assert [each.id for each in view][0] == operation.id
            assert view.get(operation.id).status is OperationStatus.COMPLETED
            assert view.get(1) is None

    async def test_not_looking_copies_nothing(self, monkeypatch):
        async with WorkCoordinator(work, on_sample=lambda view: None, sample_interval=0) as coordinator:
            monkeypatch.setattr(type(coordinator.engine.window), "snapshot", None)
            await coordinator.enqueue_many([1] * 20)
            await coordinator.join()
            assert coordinator.total_completed == 20
            assert coordinator.statistics().hook_errors == 0

    async def test_a_raising_sampler_is_isolated(self):  # fault W10
        def sample(_view):
            raise RuntimeError

        async with WorkCoordinator(work, on_sample=sample, sample_interval=0) as coordinator:
            await coordinator.enqueue_many([1, 1])
            report = await coordinator.drain()
            assert report.completed == 2
            assert coordinator.statistics().hook_errors == 2


class TestFailures:
    async def test_the_newest_hundred_failures_are_reported_beyond_the_window(self):  # fault L7
        async with WorkCoordinator(fail, max_tracked_operations=5) as coordinator:
            await coordinator.enqueue_many(range(300))
            report = await coordinator.drain()
            assert report.failed == 300
            assert len(report.failures) == 100
            assert {int(each.error.message) for each in report.failures} <= set(range(200, 300))
            with pytest.raises(ExceptionGroup, match="300 of 300 operations failed") as caught:
                report.raise_for_failures()
            assert len(caught.value.exceptions) == 100

    async def test_they_expire_as_everything_else(self):
        coordinator = WorkCoordinator(fail, max_tracked_operations=0, max_operation_lifetime=10, echo_retention=0)
        async with coordinator:
            await coordinator.enqueue(1)
            await coordinator.join()
            await asyncio.sleep(9)
            assert len(coordinator.engine.window.failures) == 1
            await asyncio.sleep(1)
            assert not coordinator.engine.window.failures
            assert_quiet(coordinator)


class TestResultsTtl:
    async def test_results_leave_earlier_than_their_snapshots(self):  # fault R3
        async def body(_item):
            return Payload()

        departures = Departures()
        coordinator = ResultCoordinator(body, results_ttl=5, max_operation_lifetime=60, on_finalized=departures)
        async with coordinator:
            operation = await coordinator.enqueue(1)
            reference = weakref.ref(await operation)
            id_ = operation.id
            del operation
            await asyncio.sleep(4.999)
            assert coordinator.results() == [reference()]
            await asyncio.sleep(0.001)
            assert coordinator.results() == []
            assert coordinator.get(id_).status is OperationStatus.COMPLETED
            assert not coordinator.get(id_).has_result
            assert departures.seen == []
            assert reference() is None

    async def test_they_leave_on_time_though_nobody_looks(self):
        async def body(_item):
            return Payload()

        async with ResultCoordinator(body, results_ttl=5) as coordinator:
            reference = weakref.ref(await coordinator.run(1))
            await asyncio.sleep(5)
            assert reference() is None

    async def test_a_pinned_snapshot_loses_its_result_too(self):
        async with ResultCoordinator(work, results_ttl=5, max_concurrency=1, max_tracked_operations=1) as coordinator:
            operations = [await coordinator.enqueue(1) for _ in range(3)]
            operations[0].pin()
            await coordinator.join()
            coordinator.snapshot()
            await asyncio.sleep(5)
            assert [each.has_result for each in coordinator.snapshot()] == [False, False]
            assert coordinator.snapshot()[0].is_pinned

    async def test_what_has_left_the_window_leaves_no_entry_behind(self):
        async with ResultCoordinator(work, results_ttl=3600, max_tracked_operations=10) as coordinator:
            await coordinator.enqueue_many([0] * 500)
            await coordinator.join()
            assert len(coordinator.engine.window._results) == 10


async def test_a_snapshot_for_a_key_compares_keys_as_objects():  # fault K9
    async with KeyedWorkCoordinator(lambda item: item, nothing) as coordinator:
        await coordinator.enqueue_many([1, "1", 1])
        await coordinator.join()
        assert [each.key for each in coordinator.snapshot_for(1)] == [1, 1]
        assert [each.key for each in coordinator.snapshot_for("1")] == ["1"]


async def nothing(_item):
    pass
