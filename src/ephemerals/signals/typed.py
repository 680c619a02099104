"""Typed signals: a name that knows the type of its data, and numbers over what was emitted under it.

    >>> from ephemerals.signals import SignalKey, SignalSink
    >>> BOT_SCORE = SignalKey[float]("bot.score")
    >>> sink = SignalSink()
    >>> _ = sink.emit(BOT_SCORE, 0.9), sink.emit(BOT_SCORE, 0.7)
    >>> statistics_of(sink, BOT_SCORE).mean
    0.8

A type checker knows that `sink.emit(BOT_SCORE, "high")` is wrong, and that a handler subscribed to the key
gets an event whose `data` is a float. At run time nothing is checked, unless the key is given the type:
`check=float`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from ephemerals.errors import InvalidOption, InvalidOptionType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .pattern import PatternLike
    from .sink import SignalSink

__all__ = ["SignalKey", "ValueStatistics", "statistics_of"]

T = TypeVar("T")


class SignalKey(Generic[T]):
    """Name a signal whose data is a `T`; frozen. The name has no wildcard and no comma.

    With `check`, a type or a tuple of types, emitting anything else is an `InvalidOptionType`.
    """

    __slots__ = ("check", "name")

    name: str
    check: type[Any] | tuple[type[Any], ...] | None

    def __init__(self, name: str, *, check: type[Any] | tuple[type[Any], ...] | None = None) -> None:
        if not isinstance(name, str):
            raise InvalidOptionType("name", name, "a text")
        if not name.strip() or any(each in name for each in "*?,"):
            raise InvalidOption("name", name, "a name that is not empty, without '*', '?' and ','")
        super().__setattr__("name", name)
        super().__setattr__("check", check)

    def validate(self, data: object) -> None:
        """Raise `InvalidOptionType` if the key checks types and `data` is of another; it is not shown."""
        if self.check is not None and not isinstance(data, self.check):
            types = self.check if isinstance(self.check, tuple) else (self.check,)
            wanted = " or ".join(each.__qualname__ for each in types)
            raise InvalidOptionType("data", type(data), f"a value of type {wanted} for {self.name!r}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: a key is frozen. (`typing` tries to note the type in it, and takes that for an answer.)."""
        raise AttributeError(f"cannot set {name!r}: a SignalKey is frozen")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SignalKey):
            return NotImplemented
        return (self.name, self.check) == (other.name, other.check)

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"SignalKey({self.name!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueStatistics:
    """Sum up numbers: of nothing, `mean`, `minimum` and `maximum` are `None`.

    `by_key` has the statistics of each key, without a further division.
    """

    count: int
    sum: float
    mean: float | None
    minimum: float | None
    maximum: float | None
    by_key: Mapping[Any, ValueStatistics]


def statistics_of(
    sink: SignalSink, name: PatternLike | SignalKey[float] | SignalKey[int], *, last: float | None = None
) -> ValueStatistics:
    """Sum up the numbers that were emitted under a key, or under what a pattern matches.

    `last` is how many seconds back to look (`None`: as far as the sink remembers). Looking back further than
    the sink keeps events is an `InvalidOption`, because the answer would be wrong. Data that is not a number
    is left out.
    """
    if last is not None:
        if sink.max_age is not None and last > sink.max_age:
            raise InvalidOption("last", last, f"at most the sink's max_age, {sink.max_age} seconds")
        since = sink.clock.monotonic() - last
    else:
        since = -math.inf
    pattern = name.name if isinstance(name, SignalKey) else name
    by_key: dict[Any, list[float]] = {}
    for event in sink.events(pattern=pattern):
        if event.monotonic >= since and isinstance(event.data, int | float) and not isinstance(event.data, bool):
            by_key.setdefault(event.key, []).append(event.data)
    each = {key: _sum_up(values, {}) for key, values in by_key.items()}
    return _sum_up([value for values in by_key.values() for value in values], each)


def _sum_up(values: list[float], by_key: Mapping[Any, ValueStatistics]) -> ValueStatistics:
    total = math.fsum(values)
    return ValueStatistics(
        count=len(values),
        sum=total,
        mean=total / len(values) if values else None,
        minimum=min(values, default=None),
        maximum=max(values, default=None),
        by_key=by_key,
    )
