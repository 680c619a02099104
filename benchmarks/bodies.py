"""What the items are put through, and the run of ours that everything is compared with."""

from __future__ import annotations

import asyncio
from time import process_time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .timing import Side

__all__ = ["BACKLOG", "compute", "none", "once", "through", "wait"]

BACKLOG = 1000
"""Items that may wait to start, on both sides: our default."""


async def none(_item: int) -> None:
    """Do nothing."""


async def once(_item: int) -> None:
    """Let others run once."""
    await asyncio.sleep(0)


async def compute(_item: int) -> None:
    """Keep the processor for a millisecond: what comes on top of that is overhead."""
    until = process_time() + 0.001
    while process_time() < until:
        pass


async def wait(_item: int) -> None:
    """Wait for a millisecond, as for an answer from the network."""
    await asyncio.sleep(0.001)


def through(make: Callable[[], Any], items: Iterable[int]) -> Side:
    """Return a run of one of our coordinators: every item enqueued one by one, then drained."""

    async def run() -> None:
        async with make() as coordinator:
            enqueue = coordinator.enqueue
            for item in items:
                await enqueue(item)

    return run
