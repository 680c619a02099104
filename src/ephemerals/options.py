"""Every option of every coordinator, in one frozen object that is validated once.

A coordinator takes options as keywords, or a ready `EphemeralOptions` as `options=`, or both (a keyword wins).
Time spans are seconds as int or float, or a `timedelta`; `None` always means "no limit".
"""

from __future__ import annotations

import difflib
import math
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, cast

from .clock import Clock, system_clock
from .errors import InvalidOption, InvalidOptionType
from .functions import as_callback
from .policies import Limits, Retries

if TYPE_CHECKING:
    from typing import Self, Unpack

    from .echoes import FinalizationReason
    from .signals import SignalEvent, SignalSink
    from .snapshot import OperationSnapshot
    from .window import WindowView

__all__ = ["EphemeralOptions", "OptionKeywords", "Seconds", "as_count", "as_seconds", "default_concurrency"]

Seconds = float | timedelta
"""A span of time: seconds as a number, or a `timedelta`."""


class OptionKeywords(TypedDict, total=False):
    """Name the keywords of `EphemeralOptions` and their types, for type checkers."""

    name: str | None
    max_concurrency: int
    max_concurrency_per_key: int
    max_pending: int | None
    overflow: Literal["wait", "reject", "drop_oldest"]
    fair_scheduling: bool
    fair_scheduling_threshold: int
    starvation_limit: int | None
    operation_timeout: Seconds | None
    retry: Retries | None
    limiter: Limits | None
    run_in: Literal["thread", "process"]
    context: Literal["inherit", "fresh"]
    max_tracked_operations: int | None
    max_operation_lifetime: Seconds | None
    max_pinned: int | None
    max_operation_signals: int
    echo_retention: Seconds
    echo_capacity: int
    on_finalized: Callable[[OperationSnapshot[Any], FinalizationReason], object] | None
    on_sample: Callable[[WindowView], object] | None
    sample_interval: Seconds
    error_detail: Literal["type", "message", "exception"]
    key_privacy: Literal["plain", "hashed"]
    signals: SignalSink | None
    on_signal: Callable[[SignalEvent], object] | None
    on_signal_retracted: Callable[[SignalEvent], object] | None
    cancel_on_signals: Iterable[str] | str
    defer_on_signals: Iterable[str] | str
    resume_on_signals: Iterable[str] | str
    max_defer_time: Seconds | None
    on_defer_timeout: Literal["run", "skip"]
    clear_on_signals: Iterable[str] | str
    clear: Literal["all", "matching"]
    drain_on_signals: Iterable[str] | str
    clock: Clock


def default_concurrency() -> int:
    """Return the number of processors, the default of `max_concurrency`."""
    return os.cpu_count() or 1


def as_count(option: str, value: object, *, least: int = 1) -> int:
    """Return `value` if it is an int of at least `least`; raise an `InvalidOption` that names `option` if not."""
    allowed = f"an int of at least {least}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidOptionType(option, value, allowed)
    if value < least:
        raise InvalidOption(option, value, allowed)
    if value > sys.maxsize:
        raise InvalidOption(option, value, f"an int from {least} to {sys.maxsize}")
    return value


def as_seconds(option: str, value: object, *, zero: bool = False) -> float:
    """Return a time span as float seconds; refuse what is not a finite span above zero (or, with `zero`, of zero)."""
    allowed = "seconds (a number or a timedelta), " + ("0 or more" if zero else "more than 0")
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = as_float(value)
    else:
        raise InvalidOptionType(option, value, allowed)
    if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and not zero):
        raise InvalidOption(option, value, allowed)
    return seconds


def as_float(number: float) -> float:
    """Return a number as a float, infinite if it is too large for one."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def as_choice(option: str, value: object, choices: tuple[str, ...]) -> str:
    """Return `value` if it is one of `choices`."""
    if value not in choices:
        raise InvalidOption(option, value, "one of " + ", ".join(map(repr, choices)))
    return str(value)


def as_patterns(option: str, value: object) -> tuple[str, ...]:
    """Return signal patterns as a tuple: one text, which may be a comma list, or an iterable of texts."""
    allowed = "signal patterns: a text such as 'load.*, error.?', or several"
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, Iterable) or isinstance(value, Mapping | bytes):
        raise InvalidOptionType(option, value, allowed)
    patterns = tuple(value)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise InvalidOptionType(option, pattern, allowed)
        if not pattern.strip(" ,"):
            raise InvalidOption(option, pattern, "patterns that are not empty")
    return patterns


def as_aware(option: str, value: object) -> datetime:
    """Return `value` if it is a datetime that says of which time zone it is."""
    allowed = "a datetime with a time zone, or None"
    if not isinstance(value, datetime):
        raise InvalidOptionType(option, value, allowed)
    if value.utcoffset() is None:
        raise InvalidOption(option, value, allowed)
    return value


def as_flag(option: str, value: object) -> bool:
    """Return `value` if it is `True` or `False`."""
    if not isinstance(value, bool):
        raise InvalidOptionType(option, value, "True or False")
    return value


def as_label(option: str, value: object, *, optional: bool = True) -> str:
    """Return `value` if it is a text to call something by, which fits into one line of a log."""
    if not isinstance(value, str):
        raise InvalidOptionType(option, value, "a text, or None" if optional else "a text")
    if not value.strip():
        raise InvalidOption(option, value, "a text that is not empty")
    if any(unicodedata.category(each) in _BREAKS_LINES for each in value):
        raise InvalidOption(option, value, "a text without line breaks and other control characters")
    return value


_BREAKS_LINES: Final = frozenset({"Cc", "Zl", "Zp"})


def as_factor(option: str, value: object, allowed: str = "a number above 0") -> float:
    """Return `value` as a float if it is a finite number above 0."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidOptionType(option, value, allowed)
    number = as_float(value)
    if not math.isfinite(number) or number <= 0:
        raise InvalidOption(option, value, allowed)
    return number


def _as_clock(option: str, value: object) -> Clock:
    if not isinstance(value, Clock):
        raise InvalidOptionType(option, value, "a Clock")
    return value


def _as_sink(option: str, value: object) -> object:
    if not (hasattr(value, "emit") and hasattr(value, "subscribe")):
        raise InvalidOptionType(option, value, "a SignalSink, or None")
    return value


def _as_policy(option: str, value: object) -> object:
    if not isinstance(value, Retries):
        raise InvalidOptionType(option, value, "a RetryPolicy, or None")
    return value


def _as_limiter(option: str, value: object) -> object:
    if not isinstance(value, Limits):
        raise InvalidOptionType(option, value, "a limiter such as TokenBucket, or None")
    return value


_Check = Callable[[str, object], object]


def _count(least: int = 1) -> _Check:
    return lambda option, value: as_count(option, value, least=least)


def _seconds(*, zero: bool = False) -> _Check:
    return lambda option, value: as_seconds(option, value, zero=zero)


def _choice(*choices: str) -> _Check:
    return lambda option, value: as_choice(option, value, choices)


def _callback(*parameters: str, takes_async: bool = False) -> _Check:
    return lambda option, value: as_callback(option, value, *parameters, takes_async=takes_async)


def _option(default: object, check: _Check, *, optional: bool = False) -> Any:
    """Declare a field with its default and its check; `optional` admits `None`."""
    return field(default=default, metadata={"check": check, "optional": optional})


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class EphemeralOptions:
    """Hold every option, validated and frozen.

    A wrong value raises `InvalidOption` (a `ValueError`), a value of the wrong type `InvalidOptionType` (also a
    `TypeError`), an unknown name a `TypeError` that names the closest one.

    >>> options = EphemeralOptions(max_concurrency=4, max_operation_lifetime=timedelta(minutes=1))
    >>> options.max_concurrency, options.max_operation_lifetime
    (4, 60.0)
    >>> EphemeralOptions(max_concurrency=0)
    Traceback (most recent call last):
    ephemerals.errors.InvalidOption: max_concurrency=0 is not allowed: expected an int of at least 1
    """

    name: str | None = _option(None, as_label, optional=True)
    """Name in logs, signals and pages; `None`: the body's name and a number."""
    max_concurrency: int = _option(None, _count())
    """Bodies running at once; by default the number of processors."""
    max_concurrency_per_key: int = _option(1, _count())
    """Bodies of one key running at once."""
    max_pending: int | None = _option(1000, _count(), optional=True)
    """Items waiting to start, before `overflow` decides; `None`: no limit."""
    overflow: Literal["wait", "reject", "drop_oldest"] = _option("wait", _choice("wait", "reject", "drop_oldest"))
    """What `enqueue` does without room: wait, raise `CoordinatorFull`, or cancel the item that waits longest."""
    fair_scheduling: bool = _option(default=False, check=as_flag)
    """Take ready keys in turn (round robin) instead of oldest item first."""
    fair_scheduling_threshold: int = _option(10, _count())
    """Items of one key waiting, with `fair_scheduling`, before that key has no room."""
    starvation_limit: int | None = _option(None, _count(), optional=True)
    """How many items of higher lanes may pass a waiting lower one; `None`: no limit."""
    operation_timeout: float | None = _option(None, _seconds(), optional=True)
    """Seconds a body may run, each attempt anew, before it ends with `OperationTimeout`; `None`: no limit."""
    retry: Retries | None = _option(None, _as_policy, optional=True)
    """Whether and when what failed is tried again, without its slot meanwhile; `None`: never."""
    limiter: Limits | None = _option(None, _as_limiter, optional=True)
    """Grants a permit for each start, each attempt anew; it may be shared; `None`: no limit."""
    run_in: Literal["thread", "process"] = _option("thread", _choice("thread", "process"))
    """Where a plain function runs; an `async def` always runs on the loop."""
    context: Literal["inherit", "fresh"] = _option("inherit", _choice("inherit", "fresh"))
    """Run in a copy of the enqueuing caller's context, or in an empty one."""
    max_tracked_operations: int | None = _option(200, _count(0), optional=True)
    """Ended operations remembered; `None`: no limit."""
    max_operation_lifetime: float | None = _option(300.0, _seconds(), optional=True)
    """Seconds an ended operation is remembered; `None`: no limit."""
    max_pinned: int | None = _option(100, _count(0), optional=True)
    """Operations pinned at once; `None`: no limit."""
    max_operation_signals: int = _option(256, _count())
    """Newest signals kept for each operation."""
    echo_retention: float = _option(60.0, _seconds(zero=True))
    """Seconds an echo stays after its operation has left the window; 0 keeps none."""
    echo_capacity: int = _option(256, _count(0))
    """Echoes kept; 0 keeps none."""
    on_finalized: Callable[[OperationSnapshot[Any], FinalizationReason], object] | None = _option(
        None, _callback("snapshot", "reason"), optional=True
    )
    """Called once for each operation that leaves the window, with its snapshot and the reason."""
    on_sample: Callable[[WindowView], object] | None = _option(None, _callback("window"), optional=True)
    """Called after completions with a view of the window, at most once per `sample_interval`."""
    sample_interval: float = _option(1.0, _seconds(zero=True))
    """Seconds between two calls of `on_sample`; 0: after every completion."""
    error_detail: Literal["type", "message", "exception"] = _option("message", _choice("type", "message", "exception"))
    """What a snapshot keeps of an exception: type and places, also the message, also the stripped object."""
    key_privacy: Literal["plain", "hashed"] = _option("plain", _choice("plain", "hashed"))
    """Show keys as they are, or as a digest that means nothing outside this process."""
    signals: SignalSink | None = _option(None, _as_sink, optional=True)
    """The sink to share; `None`: a sink of its own."""
    on_signal: Callable[[SignalEvent], object] | None = _option(
        None, _callback("event", takes_async=True), optional=True
    )
    """Called, plain or async, for each signal of this coordinator's operations."""
    on_signal_retracted: Callable[[SignalEvent], object] | None = _option(
        None, _callback("event", takes_async=True), optional=True
    )
    """Called, plain or async, for each retracted signal of this coordinator's operations."""
    cancel_on_signals: tuple[str, ...] = _option((), as_patterns)
    """While one is present, items about to start are skipped."""
    defer_on_signals: tuple[str, ...] = _option((), as_patterns)
    """While one is present, nothing starts."""
    resume_on_signals: tuple[str, ...] = _option((), as_patterns)
    """One that is later than the cause ends the deferral."""
    max_defer_time: float | None = _option(1.0, _seconds(), optional=True)
    """Seconds one deferral may last in total; `None`: no limit."""
    on_defer_timeout: Literal["run", "skip"] = _option("run", _choice("run", "skip"))
    """What happens to waiting items when a deferral lasted too long."""
    clear_on_signals: tuple[str, ...] = _option((), as_patterns)
    """A new one clears the sink."""
    clear: Literal["all", "matching"] = _option("all", _choice("all", "matching"))
    """What `clear_on_signals` clears: everything, or what matches its patterns."""
    drain_on_signals: tuple[str, ...] = _option(("coordinator.drain.all", "coordinator.drain"), as_patterns)
    """A new one drains the coordinator; one with a key only if the key is the coordinator's name."""
    clock: Clock = _option(system_clock, _as_clock)
    """Where the time comes from."""

    def __init__(self, **keywords: Unpack[OptionKeywords]) -> None:
        """Validate the given options and take the defaults for the rest."""
        for name, (check, optional, default) in _CHECKS.items():
            if name not in keywords:
                object.__setattr__(self, name, default_concurrency() if name == "max_concurrency" else default)
                continue
            value = keywords[name]  # type: ignore[literal-required]  # the names are the dataclass's own
            object.__setattr__(self, name, None if value is None and optional else check(name, value))
        for unknown in keywords.keys() - _CHECKS.keys():
            close = [_MEANT[unknown]] if unknown in _MEANT else difflib.get_close_matches(unknown, _CHECKS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            message = f"there is no option named {unknown!r}{hint}"
            raise TypeError(message)

    @classmethod
    def of(cls, options: EphemeralOptions | None, keywords: OptionKeywords) -> EphemeralOptions:
        """Return `options` (by default all defaults) with the keywords laid over them."""
        if options is None:
            return cls(**keywords)
        if not isinstance(options, EphemeralOptions):
            raise InvalidOptionType("options", options, "an EphemeralOptions, or None")
        return options.replace(**keywords) if keywords else options

    def replace(self, **changes: Unpack[OptionKeywords]) -> Self:
        """Return a copy with some options changed, validated anew."""
        kept = {name: getattr(self, name) for name in _CHECKS}
        return type(self)(**cast("OptionKeywords", kept | changes))


_CHECKS: Final[dict[str, tuple[_Check, bool, Any]]] = {
    each.name: (each.metadata["check"], each.metadata["optional"], each.default) for each in fields(EphemeralOptions)
}

_MEANT: Final = {
    "timeout": "operation_timeout",
    "concurrency": "max_concurrency",
    "max_workers": "max_concurrency",
    "workers": "max_concurrency",
    "retries": "retry",
    "ttl": "max_operation_lifetime",
    "maxsize": "max_pending",
    "max_queue_size": "max_pending",
}
"""What somebody means by names that other libraries have for these options."""
