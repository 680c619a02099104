"""Who may come in: first come, first served; nothing is lost when somebody who waits is cancelled (R24, R25, R26)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.invariants.stepping import SteppedLoop

from ephemerals import KeyedWorkCoordinator, Lane, PriorityWorkCoordinator, WorkCoordinator
from ephemerals.coordination.admission import Admission


class Place:
    """Stand for an operation: an item that wants into some compartments."""

    def __init__(self, name, compartments=()):
        self.name = name
        self.compartments = compartments


class Rooms:
    """Stand for a schedule: count what waits in each compartment."""

    def __init__(self, bounds=None):
        self.bounds = bounds or {}
        self.inside = []

    @property
    def has_compartments(self):
        return bool(self.bounds)

    def compartments(self, place):
        return [(each, self.bounds[each]) for each in place.compartments]

    def count(self, compartment):
        return sum(compartment in each.compartments for each in self.inside)


class Door:
    """Drive an admission as an engine does, and write down who came in."""

    def __init__(self, limit, bounds=None):
        self.stepped = SteppedLoop()
        self.rooms = Rooms(bounds)
        self.admission = Admission(limit, self.rooms, self.rooms.inside)
        self.tasks = []
        self.came_in = []

    def come(self, place):
        task = self.stepped.spawn(self._come(place))
        self.tasks.append((place, task))
        return task

    async def _come(self, place):
        if not self.admission.has_room(place):
            await self.admission.wait(place, lambda _: None)
            self._let_in(place)
            self.admission.used(place)
        else:
            self._let_in(place)

    def _let_in(self, place):
        self.rooms.inside.append(place)
        self.came_in.append(place)

    @property
    def names(self):
        return [place.name for place in self.came_in]

    def leave(self, index=0):
        if self.rooms.inside:
            self.admission.left(self.rooms.inside.pop(index % len(self.rooms.inside)))

    @property
    def waiting(self):
        return [place for place, task in self.tasks if not task.done()]

    def cancel(self, index):
        waiting = [task for _, task in self.tasks if not task.done()]
        if waiting:
            waiting[index % len(waiting)].cancel()

    def close(self):
        self.stepped.settle()
        self.stepped.close()


STEPS = ("come", "leave", "cancel the first", "cancel the last", "turn")


@pytest.mark.parametrize("limit", [1, 2])
def test_in_every_small_schedule_room_goes_to_the_first_who_still_waits(limit):
    # R26: who is woken and cancelled in one step passes the wake-up on; here in every order of steps.
    door = Door(limit)
    for steps in product(STEPS, repeat=5):
        door.rooms.inside.clear()
        door.tasks.clear()
        door.came_in.clear()
        numbers = iter(range(100))
        for step in ("come", "turn", *steps):
            if step == "come":
                door.come(Place(next(numbers)))
            elif step == "leave":
                door.stepped.call(door.leave)
            elif step == "turn":
                door.stepped.turn()
            else:
                door.cancel(0 if step == "cancel the first" else -1)
        door.stepped.settle()
        assert len(door.rooms.inside) == limit or not door.waiting, steps
        while door.rooms.inside:
            door.stepped.call(door.leave)
            door.stepped.settle()
        assert not door.waiting, steps
        assert door.names == sorted(door.names), steps
        assert door.admission.is_quiet, steps
        assert door.admission.waiting == 0, steps
    door.close()


def test_a_hundred_thousand_waits_that_are_given_up_leave_nothing_behind():
    # R24, R25
    door = Door(1, {"a": 1})
    admission = door.admission
    door.rooms.inside.append(Place("inside", ("a",)))
    with door.stepped.inside():
        for number in range(100):
            compartments = ("a",) if number % 2 else ()
            waits = [admission.wait(Place(name, compartments), lambda _: None) for name in range(1000)]
            for wait in waits:
                wait.send(None)
            assert admission.waiting == 1000
            for wait in waits:
                with suppress(TimeoutError):
                    wait.throw(TimeoutError())
            assert admission.waiting == 0
            assert admission.is_quiet
    door.close()


COMPARTMENTS = ((), ("a",), ("b",), ("lane",), ("lane", "a"), ("lane", "b"))


def first_who_fits(waiting, inside, limit, bounds):
    """Say who comes in next, by the rule alone: the first whose compartments all have room and no earlier claimant."""
    if len(inside) >= limit:
        return None
    claimed = set()
    for place in waiting:
        full = [
            each for each in place.compartments if sum(each in other.compartments for other in inside) >= bounds[each]
        ]
        if not full and not claimed.intersection(place.compartments):
            return place
        claimed.update(full)
    return None


@given(
    limit=st.integers(1, 4),
    bounds=st.fixed_dictionaries({"a": st.integers(1, 2), "b": st.integers(1, 2), "lane": st.integers(1, 3)}),
    steps=st.lists(
        st.one_of(
            st.sampled_from(COMPARTMENTS),
            st.tuples(st.sampled_from(("leave", "cancel")), st.integers(0, 9)),
            st.sampled_from(("settle",)),
        ),
        max_size=40,
    ),
)
def test_whoever_came_first_and_fits_comes_in_next(limit, bounds, steps):
    door = Door(limit, bounds)
    for number, step in enumerate((*steps, "settle")):
        match step:
            case ("leave", index):
                door.stepped.call(door.leave, index)
            case ("cancel", index):
                door.cancel(index)
            case "settle":
                door.stepped.settle()
                left_out = first_who_fits(door.waiting, door.rooms.inside, limit, bounds)
                assert left_out is None, f"{left_out.name} could come in"
                assert len(door.rooms.inside) <= limit
                assert all(door.rooms.count(each) <= bound for each, bound in bounds.items())
            case compartments:
                door.come(Place(number, compartments))
    while door.rooms.inside:
        door.stepped.call(door.leave)
        door.stepped.settle()
    assert not door.waiting
    assert door.admission.is_quiet
    for compartments in COMPARTMENTS:
        numbers = [place.name for place in door.came_in if place.compartments == compartments]
        assert numbers == sorted(numbers), "somebody was overtaken"
    door.close()


@pytest.mark.parametrize("is_woken_before", [True, False])
def test_a_wake_up_that_hits_a_cancelled_waiter_of_a_key_is_passed_on(is_woken_before):
    # R26, for those who are parked because too much waits for their key.
    door = Door(10, {"a": 1})
    for name in ("waits", "cancelled", "next"):
        door.come(Place(name, ("a",)))
    door.stepped.settle()
    if is_woken_before:
        door.stepped.call(door.leave)
        door.cancel(0)
    else:
        door.cancel(0)
        door.stepped.call(door.leave)
    door.stepped.settle()
    assert door.names == ["waits", "next"]
    door.close()


def test_who_lines_up_behind_somebody_about_to_come_in_is_not_forgotten():
    door = Door(2)
    for name in ("first", "second", "woken"):
        door.come(Place(name))
    door.stepped.settle()
    door.stepped.call(door.leave)
    door.come(Place("behind"))
    door.stepped.call(door.leave)
    door.stepped.settle()
    assert door.names == ["first", "second", "woken", "behind"]
    door.close()


def test_who_finds_its_key_full_only_at_the_head_of_the_line_keeps_its_place_among_the_others_of_the_key():
    door = Door(2, {"a": 1})
    for name, compartments in (("1", ()), ("2", ()), ("a1", ("a",)), ("a2", ("a",))):
        door.come(Place(name, compartments))
    door.stepped.settle()
    door.stepped.call(door.leave)  # a1 comes in, so its key is full
    door.stepped.settle()
    door.come(Place("a3", ("a",)))
    door.stepped.settle()
    while door.rooms.inside:
        door.stepped.call(door.leave)
        door.stepped.settle()
    assert door.names == ["1", "2", "a1", "a2", "a3"]
    door.close()


def test_who_gives_up_after_its_key_had_room_again_lets_the_next_of_the_key_in():
    door = Door(2, {"a": 1})
    for name, compartments in (("a1", ("a",)), ("plain 1", ()), ("plain 2", ()), ("a2", ("a",)), ("a3", ("a",))):
        door.come(Place(name, compartments))
    door.stepped.settle()
    door.stepped.call(door.leave)  # a1, so that "plain 2" comes in, and a2 would be next
    door.stepped.settle()
    door.cancel(0)
    door.stepped.settle()
    door.stepped.call(door.leave)
    door.stepped.settle()
    assert door.names == ["a1", "plain 1", "plain 2", "a3"]
    door.close()


async def gate_body(gate):
    await gate.wait()


async def test_try_enqueue_does_not_overtake_somebody_who_has_been_woken_but_has_not_run_yet():
    # R47
    gate = asyncio.Event()
    async with WorkCoordinator(gate_body, max_concurrency=1, max_pending=1) as coordinator:
        first = await coordinator.enqueue(gate)
        await asyncio.sleep(0)
        second = await coordinator.enqueue(gate)
        waiting = asyncio.create_task(coordinator.enqueue(gate))
        await asyncio.sleep(0)
        second.cancel()
        assert coordinator.pending_count == 0
        assert coordinator.try_enqueue(gate) is None
        assert (await waiting).status == "pending"
        gate.set()
    assert first.status == "completed"


async def test_a_key_without_room_does_not_keep_others_out():
    gate = asyncio.Event()
    coordinator = KeyedWorkCoordinator(
        lambda item: item[0],
        lambda item: gate_body(item[1]),
        max_concurrency=1,
        fair_scheduling=True,
        fair_scheduling_threshold=1,
    )
    coordinator.pause()
    await coordinator.enqueue(("a", gate))
    parked = asyncio.create_task(coordinator.enqueue(("a", gate)))
    await asyncio.sleep(0)
    assert coordinator.try_enqueue(("a", gate)) is None
    assert coordinator.try_enqueue(("b", gate)) is not None
    parked.cancel()
    await asyncio.wait((parked,))
    assert coordinator.statistics().waiting == 0
    await coordinator.cancel()
    await coordinator.aclose()


async def test_a_full_lane_keeps_only_its_own_out_and_lets_them_in_as_they_came():
    order = []

    async def body(item):
        order.append(item)

    lanes = [Lane("hot", max_pending=1), Lane("normal")]
    async with PriorityWorkCoordinator(body, lanes=lanes, max_concurrency=1) as coordinator:
        coordinator.pause()
        await coordinator.enqueue("hot 1", lane="hot")
        waiting = [asyncio.create_task(coordinator.enqueue(f"hot {number}", lane="hot")) for number in (2, 3)]
        await asyncio.sleep(0)
        await coordinator.enqueue("normal")
        coordinator.resume()
        await asyncio.gather(*waiting)
    assert order[0] == "hot 1"
    assert order.index("hot 2") < order.index("hot 3")
