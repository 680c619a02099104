"""What does it cost to find something in a cache?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from async_lru import alru_cache
from cachetools import TTLCache

from benchmarks.rows import Bound, against
from ephemerals.atoms import EphemeralLruCache, sliding_cache

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Row
    from benchmarks.timing import Side

TITLE = "Caches"


def ask(plan: Plan) -> Iterator[Row]:
    """Compare hits: async with async, plain with plain; all with a lifetime and a size."""
    ours = awaited(sliding_cache(ttl=300, max_size=1000), plan.items)
    peer = awaited(alru_cache(maxsize=1000, ttl=300), plan.items)
    yield against(plan, "cache, async hit", ours, ("async-lru", peer), Bound(1.0))
    yield against(
        plan, "cache, plain hit", plain_hits(plan.items), ("cachetools TTLCache", in_cachetools(plan.items)), Bound(0.4)
    )


async def load(key: int) -> int:
    """Be what is cached."""
    return key


def awaited(decorate: Callable[[Callable[[int], Awaitable[int]]], Callable[[int], Awaitable[int]]], count: int) -> Side:
    """Ask a cached function for one of ten keys again and again; it lives on one loop, as caches do."""

    async def run() -> None:
        cached = decorate(load)
        for number in range(count):
            await cached(number % 10)

    return run


def plain_hits(count: int) -> Side:
    """Ask a cache of ours without awaiting."""

    async def run() -> None:
        async with EphemeralLruCache(ttl=300, max_size=1000) as cache:
            for key in range(10):
                cache.set(key, key)
            get = cache.get
            for number in range(count):
                get(number % 10)

    return run


def in_cachetools(count: int) -> Side:
    """Ask by index, which is what its documentation shows, and cheaper than its `get`."""
    cache: TTLCache[int, int] = TTLCache(maxsize=1000, ttl=300)

    async def run() -> None:
        for key in range(10):
            cache[key] = key
        for number in range(count):
            cache[number % 10]

    return run
