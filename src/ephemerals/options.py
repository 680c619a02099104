"""Every option of every coordinator, in one frozen object that is validated once.

A coordinator takes options as keywords, or a ready `EphemeralOptions` as `options=`, or both (a keyword wins).
Time spans are seconds as int or float, or a `timedelta`; `None` always means "no limit".
"""

from __future__ import annotations

import math
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, cast

from .clock import Clock, system_clock
from .errors import InvalidOption, InvalidOptionType, closest
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
    """Name the keywords of `EphemeralOptions` and their types, for type checkers; that class says what each means."""

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


def as_text(option: str, value: object) -> str:
    """Return `value` if it is a text to call something by: not empty, and fit for one line of a log."""
    if not isinstance(value, str):
        raise InvalidOptionType(option, value, "a text")
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


def _as_name(option: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidOptionType(option, value, "a text, or None")
    return as_text(option, value)


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
    `TypeError`), an unknown name a `TypeError` that names the closest one. Time spans may be given as a `timedelta`.

    >>> options = EphemeralOptions(max_concurrency=4, max_operation_lifetime=timedelta(minutes=1))
    >>> options.max_concurrency, options.max_operation_lifetime
    (4, 60.0)
    >>> EphemeralOptions(max_concurrency=0)
    Traceback (most recent call last):
    ephemerals.errors.InvalidOption: max_concurrency=0 is not allowed: expected an int of at least 1

    Attributes:
        name: What it is called in logs, signals and pages. By default `None`: the body's name and a number.
        max_concurrency: How many bodies run at once, 1 or more. By default the number of processors.
        max_concurrency_per_key: How many bodies of one key run at once. By default 1: one after another.
        max_pending: How many items may wait for their start before `overflow` decides. By default 1000; `None`: no
            limit.
        overflow: What `enqueue` does when there is no room: `"wait"` (the default) for some, `"reject"` the item with
            `CoordinatorFull`, or `"drop_oldest"`, which cancels the item that has waited longest.
        fair_scheduling: Whether ready keys take turns instead of the oldest item going first. By default `False`.
        fair_scheduling_threshold: With `fair_scheduling`, how many items of one key may wait before there is no room
            for more of that key. By default 10.
        starvation_limit: How many items of higher lanes may pass a waiting lower one in a row. By default `None`: no
            limit.
        operation_timeout: Seconds a body may run, each attempt anew, before it ends with `OperationTimeout`. By
            default `None`: no limit.
        retry: A `RetryPolicy`: whether and when what failed is tried again; it holds no slot meanwhile. By default
            `None`: never.
        limiter: A limiter such as `TokenBucket` that grants a permit for each start, each attempt anew; several
            coordinators may share it. By default `None`: no limit.
        run_in: Where a plain function runs: in a `"thread"` (the default) or a `"process"`. An `async def` always
            runs on the loop.
        context: Which context variables a body sees: with `"inherit"` (the default) a copy of those of the caller of
            `enqueue`, with `"fresh"` none.
        max_tracked_operations: How many ended operations are remembered, pinned ones not counted; 0: none. By default
            200; `None`: no limit.
        max_operation_lifetime: Seconds an operation is remembered after it has ended. By default 300; `None`: no
            limit.
        max_pinned: How many operations may be pinned at the same time; 0: none. By default 100; `None`: no limit.
        max_operation_signals: How many signals are kept for each operation, the newest. By default 256.
        echo_retention: Seconds an echo stays after its operation has left the window; 0: there are none. By
            default 60.
        echo_capacity: How many echoes are kept; 0: none. By default 256.
        on_finalized: A function that is called once for each operation that leaves the window, with its snapshot and
            the `FinalizationReason`. By default `None`.
        on_sample: A function that is called after completions with a `WindowView`, at most once in each
            `sample_interval`. By default `None`.
        sample_interval: Seconds between two calls of `on_sample`; 0: after every completion. By default 1.
        error_detail: What a snapshot keeps of an exception: `"type"`, which is type and places; `"message"` (the
            default), also the first 200 characters of the message; `"exception"`, also the object, without traceback.
        key_privacy: How keys are shown in snapshots, signals, logs and pages: `"plain"` (the default), or `"hashed"`,
            as digests that mean nothing outside this process.
        signals: The `SignalSink` to emit to and to listen to, shared with others. By default `None`: one of its own.
        on_signal: A function, plain or async, that is called for each signal of this coordinator's operations. By
            default `None`.
        on_signal_retracted: A function, plain or async, that is called for each signal that this coordinator's
            operations take back. By default `None`.
        cancel_on_signals: Patterns of signals; while one that matches is present, items about to start are skipped.
            By default `()`: nothing is skipped.
        defer_on_signals: Patterns of signals; while one that matches is present, nothing starts. By default `()`:
            nothing is held back.
        resume_on_signals: Patterns of signals; one that is later than what holds work back ends the deferral. By
            default `()`: only the end of its cause does.
        max_defer_time: Seconds one deferral may last in total, however many items wait. By default 1; `None`: no
            limit.
        on_defer_timeout: What becomes of waiting items when a deferral has lasted too long: `"run"` (the default) or
            `"skip"`.
        clear_on_signals: Patterns of signals; each new one that matches clears the sink. By default `()`: none does.
        clear: What `clear_on_signals` clears: `"all"` (the default), or what is `"matching"` its patterns.
        drain_on_signals: Patterns of signals; each new one that matches drains the coordinator, one with a key only if
            the key is the coordinator's name. By default `"coordinator.drain.all"` and `"coordinator.drain"`.
        clock: Where the time comes from: a `Clock`. By default the system's.
    """

    name: str | None = _option(None, _as_name, optional=True)
    max_concurrency: int = _option(None, _count())
    max_concurrency_per_key: int = _option(1, _count())
    max_pending: int | None = _option(1000, _count(), optional=True)
    overflow: Literal["wait", "reject", "drop_oldest"] = _option("wait", _choice("wait", "reject", "drop_oldest"))
    fair_scheduling: bool = _option(default=False, check=as_flag)
    fair_scheduling_threshold: int = _option(10, _count())
    starvation_limit: int | None = _option(None, _count(), optional=True)
    operation_timeout: float | None = _option(None, _seconds(), optional=True)
    retry: Retries | None = _option(None, _as_policy, optional=True)
    limiter: Limits | None = _option(None, _as_limiter, optional=True)
    run_in: Literal["thread", "process"] = _option("thread", _choice("thread", "process"))
    context: Literal["inherit", "fresh"] = _option("inherit", _choice("inherit", "fresh"))
    max_tracked_operations: int | None = _option(200, _count(0), optional=True)
    max_operation_lifetime: float | None = _option(300.0, _seconds(), optional=True)
    max_pinned: int | None = _option(100, _count(0), optional=True)
    max_operation_signals: int = _option(256, _count())
    echo_retention: float = _option(60.0, _seconds(zero=True))
    echo_capacity: int = _option(256, _count(0))
    on_finalized: Callable[[OperationSnapshot[Any], FinalizationReason], object] | None = _option(
        None, _callback("snapshot", "reason"), optional=True
    )
    on_sample: Callable[[WindowView], object] | None = _option(None, _callback("window"), optional=True)
    sample_interval: float = _option(1.0, _seconds(zero=True))
    error_detail: Literal["type", "message", "exception"] = _option("message", _choice("type", "message", "exception"))
    key_privacy: Literal["plain", "hashed"] = _option("plain", _choice("plain", "hashed"))
    signals: SignalSink | None = _option(None, _as_sink, optional=True)
    on_signal: Callable[[SignalEvent], object] | None = _option(
        None, _callback("event", takes_async=True), optional=True
    )
    on_signal_retracted: Callable[[SignalEvent], object] | None = _option(
        None, _callback("event", takes_async=True), optional=True
    )
    cancel_on_signals: tuple[str, ...] = _option((), as_patterns)
    defer_on_signals: tuple[str, ...] = _option((), as_patterns)
    resume_on_signals: tuple[str, ...] = _option((), as_patterns)
    max_defer_time: float | None = _option(1.0, _seconds(), optional=True)
    on_defer_timeout: Literal["run", "skip"] = _option("run", _choice("run", "skip"))
    clear_on_signals: tuple[str, ...] = _option((), as_patterns)
    clear: Literal["all", "matching"] = _option("all", _choice("all", "matching"))
    drain_on_signals: tuple[str, ...] = _option(("coordinator.drain.all", "coordinator.drain"), as_patterns)
    clock: Clock = _option(system_clock, _as_clock)

    def __init__(self, **keywords: Unpack[OptionKeywords]) -> None:
        """Validate the given options and take the defaults for the rest."""
        for name, (check, optional, default) in _CHECKS.items():
            if name not in keywords:
                object.__setattr__(self, name, default_concurrency() if name == "max_concurrency" else default)
                continue
            value = keywords[name]  # type: ignore[literal-required]  # the names are the dataclass's own
            object.__setattr__(self, name, None if value is None and optional else check(name, value))
        for unknown in keywords.keys() - _CHECKS.keys():
            meant = f"; did you mean {_MEANT[unknown]!r}?" if unknown in _MEANT else closest(unknown, _CHECKS)
            message = f"there is no option named {unknown!r}{meant}"
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
