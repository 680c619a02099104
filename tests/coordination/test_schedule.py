"""Who is next, against the plainest model of it: look through everything that waits, each time anew."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals.coordination.schedule import FifoSchedule, KeyedSchedule, KeyTable
from ephemerals.snapshot import OperationStatus


class Item:
    """Stand for an operation."""

    lane = None

    def __init__(self, number, key=None):
        self._order = number
        self.key = self._key = key
        self._status = OperationStatus.PENDING
        self._is_ready = False

    def __repr__(self):
        return f"{self._order}{self.key or ''}"


class Oldest:
    """Say that the oldest item whose key has a free place is next; `None` is no key."""

    def __init__(self, per_key):
        self.per_key = per_key
        self.pending = []
        self.active = []

    def has_place(self, key):
        return key is None or sum(each.key == key for each in self.active) < self.per_key

    def changed(self):
        pass

    def next(self):
        return next((each for each in self.pending if self.has_place(each.key)), None)


class InTurn(Oldest):
    """Say that keys with a free place take turns, in the order in which their next item could first start."""

    def __init__(self, per_key):
        super().__init__(per_key)
        self.turns = []

    def changed(self):
        self.turns = [each for each in self.turns if each in self.pending]
        for each in self.pending:
            is_first = each.key is None or each.key not in [other.key for other in self.turns]
            if each not in self.turns and is_first and self.has_place(each.key):
                self.turns.append(each)

    def next(self):
        return self.turns[0] if self.turns else None


steps = st.lists(
    st.one_of(
        st.sampled_from(("a", "a", "b", "c", None)),
        st.tuples(st.sampled_from(("start", "start", "finish", "withdraw")), st.integers(0, 9)),
    ),
    max_size=60,
)


def play(schedule, model, steps):
    """Do the same to both, and compare after every step."""
    for number, step in enumerate(steps):
        match step:
            case ("start", _):
                expected = model.next()
                assert schedule.pop() is expected
                if expected is not None:
                    expected._status = OperationStatus.RUNNING
                    model.pending.remove(expected)
                    model.active.append(expected)
            case ("finish", index):
                if model.active:
                    ended = model.active.pop(index % len(model.active))
                    ended._status = OperationStatus.COMPLETED
                    schedule.finished(ended)
            case ("withdraw", index):
                if model.pending:
                    gone = model.pending.pop(index % len(model.pending))
                    gone._status = OperationStatus.CANCELLED
                    schedule.withdrawn(gone)
            case key:
                item = Item(number, key)
                model.pending.append(item)
                schedule.push(item)
        model.changed()
        yield


@given(steps=steps)
def test_without_keys_the_first_is_next(steps):
    schedule, model = FifoSchedule(), Oldest(per_key=1000)
    for _ in play(schedule, model, steps):
        assert model.pending or schedule.leftovers() == {"withdrawn": 0}


@pytest.mark.parametrize(("fair", "make_model"), [(False, Oldest), (True, InTurn)], ids=["oldest first", "fair"])
@given(steps=steps, per_key=st.integers(1, 3))
def test_with_keys_the_model_and_the_schedule_agree_at_every_step(fair, make_model, steps, per_key):
    model = make_model(per_key)
    schedule = KeyedSchedule(KeyTable(per_key), fair=fair, threshold=10)
    for _ in play(schedule, model, steps):
        waiting = Counter(each.key for each in model.pending)
        assert all(schedule.pending_for(key) == waiting[key] for key in ("a", "b", "c", None))
        busy = {each.key for each in model.active if each.key is not None}
        assert schedule.leftovers()["keys"] == len(busy | waiting.keys())
        assert model.pending or not schedule.leftovers()["withdrawn"]


@given(steps=steps, per_key=st.integers(1, 2), first=st.lists(st.booleans(), max_size=60))
def test_two_schedules_that_share_a_table_never_exceed_it_and_keep_the_order_in_each(steps, per_key, first):
    table = KeyTable(per_key)
    schedules = [KeyedSchedule(table), KeyedSchedule(table)]
    pending = {0: [], 1: []}
    active = []
    where = iter([*first, *[True] * 60])
    for number, step in enumerate(steps):
        which = int(next(where))
        match step:
            case ("start", _):
                operation = schedules[which].pop()
                can_start = [
                    each
                    for each in pending[which]
                    if each.key is None or sum(other.key == each.key for _, other in active) < per_key
                ]
                assert operation is (can_start[0] if can_start else None)
                if operation is not None:
                    pending[which].remove(operation)
                    active.append((which, operation))
                    operation._status = OperationStatus.RUNNING
            case ("finish", index) if active:
                _, ended = active.pop(index % len(active))
                table.finish(ended.key)
                for each in schedules:
                    each.place_freed(ended.key)
            case ("withdraw", index) if pending[which]:
                gone = pending[which].pop(index % len(pending[which]))
                gone._status = OperationStatus.CANCELLED
                schedules[which].withdrawn(gone)
            case key if not isinstance(key, tuple):
                item = Item(number, key)
                pending[which].append(item)
                schedules[which].push(item)


@pytest.mark.parametrize("make", [FifoSchedule, lambda: KeyedSchedule(KeyTable(1))], ids=["first in", "keyed"])
def test_withdrawn_items_do_not_pile_up_behind_one_that_stays(make):
    schedule = make()
    stays = Item(0, "stays")
    schedule.push(stays)
    for number in range(1, 1001):
        item = Item(number, number % 3)
        schedule.push(item)
        item._status = OperationStatus.CANCELLED
        schedule.withdrawn(item)
        assert schedule.leftovers()["withdrawn"] <= 33
    assert schedule.pop() is stays
    assert schedule.leftovers()["withdrawn"] == 0


def test_with_fair_turns_a_key_with_much_work_does_not_hold_up_one_with_little():
    schedule = KeyedSchedule(KeyTable(1), fair=True, threshold=1000)
    for number in range(100):
        schedule.push(Item(number, "much"))
    schedule.push(Item(100, "little"))
    started = []
    for _ in range(2):
        item = schedule.pop()
        started.append(item.key)
        schedule.finished(item)
    assert started == ["much", "little"]
