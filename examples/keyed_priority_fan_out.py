"""Let urgent work overtake, in order for each customer: `python -m examples.keyed_priority_fan_out`.

Who is next is decided when a slot is free, so what is urgent waits for what runs, and for nothing that merely waits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from ephemerals import Lane, PriorityWorkCoordinator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

T = TypeVar("T")


def two_lanes(
    work: Callable[[T], Awaitable[object]],
    key: Callable[[T], Hashable],
    *,
    at_once: int,
    most_urgent_waiting: int | None = None,
    most_overtaking: int = 10,
    **options: Any,
) -> PriorityWorkCoordinator[T, object]:
    """Return a coordinator with the lanes "urgent" and "normal", in which items of a key keep their order.

    No more than `most_overtaking` urgent items go before a normal one that waits, so that none starves; with
    `most_urgent_waiting` the urgent lane has no room for more than that.
    """
    lanes = [Lane("urgent", max_pending=most_urgent_waiting), Lane("normal")]
    return PriorityWorkCoordinator(
        work, lanes=lanes, key=key, max_concurrency=at_once, starvation_limit=most_overtaking, **options
    )


async def main() -> None:
    """Let one urgent letter overtake three others."""

    async def send(letter: str) -> None:
        print("sending", letter)
        await asyncio.sleep(0.1)

    async with two_lanes(send, lambda letter: letter.partition("/")[0], at_once=1) as letters:
        for number in range(3):
            await letters.enqueue(f"ada/{number}", lane="normal")
        await letters.enqueue("bob/urgent", lane="urgent")


if __name__ == "__main__":
    asyncio.run(main())
