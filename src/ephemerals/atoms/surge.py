"""Too many in too short a time: when that begins, and, a good deal later, when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ephemerals.errors import InvalidOption
from ephemerals.options import as_count, as_seconds

from .keyed_states import KeyedStates
from .recent import Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ephemerals.clock import Clock
    from ephemerals.options import Seconds

__all__ = ["Surges"]


class _Surge:
    """Count what one key did within the window, as far as the threshold."""

    __slots__ = ("began", "low", "recent")

    def __init__(self, window: float, threshold: int, low: int) -> None:
        self.recent: Recent[None] = Recent(window, threshold)
        self.low = low
        self.began: float | None = None

    @property
    def due(self) -> float:
        """Return when the surge is over, or (without one) when the last one leaves the window."""
        recent = self.recent
        return recent.empty_at if self.began is None else recent.leaves_at(len(recent) - self.low - 1)


class Surges:
    """Call `started(key)` at `threshold` within `window` seconds, `ended(key, seconds)` once `low` or fewer are left.

    Of each key the newest `threshold` times are kept, of at most `size` keys; a key that is idle for the window is
    forgotten. A key that is pushed out while it surges has ended.
    """

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        threshold: int,
        window: Seconds,
        low: int | None,
        size: int,
        clock: Clock,
        *,
        started: Callable[[Hashable], object],
        ended: Callable[[Hashable, float], object],
    ) -> None:
        self.threshold, self.window = as_count("threshold", threshold), as_seconds("window", window)
        self.low = threshold // 2 if low is None else as_count("low", low, least=0)
        if self.low >= threshold:
            raise InvalidOption("low", low, f"less than threshold={threshold}")
        self._clock = clock
        self._started = started
        self._ended = ended
        self.surges = 0
        self.states: KeyedStates[_Surge] = KeyedStates(
            size,
            clock,
            lambda: _Surge(self.window, self.threshold, self.low),
            over=self._over,
            gone=self._end,
        )

    def note(self, key: Hashable, at: float | None = None) -> bool:
        """Count one more of a key, now or at an earlier monotonic time; tell whether it surges."""
        now = self._clock.monotonic() if at is None else at
        state = self.states.of(key)
        state.recent.trim(now)
        state.recent.add(now, None)
        begins = state.began is None and len(state.recent) >= self.threshold
        if begins:
            state.began = now
            self.surges += 1
        self.states.watch(key, anew=begins)
        if begins:
            self._started(key)
        return state.began is not None

    def is_surging(self, key: Hashable) -> bool:
        """Tell whether a key surges now."""
        state = self.states.get(key)
        return state is not None and state.began is not None

    def count(self, key: Hashable) -> int:
        """Return how many a key did within the window; of more than the threshold, the threshold."""
        state = self.states.get(key)
        if state is None:
            return 0
        state.recent.trim(self._clock.monotonic())
        return len(state.recent)

    def surging(self) -> list[Hashable]:
        """Return the keys that surge now."""
        return [key for key, state in self.states.items() if state.began is not None]

    def close(self) -> None:
        """Forget all, without a word."""
        self.states.clear()

    def _over(self, key: Hashable, state: _Surge) -> bool:
        now = self._clock.monotonic()
        state.recent.trim(now)
        self._end(key, state)
        return len(state.recent) > 0

    def _end(self, key: Hashable, state: _Surge) -> None:
        began, state.began = state.began, None
        if began is not None:
            self._ended(key, self._clock.monotonic() - began)
