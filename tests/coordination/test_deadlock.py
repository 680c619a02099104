"""A wait that could never end is told so instead of hanging (R45, R46); a wait that can end never is."""

from __future__ import annotations

import asyncio
from contextvars import Context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals import (
    DeadlockError,
    KeyedWorkCoordinator,
    Lane,
    OperationCancelled,
    PriorityWorkCoordinator,
    WorkCoordinator,
)
from ephemerals.coordination.deadlock import Wait, stuck_operations
from ephemerals.coordination.schedule import FifoSchedule, KeyedSchedule, KeyTable
from ephemerals.snapshot import OperationStatus
from ephemerals.testing import VirtualClock, assert_quiet


class Some:
    """Stand for an operation."""

    lane = None

    def __init__(self, status, key):
        self.status = status
        self.key = self._key = key


def left_after_everything_that_can_happen(running, pending, waits, limit, per_key):
    """Play it through: who waits for nothing ends, what has a place starts and ends, until nothing moves."""
    alive, queue, ended = set(running), list(pending), set()
    room_was_made = False
    moved = True
    while moved:
        moved = False
        for each in list(alive):
            if all(room_was_made if wait.for_room else wait.target in ended for wait in waits if wait.waiting is each):
                alive.remove(each)
                ended.add(each)
                moved = True
        for each in list(queue):
            same = sum(other.key == each.key for other in alive)
            if len(alive) < limit and (per_key is None or same < per_key):
                queue.remove(each)
                ended.add(each)
                room_was_made = moved = True
    return alive


@given(
    running=st.lists(st.sampled_from("ab"), min_size=1, max_size=4),
    pending=st.lists(st.sampled_from("abc"), max_size=3),
    waits=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.booleans()), max_size=6),
    limit=st.integers(1, 5),
    per_key=st.sampled_from((None, 1, 2)),
)
def test_exactly_those_are_stuck_who_are_left_when_nothing_moves_any_more(running, pending, waits, limit, per_key):
    running = [Some(OperationStatus.RUNNING, key) for key in running]
    pending = [Some(OperationStatus.PENDING, key) for key in pending]
    targets = [*pending, *running]
    waits = [
        Wait(running[who % len(running)], targets[for_what % len(targets)], for_room and bool(pending))
        for who, for_what, for_room in waits
    ]
    waits = [each for each in waits if each.for_room or each.target is not each.waiting]
    schedule = FifoSchedule() if per_key is None else KeyedSchedule(KeyTable(per_key))
    stuck = stuck_operations(waits, schedule, pending, limit)
    assert stuck == left_after_everything_that_can_happen(running, pending, waits, limit, per_key)
    if not stuck_operations(waits[:-1], schedule, pending, limit) and waits:
        assert stuck_operations(waits, schedule, pending, limit, newest=waits[-1]) == stuck


async def settled():
    await VirtualClock.current().settle()


class Family:
    """Run items that are functions of it, or pairs of a key and such a function, and note what becomes of each."""

    def __init__(self, make=WorkCoordinator, **options):
        self.gate = asyncio.Event()
        self.told = []
        self.coordinator = make(self._body, **options)

    async def _body(self, item):
        try:
            return await (item[1] if isinstance(item, tuple) else item)(self)
        except DeadlockError as error:
            self.told.append(error)
            raise

    async def parent(self, **choice):
        return await self.coordinator.run(Family.child, **choice)

    async def child(self):
        return "done"

    async def waits(self):
        await self.gate.wait()


async def test_a_body_that_awaits_its_child_in_the_only_slot_is_told_so():
    # R45
    family = Family(max_concurrency=1)
    async with family.coordinator:
        parent = await family.coordinator.enqueue(Family.parent)
        with pytest.raises(DeadlockError) as caught:
            await parent
        assert caught.value.operations == (parent.id,)
        assert await family.coordinator.run(Family.child) == "done"
    assert family.coordinator.total_completed == 2  # the child of the failed parent too
    assert family.coordinator.total_failed == 1


async def test_a_body_may_await_its_child_while_a_slot_is_free():
    family = Family(max_concurrency=2)
    async with family.coordinator:
        assert await family.coordinator.run(Family.parent) == "done"
    assert not family.told


async def test_parents_in_all_slots_may_wait_as_long_as_something_else_runs():
    family = Family(max_concurrency=2)
    async with family.coordinator:
        await family.coordinator.enqueue(Family.waits)
        parent = await family.coordinator.enqueue(Family.parent)
        await settled()
        assert parent.status == "running"
        family.gate.set()
        assert await parent == "done"
    assert not family.told


async def test_of_parents_in_all_slots_the_last_is_told_so_and_the_others_go_on():
    family = Family(max_concurrency=3)
    async with family.coordinator:
        parents = [await family.coordinator.enqueue(Family.parent) for _ in range(3)]
        outcomes = await asyncio.gather(*parents, return_exceptions=True)
    assert outcomes[:2] == ["done", "done"]
    assert isinstance(outcomes[2], DeadlockError)
    assert set(outcomes[2].operations) == {each.id for each in parents}


async def test_a_body_that_gathers_children_in_the_only_slot_is_told_so():
    async def gathers(family):
        await asyncio.gather(*(family.coordinator.run(Family.child) for _ in range(3)))

    family = Family(max_concurrency=1)
    async with family.coordinator:
        with pytest.raises(DeadlockError):
            await family.coordinator.run(gathers)
    assert family.coordinator.total_completed == 3


async def test_a_chain_of_waits_through_a_running_operation_is_a_deadlock():
    # The first waits for the second, which runs; the second waits for a third, which has no slot.
    family = Family(max_concurrency=2)

    async def first(_):
        return await second_operation

    async def second(family):
        await asyncio.sleep(1)
        return await family.parent()

    async with family.coordinator:
        second_operation = await family.coordinator.enqueue(second)
        first_operation = await family.coordinator.enqueue(first)
        with pytest.raises(DeadlockError) as caught:
            await second_operation
        assert set(caught.value.operations) == {first_operation.id, second_operation.id}
        with pytest.raises(DeadlockError):
            await first_operation  # it gets what the other one raised


async def test_two_that_await_each_other_are_a_deadlock_however_many_slots_are_free():
    family = Family(max_concurrency=10)
    operations = []

    async def first(family):
        await family.gate.wait()
        return await operations[1]

    async def second(family):
        await family.gate.wait()
        return await operations[0]

    async with family.coordinator:
        operations += [await family.coordinator.enqueue(each) for each in (first, second)]
        await settled()
        family.gate.set()
        outcomes = await asyncio.gather(*operations, return_exceptions=True)
    assert all(isinstance(each, DeadlockError) for each in outcomes)
    assert len(family.told) == 2


async def test_bodies_that_all_enqueue_into_a_full_queue_are_told_so():
    # R46
    async def enqueues(family):
        await family.gate.wait()
        return await family.coordinator.enqueue(Family.child)

    family = Family(max_concurrency=2, max_pending=1)
    async with family.coordinator:
        bodies = [await family.coordinator.enqueue(enqueues)]
        await settled()
        bodies.append(await family.coordinator.enqueue(enqueues))
        await settled()
        await family.coordinator.enqueue(Family.child)
        family.gate.set()
        outcomes = await asyncio.gather(*bodies, return_exceptions=True)
        assert await outcomes[0] == "done"
        assert isinstance(outcomes[1], DeadlockError)


async def test_a_child_of_the_same_key_is_a_deadlock_although_slots_are_free():
    family = Family(lambda body, **options: KeyedWorkCoordinator(lambda _: "one", body, **options), max_concurrency=8)
    async with family.coordinator:
        with pytest.raises(DeadlockError):
            await family.coordinator.run(Family.parent)
    assert family.coordinator.total_completed == 1


async def test_nobody_is_told_while_it_is_paused_and_the_end_of_the_pause_tells_them():
    family = Family(max_concurrency=1)

    async def pauses(family):
        family.coordinator.pause()
        return await family.parent()

    async with family.coordinator:
        parent = await family.coordinator.enqueue(pauses)
        await settled()
        assert parent.status == "running"
        family.coordinator.resume()
        with pytest.raises(DeadlockError):
            await parent


async def test_a_lower_limit_tells_as_many_as_must_give_up():
    family = Family(max_concurrency=4)
    async with family.coordinator:
        await family.coordinator.enqueue(Family.waits)
        parents = [await family.coordinator.enqueue(Family.parent) for _ in range(3)]
        await settled()
        assert not family.told  # once the first has ended there is a slot for the children
        family.coordinator.set_max_concurrency(1)
        outcomes = await asyncio.gather(*parents, return_exceptions=True)
        family.gate.set()
    assert all(isinstance(each, DeadlockError) for each in outcomes)
    assert family.coordinator.total_completed == 4


async def test_a_lower_limit_tells_nobody_who_can_go_on():
    family = Family(max_concurrency=4)
    async with family.coordinator:
        await family.coordinator.enqueue(Family.waits)
        parents = [await family.coordinator.enqueue(Family.parent) for _ in range(2)]
        await settled()
        family.coordinator.set_max_concurrency(3)
        family.gate.set()
        assert await asyncio.gather(*parents) == ["done", "done"]
    assert not family.told


async def test_a_body_that_waits_for_room_is_told_when_an_outsider_has_taken_it():
    # The one item that can start makes room; who comes in then has the key of the body that waits behind it.
    family = Family(
        lambda body, **options: KeyedWorkCoordinator(lambda item: item[0], body, **options),
        max_concurrency=2,
        max_pending=1,
    )
    async with family.coordinator as coordinator:
        await coordinator.enqueue(("other", Family.waits))
        await settled()
        body = await coordinator.enqueue(("busy", lambda _: started()))
        outsider = None

        async def started():
            nonlocal outsider
            await coordinator.enqueue(("free", Family.child))
            outsider = asyncio.create_task(coordinator.enqueue(("busy", Family.child)), context=Context())
            await asyncio.sleep(0)
            return await coordinator.enqueue(("busy", Family.child))

        await settled()
        assert not family.told
        family.gate.set()
        with pytest.raises(DeadlockError):
            await body
        assert await (await outsider) == "done"


async def test_to_wait_for_the_common_room_is_no_deadlock_in_a_lane_where_nothing_waits():
    async def enqueues(family):
        await family.gate.wait()
        return await family.coordinator.enqueue(Family.child, lane="hot")

    lanes = [Lane("hot", max_pending=5), Lane("normal")]
    family = Family(PriorityWorkCoordinator, lanes=lanes, max_concurrency=2, max_pending=2)
    async with family.coordinator as coordinator:
        body = await coordinator.enqueue(enqueues)
        await settled()
        for _ in range(3):
            await coordinator.enqueue(Family.waits)
            await settled()
        assert coordinator.pending_count == 2
        family.gate.set()
        assert await (await body) == "done"
    assert not family.told


async def test_what_a_body_has_left_waiting_when_it_ended_holds_no_slot():
    tasks = []

    async def leaves_a_task(family):
        tasks.append(asyncio.create_task(family.parent()))
        await asyncio.sleep(0)

    family = Family(max_concurrency=2)
    async with family.coordinator as coordinator:
        await coordinator.enqueue(Family.waits)
        await coordinator.enqueue(leaves_a_task)
        parent = await coordinator.enqueue(Family.parent)
        await settled()
        assert parent.status == "running"
        family.gate.set()
        assert await parent == "done"
        assert await tasks[0] == "done"
    assert not family.told


async def test_who_has_been_given_room_but_has_not_run_yet_is_not_stuck():
    family = Family(max_concurrency=2, max_pending=1)
    filler = []

    async def enqueues(family):
        return await family.coordinator.enqueue(Family.child)

    async def makes_room_and_enqueues(family):
        await family.gate.wait()
        filler[0].cancel()
        return await enqueues(family)

    async with family.coordinator as coordinator:
        other = await coordinator.enqueue(makes_room_and_enqueues)
        await settled()
        body = await coordinator.enqueue(lambda _: fill())

        async def fill():
            filler.append(await coordinator.enqueue(Family.child))
            return await enqueues(family)

        await settled()
        assert body.status == "running"
        family.gate.set()
        assert await (await body) == "done"
        assert await (await other) == "done"
    assert not family.told
    assert filler[0].status == "cancelled"


async def test_a_body_is_not_held_up_by_a_task_that_it_does_not_await():
    left = []

    async def leaves_tasks(family):
        left.extend(asyncio.create_task(family.coordinator.enqueue(Family.child)) for _ in range(3))
        left.append(asyncio.create_task(family.coordinator.run(Family.child)))
        await asyncio.sleep(20)

    family = Family(max_concurrency=1, max_pending=1)
    async with family.coordinator as coordinator:
        await coordinator.run(leaves_tasks)
        *operations, result = await asyncio.gather(*left)
        assert [await each for each in operations] == ["done"] * 3
        assert result == "done"
    assert coordinator.total_completed == 5
    assert_quiet(coordinator)


async def test_a_body_that_waits_for_the_first_of_several_things_goes_on_with_it():
    async def waits_for_either(family):
        child = asyncio.create_task(family.coordinator.run(Family.child))
        gate = asyncio.create_task(family.gate.wait())
        done, _ = await asyncio.wait({child, gate}, return_when=asyncio.FIRST_COMPLETED)
        assert done == {gate}
        return child

    family = Family(max_concurrency=1)
    async with family.coordinator as coordinator:
        body = await coordinator.enqueue(waits_for_either)
        await asyncio.sleep(30)
        family.gate.set()
        assert await (await body) == "done"
    assert_quiet(coordinator)


async def one_task(work):
    return await asyncio.create_task(work)


async def in_a_group(work):
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0))
        return group.create_task(work)


async def gathered_below(work):
    async def gathers():
        return await asyncio.gather(asyncio.sleep(0), one_task(work))

    return await one_task(gathers())


async def later(work):
    task = asyncio.create_task(work)
    await asyncio.sleep(0.5)
    return await task


@pytest.mark.parametrize("how", [one_task, in_a_group, gathered_below, later])
async def test_a_body_that_awaits_a_task_of_its_own_that_can_never_go_on_is_told_so(how):
    async def awaits_a_task(family):
        await how(family.coordinator.run(Family.child))

    family = Family(max_concurrency=1)
    async with family.coordinator as coordinator:
        with pytest.raises((DeadlockError, ExceptionGroup)) as caught:
            await coordinator.run(awaits_a_task)
        error = caught.value
        assert isinstance(error.exceptions[0] if isinstance(error, ExceptionGroup) else error, DeadlockError)
    assert_quiet(coordinator)


async def test_a_body_that_leaves_the_block_of_its_own_coordinator_is_cancelled_with_the_rest():
    async def leaves(family):
        async with family.coordinator:
            pass

    family = Family(max_concurrency=2)
    operation = await family.coordinator.enqueue(leaves)
    with pytest.raises(OperationCancelled):
        await operation
    await family.coordinator.aclose()
    assert_quiet(family.coordinator)


@pytest.mark.parametrize("how", ["join", "drain"])
async def test_a_body_that_awaits_the_end_of_all_its_own_included_is_told_so(how):
    async def waits_for_all(family):
        await getattr(family.coordinator, how)()

    family = Family(max_concurrency=2)
    async with family.coordinator as coordinator:
        with pytest.raises(DeadlockError, match="its own included"):
            await coordinator.run(waits_for_all)
    assert_quiet(coordinator)


async def test_a_task_of_a_body_may_await_the_end_of_all():
    tasks = []

    async def leaves_a_task(family):
        tasks.append(asyncio.create_task(family.coordinator.join()))
        await asyncio.sleep(1)

    family = Family()
    async with family.coordinator as coordinator:
        await coordinator.run(leaves_a_task)
        await tasks[0]
    assert_quiet(coordinator)
