"""What does a retry cost that is not needed?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import backoff
import tenacity

from benchmarks.rows import Bound, against
from ephemerals.atoms import Retry, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Row
    from benchmarks.timing import Side

TITLE = "Retries"

# Each decorates once, outside of the loop, as it is meant to be used, and retries one kind of error three times.
IN_BACKOFF = backoff.on_exception(backoff.expo, OSError, max_tries=3)
IN_TENACITY = tenacity.retry(
    stop=tenacity.stop_after_attempt(3),
    wait=tenacity.wait_random_exponential(0.1, max=30),
    retry=tenacity.retry_if_exception_type(OSError),
)


def ask(plan: Plan) -> Iterator[Row]:
    """Call what succeeds at once."""
    ours = calling(Retry(RetryPolicy(attempts=3, retry_on=OSError))(succeed), plan.items)
    for name, decorate, bound in (("backoff", IN_BACKOFF, Bound(0.5)), ("tenacity", IN_TENACITY, Bound(0.1))):
        peer = name, calling(decorate(succeed), plan.items)
        yield against(plan, "retry, first try succeeds", ours, peer, bound)


async def succeed() -> None:
    """Do nothing, well."""


def calling(function: Callable[[], Awaitable[None]], count: int) -> Side:
    """Call so many times."""

    async def run() -> None:
        for _ in range(count):
            await function()

    return run
