"""The peers, each as somebody who knows it well would use it; the comments say why this is its best use.

All of them get the items one by one from one producer, let at most `at_once` bodies run, keep a bounded backlog where
they can, outlive a body that fails, and end when everything is done. None of them tracks anything.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

import aiojobs
import aiometer
import anyio
from aiostream import stream
from taskiq import InMemoryBroker

from .bodies import BACKLOG

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from .timing import Side

    Body = Callable[[int], Awaitable[object]]
    Peer = Callable[[Body, int, Sequence[int]], Side]

__all__ = [
    "ACROSS",
    "PEERS",
    "dict_of_locks",
    "dict_of_queues",
    "in_aiojobs",
    "in_aiometer",
    "in_aiostream",
    "in_anyio",
    "in_taskiq",
    "in_tasks",
    "queue_and_workers",
    "task_group",
]

failures = 0


async def attempt(body: Body, item: int) -> None:
    """Run a body that may fail."""
    global failures  # noqa: PLW0603 - the cheapest thing that can be known of a failure
    try:
        await body(item)
    except Exception:  # noqa: BLE001 - whatever it is, it must not end the worker
        failures += 1


def queue_and_workers(body: Body, at_once: int, items: Sequence[int]) -> Side:
    """Let workers take from a queue: no task, no future, no record for an item, so nothing is cheaper."""

    async def run() -> None:
        queue: asyncio.Queue[int] = asyncio.Queue(BACKLOG)

        async def work() -> None:
            global failures  # noqa: PLW0603 - see `attempt`, which would cost a call here
            while True:
                item = await queue.get()
                try:
                    await body(item)
                except Exception:  # noqa: BLE001 - whatever it is, it must not end the worker
                    failures += 1
                finally:
                    queue.task_done()

        workers = [asyncio.create_task(work()) for _ in range(at_once)]
        put = queue.put
        for item in items:
            await put(item)
        await queue.join()
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)

    return run


def task_group(body: Body, at_once: int, items: Sequence[int]) -> Side:
    """Take the semaphore before the task is made, so that no more tasks exist than may run."""

    async def run() -> None:
        places = asyncio.Semaphore(at_once)

        async def work(item: int) -> None:
            try:
                await attempt(body, item)
            finally:
                places.release()

        async with asyncio.TaskGroup() as group:
            for item in items:
                await places.acquire()
                group.create_task(work(item))

    return run


def in_tasks(body: Body, at_once: int, items: Sequence[int]) -> Side:
    """Keep tasks in a set with a callback that discards them, as the documentation of asyncio says."""

    async def run() -> None:
        places, room = asyncio.Semaphore(at_once), asyncio.Semaphore(BACKLOG)
        tasks: set[asyncio.Task[None]] = set()

        async def work(item: int) -> None:
            async with places:
                await attempt(body, item)

        def done(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            room.release()

        for item in items:
            await room.acquire()  # or all of them would exist at once
            task = asyncio.create_task(work(item))
            tasks.add(task)
            task.add_done_callback(done)
        if tasks:
            await asyncio.wait(tasks)

    return run


def in_anyio(body: Body, at_once: int, items: Sequence[int]) -> Side:
    """Give each worker a clone of the receiving end; `send_nowait` first, because `send` always yields."""

    async def run() -> None:
        sending, receiving = anyio.create_memory_object_stream[int](BACKLOG)

        async def work(own: anyio.abc.ObjectReceiveStream[int]) -> None:
            async with own:
                async for item in own:
                    await attempt(body, item)

        async with anyio.create_task_group() as group, sending:
            for _ in range(at_once):
                group.start_soon(work, receiving.clone())
            receiving.close()
            for item in items:
                try:
                    sending.send_nowait(item)
                except anyio.WouldBlock:
                    await sending.send(item)

    return run


def in_aiojobs(body: Body, at_once: int, items: Sequence[int]) -> Side:
    """Spawn into one scheduler with our backlog; it reports failures itself, so the body goes in as it is."""

    async def run() -> None:
        async with aiojobs.Scheduler(limit=at_once, pending_limit=BACKLOG, wait_timeout=None) as scheduler:
            for item in items:
                await scheduler.spawn(body(item))
            await scheduler.wait_and_close()

    return run


def in_aiometer(body: Body, at_once: int, items: Sequence[int]) -> Side:
    """Use `run_on_each`, which keeps no results, rather than `amap` or `run_all`."""

    async def run() -> None:
        await aiometer.run_on_each(body, items, max_at_once=at_once)

    return run


def in_aiostream(body: Body, at_once: int, items: Sequence[int]) -> Side:
    """Map without order and with a limit on tasks: order would only make it wait."""

    async def run() -> None:
        await stream.map(stream.iterate(items), body, ordered=False, task_limit=at_once)

    return run


def in_taskiq(body: Body, at_once: int, items: Sequence[int]) -> Side:
    """Leave out what it can leave out: casts, stored results. It does not wait for room, so we bound its backlog."""

    async def run() -> None:
        broker = InMemoryBroker(max_async_tasks=at_once, cast_types=False, max_stored_results=1)
        task = broker.register_task(body, task_name="body")
        await broker.startup()
        for count, item in enumerate(items, 1):
            await task.kiq(item)
            if count % BACKLOG == 0:
                await broker.wait_all()
        await broker.wait_all()
        await broker.shutdown()

    return run


PEERS: dict[str, Peer] = {
    "queue + workers": queue_and_workers,
    "TaskGroup + Semaphore": task_group,
    "aiojobs": in_aiojobs,
    "aiometer": in_aiometer,
    "create_task + set": in_tasks,
    "anyio stream + workers": in_anyio,
    "aiostream": in_aiostream,
    "taskiq in memory": in_taskiq,
}


def dict_of_locks(body: Body, at_once: int, items: Sequence[int]) -> Side:
    """Lock the key around the body, the usual recipe; it keeps a lock for every key it ever saw."""
    locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def locked(key: int) -> None:
        async with locks[key]:
            await body(key)

    return queue_and_workers(locked, at_once, items)


def dict_of_queues(body: Body, at_once: int, items: Sequence[int]) -> Side:
    """Start a worker for a key when its first item comes, and end it when it finds nothing more to do."""

    async def run() -> None:
        places = asyncio.Semaphore(at_once)
        room = asyncio.Semaphore(BACKLOG)
        waiting: dict[int, asyncio.Queue[int]] = {}

        async def work(key: int, own: asyncio.Queue[int]) -> None:
            while not own.empty():
                item = own.get_nowait()
                async with places:
                    await attempt(body, item)
                room.release()
            del waiting[key]

        async with asyncio.TaskGroup() as group:
            for item in items:
                await room.acquire()
                own = waiting.get(item)
                if own is None:
                    own = waiting[item] = asyncio.Queue()
                    own.put_nowait(item)
                    group.create_task(work(item, own))
                else:
                    own.put_nowait(item)

    return run


ACROSS: dict[str, Peer] = {"queue + workers + dict of locks": dict_of_locks, "dict of queues": dict_of_queues}
"""Per-key order; an item is its own key."""
