"""Which errors are meant: a class, several, or a predicate; never cancellation or an exit."""

from __future__ import annotations

from collections.abc import Callable

from ephemerals.errors import InvalidOption, InvalidOptionType
from ephemerals.functions import as_callback

__all__ = ["ErrorMatch", "as_error_match", "matches"]

ErrorMatch = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""An exception class, several in a tuple, or a function that tells whether an exception is meant."""


def as_error_match(option: str, value: object) -> None:
    """Raise `InvalidOption` if `value` does not say which errors are meant."""
    for each in value if isinstance(value, tuple) else (value,):
        if isinstance(each, type) and not issubclass(each, Exception):
            raise InvalidOption(option, each.__name__, "subclasses of Exception: nothing else is an error")
        if not callable(each):
            raise InvalidOptionType(option, each, "exception classes, or a predicate")
        if not isinstance(each, type):
            as_callback(option, each, "error", optional=False)


def matches(match: ErrorMatch, error: BaseException) -> bool:
    """Tell whether an error is meant; `CancelledError`, `KeyboardInterrupt` and their like never are."""
    if not isinstance(error, Exception):
        return False
    if isinstance(match, type | tuple):
        return isinstance(error, match)
    return bool(match(error))
