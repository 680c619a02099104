"""A cache that focuses itself: what is asked for often stays longer."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, TypeVar, cast

from .cache import Cache

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Unpack

    from ephemerals.options import Seconds

    from .caching import CacheKeywords

__all__ = ["EphemeralLruCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class EphemeralLruCache(Cache[K, V]):
    """Keep values for `ttl` (300) seconds after they were last asked for; hot ones for `hot_ttl` (1800).

    A value is hot when it was asked for `hot_after` (5) times. Of more than `max_size` (1000; `None`: no limit) values
    a cold one goes. `max_age`, `error_ttl` and `on_evict` are as in `Cache`.

    >>> import asyncio
    >>> async def length(word: str) -> int:
    ...     print("loading", word)
    ...     return len(word)
    >>> async def main() -> None:
    ...     async with EphemeralLruCache[str, int]() as cache:
    ...         print(await asyncio.gather(*(cache.get_or_add("bean", length) for _ in range(3))))
    ...         print(cache.get("bean"), cache.get("pea"))
    >>> asyncio.run(main())
    loading bean
    [4, 4, 4]
    4 None
    """

    def __init__(
        self,
        ttl: Seconds | None = 300.0,
        *,
        max_age: Seconds | None = None,
        max_size: int | None = 1000,
        **keywords: Unpack[CacheKeywords],
    ) -> None:
        hot: CacheKeywords = {"hot_after": 5, "hot_ttl": 1800.0}
        super().__init__(ttl, max_age, max_size, **(hot | keywords))

    def get(self, key: K, default: V | None = None) -> V | None:
        """Return the value of a key, or `default`."""
        entry = self._find(key)
        return default if entry is None or entry.error is not None else cast("V", entry.value)

    async def get_or_add(self, key: K, loader: Callable[[K], Awaitable[V]]) -> V:
        """Return the value of a key; if it is missing, await `loader(key)`, once for all who ask meanwhile.

        Who waits and is cancelled does not disturb the others; when nobody waits any more, the load is cancelled. Its
        failure is raised in everybody who waits, a copy for each.
        """
        return await self._get(key, loader)
