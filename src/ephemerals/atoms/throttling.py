"""What an upstream says when it wants less: an exception that carries `retry_after`, or an HTTP status.

Nothing of a particular client is imported; what `httpx`, `requests` and `aiohttp` raise is recognised by its
attributes.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from ephemerals.clock import system_clock, utc
from ephemerals.errors import EphemeralsError
from ephemerals.options import as_seconds

if TYPE_CHECKING:
    from ephemerals.clock import Clock
    from ephemerals.options import Seconds

__all__ = ["RetryAfter", "is_throttled", "retry_after_of"]

_TOO_MANY_REQUESTS: Final = 429


class RetryAfter(EphemeralsError):
    """Say from a body that the upstream wants to be left alone for `retry_after` seconds.

    Raise it `from` the error that told so. `AdaptiveRate` slows down, and a `RetryPolicy` waits at least so long.

    >>> retry_after_of(RetryAfter(2))
    2.0
    """

    def __init__(self, seconds: Seconds, message: str = "the upstream asks for a pause") -> None:
        self.retry_after = as_seconds("seconds", seconds, zero=True)
        super().__init__(f"{message}: try again in {self.retry_after:g} seconds")


def retry_after_of(error: BaseException, clock: Clock = system_clock) -> float | None:
    """Return the seconds after which an exception says to try again; `None` if it does not say so.

    It is the exception's attribute `retry_after` (seconds or a `timedelta`), or the header `Retry-After` of its
    `response` (seconds or a date). What makes no sense, such as a negative or infinite time, is not said.
    """
    said = getattr(error, "retry_after", None)
    if said is None:
        said = _header(error)
    if isinstance(said, str):
        said = _parsed(said, clock)
    if isinstance(said, timedelta):
        said = said.total_seconds()
    if not isinstance(said, int | float) or isinstance(said, bool) or not math.isfinite(said) or said < 0:
        return None
    return float(said)


def is_throttled(error: BaseException) -> bool:
    """Tell whether an exception is an upstream's wish for less: a `retry_after`, or the HTTP status 429."""
    response = getattr(error, "response", None)
    statuses = [getattr(each, name, None) for each in (error, response) for name in ("status_code", "status")]
    return _TOO_MANY_REQUESTS in statuses or retry_after_of(error) is not None


def _header(error: BaseException) -> Any:
    headers = getattr(getattr(error, "response", None), "headers", None)
    try:
        return None if headers is None else headers.get("retry-after", headers.get("Retry-After"))
    except Exception:  # noqa: BLE001 - it is only a guess that these are headers
        return None


def _parsed(text: str, clock: Clock) -> float | None:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    now: datetime = utc(clock.time())
    return max(0.0, (date - now).total_seconds()) if date.tzinfo is not None else None
