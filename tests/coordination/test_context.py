"""Contexts: each operation runs in a copy of its caller's; pump, timers and hooks run in an empty one (report R60)."""

from __future__ import annotations

import asyncio
import contextvars
import threading

from tests.coordinators import every_coordinator

from ephemerals import WorkCoordinator

variable = contextvars.ContextVar("variable", default="empty")


@every_coordinator
async def test_a_body_runs_in_a_copy_of_the_context_at_enqueue(make):
    seen = []

    async def body(_item):
        seen.append(variable.get())
        variable.set("the body's")
        await asyncio.sleep(1)
        seen.append(variable.get())

    async with make(body, max_concurrency=1) as coordinator:
        for request in ("first", "second"):
            variable.set(request)
            await coordinator.enqueue(request)
        variable.set("later")
        await coordinator.join()
        assert seen == ["first", "the body's", "second", "the body's"]
        assert variable.get() == "later"


async def test_a_fresh_context_may_be_chosen():
    seen = []

    async def body(_item):
        seen.append(variable.get())

    variable.set("the caller's")
    async with WorkCoordinator(body, context="fresh") as coordinator:
        await coordinator.run(1)
    assert seen == ["empty"]


async def test_the_first_caller_lends_its_context_to_nobody():
    async def body(_item):
        seen.append(variable.get())

    async def request(name):
        variable.set(name)
        await coordinator.enqueue(name)

    seen = []
    async with WorkCoordinator(body, max_concurrency=1) as coordinator:
        for name in ("a", "b", "c"):
            await asyncio.create_task(request(name))
        await asyncio.create_task(coordinator.enqueue("none"))
    assert seen == ["a", "b", "c", "empty"]


async def test_an_item_that_waited_for_room_has_its_own_callers_context():
    async def body(_item):
        seen.append(variable.get())
        await asyncio.sleep(1)

    async def request(name):
        variable.set(name)
        await coordinator.enqueue(name)

    seen = []
    async with WorkCoordinator(body, max_concurrency=1, max_pending=1) as coordinator:
        await asyncio.gather(*[request(each) for each in range(5)])
    assert seen == [0, 1, 2, 3, 4]


async def test_a_context_reaches_a_thread():
    names = []

    def body(_item):
        names.append(threading.current_thread())
        return variable.get()

    variable.set("the caller's")
    async with WorkCoordinator(body) as coordinator:
        assert await coordinator.run(1) == "the caller's"
    assert names[0] is not threading.current_thread()


async def test_timers_and_hooks_on_them_run_in_an_empty_context():
    seen = []

    def hook(_snapshot, _reason):
        seen.append(variable.get())

    async def body(_item):
        pass

    variable.set("the caller's")
    async with WorkCoordinator(body, max_operation_lifetime=5, on_finalized=hook) as coordinator:
        await coordinator.run(1)
        await asyncio.sleep(10)
        assert seen == ["empty"]


async def test_a_child_enqueued_by_a_body_inherits_the_bodys_context():
    async def body(item):
        seen.append(variable.get())
        if item == "parent":
            variable.set("the parent's")
            await coordinator.enqueue("child")

    seen = []
    variable.set("the caller's")
    async with WorkCoordinator(body, max_concurrency=1) as coordinator:
        await coordinator.enqueue("parent")
        await coordinator.join()
    assert seen == ["the caller's", "the parent's"]
