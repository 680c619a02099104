"""What does a limiter cost when there is room?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiolimiter import AsyncLimiter

from benchmarks.rows import Bound, against
from ephemerals.atoms import GCRA, TokenBucket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Row

TITLE = "Limiters"

_PLENTY = 1_000_000_000


def ask(plan: Plan) -> Iterator[Row]:
    """Acquire where nobody ever has to wait."""

    async def peer() -> None:
        limiter = AsyncLimiter(_PLENTY, 1)  # `acquire` rather than `async with`, which awaits it too
        for _ in range(plan.items):
            await limiter.acquire()

    for kind in (TokenBucket, GCRA):

        async def ours(kind: type[TokenBucket | GCRA] = kind) -> None:
            limiter = kind(_PLENTY, _PLENTY)
            for _ in range(plan.items):
                await limiter.acquire()

        yield against(plan, f"limiter, room at once ({kind.__name__})", ours, ("aiolimiter", peer), Bound(0.8))
