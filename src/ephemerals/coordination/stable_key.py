"""Keys that may change while they are in use, as an object that hashes and compares by its fields.

A table finds such a key no longer, though it is the same object. So the schedules use a stand-in: it remembers the
hash the key had when its item came in, and all items whose keys were equal then share one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, ref

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["StableKeys", "lookup_key"]

_UNCHANGING: Final = frozenset({str, int, bytes, float, bool, tuple, frozenset, type(None)})


class _StandIn:
    """Stand for a key; equal to whatever the key is equal to."""

    __slots__ = ("__weakref__", "_hash", "_key")

    def __init__(self, key: Hashable) -> None:
        self._key = key
        self._hash = hash(key)

    def __hash__(self) -> int:
        """Return the hash the key had."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Compare the keys as they are now."""
        key = other._key if isinstance(other, _StandIn) else other
        return self._key is key or bool(self._key == key)


class StableKeys:
    """Give out the keys that the schedules of an engine use; a stand-in lives as long as somebody uses it."""

    __slots__ = ("_shared",)

    def __init__(self) -> None:
        self._shared: WeakKeyDictionary[_StandIn, ref[_StandIn]] = WeakKeyDictionary()

    def of(self, key: Any) -> Any:
        """Return a key itself if it cannot change, else the stand-in it shares with those equal to it now."""
        if type(key) in _UNCHANGING:
            return key
        new = _StandIn(key)
        shared = self._shared.get(new)
        if shared is not None and (found := shared()) is not None:
            return found
        self._shared[new] = ref(new)
        return new


def lookup_key(key: Any) -> Any:
    """Return what finds a key in the table of a schedule."""
    return key if type(key) in _UNCHANGING or isinstance(key, _StandIn) else _StandIn(key)
