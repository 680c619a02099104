"""A place in a limiter's line, without a task that waits there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .limiter import Limiter

__all__ = ["Reservation"]


class Reservation:
    """Stand in a limiter's line for `n` permits, until they are taken or given back."""

    __slots__ = ("_limiter", "_ready", "_since", "is_granted", "n")

    def __init__(self, limiter: Limiter, n: int, ready: Callable[[], object]) -> None:
        self._limiter: Limiter | None = limiter
        self._ready = ready
        self._since = limiter._clock.monotonic()
        self.n = n
        self.is_granted = False

    def take(self) -> None:
        """Use the permits, now; they must have been granted."""
        if self.is_granted and (limiter := self._limiter) is not None:
            self._limiter = None
            limiter._taken(self.n, self._since)

    def cancel(self) -> None:
        """Give the permits, or the place in the line, back; after `take` this does nothing."""
        if (limiter := self._limiter) is not None:
            self._limiter = None
            limiter._given_back(self)
