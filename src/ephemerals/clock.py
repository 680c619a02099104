"""Time, injected: monotonic seconds for intervals, wall-clock seconds for people.

The two are separate functions, because setting one must never move the other. Everything in the library
asks a `Clock`; by default that is `system_clock`, which `ephemerals.testing` turns virtual for a test.
The clock tells the time only. Waiting is the event loop's business.
"""

from __future__ import annotations

import time as _time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from .functions import as_callback

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Clock", "system_clock", "utc"]


class Clock:
    """Tell the time twice: `monotonic()` never goes back, `time()` is what people call it.

    Both are in seconds; `time()` counts from the Unix epoch. They are plain attributes, so that
    asking costs one call.

    >>> clock = Clock(monotonic=lambda: 5.0, time=lambda: 0.0)
    >>> clock.monotonic()
    5.0
    """

    __slots__ = ("monotonic", "time")

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = _time.monotonic,
        time: Callable[[], float] = _time.time,
    ) -> None:
        as_callback("monotonic", monotonic, optional=False)
        as_callback("time", time, optional=False)
        self.monotonic = monotonic
        self.time = time


system_clock: Final = Clock()


def utc(seconds: float) -> datetime:
    """Return the aware UTC datetime of a wall-clock time in seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC)
