"""What may be given as a name, a pattern, a number or a time."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from ephemerals.errors import InvalidOption, InvalidOptionType

from .pattern import Pattern
from .typed import SignalKey

if TYPE_CHECKING:
    from .pattern import PatternLike

__all__ = ["Moment", "as_age", "as_count", "as_name", "as_pattern", "as_seconds", "as_wall"]

Moment: TypeAlias = datetime | float
"""A moment: an aware datetime, or wall-clock seconds since the Unix epoch."""


def as_name(name: object) -> str:
    """Return the plain text of a name; what is not one, or empty, is refused."""
    if isinstance(name, SignalKey):
        return name.name
    if not isinstance(name, str):
        raise InvalidOptionType("name", name, "a text, or a SignalKey")
    if not name:
        raise InvalidOption("name", name, "a name that is not empty")
    return str.__str__(name)


def as_pattern(pattern: PatternLike | SignalKey[Any]) -> Pattern:
    """Return the compiled pattern; a `SignalKey` matches its name."""
    return Pattern.of(pattern.name if isinstance(pattern, SignalKey) else pattern)


def as_seconds(option: str, value: object) -> float:
    """Return a positive span of time in seconds."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidOptionType(option, value, "seconds as a number, or a timedelta")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = 0.0
    if not seconds > 0:
        raise InvalidOption(option, value, "more than 0 seconds, and fewer than a float can hold")
    return seconds


def as_wall(option: str, value: object) -> float | None:
    """Return a moment in wall-clock seconds; `None` stays `None`."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidOption(option, value, "a datetime with a time zone, or seconds since the epoch")
        return value.timestamp()
    if value is not None and (not isinstance(value, int | float) or isinstance(value, bool)):
        raise InvalidOptionType(option, value, "a datetime with a time zone, or seconds since the epoch")
    return value


def as_count(option: str, value: object) -> int:
    """Return a number of things, 1 or more."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidOptionType(option, value, "a whole number")
    if not 1 <= value <= sys.maxsize:
        raise InvalidOption(option, value, "1 or more" if value < 1 else f"at most {sys.maxsize}")
    return value


def as_age(value: object) -> float:
    """Return an age in seconds; `None`, which is no limit, becomes `inf`."""
    return inf if value is None else as_seconds("max_age", value)
