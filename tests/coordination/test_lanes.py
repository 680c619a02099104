"""Which lane is next: the highest that can go, within a bound on starvation, or each by its weight."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.coordination.test_schedule import Item

from ephemerals.coordination.lanes import Lane, LaneSchedule
from ephemerals.coordination.schedule import FifoSchedule, KeyedSchedule, KeyTable
from ephemerals.snapshot import OperationStatus

NAMES = ("hot", "normal", "cold")


def laned(number, lane, key=None):
    item = Item(number, key)
    item.lane = lane
    return item


class Crowd:
    """Follow what waits and what runs in each lane, beside a schedule."""

    def __init__(self, lanes, *, per_key=None, starvation_limit=None):
        table = None if per_key is None else KeyTable(per_key)
        self.lanes = lanes
        self.per_key = per_key
        self.schedule = LaneSchedule(
            lanes,
            lambda name: FifoSchedule() if table is None else KeyedSchedule(table, lane=name),
            table=table,
            starvation_limit=starvation_limit,
        )
        self.pending = []
        self.active = []

    def push(self, item):
        self.pending.append(item)
        self.schedule.push(item)

    def pop(self):
        item = self.schedule.pop()
        if item is not None:
            self.pending.remove(item)
            self.active.append(item)
            item._status = OperationStatus.RUNNING
        return item

    def finish(self, index):
        if self.active:
            self.schedule.finished(self.active.pop(index % len(self.active)))

    def withdraw(self, index):
        if self.pending:
            item = self.pending.pop(index % len(self.pending))
            item._status = OperationStatus.CANCELLED
            self.schedule.withdrawn(item)

    def first_that_can_go(self, lane):
        if lane.max_concurrency is not None and self.running_in(lane) >= lane.max_concurrency:
            return None
        return next((each for each in self.pending if each.lane == lane.name and self.has_place(each)), None)

    def running_in(self, lane):
        return sum(each.lane == lane.name for each in self.active)

    def has_place(self, item):
        if self.per_key is None or item.key is None:
            return True
        return sum(each.key == item.key for each in self.active) < self.per_key

    def play(self, steps):
        """Do what the steps say; at each start yield what could have gone, highest lane first, and what did go."""
        for number, step in enumerate(steps):
            match step:
                case ("start", _):
                    could = [self.first_that_can_go(lane) for lane in self.lanes]
                    yield [each for each in could if each is not None], self.pop()
                case ("finish", index):
                    self.finish(index)
                case ("withdraw", index):
                    self.withdraw(index)
                case (lane, key):
                    self.push(laned(number, lane, key))


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(("a", "b", None))),
        st.tuples(st.sampled_from(("start", "start", "finish", "withdraw")), st.integers(0, 9)),
    ),
    max_size=60,
)
limits = st.tuples(*[st.sampled_from((None, 1, 2))] * 3)
per_key = st.sampled_from((None, 1, 2))


def lanes_with(limits, weights=(None, None, None)):
    return [
        Lane(name, weight=weight, max_concurrency=limit)
        for name, limit, weight in zip(NAMES, limits, weights, strict=True)
    ]


@given(steps=steps, limits=limits, per_key=per_key)
def test_strictly_the_first_item_of_the_highest_lane_that_can_go_is_next(steps, limits, per_key):
    for could_go, went in Crowd(lanes_with(limits), per_key=per_key).play(steps):
        assert went is (could_go[0] if could_go else None)


@given(steps=steps, limits=limits, per_key=per_key, weights=st.tuples(*[st.integers(1, 3)] * 3))
def test_with_weights_something_goes_whenever_something_can(steps, limits, per_key, weights):
    for could_go, went in Crowd(lanes_with(limits, weights), per_key=per_key).play(steps):
        assert went in could_go if could_go else went is None


@given(steps=steps, limits=limits, per_key=per_key, starvation_limit=st.integers(1, 3))
def test_no_lane_that_can_go_is_passed_by_more_than_the_starvation_limit(steps, limits, per_key, starvation_limit):
    # R50
    ranks = {name: rank for rank, name in enumerate(NAMES)}
    passed = Counter()
    crowd = Crowd(lanes_with(limits), per_key=per_key, starvation_limit=starvation_limit)
    for could_go, went in crowd.play(steps):
        assert went in could_go if could_go else went is None
        for name in NAMES:
            if name not in [each.lane for each in could_go] or went.lane == name:
                passed[name] = 0
            elif ranks[went.lane] < ranks[name]:
                passed[name] += 1
            assert passed[name] <= starvation_limit


@given(weights=st.tuples(*[st.integers(1, 4)] * 3), rounds=st.integers(1, 5))
def test_weights_are_exact_in_every_round_while_all_lanes_have_work(weights, rounds):
    crowd = Crowd(lanes_with((None, None, None), weights))
    for number in range(rounds * sum(weights) + 3):
        for name in NAMES:
            crowd.push(laned(number, name))
    for _ in range(rounds):
        share = Counter(crowd.pop().lane for _ in range(sum(weights)))
        assert tuple(share[name] for name in NAMES) == weights


@pytest.mark.parametrize("reason", ["its key is busy", "its own limit", "it has no work"])
def test_a_lane_that_could_not_go_for_a_while_saves_nothing_up(reason):
    crowd = Crowd([Lane("hot", weight=1, max_concurrency=1), Lane("cold", weight=1)], per_key=1)
    number = iter(range(10_000))

    def fill(lane, key, count):
        for _ in range(count):
            crowd.push(laned(next(number), lane, key))

    busy = "cold" if reason == "its key is busy" else "hot"
    if reason != "it has no work":
        fill(busy, "busy", 1)
        assert crowd.pop().lane == busy
        fill("hot", "busy", 20)
    fill("cold", None, 100)
    assert [crowd.pop().lane for _ in range(50)] == ["cold"] * 50
    if reason == "it has no work":
        fill("hot", "busy", 20)
    else:
        crowd.finish(0)
    went = Counter()
    for _ in range(10):
        item = crowd.pop()
        went[item.lane] += 1
        crowd.finish(len(crowd.active) - 1)
    assert went == {"hot": 5, "cold": 5}
