"""What does a plain function cost, which runs in a thread?"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_all
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.bodies import through
from benchmarks.rows import Bound, against
from ephemerals import WorkCoordinator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Row

TITLE = "Plain functions"


def ask(plan: Plan) -> Iterator[Row]:
    """Compare with the pool itself, and with the pool as a coroutine has to use it."""
    count = max(plan.items // 4, 1)
    ours = through(partial(WorkCoordinator, plain, max_concurrency=8), range(count))

    def submit() -> None:  # all at once and waited for once: nothing comes back to a loop
        with ThreadPoolExecutor(8) as pool:
            wait_all([pool.submit(plain, item) for item in range(count)])

    async def executor() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(8) as pool:
            await asyncio.gather(*(loop.run_in_executor(pool, plain, item) for item in range(count)))

    yield against(
        plan,
        "plain-function bodies",
        ours,
        ("ThreadPoolExecutor.submit", submit),
        Bound(1.3),
        items=count,
        now=perf_counter,
    )
    yield against(
        plan, "plain-function bodies", ours, ("run_in_executor + gather", executor), None, items=count, now=perf_counter
    )


def plain(_item: int) -> None:
    """Do nothing, in a thread."""
