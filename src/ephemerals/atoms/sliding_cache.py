"""An asynchronous memo: computed once, kept while it is used, and never too long."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from ephemerals.errors import InvalidBody
from ephemerals.functions import function_name, is_coroutine_function

from .cache import Cache

if TYPE_CHECKING:
    from typing import Unpack

    from ephemerals.options import Seconds

    from .caching import CacheKeywords, CacheStatistics

__all__ = ["CachedFunction", "SlidingCache", "sliding_cache"]

K = TypeVar("K", bound=Hashable)
P = ParamSpec("P")
V = TypeVar("V")


class SlidingCache(Cache[K, V]):
    """Load values with `loader(key)`, and keep each for `ttl` (300) seconds after it was last asked for.

    After `max_age` (3600) seconds it is loaded anew however often it was asked for. Of more than `max_size` (1000;
    `None`: no limit) values a cold one goes. `hot_after`, `hot_ttl`, `error_ttl` and `on_evict` are as in `Cache`.

    >>> import asyncio
    >>> async def main() -> None:
    ...     async def length(word: str) -> int:
    ...         print("loading", word)
    ...         return len(word)
    ...
    ...     async with SlidingCache(length, ttl=60) as lengths:
    ...         print(await lengths.get("bean"), await lengths.get("bean"), lengths.peek("pea"))
    >>> asyncio.run(main())
    loading bean
    4 4 None
    """

    def __init__(
        self,
        loader: Callable[[K], Awaitable[V]],
        ttl: Seconds | None = 300.0,
        *,
        max_age: Seconds | None = 3600.0,
        max_size: int | None = 1000,
        **keywords: Unpack[CacheKeywords],
    ) -> None:
        super().__init__(ttl, max_age, max_size, **keywords)
        if not is_coroutine_function(loader):
            raise InvalidBody(f"loader {function_name(loader)} is no async function of a key")
        self._loader = loader

    async def get(self, key: K) -> V:
        """Return the value of a key; if it is missing, load it, once for all who ask meanwhile.

        Who waits and is cancelled does not disturb the others; when nobody waits any more, the load is cancelled. Its
        failure is raised in everybody who waits, a copy for each. A loader that asks for its own key, directly or
        through others, gets `LoadCycle`.
        """
        return await self._get(key, self._loader)

    def try_get(self, key: K, default: V | None = None) -> V | None:
        """Return the value of a key if it is there, else `default`, without loading."""
        entry = self._find(key)
        return default if entry is None or entry.error is not None else cast("V", entry.value)


class CachedFunction(Generic[P, V]):
    """Be a coroutine function whose results are cached; made by `sliding_cache`."""

    def __init__(self, function: Callable[P, Awaitable[V]], cache: SlidingCache[Any, V]) -> None:
        functools.update_wrapper(self, function)
        self.cache = cache

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> V:
        """Return the result for these arguments."""
        return await self.cache.get(_key_of(args, kwargs))

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Awaitable[V]]:
        """Be a method where a function would be one; the instance is part of the key."""
        return self if instance is None else functools.partial(self, instance)  # type: ignore[arg-type]

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Forget the result for these arguments; tell whether there was one."""
        return self.cache.invalidate(_key_of(args, kwargs))

    def statistics(self) -> CacheStatistics:
        """Return the counts of the cache."""
        return self.cache.statistics()


def sliding_cache(
    ttl: Seconds | None = 300.0,
    *,
    max_age: Seconds | None = 3600.0,
    max_size: int | None = 1000,
    **keywords: Unpack[CacheKeywords],
) -> Callable[[Callable[P, Awaitable[V]]], CachedFunction[P, V]]:
    """Decorate a coroutine function with a `SlidingCache` of its own; its arguments must be hashable.

    >>> import asyncio
    >>> @sliding_cache(ttl=60, max_size=100)
    ... async def square(number: int) -> int:
    ...     print("computing")
    ...     return number**2
    >>> async def main() -> None:
    ...     print(await square(4), await square(4), square.statistics().hits)
    >>> asyncio.run(main())
    computing
    16 16 1
    """

    def decorate(function: Callable[P, Awaitable[V]]) -> CachedFunction[P, V]:
        if not is_coroutine_function(function):
            raise InvalidBody(f"{function_name(function)} is no async function: use functools.lru_cache for a def")

        async def load(key: tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]) -> V:
            return await function(*key[0], **dict(key[1]))

        return CachedFunction(function, SlidingCache(load, ttl, max_age=max_age, max_size=max_size, **keywords))

    return decorate


def _key_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]:
    return args, tuple(sorted(kwargs.items()))
