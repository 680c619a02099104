"""When a cron expression comes due, as instants that exist, in any time zone.

The expression is matched against the labels on the wall, without a zone (`cronsim` does that); which instants a label
stands for is decided here. So a gap and a fold are each handled in one place, whatever their size.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from ephemerals.errors import InvalidOption, InvalidOptionType, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Cron"]

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the label on the wall in UTC
_SECOND: Final = timedelta(seconds=1)


class Cron:
    """Find the times of a cron expression of five fields, or of six with seconds first, in a time zone.

    An expression that names its hours stands for times of the day: one that a gap in local time leaves out comes due at
    the first instant after the gap, and one that a fold repeats comes due once, the first time. With an hour field that
    begins with `*` it means every so often: it comes due whenever the clock on the wall shows a time that matches, so
    in a gap not at all, and in a fold both times.

    It needs the extra `schedule`; without it, `MissingExtra`. `tz` is a name such as `"Europe/Berlin"`, or a `tzinfo`.

    >>> from datetime import datetime, UTC
    >>> cron = Cron("30 2 * * *", "America/New_York")
    >>> morning = cron.next_after(datetime(2026, 3, 8, 5, tzinfo=UTC).timestamp())
    >>> datetime.fromtimestamp(morning, cron.tz).isoformat()
    '2026-03-08T03:00:00-04:00'
    """

    __slots__ = ("expression", "names_hours", "tz")

    def __init__(self, expression: str, tz: str | tzinfo = "UTC") -> None:
        if not isinstance(expression, str):
            raise InvalidOptionType("cron", expression, "a cron expression such as '30 2 * * *'")
        self.expression = expression
        self.tz = as_time_zone("tz", tz)
        *_, hour = ["", *expression.split()[:-3]]  # what follows it are day, month and day of the week
        self.names_hours = not hour.startswith("*")
        if math.isinf(self.next_after(0.0)):
            raise InvalidOption("cron", expression, "a time that comes at least once in fifty years")

    def next_after(self, instant: float) -> float:
        """Return the first time later than `instant`; both are seconds since the epoch.

        Infinity, if it does not come any more.
        """
        floor = math.floor(instant)
        local = datetime.fromtimestamp(floor, self.tz)
        label = local.replace(tzinfo=None, fold=0)
        if not self.names_hours and not local.fold and len(shown := self._instants(label)) == 2:  # noqa: PLR2004
            turn = self._change(*shown)  # the labels of this hour come again from here on
            for match in self._labels(label):
                if (first := self._meant(match)[:1]) and floor < first[0] < turn:
                    return first[0]
                break
            floor, label = turn - 1, self._label(turn) - _SECOND
        for match in self._labels(label):
            for each in self._meant(match):
                if each > floor:
                    return each
        return math.inf

    def between(self, first: float, last: float) -> Iterator[float]:
        """Yield the times from `first`, which must be one, to `last`, in order."""
        while first <= last:
            yield first
            first = self.next_after(first)

    def _labels(self, label: datetime) -> Iterator[datetime]:
        """Yield the labels on the wall that match and are later than this one."""
        try:
            from cronsim import CronSim, CronSimError
        except ImportError:
            raise MissingExtra("a cron expression", "schedule") from None
        try:
            yield from CronSim(self.expression, label)
        except CronSimError as error:
            allowed = f"a cron expression of five fields, or six with seconds first ({error})"
            raise InvalidOption("cron", self.expression, allowed) from None

    def _meant(self, label: datetime) -> list[int]:
        """Return the instants at which a label that matches comes due, in order."""
        shown = self._instants(label)
        if not self.names_hours:
            return shown
        if not shown:
            before, after = (self._instant(label, fold) for fold in (1, 0))
            return [self._change(before, after)]
        return shown[:1]

    def _instants(self, label: datetime) -> list[int]:
        """Return the instants at which the wall shows a label: none in a gap, two in a fold."""
        first, second = self._instant(label, 0), self._instant(label, 1)
        if first > second:
            return []
        return [first] if first == second else [first, second]

    def _instant(self, label: datetime, fold: int) -> int:
        offset = label.replace(tzinfo=self.tz, fold=fold).utcoffset() or timedelta()
        return (label - _EPOCH - offset) // _SECOND

    def _label(self, instant: int) -> datetime:
        return datetime.fromtimestamp(instant, self.tz).replace(tzinfo=None, fold=0)

    def _change(self, before: int, after: int) -> int:
        """Return the instant, later than `before` and not later than `after`, at which the clock is changed."""
        offset = datetime.fromtimestamp(before, self.tz).utcoffset()
        while after - before > 1:
            middle = (before + after) // 2
            if datetime.fromtimestamp(middle, self.tz).utcoffset() == offset:
                before = middle
            else:
                after = middle
        return after


def as_time_zone(option: str, value: object) -> tzinfo:
    """Return a time zone, given itself or its name."""
    if isinstance(value, tzinfo):
        return value
    allowed = "the name of a time zone such as 'Europe/Berlin', or a tzinfo"
    if not isinstance(value, str):
        raise InvalidOptionType(option, value, allowed)
    if value.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(value)
    except (OSError, ValueError, LookupError):  # no such file, no such name, or no name at all
        raise InvalidOption(option, value, f"{allowed} (on systems without time zones: pip install tzdata)") from None
