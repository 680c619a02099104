"""When a cron expression comes due: in gaps, in folds, and always later than what came before (R78)."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals import InvalidOption, MissingExtra
from ephemerals.atoms import Cron

ZONES = ["UTC", "America/New_York", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Asia/Kathmandu"]


def times(expression, tz, start, count):
    """Return the next times in a zone after a local one, as ISO texts."""
    cron = Cron(expression, tz)
    now, found = datetime.fromisoformat(start).replace(tzinfo=cron.tz).timestamp(), []
    for _ in range(count):
        now = cron.next_after(now)
        found.append(datetime.fromtimestamp(now, cron.tz).isoformat(timespec="minutes"))
    return found


@pytest.mark.parametrize(
    ("expression", "tz", "start", "expected"),
    [
        # A time of the day that a gap leaves out: once, at the first instant after it.
        (
            "30 2 * * *",
            "America/New_York",
            "2026-03-07T00:00",
            ["2026-03-07T02:30-05:00", "2026-03-08T03:00-04:00", "2026-03-09T02:30-04:00"],
        ),
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T00:00",
            ["2026-03-28T02:30+01:00", "2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"],
        ),
        ("0 0 * * 0", "America/Santiago", "2022-09-04T00:00", ["2022-09-11T01:00-03:00", "2022-09-18T00:00-03:00"]),
        ("15,45 2 * * *", "Europe/Berlin", "2026-03-29T00:00", ["2026-03-29T03:00+02:00", "2026-03-30T02:15+02:00"]),
        ("*/10 2 * * *", "Europe/Berlin", "2026-03-29T00:00", ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"]),
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00", ["2011-12-29T12:00-10:00", "2011-12-31T00:00+14:00"]),
        # One that a fold repeats: once, the first time.
        (
            "30 1 * * *",
            "America/New_York",
            "2026-10-31T00:00",
            ["2026-10-31T01:30-04:00", "2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00"],
        ),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:00", ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
        # Every so often: whenever the wall shows it.
        (
            "30 * * * *",
            "America/New_York",
            "2026-11-01T00:00",
            ["2026-11-01T00:30-04:00", "2026-11-01T01:30-04:00", "2026-11-01T01:30-05:00", "2026-11-01T02:30-05:00"],
        ),
        ("15 * * * *", "Europe/Berlin", "2026-03-29T01:00", ["2026-03-29T01:15+01:00", "2026-03-29T03:15+02:00"]),
        (
            "0 * * * *",
            "Australia/Lord_Howe",
            "2019-10-06T00:30",
            ["2019-10-06T01:00+10:30", "2019-10-06T03:00+11:00", "2019-10-06T04:00+11:00"],
        ),
        (
            "*/30 * * * *",
            "Australia/Lord_Howe",
            "2019-10-06T01:15",
            ["2019-10-06T01:30+10:30", "2019-10-06T02:30+11:00", "2019-10-06T03:00+11:00"],
        ),
        (
            "*/15 * * * *",
            "Australia/Lord_Howe",
            "2019-04-07T01:20",
            ["2019-04-07T01:30+11:00", "2019-04-07T01:45+11:00", "2019-04-07T01:30+10:30", "2019-04-07T01:45+10:30"],
        ),
        # The calendar.
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00", ["2028-02-29T00:00+00:00", "2032-02-29T00:00+00:00"]),
        ("0 0 29 2 *", "UTC", "2096-03-01T00:00", ["2104-02-29T00:00+00:00"]),
        ("0 9 L * *", "UTC", "2026-02-01T00:00", ["2026-02-28T09:00+00:00", "2026-03-31T09:00+00:00"]),
    ],
)
def test_in_gaps_and_folds(expression, tz, start, expected):
    assert times(expression, tz, start, len(expected)) == expected


def test_seconds_come_first_in_an_expression_of_six_fields():
    cron = Cron("*/20 30 2 * * *", "Europe/Berlin")
    start = datetime(2026, 3, 28, 1, tzinfo=UTC).timestamp()
    found = [start := cron.next_after(start) for _ in range(4)]
    assert found[:3] == [found[0], found[0] + 20, found[0] + 40]
    assert datetime.fromtimestamp(found[3], cron.tz).isoformat() == "2026-03-29T03:00:00+02:00"


def test_it_is_later_than_asked_for_by_less_than_a_second_too():
    cron = Cron("* * * * *")
    assert [cron.next_after(instant) for instant in (0, 0.5, 59, 59.999, 60)] == [60, 60, 60, 60, 120]


def test_asking_within_the_second_pass_of_a_fold():
    cron = Cron("30 1 * * *", "America/New_York")
    again = datetime(2026, 11, 1, 1, 15, fold=1, tzinfo=cron.tz).timestamp()
    assert datetime.fromtimestamp(cron.next_after(again), cron.tz).isoformat() == "2026-11-02T01:30:00-05:00"


def naive(expression, zone, start, end):
    """Return what the wall shows, minute by minute, and whether cronsim's own matching agrees: the slow truth."""
    from cronsim import CronSim

    found, minute = [], start - start % 60
    while minute <= end:
        label = datetime.fromtimestamp(minute, zone).replace(tzinfo=None, fold=0)
        if minute > start and next(CronSim(expression, label - timedelta(seconds=1))) == label:
            found.append(minute)
        minute += 60
    return found


CHANGES = [
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/Santiago", datetime(2022, 9, 11, 4, tzinfo=UTC)),
    ("America/Santiago", datetime(2022, 4, 3, 3, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2019, 10, 5, 15, 30, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2019, 4, 6, 15, tzinfo=UTC)),
]


@given(
    st.sampled_from(CHANGES),
    st.sampled_from(["*", "*/7", "0", "30", "*/15", "59", "10,50"]),
    st.sampled_from(["*", "*/2", "*/3"]),
    st.integers(-4 * 3600, 2 * 3600),
)
def test_every_so_often_is_whenever_the_wall_shows_it(change, minutes, hours, before):
    tz, turn = change
    expression, zone = f"{minutes} {hours} * * *", ZoneInfo(tz)
    start = int(turn.timestamp()) + before
    cron, found, now = Cron(expression, tz), [], start
    while (now := cron.next_after(now)) <= start + 4 * 3600:
        found.append(now)
    assert found == naive(expression, zone, start, start + 4 * 3600)


@given(
    st.sampled_from(ZONES),
    st.sampled_from(["0 0 * * *", "30 2 * * *", "*/20 1,2 * * *", "5 * * * *", "0 3 * * MON", "*/40 0 * * * *"]),
    st.integers(1_400_000_000, 1_900_000_000),
)
def test_times_of_the_day_always_come_and_always_later(tz, expression, start):
    cron = Cron(expression, tz)
    times = [start]
    for _ in range(20):
        times.append(cron.next_after(times[-1]))
    assert all(earlier < later for earlier, later in pairwise(times))
    longest = 8 * 86400 if "MON" in expression else 2 * 86400
    assert all(later - earlier <= longest for earlier, later in pairwise(times))


@given(st.sampled_from(CHANGES), st.integers(0, 23), st.integers(0, 59))
def test_a_time_of_the_day_comes_exactly_once_a_day(change, hour, minute):
    tz, turn = change
    cron = Cron(f"{minute} {hour} * * *", tz)
    now = (turn - timedelta(days=3)).timestamp()
    days = []
    for _ in range(6):
        now = cron.next_after(now)
        days.append(datetime.fromtimestamp(now, cron.tz).date())
    assert all(later - earlier == timedelta(days=1) for earlier, later in pairwise(days))


def test_a_zone_may_be_any_tzinfo():
    zone = timezone(timedelta(hours=5, minutes=45))
    assert times("0 0 * * *", zone, "2026-01-01T12:00", 1) == ["2026-01-02T00:00+05:45"]


def test_what_makes_no_sense_is_refused():
    for wrong in ("", "* * *", "61 * * * *", "0 0 30 2 *", "0 0 * * * * *", "@daily"):
        with pytest.raises(InvalidOption, match="cron"):
            Cron(wrong)
    with pytest.raises(InvalidOption, match="cron"):
        Cron(5)
    with pytest.raises(InvalidOption, match="fifty years"):
        Cron("0 0 */9 * MON#5")  # the fifth Monday is never the 1st, 10th, 19th or 28th
    for wrong in ("Mars/Olympus", "", "../etc/passwd", 3):
        with pytest.raises(InvalidOption, match="tz"):
            Cron("* * * * *", wrong)


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(MissingExtra, match=r"ephemerals\[schedule\]"):
        Cron("* * * * *")
