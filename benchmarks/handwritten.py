"""What people write by hand, as somebody would who knows asyncio well; the comments say why this is the best of it.

All of these, and all of `peers`, get the items one by one from one producer, let at most `at_once` bodies run, keep a
bounded backlog where they can, outlive a body that fails, and end when everything is done. None tracks anything.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

from .bodies import BACKLOG
from .timing import Side

__all__ = [
    "ACROSS",
    "Body",
    "Peer",
    "attempt",
    "dict_of_locks",
    "dict_of_queues",
    "in_tasks",
    "queue_and_workers",
    "task_group",
]

Body = Callable[[int], Awaitable[object]]
Peer = Callable[[Body, int, Sequence[int]], Side]

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
