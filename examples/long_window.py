"""Run a long job, and remember the newest part of it only: `python -m examples.long_window`.

However many operations there are, the window holds the newest so many; what leaves it is counted on its way out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from ephemerals import WorkCoordinator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ephemerals import OperationSnapshot

T = TypeVar("T")


async def run_remembering(
    items: Iterable[T],
    work: Callable[[T], Awaitable[object]],
    *,
    window: int,
    at_once: int = 8,
    **options: Any,
) -> tuple[list[OperationSnapshot[Any]], Counter[str]]:
    """Do the work for all items; return the newest `window` operations, and the states of those that have left."""
    left: Counter[str] = Counter()
    async with WorkCoordinator(
        work,
        max_concurrency=at_once,
        max_tracked_operations=window,
        max_operation_lifetime=None,
        on_finalized=lambda snapshot, _: left.update([str(snapshot.status)]),
        **options,
    ) as coordinator:
        await coordinator.enqueue_many(items)
        await coordinator.join()
        return coordinator.snapshot(), Counter(left)


async def main() -> None:
    """Remember the newest 50 of 2000."""

    async def work(number: int) -> None:
        await asyncio.sleep(0.001)
        if number % 100 == 0:
            raise ValueError(number)

    newest, left = await run_remembering(range(2000), work, window=50)
    print(len(newest), "are remembered;", dict(left), "have left")


if __name__ == "__main__":
    asyncio.run(main())
