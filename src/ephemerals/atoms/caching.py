"""What a cache is told, what it tells, and what it keeps for each key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from ephemerals.clock import Clock
    from ephemerals.options import Seconds

__all__ = ["CacheKeywords", "CacheStatistics", "Entry", "EvictionReason", "OnEvict"]

EvictionReason = Literal["size", "expired", "replaced", "invalidated", "closed"]
"""Why a value left a cache."""
OnEvict = Callable[[Any, Any, EvictionReason], object]


class CacheKeywords(TypedDict, total=False):
    """Name what every cache can be told."""

    hot_after: int | None
    hot_ttl: Seconds | None
    error_ttl: Seconds | None
    on_evict: OnEvict | None
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStatistics:
    """Count what a cache has done.

    `joined` are misses that joined a load under way; `hot` the entries that live longer now; `hook_errors` what
    `on_evict` raised.
    """

    size: int
    max_size: int | None
    hot: int
    hits: int
    misses: int
    joined: int
    loads: int
    failed_loads: int
    loading: int
    evicted: int
    expired: int
    hook_errors: int


class Entry:
    """Hold a value, or the failure of its load, and when it expires."""

    __slots__ = ("asked", "error", "stops", "touched", "ttl", "value")

    def __init__(self, value: Any, now: float, ttl: float, stops: float, error: Exception | None = None) -> None:
        self.value = value
        self.error = error
        self.touched = now
        self.ttl = ttl
        self.stops = stops
        self.asked = 0
