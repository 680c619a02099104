"""Who gives up waiting takes nothing with it: no item, no slot, no wake-up (invariant 9)."""

from __future__ import annotations

import asyncio

import pytest

from ephemerals import CoordinatorClosed, WorkCoordinator
from ephemerals.testing import VirtualClock, assert_quiet


async def body(event):
    await event.wait()
    return "done"


async def settled():
    await VirtualClock.current().settle()


async def given_up(*tasks):
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)


async def test_join_ends_when_the_last_who_was_about_to_come_in_gives_up():
    event = asyncio.Event()
    coordinator = WorkCoordinator(body, max_pending=1)
    coordinator.pause()
    only = await coordinator.enqueue(event)
    about_to_come_in = asyncio.create_task(coordinator.enqueue(event))
    join = asyncio.create_task(coordinator.join())
    await settled()
    only.cancel()
    assert not coordinator.is_idle  # a place is reserved
    await given_up(about_to_come_in)
    await settled()
    assert join.done()
    await coordinator.aclose()
    assert coordinator.total_enqueued == 1
    assert_quiet(coordinator)


async def test_join_does_not_end_while_somebody_is_about_to_come_in():
    event = asyncio.Event()
    coordinator = WorkCoordinator(body, max_concurrency=1, max_pending=1)
    coordinator.pause()
    only = await coordinator.enqueue(event)
    about_to_come_in = asyncio.create_task(coordinator.enqueue(event))
    join = asyncio.create_task(coordinator.join())
    await settled()
    only.cancel()
    await settled()
    assert about_to_come_in.done()
    assert not join.done()
    coordinator.resume()
    event.set()
    await join
    assert coordinator.total_completed == 1
    await coordinator.aclose()


async def test_one_who_gives_up_waiting_for_a_handle_disturbs_neither_the_work_nor_the_others():
    event = asyncio.Event()
    coordinator = WorkCoordinator(body)
    operation = await coordinator.enqueue(event)

    async def wait():
        return await operation

    stays, goes = asyncio.create_task(wait()), asyncio.create_task(wait())
    await settled()
    await given_up(goes)
    event.set()
    assert await stays == "done"
    await coordinator.aclose()
    assert_quiet(coordinator)


@pytest.mark.parametrize("how", ["join", "drain", "aclose"])
async def test_one_who_gives_up_waiting_for_the_end_leaves_the_work_and_the_others_alone(how):
    event = asyncio.Event()
    coordinator = WorkCoordinator(body)
    operation = await coordinator.enqueue(event)
    stays = asyncio.create_task(coordinator.join())
    await settled()
    goes = asyncio.create_task(getattr(coordinator, how)())
    await settled()
    await given_up(goes)
    assert operation.status == "running"
    event.set()
    await stays
    assert operation.status == "completed"
    report = await coordinator.aclose()
    assert report.completed == 1
    assert_quiet(coordinator)


async def test_of_those_who_wait_for_room_every_second_may_give_up_and_the_others_come_in_as_they_came():
    event = asyncio.Event()
    event.set()
    order = []

    async def note(number):
        order.append(number)

    coordinator = WorkCoordinator(note, max_concurrency=1, max_pending=2)
    coordinator.pause()
    offers = [asyncio.create_task(coordinator.enqueue(number)) for number in range(20)]
    await settled()
    await given_up(*offers[3::2])
    coordinator.resume()
    await coordinator.join()
    assert order == [0, 1, *range(2, 20, 2)]
    assert coordinator.total_enqueued == len(order)
    await coordinator.aclose()
    assert_quiet(coordinator)


async def test_who_is_woken_for_a_place_and_finds_it_closed_is_refused_and_gives_the_place_back():
    coordinator = WorkCoordinator(body, max_concurrency=1, max_pending=1)
    coordinator.pause()
    only = await coordinator.enqueue(asyncio.Event())
    about_to_come_in = asyncio.create_task(coordinator.enqueue(asyncio.Event()))
    await settled()
    only.cancel()
    coordinator.complete()
    with pytest.raises(CoordinatorClosed):
        await about_to_come_in
    assert coordinator.is_idle
    await coordinator.aclose()
    assert_quiet(coordinator)
