"""Work over time: order, limits, back-pressure, pause, and counts that add up. All coordinators share it."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest
from tests.coordinators import assert_adds_up, every_coordinator

from ephemerals import (
    CoordinatorClosed,
    CoordinatorFull,
    DeadlockError,
    InvalidOptionType,
    KeyedWorkCoordinator,
    Lane,
    OperationCancelled,
    OperationStatus,
    PriorityWorkCoordinator,
    WorkCoordinator,
)
from ephemerals.testing import VirtualClock, assert_quiet


class Gate:
    """Be a body that waits until it is opened, and remembers who runs."""

    def __init__(self):
        self.started = []
        self.running = 0
        self.peak = 0
        self.opened = asyncio.Event()

    async def __call__(self, item):
        self.started.append(item)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await self.opened.wait()
        finally:
            self.running -= 1
        return item


class Sleeper(Gate):
    """Be a body that sleeps a second, or as long as the item says."""

    def __init__(self, seconds=1):
        super().__init__()
        self.seconds = seconds

    async def __call__(self, item):
        self.started.append(item)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running -= 1
        return item


async def settle():
    await VirtualClock.current().settle()


class TestRunning:
    @every_coordinator
    async def test_every_item_runs_once(self, make):  # reference test 1
        body = Sleeper(0.01)
        async with make(body, max_concurrency=2) as coordinator:
            for item in (1, 2, 3):
                await coordinator.enqueue(item)
            report = await coordinator.drain()
        assert sorted(body.started) == [1, 2, 3]
        assert (report.enqueued, report.completed, report.failed, report.remaining) == (3, 3, 0, 0)

    @every_coordinator
    async def test_as_many_run_as_may_and_never_more(self, make):  # reference tests 2, 20
        body = Sleeper()
        async with make(body, max_concurrency=3) as coordinator:
            await coordinator.enqueue_many(range(20))
            await coordinator.join()
        assert body.peak == 3
        assert VirtualClock.current().monotonic() == 1007

    @every_coordinator
    async def test_what_runs_is_seen_until_it_is_released(self, make):  # reference test 3
        body = Gate()
        async with make(body, max_concurrency=2) as coordinator:
            await coordinator.enqueue_many([1, 2])
            await asyncio.sleep(0.05)
            assert [each.status for each in coordinator.running()] == [OperationStatus.RUNNING] * 2
            assert [each.finished_at for each in coordinator.snapshot()] == [None, None]
            assert coordinator.active_count == 2
            body.opened.set()
            await coordinator.join()
            assert len(coordinator.completed()) == 2

    @every_coordinator
    async def test_the_id_at_enqueue_is_the_id_in_the_snapshot(self, make):  # reference test 6
        async with make(Sleeper(), max_tracked_operations=4) as coordinator:
            operation = await coordinator.enqueue(1)
            await coordinator.join()
            assert [each.id for each in coordinator.snapshot()] == [operation.id]

    @every_coordinator
    async def test_a_thousand_items_pass_a_small_window(self, make):  # reference tests 7, 24, 30
        seen = []

        async def body(_item):
            seen.append(coordinator.active_count)

        async with make(body, max_concurrency=16, max_tracked_operations=64) as coordinator:
            await coordinator.enqueue_many(range(1000))
            await coordinator.join()
            assert len(seen) == coordinator.total_completed == 1000
            assert max(seen) <= 16
            assert len(coordinator.snapshot()) == 64
            assert coordinator.failed() == []
            assert_adds_up(coordinator)

    async def test_items_start_in_the_order_they_came(self):
        body = Sleeper(0.1)
        async with WorkCoordinator(body, max_concurrency=3) as coordinator:
            await coordinator.enqueue_many(range(100))
        assert body.started == list(range(100))

    @every_coordinator
    async def test_counts_add_up_at_every_await_point(self, make):  # fault L12, invariant 1
        async def body(item):
            assert_adds_up(coordinator)
            await asyncio.sleep(item % 3)
            assert_adds_up(coordinator)
            if item % 5 == 0:
                raise ValueError

        async with make(body, max_concurrency=3, max_pending=5) as coordinator:
            for item in range(60):
                operation = await coordinator.enqueue(item)
                assert_adds_up(coordinator)
                if item % 7 == 0:
                    operation.cancel()
                    assert_adds_up(coordinator)
            await coordinator.join()
            assert_adds_up(coordinator)
            assert coordinator.total_failed > 0
            assert coordinator.total_cancelled > 0

    async def test_many_bodies_that_never_wait_let_others_run(self):
        turns = 0

        async def count_turns():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def body(_item):
            pass

        async with WorkCoordinator(body, max_pending=None, max_concurrency=1000) as coordinator:
            coordinator.pause()
            await coordinator.enqueue_many(range(1000))
            coordinator.resume()
            counter = asyncio.ensure_future(count_turns())
            await coordinator.join()
            counter.cancel()
        assert turns >= 10

    async def test_enqueuing_without_waiting_lets_others_run(self):  # at least every 64 accepts
        turns = []

        async def watch():
            while True:
                turns.append(coordinator.total_enqueued)
                await asyncio.sleep(0)

        async with WorkCoordinator(Gate(), max_pending=None) as coordinator:
            watcher = asyncio.ensure_future(watch())
            for item in range(1000):
                await coordinator.enqueue(item)
            watcher.cancel()
            steps = [after - before for before, after in itertools.pairwise(turns)]
            assert len(turns) >= 15
            assert max(steps) <= 64
            await coordinator.cancel()

    async def test_statistics_hold_every_count_and_limit_and_quantiles(self):
        async with WorkCoordinator(Sleeper(), max_concurrency=1, max_pending=50, name="mail") as coordinator:
            await coordinator.enqueue_many(range(10))
            await coordinator.join()
            counts = coordinator.statistics()
            assert (counts.name, counts.max_concurrency, counts.max_pending) == ("mail", 1, 50)
            assert (counts.completed, counts.tracked, counts.waiting, counts.rejected, counts.dropped) == (
                10,
                10,
                0,
                0,
                0,
            )
            assert (counts.run_time.p50, counts.run_time.longest) == (1, 1)
            assert (counts.waiting_time.p50, counts.waiting_time.p90, counts.waiting_time.longest) == (5, 9, 9)
            assert (counts.is_paused, counts.is_closed, counts.hook_errors, counts.pinned) == (False, False, 0, 0)
            with pytest.raises(AttributeError):
                counts.completed = 3

    async def test_without_work_the_quantiles_are_zero(self):
        assert WorkCoordinator(Sleeper()).statistics().run_time.longest == 0.0

    async def test_its_text_shows_name_and_counts(self):
        coordinator = WorkCoordinator(Sleeper(), name="mail", max_concurrency=4)
        assert repr(coordinator) == "<WorkCoordinator 'mail' pending=0 active=0/4>"


class TestLimits:
    @every_coordinator
    async def test_lowering_under_backlog_takes_hold_as_running_ones_end(self, make):  # fault G1
        body = Sleeper()
        async with make(body, max_concurrency=4) as coordinator:
            await coordinator.enqueue_many(range(12))
            await asyncio.sleep(0.5)
            assert body.running == 4
            coordinator.set_max_concurrency(1)
            assert coordinator.max_concurrency == 1
            assert body.running == 4, "what runs goes on"
            await asyncio.sleep(1)
            for _ in range(7):
                assert body.running == 1
                await asyncio.sleep(1)

    @every_coordinator
    async def test_lowering_then_raising_never_admits_too_many(self, make):  # fault G2
        body = Sleeper()
        async with make(body, max_concurrency=4) as coordinator:
            await coordinator.enqueue_many(range(40))
            await asyncio.sleep(0.5)
            coordinator.set_max_concurrency(2)
            coordinator.set_max_concurrency(4)
            await asyncio.sleep(0)
            await settle()
            assert body.running == 4
            await coordinator.join()
        assert body.peak == 4

    @every_coordinator
    async def test_raising_takes_hold_at_once(self, make):  # reference tests 4, 8, 16
        body = Gate()
        async with make(body, max_concurrency=2) as coordinator:
            await coordinator.enqueue_many(range(20))
            await settle()
            assert body.running == 2
            coordinator.set_max_concurrency(8)
            await settle()
            assert body.running == 8
            body.opened.set()

    async def test_without_backlog_a_lower_limit_holds_for_newcomers(self):  # fault G1, second input
        body = Gate()
        async with WorkCoordinator(body, max_concurrency=4) as coordinator:
            operations = [await coordinator.enqueue(each) for each in range(4)]
            await settle()
            coordinator.set_max_concurrency(1)
            operations[0].cancel()
            await settle()
            await coordinator.enqueue(5)
            await settle()
            assert body.running == 3
            assert coordinator.pending_count == 1
            body.opened.set()

    @pytest.mark.parametrize("limit", [0, -1, 1.5, "3", None, True])
    async def test_a_wrong_limit_is_refused_and_changes_nothing(self, limit):
        async with WorkCoordinator(Sleeper(), max_concurrency=2) as coordinator:
            with pytest.raises(ValueError, match="max_concurrency="):
                coordinator.set_max_concurrency(limit)
            assert coordinator.max_concurrency == 2

    async def test_the_limit_may_be_changed_before_the_first_use(self):
        coordinator = WorkCoordinator(Sleeper(), max_concurrency=2)
        coordinator.set_max_concurrency(5)
        assert coordinator.max_concurrency == 5


class TestPause:
    @every_coordinator
    async def test_nothing_starts_until_resume(self, make):  # reference test 5
        body = Gate()
        body.opened.set()
        async with make(body) as coordinator:
            coordinator.pause()
            coordinator.pause()
            assert coordinator.is_paused
            operation = await coordinator.enqueue(1)
            await asyncio.sleep(100)
            assert body.started == []
            coordinator.resume()
            assert not coordinator.is_paused
            assert await operation == 1

    @every_coordinator
    async def test_a_pause_holds_for_the_next_in_line_too(self, make):  # fault L11
        body = Sleeper()
        async with make(body, max_concurrency=1) as coordinator:
            await coordinator.enqueue_many(["a", "b"])
            await asyncio.sleep(0.5)
            coordinator.pause()
            await asyncio.sleep(10)
            assert body.started == ["a"]
            assert coordinator.pending_count == 1
            coordinator.resume()
            await coordinator.join()
            assert body.started == ["a", "b"]

    async def test_a_pause_in_the_step_of_the_enqueue_holds(self):
        body = Gate()
        async with WorkCoordinator(body, max_concurrency=4) as coordinator:
            await coordinator.enqueue(1)
            coordinator.pause()
            await settle()
            assert body.started == []
            body.opened.set()

    async def test_a_body_may_pause_its_coordinator(self):
        async def body(item):
            started.append(item)
            coordinator.pause()

        started = []
        async with WorkCoordinator(body, max_concurrency=1) as coordinator:
            await coordinator.enqueue_many([1, 2, 3])
            await settle()
            assert started == [1]
            await coordinator.cancel()

    async def test_resume_without_a_pause_does_nothing(self):
        coordinator = WorkCoordinator(Sleeper())
        coordinator.resume()
        assert not coordinator.is_paused

    @every_coordinator
    async def test_draining_ends_a_pause(self, make):  # fault L8
        body = Sleeper()
        async with make(body) as coordinator:
            coordinator.pause()
            await coordinator.enqueue(1)
            report = await coordinator.drain()
            assert report.completed == 1


class TestBackPressure:
    @every_coordinator
    async def test_enqueue_waits_for_room_in_first_come_order(self, make):  # fault P5
        body = Sleeper()
        accepted = []

        async def produce(item):
            await coordinator.enqueue(item)
            accepted.append(item)

        async with make(body, max_concurrency=1, max_pending=2) as coordinator:
            producers = [asyncio.ensure_future(produce(each)) for each in range(10)]
            await settle()
            assert coordinator.pending_count + coordinator.active_count <= 3
            assert coordinator.statistics().waiting == 10 - len(accepted)
            await asyncio.gather(*producers)
            await coordinator.join()
        assert accepted == list(range(10))
        assert sorted(body.started) == list(range(10))

    async def test_none_is_no_bound(self):
        async with WorkCoordinator(Gate(), max_pending=None) as coordinator:
            await coordinator.enqueue_many(range(5000))
            assert coordinator.total_enqueued == 5000
            await coordinator.cancel()

    @every_coordinator
    async def test_try_enqueue_is_refused_without_room_and_counted(self, make):
        async with make(Gate(), max_concurrency=1, max_pending=2) as coordinator:
            results = [coordinator.try_enqueue(each) for each in range(5)]
            assert [each is not None for each in results] == [True, True, True, False, False]
            assert coordinator.statistics().rejected == 2
            assert coordinator.total_enqueued == 3
            results[1].cancel()
            assert coordinator.try_enqueue(9) is not None
            await coordinator.cancel()

    @every_coordinator
    async def test_try_enqueue_never_overtakes_who_waits(self, make):  # report R47
        body = Sleeper()
        async with make(body, max_concurrency=1, max_pending=1) as coordinator:
            await coordinator.enqueue("running")
            await settle()
            await coordinator.enqueue("pending")
            waiter = asyncio.ensure_future(coordinator.enqueue("waiter"))
            await settle()
            assert coordinator.try_enqueue("nowait") is None
            body_ends = asyncio.ensure_future(asyncio.sleep(1))
            await body_ends
            overtaking = coordinator.try_enqueue("nowait")
            await waiter
            assert overtaking is None
            await coordinator.join()
        assert body.started == ["running", "pending", "waiter"]

    @every_coordinator
    async def test_a_cancelled_waiter_leaves_nothing_behind(self, make):  # reports R22, R24, R25, fault G3
        async with make(Gate(), max_concurrency=1, max_pending=1) as coordinator:
            await coordinator.enqueue(1)
            await settle()
            await coordinator.enqueue(2)
            for _ in range(1000):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await coordinator.enqueue(3)
            assert coordinator.statistics().waiting == 0
            assert not coordinator.engine.admission.line
            assert coordinator.total_enqueued == 2
            await coordinator.cancel()
            await coordinator.aclose()
            assert_quiet(coordinator)

    @every_coordinator
    async def test_a_wake_up_that_meets_a_cancelled_waiter_is_passed_on(self, make):  # report R26
        body = Gate()
        async with make(body, max_concurrency=1, max_pending=1) as coordinator:
            running = await coordinator.enqueue("running")
            await settle()
            pending = await coordinator.enqueue("pending")
            first, second, third = (asyncio.ensure_future(coordinator.enqueue(each)) for each in "abc")
            await settle()
            pending.cancel()  # a place is reserved for the first …
            first.cancel()  # … which is cancelled in the same step
            await settle()
            assert first.cancelled()
            assert second.done()
            assert not third.done()
            assert coordinator.pending_count == 1
            running.cancel()
            await settle()
            assert third.done()
            assert body.started == ["running", "b"]
            body.opened.set()

    async def test_every_order_of_ending_and_cancelling_loses_no_place(self):  # report R26, exhaustively
        for cancelled in range(8):
            for steps in range(4):
                body = Gate()
                async with WorkCoordinator(body, max_concurrency=1, max_pending=1) as coordinator:
                    coordinator.pause()
                    pending = await coordinator.enqueue("pending")
                    waiters = [asyncio.ensure_future(coordinator.enqueue(each)) for each in range(3)]
                    await settle()
                    pending.cancel()
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    for number, waiter in enumerate(waiters):
                        if cancelled >> number & 1:
                            waiter.cancel()
                    body.opened.set()
                    coordinator.resume()
                    await asyncio.wait(waiters)
                    await coordinator.join()
                    survivors = [each for each, waiter in enumerate(waiters) if not waiter.cancelled()]
                    assert body.started == survivors
                    assert len(survivors) >= 3 - cancelled.bit_count()
                    assert_adds_up(coordinator)

    @every_coordinator
    async def test_closing_wakes_everybody_who_waits_for_room(self, make):  # reports R9, fault L13
        async with make(Gate(), max_concurrency=1, max_pending=5) as coordinator:
            offered = [asyncio.ensure_future(coordinator.enqueue(each)) for each in range(100)]
            await settle()
            coordinator.complete()
            await settle()
            refused = [each for each in offered if isinstance(each.exception(), CoordinatorClosed)]
            assert len(refused) + coordinator.total_enqueued == 100
            assert coordinator.statistics().waiting == 0
            await coordinator.cancel()

    @every_coordinator
    async def test_closing_in_the_step_in_which_room_appears_refuses_and_gives_the_place_back(self, make):
        async with make(Gate(), max_pending=1) as coordinator:
            coordinator.pause()
            pending = await coordinator.enqueue(1)
            waiter = asyncio.ensure_future(coordinator.enqueue(2))
            joining = asyncio.ensure_future(coordinator.join())
            await settle()
            pending.cancel()  # a place is reserved …
            coordinator.complete()  # … and the intake closes before it is taken
            await joining
            assert isinstance(waiter.exception(), CoordinatorClosed)
            assert coordinator.engine.admission.is_quiet
            assert coordinator.total_enqueued == 1

    @every_coordinator
    async def test_after_closing_nothing_is_accepted(self, make):  # report R8
        async with make(Sleeper(), name="mail") as coordinator:
            await coordinator.enqueue(1)
            coordinator.complete()
            coordinator.complete()
            assert coordinator.is_closed
            with pytest.raises(CoordinatorClosed, match="'mail' is closed.*create a new one"):
                await coordinator.enqueue(2)
            with pytest.raises(CoordinatorClosed):
                coordinator.try_enqueue(2)
            with pytest.raises(CoordinatorClosed):
                await coordinator.run(2)
            with pytest.raises(CoordinatorClosed):
                await coordinator.enqueue_many([2])
            assert coordinator.total_enqueued == 1

    @every_coordinator
    async def test_reject_raises_instead_of_waiting(self, make):
        async with make(Gate(), max_concurrency=1, max_pending=1, overflow="reject", name="mail") as coordinator:
            coordinator.pause()
            await coordinator.enqueue(1)
            with pytest.raises(CoordinatorFull, match=r"'mail' is full \(1 items are waiting\).*overflow='wait'"):
                await coordinator.enqueue(2)
            with pytest.raises(CoordinatorFull):
                await coordinator.run(2)
            assert coordinator.statistics().rejected == 2
            assert_adds_up(coordinator)
            await coordinator.cancel()

    @every_coordinator
    async def test_drop_oldest_cancels_the_one_that_waits_longest(self, make, caplog):
        body = Sleeper()
        async with make(body, max_concurrency=1, max_pending=2, overflow="drop_oldest") as coordinator:
            first = await coordinator.enqueue("running")
            await settle()
            operations = [await coordinator.enqueue(each) for each in range(5)]
            assert [each.status for each in operations] == ["cancelled"] * 3 + ["pending"] * 2
            assert coordinator.statistics().dropped == coordinator.total_cancelled == 3
            with pytest.raises(OperationCancelled, match="dropped to make room for a newer one"):
                await operations[0]
            assert caplog.text.count("to make room") == 3
            await coordinator.join()
            assert body.started == ["running", 3, 4]
            assert await first == "running"
            assert_adds_up(coordinator)
            assert coordinator.engine.leftovers()["withdrawn"] <= 32

    async def test_try_enqueue_drops_the_oldest_too(self):
        async with WorkCoordinator(Gate(), max_concurrency=1, max_pending=1, overflow="drop_oldest") as coordinator:
            coordinator.pause()
            first = await coordinator.enqueue(1)
            assert coordinator.try_enqueue(2) is not None
            assert first.status is OperationStatus.CANCELLED
            await coordinator.cancel()

    async def test_dropping_the_last_one_that_waits_is_no_idleness(self):
        async with WorkCoordinator(Sleeper(), max_pending=1, overflow="drop_oldest") as coordinator:
            coordinator.pause()
            await coordinator.enqueue(1)
            joining = asyncio.ensure_future(coordinator.join())
            await settle()
            await coordinator.enqueue(2)
            await settle()
            assert not joining.done()
            coordinator.resume()
            await joining
            assert coordinator.total_completed == 1

    async def test_a_refusal_is_logged_without_the_item(self, caplog):
        caplog.set_level(logging.INFO, "ephemerals")
        async with WorkCoordinator(Gate(), max_pending=1, name="mail") as coordinator:
            coordinator.pause()
            coordinator.try_enqueue("secret")
            coordinator.try_enqueue("secret")
            assert "mail refused an item: 1 items are waiting" in caplog.text
            assert "secret" not in caplog.text
            await coordinator.cancel()

    async def test_a_thousand_withdrawn_items_pile_up_nowhere(self):
        for make in (WorkCoordinator, lambda body, **options: KeyedWorkCoordinator(lambda _: 1, body, **options)):
            async with make(Gate(), max_concurrency=1) as coordinator:
                await coordinator.enqueue("running")
                await settle()
                for each in range(1000):
                    (await coordinator.enqueue(each)).cancel()
                assert coordinator.engine.leftovers()["withdrawn"] <= 64
                await coordinator.cancel()


class TestMany:
    @every_coordinator
    async def test_an_iterable_is_pulled_only_as_there_is_room(self, make):  # fault L18
        pulled = []

        def items():
            for each in range(100):
                pulled.append(each)
                yield each

        async with make(Sleeper(), max_concurrency=2, max_pending=3) as coordinator:
            task = asyncio.ensure_future(coordinator.enqueue_many(items()))
            await settle()
            assert len(pulled) <= 7
            assert await task == 100
            await coordinator.join()
            assert coordinator.total_completed == 100

    async def test_an_async_iterable_is_taken_too_and_closed(self):
        closed = []

        async def items():
            try:
                for each in range(5):
                    await asyncio.sleep(1)
                    yield each
            finally:
                closed.append(asyncio.current_task())

        async with WorkCoordinator(Sleeper()) as coordinator:
            assert await coordinator.enqueue_many(items()) == 5
            assert closed == [asyncio.current_task()]

    async def test_an_async_iterable_is_closed_at_once_in_the_same_task_when_it_is_refused(self):  # report R42
        closed = []

        async def items():
            try:
                while True:
                    yield 1
            finally:
                await asyncio.sleep(1)
                closed.append(asyncio.current_task())

        async with WorkCoordinator(Sleeper()) as coordinator:
            coordinator.complete()
            with pytest.raises(CoordinatorClosed):
                await coordinator.enqueue_many(items())
            assert closed == [asyncio.current_task()]

    async def test_an_async_iterator_that_cannot_be_closed_is_taken_too(self):
        class Items:
            def __init__(self):
                self.left = 3

            def __aiter__(self):
                return self

            async def __anext__(self):
                if not self.left:
                    raise StopAsyncIteration
                self.left -= 1
                return self.left

        async with WorkCoordinator(Sleeper()) as coordinator:
            assert await coordinator.enqueue_many(Items()) == 3

    @pytest.mark.parametrize("kind", ["plain", "async"])
    async def test_failing_midway_keeps_what_was_accepted_and_says_how_many(self, kind):
        def plain():
            yield from (1, 2)
            raise LookupError("no more")

        async def asynchronous():
            yield 1
            yield 2
            raise LookupError("no more")

        body = Sleeper()
        async with WorkCoordinator(body, name="mail") as coordinator:
            with pytest.raises(LookupError) as caught:
                await coordinator.enqueue_many(plain() if kind == "plain" else asynchronous())
            assert caught.value.__notes__ == ["2 items had been accepted by coordinator 'mail' before"]
        assert sorted(body.started) == [1, 2]

    @pytest.mark.parametrize("items", [5, None, object()])
    async def test_what_cannot_be_iterated_is_refused(self, items):
        async with WorkCoordinator(Sleeper()) as coordinator:
            with pytest.raises(InvalidOptionType, match="items=.*an iterable or an async iterable"):
                await coordinator.enqueue_many(items)


class TestReEntrancy:
    async def test_a_body_may_enqueue_into_its_own_coordinator(self):
        async def body(depth):
            if depth:
                await coordinator.enqueue(depth - 1)
                await coordinator.enqueue(depth - 1)

        async with WorkCoordinator(body, max_concurrency=2) as coordinator:
            await coordinator.enqueue(5)
            await coordinator.join()
            assert coordinator.total_completed == 2**6 - 1

    async def test_a_body_may_await_what_it_enqueued_while_there_is_a_slot(self):
        async def body(depth):
            return depth if not depth else depth + await coordinator.run(depth - 1)

        async with WorkCoordinator(body, max_concurrency=4) as coordinator:
            assert await coordinator.run(3) == 6

    @pytest.mark.parametrize("limit", [1, 3])
    @every_coordinator
    async def test_awaiting_what_can_never_start_is_a_deadlock_error(self, make, limit):  # report R45
        async def body(depth):
            await asyncio.sleep(1)
            return await coordinator.run(depth + 1)

        async with make(body, max_concurrency=limit) as coordinator:
            operation = await coordinator.enqueue(0)
            with pytest.raises(DeadlockError, match="cannot end before they do") as caught:
                await operation
            assert len(caught.value.operations) == limit
            assert operation.id in caught.value.operations
            await coordinator.cancel()

    async def test_awaiting_a_later_item_of_its_own_key_is_a_deadlock_though_slots_are_free(self):
        async def body(item):
            if item == "first":
                await coordinator.run("second")

        async with KeyedWorkCoordinator(lambda _: "key", body, max_concurrency=8) as coordinator:
            with pytest.raises(DeadlockError):
                await coordinator.run("first")

    async def test_awaiting_an_item_of_a_full_lane_is_a_deadlock_though_slots_are_free(self):
        async def body(item):
            if item == "first":
                await coordinator.run("second", lane="narrow")

        lanes = [Lane("narrow", max_concurrency=1), Lane("wide")]
        async with PriorityWorkCoordinator(body, lanes=lanes, max_concurrency=8) as coordinator:
            with pytest.raises(DeadlockError):
                await coordinator.run("first", lane="narrow")

    @every_coordinator
    async def test_waiting_for_room_that_only_bodies_that_wait_could_make_is_a_deadlock(self, make):  # report R46
        async def body(item):
            await asyncio.sleep(1)
            for each in range(3):
                await coordinator.enqueue((item, each))

        async with make(body, max_concurrency=2, max_pending=1) as coordinator:
            operations = [await coordinator.enqueue(each) for each in range(2)]
            with pytest.raises(DeadlockError, match="deadlock in coordinator"):
                await asyncio.gather(*operations)
            await coordinator.cancel()

    async def test_others_wait_for_room_as_long_as_it_takes(self):
        async def body(item):
            await asyncio.sleep(1000)

        async with WorkCoordinator(body, max_concurrency=2, max_pending=1) as coordinator:
            await coordinator.enqueue_many(range(20))
            await coordinator.join()
            assert coordinator.total_completed == 20

    async def test_a_body_that_waits_for_one_that_runs_is_no_deadlock(self):
        async def body(item):
            await asyncio.sleep(5)
            if isinstance(item, list):
                await item[0]
            return "ended"

        async with WorkCoordinator(body, max_concurrency=2) as coordinator:
            long = await coordinator.enqueue(1)
            waiting = await coordinator.enqueue([long])
            coordinator.set_max_concurrency(1)
            assert await waiting == "ended"

    async def test_a_chain_of_waits_that_ends_at_one_that_cannot_start_is_a_deadlock(self):
        async def body(item):
            await asyncio.sleep(1)
            if item == "a":
                await chain["b"]
            if item == "b":
                await asyncio.sleep(1)
                await coordinator.run("c")

        chain = {}
        async with WorkCoordinator(body, max_concurrency=2) as coordinator:
            for item in "ab":
                chain[item] = await coordinator.enqueue(item)
            with pytest.raises(DeadlockError):
                await chain["b"]
            await coordinator.cancel()

    async def test_two_bodies_that_wait_for_one_another_are_a_deadlock(self):
        async def body(item):
            await asyncio.sleep(item)
            await operations[2 - item]

        async with WorkCoordinator(body, max_concurrency=8) as coordinator:
            operations = [await coordinator.enqueue(each) for each in (1, 2)]
            with pytest.raises(DeadlockError):
                await operations[1]
            await coordinator.cancel()

    async def test_a_lower_limit_that_makes_a_deadlock_wakes_one_who_waits(self):
        async def body(depth):
            await asyncio.sleep(1)
            if depth < 2:
                await coordinator.run(depth + 1)

        async with WorkCoordinator(body, max_concurrency=3) as coordinator:
            operation = await coordinator.enqueue(0)
            await asyncio.sleep(1.5)
            coordinator.pause()
            await asyncio.sleep(1)
            coordinator.set_max_concurrency(2)
            coordinator.resume()
            with pytest.raises(DeadlockError):
                await operation
            await coordinator.join()
            assert_quiet_but_for_the_window(coordinator)

    async def test_the_end_of_a_pause_that_makes_a_deadlock_wakes_one_who_waits_for_room(self):
        async def body(item):
            if item == "first":
                await asyncio.sleep(1)
                await coordinator.enqueue("second")
                await coordinator.enqueue("third")

        async with WorkCoordinator(body, max_concurrency=1, max_pending=1) as coordinator:
            operation = await coordinator.enqueue("first")
            await asyncio.sleep(0.5)
            coordinator.pause()
            await asyncio.sleep(1)
            assert coordinator.statistics().waiting == 1
            coordinator.resume()
            with pytest.raises(DeadlockError):
                await operation
            assert coordinator.statistics().waiting == 0
            await coordinator.join()
            assert_quiet_but_for_the_window(coordinator)

    async def test_while_it_is_paused_nothing_is_a_deadlock(self):
        async def body(item):
            if item == "first":
                await asyncio.sleep(1)
                return await coordinator.run("second")
            return item

        async with WorkCoordinator(body, max_concurrency=2) as coordinator:
            operation = await coordinator.enqueue("first")
            await asyncio.sleep(0.5)
            coordinator.pause()
            await asyncio.sleep(10)
            coordinator.resume()
            assert await operation == "second"

    async def test_two_coordinators_may_wait_for_one_another(self):
        async def outer(item):
            return await second.run(item) + 1

        async def inner(item):
            return item * 2

        async with (
            WorkCoordinator(outer, max_concurrency=1) as first,
            WorkCoordinator(inner, max_concurrency=1) as second,
        ):
            assert await first.run(4) == 9


def assert_quiet_but_for_the_window(coordinator):
    left = coordinator.engine.leftovers()
    left.pop("timers")
    assert not any(left.values()), left
