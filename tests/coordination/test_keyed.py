"""Work per key: in order within a key, side by side across keys, fair when asked, and nothing left of idle keys."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from tests.coordinators import assert_adds_up

from ephemerals import (
    CoordinatorFull,
    InvalidOption,
    InvalidOptionType,
    KeyedWorkCoordinator,
    OperationStatus,
    ResultCoordinator,
)
from ephemerals.testing import VirtualClock, assert_quiet


class Recorder:
    """Be a body that sleeps and remembers when each item started."""

    def __init__(self, **seconds):
        self.seconds = seconds
        self.started = []
        self.times = {}
        self.running = 0
        self.peak = 0
        self.running_keys = set()

    async def __call__(self, item):
        self.started.append(item)
        self.times[item] = VirtualClock.current().monotonic() - 1000
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await asyncio.sleep(self.seconds.get(item, 1))
        finally:
            self.running -= 1


def first(item):
    return item[0]


async def settle():
    await VirtualClock.current().settle()


class TestOrder:
    async def test_items_of_a_key_run_in_order_one_at_a_time(self):  # reference tests 21, 22
        body = Recorder()
        async with KeyedWorkCoordinator(first, body, max_concurrency=4) as coordinator:
            await coordinator.enqueue_many(["A1", "B1", "A2", "B2", "A3", "B3"])
        assert [each for each in body.started if each[0] == "A"] == ["A1", "A2", "A3"]
        assert [each for each in body.started if each[0] == "B"] == ["B1", "B2", "B3"]
        assert body.times == {"A1": 0, "B1": 0, "A2": 1, "B2": 1, "A3": 2, "B3": 2}

    async def test_different_keys_run_side_by_side(self):  # reference test 23
        body = Recorder()
        async with KeyedWorkCoordinator(first, body, max_concurrency=4) as coordinator:
            await coordinator.enqueue_many("ABCD")
        assert body.peak == 4

    async def test_a_hot_key_does_not_hold_up_another(self):  # fault K1
        body = Recorder(A1=10)
        async with KeyedWorkCoordinator(first, body, max_concurrency=4) as coordinator:
            await coordinator.enqueue_many(["A1", "A2", "B1"])
        assert body.times == {"A1": 0, "B1": 0, "A2": 10}

    async def test_a_waiting_key_takes_no_slot(self):  # fault K2
        body = Recorder(A1=1)
        async with KeyedWorkCoordinator(first, body, max_concurrency=2) as coordinator:
            await coordinator.enqueue_many(["A1", "A2", "B1", "B2"])
            await settle()
            assert body.running == 2
        assert body.times == {"A1": 0, "B1": 0, "A2": 1, "B2": 1}

    async def test_the_oldest_runnable_item_goes_first(self):
        body = Recorder()
        async with KeyedWorkCoordinator(first, body, max_concurrency=1) as coordinator:
            await coordinator.enqueue_many(["A1", "A2", "B1", "C1", "A3", "B2"])
        assert body.started == ["A1", "A2", "B1", "C1", "A3", "B2"]

    @pytest.mark.parametrize("limit", [2, 3])
    async def test_several_of_a_key_may_run_at_once(self, limit):
        body = Recorder()
        async with KeyedWorkCoordinator(first, body, max_concurrency=8, max_concurrency_per_key=limit) as coordinator:
            await coordinator.enqueue_many([f"A{each}" for each in range(9)])
        assert body.peak == limit
        assert body.started == [f"A{each}" for each in range(9)]

    async def test_a_failure_frees_its_key(self):
        async def body(item):
            await asyncio.sleep(1)
            if item == "A1":
                raise ValueError

        async with KeyedWorkCoordinator(first, body, max_concurrency=4) as coordinator:
            await coordinator.enqueue_many(["A1", "A2"])
            await coordinator.join()
            assert (coordinator.total_failed, coordinator.total_completed) == (1, 1)

    async def test_cancelling_in_the_middle_of_a_key_keeps_the_order_of_the_rest(self):
        body = Recorder()
        async with KeyedWorkCoordinator(first, body, max_concurrency=4) as coordinator:
            operations = [await coordinator.enqueue(f"A{each}") for each in range(6)]
            operations[0].cancel()
            operations[3].cancel()
            await settle()
            operations[1].cancel()
            await coordinator.join()
            assert body.started == ["A1", "A2", "A4", "A5"]
            assert coordinator.total_cancelled == 3
            assert_adds_up(coordinator)


class TestFairness:
    async def test_ready_keys_take_turns(self):  # fault K3
        body = Recorder()
        coordinator = KeyedWorkCoordinator(
            first, body, max_concurrency=1, fair_scheduling=True, fair_scheduling_threshold=1000
        )
        async with coordinator:
            await coordinator.enqueue_many([f"A{each}" for each in range(500)])
            await coordinator.enqueue("B")
            await coordinator.join()
        assert body.started.index("B") <= 2

    async def test_three_keys_go_round(self):
        body = Recorder()
        async with KeyedWorkCoordinator(first, body, max_concurrency=1, fair_scheduling=True) as coordinator:
            coordinator.pause()
            await coordinator.enqueue_many(["A1", "A2", "A3", "B1", "B2", "C1"])
            coordinator.resume()
        assert body.started == ["A1", "B1", "C1", "A2", "B2", "A3"]

    async def test_keys_take_turns_also_if_several_of_a_key_may_run(self):
        body = Recorder()
        coordinator = KeyedWorkCoordinator(
            first, body, max_concurrency=1, max_concurrency_per_key=3, fair_scheduling=True
        )
        async with coordinator:
            coordinator.pause()
            await coordinator.enqueue_many(["A1", "A2", "A3", "B1", "B2", "C1"])
            coordinator.resume()
        assert body.started == ["A1", "B1", "C1", "A2", "B2", "A3"]

    async def test_try_enqueue_refuses_a_key_with_too_much_waiting_and_no_other(self):  # fault K3
        coordinator = KeyedWorkCoordinator(first, Recorder(), max_concurrency=1, fair_scheduling=True)
        async with coordinator:
            coordinator.pause()
            taken = [coordinator.try_enqueue(f"A{each}") is not None for each in range(11)]
            assert taken == [True] * 10 + [False]
            assert coordinator.try_enqueue("B") is not None
            assert coordinator.pending_count_for("A") == 10
            assert coordinator.statistics().rejected == 1

    async def test_without_fairness_the_threshold_does_not_count(self):
        async with KeyedWorkCoordinator(first, Recorder(), fair_scheduling_threshold=1) as coordinator:
            coordinator.pause()
            assert all(coordinator.try_enqueue(f"A{each}") for each in range(50))

    async def test_reject_raises_for_the_full_key_only(self):
        coordinator = KeyedWorkCoordinator(
            first, Recorder(), fair_scheduling=True, fair_scheduling_threshold=1, overflow="reject"
        )
        async with coordinator:
            coordinator.pause()
            await coordinator.enqueue("A1")
            with pytest.raises(CoordinatorFull, match="too much is waiting for its key or lane"):
                await coordinator.enqueue("A2")
            await coordinator.enqueue("B1")
            await coordinator.cancel()

    async def test_drop_oldest_drops_within_the_full_key(self):
        coordinator = KeyedWorkCoordinator(
            first, Recorder(), fair_scheduling=True, fair_scheduling_threshold=1, overflow="drop_oldest"
        )
        async with coordinator:
            coordinator.pause()
            other = await coordinator.enqueue("B1")
            old = await coordinator.enqueue("A1")
            new = await coordinator.enqueue("A2")
            assert [each.status for each in (other, old, new)] == ["pending", "cancelled", "pending"]

    async def test_waiting_for_a_full_key_holds_up_no_other_key(self):
        body = Recorder()
        coordinator = KeyedWorkCoordinator(
            first, body, max_concurrency=1, fair_scheduling=True, fair_scheduling_threshold=1
        )
        async with coordinator:
            coordinator.pause()
            await coordinator.enqueue("A1")
            waiters = [asyncio.ensure_future(coordinator.enqueue(each)) for each in ("A2", "A3")]
            await settle()
            assert coordinator.statistics().waiting == 2
            await coordinator.enqueue("B1")
            assert not any(each.done() for each in waiters)
            coordinator.resume()
            await asyncio.gather(*waiters)
            await coordinator.join()
            assert body.started == ["A1", "B1", "A2", "A3"]
            assert not coordinator.engine.admission.parked

    async def test_a_cancelled_waiter_for_a_key_passes_its_place_on(self):  # report R26
        coordinator = KeyedWorkCoordinator(
            first, Recorder(), max_concurrency=1, fair_scheduling=True, fair_scheduling_threshold=1
        )
        async with coordinator:
            coordinator.pause()
            pending = await coordinator.enqueue("A1")
            one, two, three = (asyncio.ensure_future(coordinator.enqueue(each)) for each in ("A2", "A3", "A4"))
            await settle()
            two.cancel()
            pending.cancel()
            one.cancel()
            await settle()
            assert one.cancelled()
            assert two.cancelled()
            assert three.done()
            assert coordinator.pending_count_for("A") == 1
            assert coordinator.engine.admission.is_quiet
            await coordinator.cancel()

    async def test_who_waits_for_the_queue_and_then_for_its_key_comes_in_when_both_have_room(self):
        body = Recorder()
        coordinator = KeyedWorkCoordinator(
            first, body, max_concurrency=1, max_pending=2, fair_scheduling=True, fair_scheduling_threshold=1
        )
        async with coordinator:
            coordinator.pause()
            await coordinator.enqueue("A1")
            await coordinator.enqueue("B1")
            waiters = [asyncio.ensure_future(coordinator.enqueue(each)) for each in ("C1", "A2", "C2", "B2", "D1")]
            await settle()
            coordinator.resume()
            await asyncio.gather(*waiters)
            await coordinator.join()
            assert sorted(body.started) == ["A1", "A2", "B1", "B2", "C1", "C2", "D1"]
            assert body.started.index("C1") < body.started.index("C2")
            assert coordinator.engine.admission.is_quiet
            assert_adds_up(coordinator)

    async def test_closing_wakes_who_waits_for_a_key(self):
        coordinator = KeyedWorkCoordinator(first, Recorder(), fair_scheduling=True, fair_scheduling_threshold=1)
        async with coordinator:
            coordinator.pause()
            await coordinator.enqueue("A1")
            waiter = asyncio.ensure_future(coordinator.enqueue("A2"))
            await settle()
            coordinator.complete()
            with pytest.raises(Exception, match="is closed"):
                await waiter
            assert coordinator.engine.admission.is_quiet


class TestKeys:
    async def test_a_key_may_be_the_name_of_an_attribute(self):
        body = Recorder()
        user = SimpleNamespace(id=7)

        @dataclass(frozen=True)
        class Command:
            user: object

        async with KeyedWorkCoordinator("user.id", body) as coordinator:
            operation = await coordinator.enqueue(Command(user))
            assert operation.key == 7

    async def test_the_selector_is_asked_once_when_the_item_comes(self):  # fault K8
        asked = []

        def selector(item):
            asked.append(item)
            return len(asked)

        async with KeyedWorkCoordinator(selector, Recorder(), max_concurrency=2) as coordinator:
            operations = [await coordinator.enqueue(each) for each in "abc"]
            await coordinator.join()
            assert asked == ["a", "b", "c"]
            assert [each.key for each in operations] == [1, 2, 3]

    async def test_a_selector_that_raises_makes_that_one_enqueue_raise_and_nothing_else(self):
        def selector(item):
            return 1 // item

        body = Recorder()
        async with KeyedWorkCoordinator(selector, body) as coordinator:
            for enqueue in (coordinator.enqueue, coordinator.run, lambda item: coordinator.enqueue_many([item])):
                with pytest.raises(ZeroDivisionError):
                    await enqueue(0)
            with pytest.raises(ZeroDivisionError):
                coordinator.try_enqueue(0)
            assert coordinator.total_enqueued == 0
            await coordinator.enqueue(1)
            await coordinator.join()
            assert body.started == [1]
            assert_quiet_keys(coordinator)

    @pytest.mark.parametrize("key", [[], {}, set()])
    async def test_a_key_that_cannot_be_hashed_is_refused_and_counts_nothing(self, key):
        async with KeyedWorkCoordinator(lambda _: key, Recorder()) as coordinator:
            with pytest.raises(InvalidOptionType, match="key='<.*hashable value"):
                await coordinator.enqueue(1)
            assert coordinator.total_enqueued == 0
            assert_quiet_keys(coordinator)

    @pytest.mark.parametrize("key", [None, 5, [], "not an attribute", "", "a..b"])
    def test_a_selector_must_be_a_function_or_the_name_of_an_attribute(self, key):
        with pytest.raises(InvalidOption, match="key=.*a plain function from an item to its key"):
            KeyedWorkCoordinator(key, Recorder())

    async def test_a_missing_attribute_makes_that_one_enqueue_raise(self):
        async with KeyedWorkCoordinator("user_id", Recorder()) as coordinator:
            with pytest.raises(AttributeError):
                await coordinator.enqueue("no user")
            assert coordinator.total_enqueued == 0

    async def test_none_is_no_key_and_orders_nothing(self):
        body = Recorder()
        async with KeyedWorkCoordinator(lambda _: None, body, max_concurrency=4) as coordinator:
            await coordinator.enqueue_many("abc")
            await coordinator.join()
        assert body.peak == 3

    async def test_keys_are_compared_as_objects(self):  # fault K9
        body = Recorder()
        async with KeyedWorkCoordinator(lambda item: item, body, max_concurrency=4) as coordinator:
            await coordinator.enqueue(1)
            await coordinator.enqueue("1")
            await settle()
            assert body.running == 2
            assert coordinator.pending_count_for(1) == 0

    async def test_a_key_whose_text_cannot_be_made_breaks_nothing(self):
        class Key:
            def __str__(self):
                raise RuntimeError("no text")

            __repr__ = __str__

        async def body(item):
            if item:
                raise ValueError

        for privacy in ("plain", "hashed"):
            async with KeyedWorkCoordinator(lambda _: Key(), body, key_privacy=privacy) as coordinator:
                operations = [await coordinator.enqueue(each) for each in (0, 1)]
                await coordinator.join()
                assert [each.status for each in operations] == ["completed", "failed"]
                assert len(coordinator.snapshot()) == 2
                assert_adds_up(coordinator)

    async def test_a_key_that_cannot_be_compared_makes_that_one_enqueue_raise(self):
        class Key:
            def __hash__(self):
                return 1

            def __eq__(self, other):
                raise RuntimeError("incomparable")

        async with KeyedWorkCoordinator(lambda _: Key(), Recorder()) as coordinator:
            operation = await coordinator.enqueue(1)
            with pytest.raises(RuntimeError, match="incomparable"):
                await coordinator.enqueue(2)
            assert_adds_up(coordinator)
            assert coordinator.total_enqueued == 1
            await coordinator.join()
            assert operation.status is OperationStatus.COMPLETED


def assert_quiet_keys(coordinator):
    assert coordinator.engine.leftovers()["keys"] == 0


class TestIdleKeys:
    @pytest.mark.parametrize("fair", [False, True])
    async def test_nothing_is_left_of_a_key_without_work(self, fair):  # report R51, faults K4, K7
        async with KeyedWorkCoordinator(first, Recorder(), max_concurrency=3, fair_scheduling=fair) as coordinator:
            operations = [await coordinator.enqueue(f"{key}{each}") for each in range(5) for key in "ABCDE"]
            operations[7].cancel()
            operations[12].cancel()
            assert coordinator.pending_count_for("A") == 5
            await settle()
            assert coordinator.pending_count_for("A") == 4
            await coordinator.join()
            assert coordinator.pending_count_for("A") == 0
            assert_quiet_keys(coordinator)
            await coordinator.aclose()
            assert_quiet(coordinator)

    async def test_refusals_leave_nothing_behind(self):  # fault K7
        async with KeyedWorkCoordinator(first, Recorder(), max_pending=1) as coordinator:
            coordinator.pause()
            assert coordinator.try_enqueue("A1")
            for each in range(100):
                assert coordinator.try_enqueue(f"{each}") is None
            assert coordinator.engine.leftovers()["keys"] == 1

    async def test_a_key_whose_last_item_is_withdrawn_is_gone(self):
        async with KeyedWorkCoordinator(first, Recorder(), max_concurrency=1) as coordinator:
            coordinator.pause()
            operations = [await coordinator.enqueue(f"A{each}") for each in range(3)]
            for operation in operations:
                operation.cancel()
            assert_quiet_keys(coordinator)
            coordinator.resume()
            await coordinator.enqueue("A9")
            await coordinator.join()
            assert_quiet_keys(coordinator)

    async def test_a_key_comes_back_while_the_last_of_it_ends(self):  # report R51: the race on leaving
        async def body(item):
            if item != "A0":
                await coordinator.enqueue("A0")

        async with KeyedWorkCoordinator(first, body, max_concurrency=4) as coordinator:
            for _ in range(50):
                await coordinator.enqueue("A1")
                await coordinator.join()
            assert coordinator.total_completed == 100
            assert_quiet_keys(coordinator)


async def test_snapshots_of_a_key_are_ordered_like_all():
    async with KeyedWorkCoordinator(first, Recorder(), max_concurrency=1) as coordinator:
        await coordinator.enqueue_many(["A1", "B1", "A2", "A3"])
        await asyncio.sleep(2.5)
        assert [each.status for each in coordinator.snapshot_for("A")] == ["completed", "running", "pending"]
        assert coordinator.snapshot_for("Z") == []


async def test_a_result_coordinator_may_have_keys_too():
    async def body(item):
        await asyncio.sleep(5 if item == "A1" else 1)
        return item

    async with ResultCoordinator(body, key=first, max_concurrency=4) as coordinator:
        await coordinator.enqueue_many(["A1", "A2", "B1"])
        await coordinator.join()
        assert coordinator.results() == ["B1", "A1", "A2"]
