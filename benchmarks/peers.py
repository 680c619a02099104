"""The packages one would use instead, each as somebody would who knows it well; why this is its best use, comments say.

They do what `handwritten` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiojobs
import aiometer
import anyio
from aiostream import stream
from taskiq import InMemoryBroker

from .bodies import BACKLOG
from .handwritten import attempt, in_tasks, queue_and_workers, task_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .handwritten import Body, Peer
    from .timing import Side

__all__ = ["PEERS", "in_aiojobs", "in_aiometer", "in_aiostream", "in_anyio", "in_taskiq"]


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
