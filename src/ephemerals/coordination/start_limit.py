"""How a limiter stands before the starts of an engine: one place in its line at a time.

A place that was granted is used by the next start, or given back if there is none, so that whoever shares the limiter
loses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemerals.policies import Limits, Permit

__all__ = ["StartLimit"]


class StartLimit:
    """Ask a limiter before each start; `granted` is called when a place that had to be waited for is granted.

    `observe` tells the limiter of outcomes; it is `None` if the limiter does not want to know.
    """

    __slots__ = ("_granted", "_limiter", "_permit", "observe")

    def __init__(self, limiter: Limits, granted: Callable[[], None]) -> None:
        self._limiter = limiter
        self._granted = granted
        self._permit: Permit | None = None
        self.observe: Callable[[BaseException | None], object] | None = getattr(limiter, "observe", None)

    def allows(self) -> bool:
        """Tell whether one more may start; if not, stand in the line."""
        if self._permit is None:
            self._permit = self._limiter.reserve(1, self._granted)
        return self._permit.is_granted

    def take(self) -> None:
        """Use the place, because something starts."""
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.take()

    def give_back_unused(self) -> None:
        """Give back a place that was granted and that nothing could use."""
        if self._permit is not None and self._permit.is_granted:
            self.leave()

    def leave(self) -> None:
        """Leave the line, or give the place back."""
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.cancel()

    def abandon(self) -> None:
        """Forget the place: it belonged to a loop that is closed."""
        self._permit = None
