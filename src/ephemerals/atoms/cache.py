"""The core of every cache: what is kept, for how long, and who loads what is missing."""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast

from ephemerals.clock import system_clock
from ephemerals.failure import kept_form, qualified_name
from ephemerals.functions import as_callback
from ephemerals.options import as_count, as_seconds

from .caching import CacheKeywords, CacheStatistics, Entry
from .eviction import S3Fifo
from .expiry import Expiry
from .single_flight import SingleFlight

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType
    from typing import Unpack

    from ephemerals.options import Seconds

    from .caching import EvictionReason, OnEvict
    from .single_flight import Flight

__all__ = ["Cache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_logger: Final = logging.getLogger("ephemerals")


class Cache(Generic[K, V]):
    """Keep values for `ttl` seconds after they were last asked for, at most `max_age` after they were stored.

    `None` is no limit. Of more than `max_size` values the one goes that `S3Fifo` chooses. A value that was asked for
    `hot_after` times stays `hot_ttl` seconds instead of `ttl`, if that is longer. A failed load is kept only with an
    `error_ttl`, for so many seconds. `on_evict(key, value, reason)` is called when a value leaves, whatever for; what
    it raises is counted. An expired value is never returned, and one timer removes it on time.

    This is the base of `EphemeralLruCache` and `SlidingCache`.
    """

    def __init__(
        self,
        ttl: Seconds | None,
        max_age: Seconds | None,
        max_size: int | None,
        **keywords: Unpack[CacheKeywords],
    ) -> None:
        unknown = keywords.keys() - CacheKeywords.__annotations__.keys()
        if unknown:
            raise TypeError(f"a cache has no option {min(unknown)!r}")
        self._ttl = math.inf if ttl is None else as_seconds("ttl", ttl)
        self._max_age = math.inf if max_age is None else as_seconds("max_age", max_age)
        self._max_size = None if max_size is None else as_count("max_size", max_size)
        hot_after, hot_ttl = keywords.get("hot_after"), keywords.get("hot_ttl")
        self._hot_after = math.inf if hot_after is None else as_count("hot_after", hot_after)
        self._hot_ttl = 0.0 if hot_ttl is None else as_seconds("hot_ttl", hot_ttl)
        error_ttl, on_evict = keywords.get("error_ttl"), keywords.get("on_evict")
        self._error_ttl = None if error_ttl is None else as_seconds("error_ttl", error_ttl)
        self._on_evict = (
            None if on_evict is None else cast("OnEvict", as_callback("on_evict", on_evict, "key", "value", "reason"))
        )
        self._clock = keywords.get("clock", system_clock)
        self._entries: dict[K, Entry] = {}
        self._order = S3Fifo(max_size or 1)
        self._expiry: Expiry[K] = Expiry(self._clock, self._due, lambda key: self._drop(key, "expired"))
        self._flights: SingleFlight[K, V] = SingleFlight()
        self._hits = self._misses = self._loads = self._failed = 0
        self._evicted = self._expired = self._hook_errors = 0

    def __len__(self) -> int:
        """Return how many values it holds."""
        self._expiry.sweep()
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        """Tell whether it holds a value for a key, without counting that as asking."""
        entry = self._entries.get(cast("K", key))
        return entry is not None and entry.error is None and self._due(cast("K", key)) > self._clock.monotonic()

    def peek(self, key: K, default: V | None = None) -> V | None:
        """Return a value without counting that as asking, or `default`."""
        return cast("V", self._entries[key].value) if key in self else default

    def set(self, key: K, value: V, *, ttl: Seconds | None = None) -> None:
        """Store a value; a load of its key that is under way does not replace it.

        `ttl` counts instead of the cache's for this value; `None`: the cache's.
        """
        self._flights.outdate(key)
        self._store(key, value, self._ttl if ttl is None else as_seconds("ttl", ttl), self._max_age)

    def invalidate(self, key: K) -> bool:
        """Forget the value of a key, also one that is being loaded; tell whether there was one."""
        self._flights.outdate(key)
        return self._drop(key, "invalidated")

    def clear(self) -> None:
        """Forget all values, also those that are being loaded."""
        self._flights.outdate_all()
        for key in list(self._entries):
            self._drop(key, "invalidated")
        self._order.clear()

    def statistics(self) -> CacheStatistics:
        """Return the counts as they are now."""
        return CacheStatistics(
            size=len(self),
            max_size=self._max_size,
            hot=sum(entry.asked >= self._hot_after for entry in self._entries.values()),
            hits=self._hits,
            misses=self._misses,
            joined=self._flights.joined,
            loads=self._loads,
            failed_loads=self._failed,
            loading=len(self._flights),
            evicted=self._evicted,
            expired=self._expired,
            hook_errors=self._hook_errors,
        )

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when it is closed, for tests."""
        return {"loads": len(self._flights), "timers": int(self._expiry.has_timer), "values": len(self._entries)}

    async def aclose(self) -> None:
        """Cancel the loads under way, and forget all values with the reason `closed`. It can be used again."""
        self._flights.outdate_all()
        await self._flights.aclose()
        for key in list(self._entries):
            self._drop(key, "closed")
        self._order.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    # What the faces use.

    def _find(self, key: K) -> Entry | None:
        """Return the entry of a key, and note that it was asked for; `None` if there is none, or it has expired."""
        now = self._clock.monotonic()
        entry = self._entries.get(key)
        if entry is not None and self._due(key) <= now:
            self._drop(key, "expired")
            entry = None
        if entry is None:
            self._misses += 1
            return None
        self._hits += 1
        entry.asked += 1
        if entry.error is None:
            entry.touched = now
        self._order.hit(key)
        return entry

    async def _get(self, key: K, loader: Callable[[K], Awaitable[V]]) -> V:
        """Return the value of a key, loading it if it is missing, once for all who ask meanwhile."""
        entry = self._find(key)
        if entry is None:
            return await self._flights.get(key, lambda flight: self._load(key, loader, flight))
        if entry.error is not None:
            raise kept_form(entry.error, is_shared=True)
        return cast("V", entry.value)

    async def _load(self, key: K, loader: Callable[[K], Awaitable[V]], flight: Flight[V]) -> V:
        self._loads += 1
        try:
            value = await loader(key)
        except Exception as error:
            self._failed += 1
            if self._error_ttl is not None and flight.is_current:
                kept = cast("Exception", kept_form(error, is_shared=True))
                self._store(key, None, math.inf, self._error_ttl, kept)
            raise
        if flight.is_current:
            self._store(key, value, self._ttl, self._max_age)
        elif key in self:
            return cast("V", self._entries[key].value)  # what was written meanwhile is newer
        return value

    def _store(self, key: K, value: Any, ttl: float, max_age: float, error: Exception | None = None) -> None:
        self._drop(key, "replaced")
        self._expiry.sweep()
        while self._max_size is not None and len(self._entries) >= self._max_size:
            self._drop(cast("K", self._order.evict()), "size")
        now = self._clock.monotonic()
        self._entries[key] = Entry(value, now, ttl, now + max_age, error)
        self._order.add(key)
        self._expiry.watch(key)

    def _due(self, key: K) -> float:
        entry = self._entries[key]
        ttl = max(entry.ttl, self._hot_ttl) if entry.asked >= self._hot_after else entry.ttl
        return min(entry.touched + ttl, entry.stops)

    def _drop(self, key: K, reason: EvictionReason) -> bool:
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        self._order.remove(key)
        self._expiry.forget(key)
        self._evicted += reason == "size"
        self._expired += reason == "expired"
        if self._on_evict is not None and entry.error is None:
            try:
                self._on_evict(key, entry.value, reason)
            except Exception as error:  # noqa: BLE001 - a hook may raise anything
                self._hook_errors += 1
                _logger.warning("on_evict of a cache raised %s", qualified_name(type(error)))
        return True
