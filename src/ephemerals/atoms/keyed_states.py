"""A state for each key, never more than so many, and none for longer than it matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from .eviction import S3Fifo
from .expiry import Expiry

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from ephemerals.clock import Clock

__all__ = ["KeyedStates", "State"]


class State(Protocol):
    """Say until when a state matters: a monotonic time, which may be put off."""

    @property
    def due(self) -> float:
        """Return that time in seconds."""
        ...


S = TypeVar("S", bound=State)


class KeyedStates(Generic[S]):
    """Make a state for each key that is asked for; of more than `size` a cold one goes.

    `over(key, state)` is called when a state is due, and says whether to keep it; `gone(key, state)` when it is
    dropped because there are too many.
    """

    __slots__ = ("_expiry", "_gone", "_make", "_order", "_over", "_size", "_states", "evicted")

    def __init__(
        self,
        size: int,
        clock: Clock,
        make: Callable[[], S],
        *,
        over: Callable[[Hashable, S], bool] = lambda *_: False,
        gone: Callable[[Hashable, S], object] = lambda *_: None,
    ) -> None:
        self._size = size
        self._make = make
        self._over = over
        self._gone = gone
        self._states: dict[Hashable, S] = {}
        self._order = S3Fifo(size)
        self._expiry: Expiry[Hashable] = Expiry(clock, lambda key: self._states[key].due, self._expired)
        self.evicted = 0

    def __len__(self) -> int:
        """Return how many keys have a state."""
        return len(self._states)

    def items(self) -> Iterator[tuple[Hashable, S]]:
        """Yield keys and states, after dropping those that are due."""
        self._expiry.sweep()
        return iter(self._states.items())

    def get(self, key: Hashable) -> S | None:
        """Return the state of a key, if it has one that still matters."""
        self._expiry.sweep()
        return self._states.get(key)

    def of(self, key: Hashable) -> S:
        """Return the state of a key, a new one if it has none; say `watch` when that has been used."""
        self._expiry.sweep()
        state = self._states.get(key)
        if state is not None:
            self._order.hit(key)
            return state
        while len(self._states) >= self._size:
            cold = self._order.evict()
            self._expiry.forget(cold)
            self.evicted += 1
            self._gone(cold, self._states.pop(cold))
        state = self._states[key] = self._make()
        self._order.add(key)
        return state

    def watch(self, key: Hashable, *, anew: bool = False) -> None:
        """See to it that the state of a key goes in time; `anew` if that has become sooner."""
        if anew or not self._expiry.is_watched(key):
            self._expiry.watch(key)

    def clear(self) -> None:
        """Forget all."""
        for key in self._states:
            self._expiry.forget(key)
        self._states.clear()
        self._order.clear()

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when all keys have been idle for long enough, for tests."""
        return {"keys": len(self._states), "timers": int(self._expiry.has_timer)}

    def _expired(self, key: Hashable) -> None:
        if self._over(key, self._states[key]):
            self._expiry.watch(key)
            return
        self._expiry.forget(key)
        self._order.remove(key)
        del self._states[key]
