"""What a coordinator asks of a retry policy and of a limiter; anything that answers will do.

`ephemerals.atoms` brings both: `RetryPolicy`, `TokenBucket` and the other limiters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Limits", "Permit", "Retries"]


@runtime_checkable
class Retries(Protocol):
    """Decide whether, and when, something that failed is tried again."""

    def delay_after(self, error: Exception, attempt: int, elapsed: float) -> float | None:
        """Return the seconds to wait after a failed attempt; `None`: give up.

        `attempt` is the one that failed, from 1; `elapsed` the seconds since the first one began.
        """
        ...


class Permit(Protocol):
    """Be a place in a limiter's line: granted at some time, and then taken or given back."""

    @property
    def is_granted(self) -> bool:
        """Tell whether its turn has come."""
        ...

    def take(self) -> None:
        """Use it, now."""
        ...

    def cancel(self) -> None:
        """Give it, or the place in the line, back."""
        ...


@runtime_checkable
class Limits(Protocol):
    """Grant permits in first-come order, as fast as some policy allows.

    If there is a method `observe(error)`, it is told how each attempt ended: with an exception, or well (`None`).
    """

    def reserve(self, n: int, ready: Callable[[], object]) -> Permit:
        """Stand in line for `n` permits; `ready()` is called when they are granted later, on the loop's thread."""
        ...
