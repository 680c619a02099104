"""How soon does an operation start, and does one key's crowd hold up another key?"""

from __future__ import annotations

import asyncio
import statistics
from time import process_time
from typing import TYPE_CHECKING

from benchmarks.rows import Bound, Row, against
from ephemerals import KeyedWorkCoordinator, WorkCoordinator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.plan import Plan

TITLE = "Latency"

_LONG = 8
_WAITING = 10_000


def ask(plan: Plan) -> Iterator[Row]:
    """Time the start on an idle loop, and the ends of short operations beside a crowd."""
    times = max(plan.items // 20, 1)

    async def ours() -> float:
        taken: list[float] = []

        async def body(began: float) -> None:
            taken.append(process_time() - began)

        async with WorkCoordinator(body, max_concurrency=8) as coordinator:
            for _ in range(times):
                await coordinator.enqueue(process_time())
                await coordinator.join()
        return statistics.median(taken)

    async def peer() -> float:
        taken: list[float] = []

        async def body(began: float) -> None:
            taken.append(process_time() - began)

        for _ in range(times):
            await asyncio.create_task(body(process_time()))
        return statistics.median(taken)

    yield against(plan, "enqueue to start, idle", ours, ("create_task to start", peer), Bound(1.5), items=1)
    crowds = [plan.run(beside_a_crowd(times, min(_WAITING, plan.many))) for _ in range(plan.pairs)]
    p50, p99 = (statistics.median(each) for each in zip(*crowds, strict=True))
    work = f"short operation, p99, {_LONG} long ones run, {_WAITING:,} wait"
    yield Row(work=work, against="its p50", measured=p99 / p50, bound=Bound(3.0), ours=p99, peer=p50)


async def beside_a_crowd(times: int, crowd: int) -> tuple[float, float]:
    """Return the median and the 99th percentile of enqueue to end, where all other keys are crowded."""
    release = asyncio.Event()
    taken: list[float] = []

    async def body(item: tuple[str, float]) -> None:
        key, began = item
        if key == "short":
            await asyncio.sleep(0)
            taken.append(process_time() - began)
        else:
            await release.wait()

    coordinator = KeyedWorkCoordinator(lambda item: item[0], body, max_concurrency=2 * _LONG, max_pending=None)
    await coordinator.enqueue_many((f"long {number % _LONG}", 0.0) for number in range(crowd + _LONG))
    for _ in range(times):
        await coordinator.enqueue(("short", process_time()))
        await gone(coordinator, crowd)
    await coordinator.cancel()
    taken.sort()
    return taken[len(taken) // 2], taken[int(0.99 * len(taken))]


async def gone(coordinator: KeyedWorkCoordinator[tuple[str, float], None], crowd: int) -> None:
    """Return when only the crowd is left; its own body cannot say so, because it has not ended then."""
    while coordinator.active_count + coordinator.pending_count > crowd + _LONG:  # noqa: ASYNC110 - no event says it
        await asyncio.sleep(0)
