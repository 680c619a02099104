"""Lanes: the more urgent first, chosen when a slot is free, with bounds on starvation, depth and concurrency."""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinators import assert_adds_up

from ephemerals import (
    CoordinatorFull,
    DuplicateName,
    InvalidOption,
    Lane,
    OperationCancelled,
    PriorityWorkCoordinator,
    UnknownLane,
)
from ephemerals.testing import VirtualClock, assert_quiet

HIGH_LOW = [Lane("high"), Lane("low")]


class Recorder:
    def __init__(self, seconds=1):
        self.seconds = seconds
        self.started = []
        self.running = 0
        self.peak = 0

    async def __call__(self, item):
        self.started.append(item)
        self.running += 1
        self.peak = max(self.peak, self.running)
        await asyncio.sleep(self.seconds)
        self.running -= 1


async def settle():
    await VirtualClock.current().settle()


class TestStrict:
    async def test_a_high_item_goes_next_whatever_waits(self):  # fault P1
        body = Recorder()
        async with PriorityWorkCoordinator(body, lanes=HIGH_LOW, max_concurrency=1) as coordinator:
            for each in range(100):
                await coordinator.enqueue(f"low {each}", lane="low")
            await asyncio.sleep(2.5)
            await coordinator.enqueue("high", lane="high")
            await coordinator.join()
        assert body.started.index("high") == 3

    async def test_higher_lanes_are_looked_at_for_every_start(self):  # fault P3
        async def body(item):
            started.append(item)
            if item == "low 1":
                await coordinator.enqueue("high", lane="high")

        started = []
        async with PriorityWorkCoordinator(body, lanes=HIGH_LOW, max_concurrency=1) as coordinator:
            for each in range(4):
                await coordinator.enqueue(f"low {each}", lane="low")
            await coordinator.join()
        assert started == ["low 0", "low 1", "high", "low 2", "low 3"]

    async def test_items_of_a_lane_keep_their_order_and_are_never_compared(self):  # report R49
        body = Recorder()
        async with PriorityWorkCoordinator(body, lanes=HIGH_LOW, max_concurrency=1) as coordinator:
            items = [object() for _ in range(20)]
            for each in items:
                await coordinator.enqueue(each, lane="low")
            await coordinator.join()
        assert body.started == items

    async def test_a_low_item_is_passed_by_at_most_so_many(self):  # report R50, fault P13
        body = Recorder(0.01)
        coordinator = PriorityWorkCoordinator(body, lanes=HIGH_LOW, max_concurrency=1, starvation_limit=5)
        async with coordinator:
            await coordinator.enqueue("high", lane="high")
            await coordinator.enqueue("low", lane="low")
            for _ in range(50):
                await coordinator.enqueue("high", lane="high")
                await asyncio.sleep(0.01)
            await coordinator.join()
        assert body.started.index("low") <= 6

    async def test_a_low_lane_with_a_bound_gets_its_share_again_and_again(self):
        body = Recorder()
        coordinator = PriorityWorkCoordinator(body, lanes=HIGH_LOW, max_concurrency=1, starvation_limit=3)
        async with coordinator:
            coordinator.pause()
            for each in range(12):
                await coordinator.enqueue("h", lane="high")
                if each < 4:
                    await coordinator.enqueue("l", lane="low")
            coordinator.resume()
            await coordinator.join()
        assert "".join(body.started) == "hhhlhhhlhhhlhhhl"

    async def test_of_three_lanes_none_starves(self):
        body = Recorder()
        lanes = [Lane("a"), Lane("b"), Lane("c")]
        async with PriorityWorkCoordinator(body, lanes=lanes, max_concurrency=1, starvation_limit=2) as coordinator:
            coordinator.pause()
            for lane in "abc":
                for _ in range(20):
                    await coordinator.enqueue(lane, lane=lane)
            coordinator.resume()
            await coordinator.join()
        order = "".join(body.started)
        assert max(len(each) for each in order[: order.rindex("c")].split("c")) <= 2
        assert max(each.count("a") for each in order[: order.rindex("b")].split("b")) <= 2

    async def test_without_a_bound_high_goes_before_low_for_ever(self):
        body = Recorder()
        async with PriorityWorkCoordinator(body, lanes=HIGH_LOW, max_concurrency=1) as coordinator:
            coordinator.pause()
            for _each in range(10):
                await coordinator.enqueue("l", lane="low")
                await coordinator.enqueue("h", lane="high")
            coordinator.resume()
            await coordinator.join()
        assert "".join(body.started) == "h" * 10 + "l" * 10


class TestWeights:
    async def test_lanes_share_the_slots_by_weight(self):
        body = Recorder()
        lanes = [Lane("a", weight=3), Lane("b", weight=1)]
        async with PriorityWorkCoordinator(body, lanes=lanes, max_concurrency=1) as coordinator:
            coordinator.pause()
            for lane in "ab":
                for _ in range(40):
                    await coordinator.enqueue(lane, lane=lane)
            coordinator.resume()
            await coordinator.join()
        for start in range(0, 40, 4):
            assert body.started[start : start + 4].count("a") == 3

    async def test_an_idle_lane_saves_up_no_turns(self):
        body = Recorder()
        lanes = [Lane("a", weight=1), Lane("b", weight=1)]
        async with PriorityWorkCoordinator(body, lanes=lanes, max_concurrency=1, max_pending=None) as coordinator:
            coordinator.pause()
            for _ in range(50):
                await coordinator.enqueue("a", lane="a")
            coordinator.resume()
            await asyncio.sleep(20)
            coordinator.pause()
            for _ in range(20):
                await coordinator.enqueue("b", lane="b")
            coordinator.resume()
            await coordinator.join()
        after = body.started[21:31]
        assert 4 <= after.count("b") <= 6

    async def test_a_weighted_lane_at_its_own_limit_passes_its_turn(self):
        body = Recorder()
        lanes = [Lane("a", weight=9, max_concurrency=1), Lane("b", weight=1)]
        async with PriorityWorkCoordinator(body, lanes=lanes, max_concurrency=4) as coordinator:
            for lane in "ab":
                for _ in range(4):
                    await coordinator.enqueue(lane, lane=lane)
            await settle()
            assert sorted(body.started) == ["a", "b", "b", "b"]

    async def test_a_weighted_lane_whose_keys_are_busy_passes_its_turn(self):
        body = Recorder()
        lanes = [Lane("a", weight=9), Lane("b", weight=1)]
        coordinator = PriorityWorkCoordinator(body, lanes=lanes, key=lambda item: item, max_concurrency=4)
        async with coordinator:
            for lane, item in [("a", 1), ("a", 1), ("b", 1), ("b", 2)]:
                await coordinator.enqueue(item, lane=lane)
            await settle()
            assert body.started == [1, 2]


class TestBounds:
    async def test_a_lane_may_have_a_concurrency_of_its_own(self):  # fault P14
        body = Recorder()
        lanes = [Lane("high", max_concurrency=2), Lane("low")]
        async with PriorityWorkCoordinator(body, lanes=lanes, max_concurrency=8) as coordinator:
            for _ in range(6):
                await coordinator.enqueue("h", lane="high")
            await coordinator.enqueue("l", lane="low")
            await settle()
            assert sorted(body.started) == ["h", "h", "l"]
            assert coordinator.pending_counts() == {"high": 4, "low": 0}

    async def test_a_lane_may_have_a_depth_of_its_own_and_it_counts_all_that_wait(self):  # fault P5
        lanes = [Lane("high"), Lane("low", max_pending=10)]
        async with PriorityWorkCoordinator(Recorder(), lanes=lanes, max_concurrency=1) as coordinator:
            coordinator.pause()
            taken = [coordinator.try_enqueue(each, lane="low") for each in range(300)]
            assert sum(each is not None for each in taken) == 10
            assert coordinator.try_enqueue(1, lane="high")
            assert coordinator.pending_counts() == {"high": 1, "low": 10}

    async def test_enqueue_waits_for_room_in_its_lane_and_holds_up_no_other(self):
        body = Recorder()
        lanes = [Lane("high"), Lane("low", max_pending=1)]
        async with PriorityWorkCoordinator(body, lanes=lanes, max_concurrency=1) as coordinator:
            coordinator.pause()
            await coordinator.enqueue("l1", lane="low")
            waiter = asyncio.ensure_future(coordinator.enqueue("l2", lane="low"))
            await settle()
            assert not waiter.done()
            await coordinator.enqueue("h1", lane="high")
            coordinator.resume()
            await waiter
            await coordinator.join()
        assert body.started == ["h1", "l1", "l2"]

    async def test_reject_names_the_lane_as_the_reason(self):
        lanes = [Lane("only", max_pending=1)]
        async with PriorityWorkCoordinator(Recorder(), lanes=lanes, overflow="reject") as coordinator:
            coordinator.pause()
            await coordinator.enqueue(1)
            with pytest.raises(CoordinatorFull, match="its key or lane"):
                await coordinator.enqueue(2)
            await coordinator.cancel()

    async def test_drop_oldest_drops_in_the_full_lane(self):
        lanes = [Lane("high", max_pending=1), Lane("low", max_pending=1)]
        async with PriorityWorkCoordinator(Recorder(), lanes=lanes, overflow="drop_oldest") as coordinator:
            coordinator.pause()
            low = await coordinator.enqueue(1, lane="low")
            first = await coordinator.enqueue(2, lane="high")
            second = await coordinator.enqueue(3, lane="high")
            assert [each.status for each in (low, first, second)] == ["pending", "cancelled", "pending"]

    async def test_the_common_bound_holds_for_all_lanes_together(self):
        async with PriorityWorkCoordinator(Recorder(), lanes=HIGH_LOW, max_pending=3) as coordinator:
            coordinator.pause()
            taken = [coordinator.try_enqueue(1, lane=each) for each in ("high", "low", "low", "high")]
            assert [each is not None for each in taken] == [True, True, True, False]

    async def test_a_deadlock_is_seen_through_lanes(self):
        async def body(item):
            if item == "parent":
                await coordinator.enqueue("child", lane="low")
                await coordinator.enqueue("child", lane="low")

        lanes = [Lane("high"), Lane("low", max_pending=1)]
        async with PriorityWorkCoordinator(body, lanes=lanes, max_concurrency=1) as coordinator:
            operation = await coordinator.enqueue("parent", lane="high")
            with pytest.raises(Exception, match="deadlock"):
                await operation


class TestChoosing:
    async def test_without_a_lane_an_item_goes_to_normal_or_else_to_the_last(self):  # fault P9
        async with PriorityWorkCoordinator(Recorder(), lanes=[Lane("a"), Lane("normal"), Lane("b")]) as coordinator:
            assert (await coordinator.enqueue(1)).lane == "normal"
        async with PriorityWorkCoordinator(Recorder(), lanes=HIGH_LOW) as coordinator:
            assert (await coordinator.enqueue(1)).lane == "low"
            assert coordinator.try_enqueue(1).lane == "low"
            await coordinator.run(1)
            assert {each.lane for each in coordinator.snapshot()} == {"low"}
        async with PriorityWorkCoordinator(Recorder()) as coordinator:
            assert [each.name for each in coordinator.lanes] == ["normal"]

    async def test_an_unknown_lane_is_refused_with_the_names_there_are_and_counts_nothing(self):
        async with PriorityWorkCoordinator(Recorder(), lanes=HIGH_LOW) as coordinator:
            for enqueue in (coordinator.enqueue, coordinator.run):
                with pytest.raises(UnknownLane, match=r"no lane named 'hihg'; did you mean 'high'\? .*'high', 'low'"):
                    await enqueue(1, lane="hihg")
            with pytest.raises(UnknownLane):
                coordinator.try_enqueue(1, lane=["unhashable"])
            assert coordinator.total_enqueued == 0

    async def test_a_lane_may_be_chosen_from_another_thread(self):
        async with PriorityWorkCoordinator(Recorder(), lanes=HIGH_LOW) as coordinator:
            future = await asyncio.to_thread(coordinator.enqueue_threadsafe, 1, lane="high", metadata={"a": 1})
            operation = await asyncio.wrap_future(future)
            assert (operation.lane, dict(operation.metadata)) == ("high", {"a": 1})

    async def test_counts_are_a_picture_of_the_moment(self):  # fault P8
        async with PriorityWorkCoordinator(Recorder(), lanes=HIGH_LOW) as coordinator:
            coordinator.pause()
            before = coordinator.pending_counts()
            await coordinator.enqueue(1)
            assert before == {"high": 0, "low": 0}
            assert coordinator.pending_counts() == {"high": 0, "low": 1}


class TestSharedFeatures:  # fault P12
    async def test_cancelled_items_of_a_lane_are_counted_and_reported(self):  # fault P6
        async with PriorityWorkCoordinator(Recorder(), lanes=HIGH_LOW, max_concurrency=1) as coordinator:
            operations = [await coordinator.enqueue(each, lane="low") for each in range(5)]
            await settle()
            await coordinator.cancel()
            assert coordinator.total_cancelled == 5
            for each in operations:
                with pytest.raises(OperationCancelled):
                    await each
            assert coordinator.pending_counts() == {"high": 0, "low": 0}
            await coordinator.aclose()
            assert_quiet(coordinator)

    async def test_draining_twice_is_the_same_as_once(self):  # fault P11
        async with PriorityWorkCoordinator(Recorder(), lanes=HIGH_LOW) as coordinator:
            await coordinator.enqueue(1)
            first, second = await asyncio.gather(coordinator.drain(), coordinator.drain())
            assert first.completed == second.completed == 1

    async def test_the_order_within_a_key_holds_inside_a_lane(self):
        body = Recorder()
        coordinator = PriorityWorkCoordinator(body, lanes=HIGH_LOW, key=lambda item: item[0], max_concurrency=4)
        async with coordinator:
            for item in ("A1", "A2", "B1", "A3"):
                await coordinator.enqueue(item, lane="low")
            await coordinator.join()
        assert [each for each in body.started if each[0] == "A"] == ["A1", "A2", "A3"]
        assert body.peak == 2

    async def test_a_key_runs_once_at_a_time_through_all_lanes(self):
        body = Recorder()
        coordinator = PriorityWorkCoordinator(body, lanes=HIGH_LOW, key=lambda item: item[0], max_concurrency=4)
        async with coordinator:
            coordinator.pause()
            for lane, item in [("low", "A1"), ("low", "A2"), ("high", "A3"), ("high", "B1"), ("low", "B2")]:
                await coordinator.enqueue(item, lane=lane)
            assert coordinator.pending_count_for("A") == 3
            coordinator.resume()
            await coordinator.join()
            assert body.peak == 2
            assert body.started == ["A3", "B1", "A1", "B2", "A2"]
            assert coordinator.engine.leftovers()["keys"] == 0

    async def test_without_keys_no_key_has_anything_waiting(self):
        async with PriorityWorkCoordinator(Recorder(), lanes=HIGH_LOW) as coordinator:
            coordinator.pause()
            await coordinator.enqueue("A1")
            assert coordinator.pending_count_for("A1") == 0

    async def test_fairness_and_its_threshold_hold_inside_a_lane(self):
        coordinator = PriorityWorkCoordinator(
            Recorder(), lanes=HIGH_LOW, key=lambda item: item[0], fair_scheduling=True, fair_scheduling_threshold=2
        )
        async with coordinator:
            coordinator.pause()
            taken = [coordinator.try_enqueue(f"A{each}", lane="low") is not None for each in range(3)]
            assert taken == [True, True, False]
            assert coordinator.try_enqueue("A4", lane="high")
            assert coordinator.try_enqueue("B1", lane="low")

    async def test_many_withdrawn_items_of_keys_and_lanes_pile_up_nowhere(self):
        coordinator = PriorityWorkCoordinator(
            Recorder(), lanes=HIGH_LOW, key=lambda item: item % 3, max_concurrency=2, max_pending=None
        )
        async with coordinator:
            operations = [await coordinator.enqueue(each, lane=HIGH_LOW[each % 2].name) for each in range(1000)]
            await settle()
            for operation in operations[5:990]:
                operation.cancel()
            left = coordinator.engine.leftovers()
            assert left["withdrawn"] <= 200
            await coordinator.join()
            assert coordinator.engine.leftovers()["withdrawn"] == 0
            assert coordinator.engine.leftovers()["keys"] == 0
            assert_adds_up(coordinator)


class TestBadLanes:
    def test_at_least_one_lane_is_needed(self):
        with pytest.raises(InvalidOption, match="lanes=.*at least one Lane"):
            PriorityWorkCoordinator(Recorder(), lanes=[])

    def test_a_name_may_be_used_once(self):
        with pytest.raises(DuplicateName, match="a lane named 'a' exists already"):
            PriorityWorkCoordinator(Recorder(), lanes=[Lane("a"), Lane("a")])

    @pytest.mark.parametrize("lanes", [["high"], [("high", 1)], "high", [None]])
    def test_only_lanes_are_lanes(self, lanes):
        with pytest.raises(InvalidOption, match="lanes=.*Lane objects"):
            PriorityWorkCoordinator(Recorder(), lanes=lanes)

    def test_all_lanes_have_a_weight_or_none(self):
        with pytest.raises(InvalidOption, match="a weight for every lane, or for none"):
            PriorityWorkCoordinator(Recorder(), lanes=[Lane("a", weight=1), Lane("b")])

    @pytest.mark.parametrize("option", ["weight", "max_pending", "max_concurrency"])
    @pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
    def test_numbers_of_a_lane_are_counts(self, option, value):
        with pytest.raises(InvalidOption, match=rf"Lane\.{option}=.*an int of at least 1"):
            Lane("a", **{option: value})

    @pytest.mark.parametrize("name", ["", " ", None, 5])
    def test_a_lane_has_a_name(self, name):
        with pytest.raises(InvalidOption, match=r"Lane\.name="):
            Lane(name)

    @pytest.mark.parametrize("option", ["cancel_on_signals", "defer_on_signals"])
    def test_patterns_of_a_lane_are_checked(self, option):
        assert getattr(Lane("a", **{option: "x.*"}), option) == ("x.*",)
        with pytest.raises(InvalidOption, match=rf"Lane\.{option}"):
            Lane("a", **{option: 5})


async def test_many_items_go_into_a_lane():
    started = []

    async def note(item):
        started.append(item)

    async with PriorityWorkCoordinator(note, lanes=[Lane("hot"), Lane("normal")], max_concurrency=1) as coordinator:
        coordinator.pause()
        assert await coordinator.enqueue_many(["a", "b"]) == 2
        assert await coordinator.enqueue_many(["c", "d"], lane="hot") == 2
        assert coordinator.pending_counts() == {"hot": 2, "normal": 2}
        with pytest.raises(UnknownLane):
            await coordinator.enqueue_many([], lane="hat")
        coordinator.resume()
    assert started == ["c", "d", "a", "b"]
