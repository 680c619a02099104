"""Forking: in the child every coordinator is new and empty, and works (report R59)."""

from __future__ import annotations

import asyncio
import os
import traceback
import warnings

from tests.coordinators import assert_adds_up, every_coordinator

from ephemerals import KeyedWorkCoordinator, ResultCoordinator, WorkCoordinator, current_operation
from ephemerals.testing import assert_quiet


async def double(item):
    await asyncio.sleep(0)
    return item * 2


async def rest(item):
    await asyncio.sleep(1000)


def in_child(check):
    """Fork, run the check in the child, and return what it complained about (nothing, if all is well)."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking a process that has threads
        child = os.fork()
    if not child:
        try:
            asyncio._set_running_loop(None)  # the child does not continue the parent's loop
            check()
        except BaseException:  # noqa: BLE001 - all of it goes to the parent
            os.write(writing, traceback.format_exc().encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        complaint = pipe.read()
    os.waitpid(child, 0)
    return complaint


@every_coordinator
def test_a_child_sees_a_new_and_empty_coordinator_that_works(make):
    coordinator = make(rest, max_concurrency=1, max_pending=3)

    def check():
        assert coordinator.total_enqueued == 0
        assert coordinator.snapshot() == []
        assert not coordinator.is_paused
        assert not coordinator.is_closed
        assert coordinator.is_idle

        async def main():
            coordinator.engine.body = replaced.engine.body
            coordinator.engine.start_anew()
            assert await coordinator.run(21) == 42
            assert (await coordinator.drain()).completed == 1
            await coordinator.aclose()
            assert_quiet(coordinator)

        asyncio.run(main())

    replaced = WorkCoordinator(double)

    async def parent():
        operations = [await coordinator.enqueue(each) for each in range(3)]
        waiter = asyncio.ensure_future(coordinator.enqueue(9))
        operations[0].pin()
        await asyncio.sleep(0)
        coordinator.pause()
        assert in_child(check) == ""
        assert coordinator.total_enqueued >= 3
        assert coordinator.is_paused
        assert not waiter.cancelled()
        coordinator.resume()
        waiter.cancel()
        await coordinator.cancel()
        assert_adds_up(coordinator)
        await coordinator.aclose()

    asyncio.run(parent())


def test_ids_and_threads_are_new_in_the_child():
    def body(item):
        return item, os.getpid()

    coordinator = WorkCoordinator(body, max_concurrency=2)

    async def run():
        operation = await coordinator.enqueue(1)
        return operation.id, await operation

    def check():
        their_id, (_, pid) = asyncio.run(run())
        assert pid == os.getpid()
        assert their_id not in ours

    async def parent():
        for _ in range(5):
            ours.add((await run())[0])
        assert in_child(check) == ""
        assert (await run())[1] == (1, os.getpid())
        await coordinator.aclose()

    ours = set()
    asyncio.run(parent())


def test_a_body_that_forks_does_not_settle_its_operation_twice():
    async def body(_item, operation):
        def check():
            assert coordinator.total_enqueued == 0
            coordinator.engine.settlement.end(operation, "completed", None)
            assert coordinator.total_completed == 0
            assert_adds_up(coordinator)

            async def main():
                assert await fresh.run(1) == 2

            asyncio.run(main())

        return in_child(check)

    fresh = WorkCoordinator(double)
    coordinator = WorkCoordinator(body)

    async def parent():
        assert await coordinator.run(1) == ""
        await coordinator.aclose()

    asyncio.run(parent())
    fresh.cancel()


def test_a_child_forked_in_a_body_is_in_no_operation_and_in_no_deadlock():
    async def body(item):
        def check():
            assert current_operation() is None

            async def main():
                return await coordinator.run("child")

            coordinator.engine.body = fresh.engine.body
            coordinator.engine.start_anew()
            assert asyncio.run(main()) == "childchild"

        return in_child(check) if item == "parent" else item

    fresh = WorkCoordinator(double)
    coordinator = WorkCoordinator(body, max_concurrency=1)

    async def parent():
        assert await coordinator.run("parent") == ""
        await coordinator.aclose()

    asyncio.run(parent())


def test_a_source_is_left_to_the_parent():
    async def source():
        for each in range(3):
            await asyncio.sleep(0)
            yield each

    def check():
        async def main():
            began = asyncio.get_running_loop().time()
            assert (await coordinator.drain(timeout=60)).enqueued == 0
            assert asyncio.get_running_loop().time() - began < 30
            await coordinator.aclose()

        asyncio.run(main())

    async def parent():
        nonlocal coordinator
        coordinator = WorkCoordinator.from_async_iterable(source(), double)
        await asyncio.sleep(0)
        assert in_child(check) == ""
        assert (await coordinator.drain()).completed == 3
        await coordinator.aclose()

    coordinator = None
    asyncio.run(parent())


def test_listeners_of_the_parent_hear_nothing_of_the_child():
    def check():
        async def main():
            assert await coordinator.run(1) == 2
            assert not stream._ready

        asyncio.run(main())

    async def parent():
        nonlocal stream
        stream = coordinator.as_completed()
        assert in_child(check) == ""
        await coordinator.run(2)
        assert list(stream._ready) == [4]
        stream.close()
        await coordinator.aclose()

    coordinator = ResultCoordinator(double)
    stream = None
    asyncio.run(parent())


def test_keys_of_the_parent_are_not_busy_in_the_child():
    def check():
        coordinator.engine.body = fresh.engine.body
        coordinator.engine.start_anew()
        assert coordinator.engine.leftovers()["keys"] == 0

        async def main():
            assert await coordinator.run("a") == "aa"

        asyncio.run(main())

    fresh = WorkCoordinator(double)
    coordinator = KeyedWorkCoordinator(lambda item: item, rest, max_concurrency=4)

    async def parent():
        await coordinator.enqueue("a")
        await asyncio.sleep(0)
        assert in_child(check) == ""
        await coordinator.cancel()
        await coordinator.aclose()

    asyncio.run(parent())
