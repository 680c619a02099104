"""Run many things at once, but never two of the same customer: `python -m examples.controlled_fan_out`.

A bound for all, a bound for each key, and order within a key are options of every one-shot run; no class is needed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from ephemerals import for_each

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable

    from ephemerals import Report

T = TypeVar("T")


async def fan_out(
    items: Iterable[T],
    work: Callable[[T], Awaitable[object]],
    key: Callable[[T], Hashable],
    *,
    at_once: int,
    per_key: int = 1,
) -> Report:
    """Do the work for all items, so many at once in total and for each key; failures are in the report."""
    return await for_each(
        items, work, key=key, errors="collect", max_concurrency=at_once, max_concurrency_per_key=per_key
    )


async def main() -> None:
    """Send some orders of two customers."""

    async def send(order: str) -> None:
        print("sending", order)
        await asyncio.sleep(0.1)
        print("sent   ", order)

    report = await fan_out(["ada/1", "ada/2", "bob/1", "bob/2"], send, lambda order: order.partition("/")[0], at_once=2)
    print(report.completed, "orders sent")


if __name__ == "__main__":
    asyncio.run(main())
