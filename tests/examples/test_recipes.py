"""The small recipes: fan-outs, a long window, and reactions to signals."""

from __future__ import annotations

import asyncio
from collections import Counter

from examples.controlled_fan_out import fan_out
from examples.keyed_priority_fan_out import two_lanes
from examples.long_window import run_remembering
from examples.signal_reactions import hold_back, showcase

from ephemerals.signals import SignalSink
from ephemerals.testing import VirtualClock, assert_quiet


class Work:
    """Take some time for an item, and note what ran together and in which order."""

    def __init__(self, seconds=0.01):
        self.seconds = seconds
        self.running, self.most, self.most_of_a_key, self.order = [], 0, 0, []

    async def __call__(self, item):
        self.running.append(item[0])
        self.most = max(self.most, len(self.running))
        self.most_of_a_key = max(self.most_of_a_key, *Counter(self.running).values())
        await asyncio.sleep(self.seconds)
        self.running.remove(item[0])
        self.order.append(item)
        if item.endswith("!"):
            raise ValueError(item)


def key_of(item):
    return item[0]


async def test_a_controlled_fan_out_uses_all_it_may_and_keeps_the_order_of_a_key():
    work = Work()
    report = await fan_out(["a1", "a2", "b1", "b2", "c1", "a3!"], work, key_of, at_once=2)
    assert (work.most, work.most_of_a_key) == (2, 1)
    assert [item for item in work.order if item[0] == "a"] == ["a1", "a2", "a3!"]
    assert (report.completed, report.failed) == (5, 1)
    more = Work()
    await fan_out(["a1", "a2", "a3", "b1"], more, key_of, at_once=4, per_key=2)
    assert (more.most, more.most_of_a_key) == (3, 2)


async def test_what_is_urgent_waits_for_nothing_that_merely_waits():
    work = Work()
    async with two_lanes(work, key_of, at_once=1) as coordinator:
        for item in ("a1", "a2", "b1", "b2"):
            await coordinator.enqueue(item, lane="normal")
        await asyncio.sleep(0.015)  # the second runs
        await coordinator.enqueue("c1", lane="urgent")
    assert work.order == ["a1", "a2", "c1", "b1", "b2"]
    assert_quiet(coordinator)


async def test_an_urgent_item_of_a_key_is_never_run_beside_another_of_it():
    work = Work()
    async with two_lanes(work, key_of, at_once=4) as coordinator:
        for number in range(3):
            await coordinator.enqueue(f"a{number}", lane="normal")
            await coordinator.enqueue(f"a{number}!", lane="urgent")
    assert work.most_of_a_key == 1


async def test_normal_items_do_not_starve_and_the_urgent_lane_is_bounded():
    work = Work()
    async with two_lanes(work, key_of, at_once=1, most_overtaking=3, most_urgent_waiting=6) as coordinator:
        await coordinator.enqueue("n", lane="normal")
        accepted = [coordinator.try_enqueue(f"{number}u", lane="urgent") for number in range(8)]
        assert [each is not None for each in accepted] == [True] * 6 + [False] * 2
    assert work.order.index("n") == 3


async def test_a_long_job_is_remembered_as_far_as_the_window_goes():
    remembered = []

    async def work(number):
        await asyncio.sleep(1)
        if number % 10 == 0:
            raise ValueError

    def look(view):
        remembered.append(sum(each.finished_at is not None for each in view))

    newest, left = await run_remembering(range(500), work, window=20, on_sample=look, sample_interval=0)
    assert len(newest) == 20
    assert max(remembered) == 20
    assert left == {"completed": 450 - 18, "failed": 50 - 2}


async def test_as_many_signals_are_heard_as_are_found_afterwards():
    sink = SignalSink()
    assert await showcase(12, sink) == {"heard started": 12, "heard done": 12, "found started": 12, "found done": 12}
    assert sorted(event.data["number"] for event in sink.events("stage.done")) == list(range(12))


async def test_deliveries_wait_for_the_database_and_no_longer():
    log = []
    await hold_back(SignalSink(), log)
    assert log == ["the database is busy", "delivered a parcel"]
    assert VirtualClock.current().monotonic() - 1000 < 0.011
