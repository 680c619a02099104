"""How many bytes does an operation hold, and does a long life leave any?"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from benchmarks.bodies import none
from benchmarks.memory import Level, allocated, processes
from benchmarks.rows import Bound, Row
from ephemerals import KeyedWorkCoordinator, WorkCoordinator, for_each
from ephemerals.testing import run as run_virtually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.plan import Plan

TITLE = "Memory"

_HOUR = 3600


def ask(plan: Plan) -> Iterator[Row]:
    """Weigh single operations here, and let long lives pass in two processes side by side."""
    with processes(2) as pool:
        collection = pool.submit(collection_of, plan.many, plan.loop)
        hour = pool.submit(hour_of, max(plan.most, plan.items))
        items = list(range(plan.items))
        for work, weigh, bound in (
            ("a pending operation", bytes_per_pending, Bound(600)),
            ("a snapshot in the window", bytes_per_snapshot, Bound(400)),
            ("a task that has not started, for comparison", bytes_per_task, None),
        ):
            yield Row(work=work, against="–", measured=plan.run(weigh(items)), bound=bound, unit="bytes")
        for work, end in (
            (f"for_each over {plan.many:,} items", collection),
            (f"an hour of traffic with {max(plan.most, plan.items):,} keys", hour),
        ):
            yield Row(work=work, against="memory at its beginning", measured=end.result(), bound=Bound(1.05))


async def bytes_per_pending(items: list[int]) -> float:
    """Weigh operations that wait, their items not counted."""
    coordinator = WorkCoordinator(none, max_pending=None)
    coordinator.pause()
    with allocated() as found:
        for item in items:
            await coordinator.enqueue(item)
    await coordinator.cancel()
    return found.size / len(items)


async def bytes_per_snapshot(items: list[int]) -> float:
    """Weigh what is remembered of operations that have ended."""
    coordinator = WorkCoordinator(none, max_tracked_operations=None, max_concurrency=64)
    await coordinator.enqueue(0)
    await coordinator.join()
    with allocated() as found:
        for item in items:
            await coordinator.enqueue(item)
        await coordinator.join()
    await coordinator.cancel()
    return found.size / len(items)


async def bytes_per_task(items: list[int]) -> float:
    """Weigh tasks in a set that have not started, for comparison."""
    with allocated() as found:
        tasks = {asyncio.create_task(none(item)) for item in items}
    await asyncio.wait(tasks)
    return found.size / len(items)


def collection_of(count: int, loop: str) -> float:
    """Run `for_each` over so many items; return the memory at the end by that after the first tenth."""
    from benchmarks.plan import Plan

    levels: list[Level] = []

    def items() -> Iterator[int]:
        for item in range(count):
            if item == count // 10:
                levels.append(Level.now())
            yield item

    async def main() -> None:
        await for_each(items(), none, max_concurrency=8)
        levels.append(Level.now())

    Plan(items=0, pairs=0, seconds=0, most=0, many=0, loop=loop).run(main())
    return levels[-1].since(levels[0])


def hour_of(keys: int) -> float:
    """Let so many keys come by once in an hour of virtual time; return the memory at the end by that after a tenth."""
    levels: list[Level] = []

    async def body(_key: int) -> None:
        await asyncio.sleep(0.1)

    async def main() -> None:
        key = 0
        async with KeyedWorkCoordinator(int, body, max_concurrency=64) as coordinator:
            for second in range(_HOUR):
                if second == _HOUR // 10:
                    levels.append(Level.now())
                await coordinator.enqueue_many(range(key, key := keys * (second + 1) // _HOUR))
                await asyncio.sleep(1)
            levels.append(Level.now())

    run_virtually(main())
    return levels[-1].since(levels[0])
