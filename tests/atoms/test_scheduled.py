"""The schedule: what is due runs on time by the wall clock, whatever that does, and nothing polls."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals import CoordinatorClosed, DuplicateName, InvalidBody, InvalidOption, OperationStatus
from ephemerals.atoms import RetryPolicy, Scheduled, ScheduledJob, load_jobs
from ephemerals.atoms.planned_job import PlannedJob
from ephemerals.signals import SignalSink
from ephemerals.testing import VirtualClock, assert_quiet, run

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = 60, 3600, 86400


def clock_at(moment):
    return VirtualClock(time=datetime.fromisoformat(moment).timestamp())


def wall():
    """Return what the clock on the wall says, to the second."""
    return datetime.fromtimestamp(round(VirtualClock.current().time()), UTC)


class Log:
    """Be a job that notes when it ran and for which occurrence; it may take its time."""

    def __init__(self, seconds=0):
        self.seconds = seconds
        self.ran = []
        self.running = self.most = 0

    async def __call__(self, occurrence):
        self.ran.append((wall(), occurrence))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running -= 1

    @property
    def at(self):
        return [when.strftime("%d %H:%M") for when, _ in self.ran]

    @property
    def scheduled(self):
        return [occurrence.scheduled_at.strftime("%d %H:%M") for _, occurrence in self.ran]


def schedule(log, cron, *, max_sleep=60, job="log", signals=None, **choices):
    jobs = [ScheduledJob(name=job, cron=cron, function=log, **choices)]
    return Scheduled(jobs, max_sleep=max_sleep, signals=signals)


async def test_a_job_runs_when_it_is_due():
    log = Log()
    async with schedule(log, "*/20 * * * *") as scheduled:
        assert scheduled.next_run("log") == START + timedelta(minutes=20)
        await asyncio.sleep(HOUR + 1)
        assert scheduled.next_run("log") == START + timedelta(minutes=80)
    assert log.at == log.scheduled == ["01 00:20", "01 00:40", "01 01:00"]
    assert_quiet(scheduled)


async def test_a_run_is_an_operation_under_the_name_of_the_job():
    async with schedule(Log(5), "* * * * *") as scheduled:
        await asyncio.sleep(MINUTE + 1)
        (running,) = scheduled.coordinator.running()
        assert running.name == "log"
        assert running.metadata["scheduled_at"] == "2026-01-01T00:01:00+00:00"
    assert scheduled.statistics().jobs["log"].started == 1
    assert_quiet(scheduled)


async def test_nothing_polls():
    log = Log()
    async with schedule(log, "0 3 * * *", max_sleep=None) as scheduled:
        await asyncio.sleep(10 * DAY)
        assert len(log.ran) == 10
        assert scheduled.statistics().wakeups <= 20  # a float's width too early costs another
    async with Scheduled() as idle:
        await asyncio.sleep(DAY)
        assert idle.statistics().wakeups == 0
    assert_quiet(scheduled, idle)


async def test_no_sleep_is_longer_than_said():
    async with schedule(Log(), "0 3 1 1 *", max_sleep=600) as scheduled:
        await asyncio.sleep(DAY)
        assert DAY / 600 - 1 <= scheduled.statistics().wakeups <= DAY / 600 + 2


# Time zones (the rest is tested with Cron).


@pytest.mark.parametrize(
    ("cron", "tz", "start", "expected"),
    [
        ("30 2 * * *", "America/New_York", "2026-03-07T12:00+00:00", ["08 07:00", "09 06:30", "10 06:30"]),
        ("30 1 * * *", "America/New_York", "2026-10-31T12:00+00:00", ["01 05:30", "02 06:30", "03 06:30"]),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+00:00", ["29 01:00", "30 00:30", "31 00:30"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00+00:00", ["25 00:30", "26 01:30", "27 01:30"]),
        ("0 0 * * *", "America/Santiago", "2022-09-10T12:00+00:00", ["11 04:00", "12 03:00", "13 03:00"]),
        ("0 2 * * *", "Australia/Lord_Howe", "2019-10-05T12:00+00:00", ["05 15:30", "06 15:00", "07 15:00"]),
    ],
)
def test_over_changes_to_and_from_summer_time(cron, tz, start, expected):
    log = Log()

    async def main():
        async with schedule(log, cron, tz=tz, max_sleep=None):
            await asyncio.sleep(3 * DAY)

    run(main(), clock=clock_at(start))
    assert log.at == expected


def test_every_hour_on_lord_howe():
    log = Log()

    async def main():
        async with schedule(log, "0 * * * *", tz="Australia/Lord_Howe"):
            await asyncio.sleep(3.5 * HOUR)

    run(main(), clock=clock_at("2019-10-06T00:30+10:30"))
    assert log.scheduled == ["06 01:00", "06 03:00", "06 04:00"]


def test_on_29_february():
    log = Log()

    async def main():
        async with schedule(log, "0 12 29 2 *", max_sleep=None):
            await asyncio.sleep(8 * 365.25 * DAY)

    run(main(), clock=clock_at("2026-01-01T00:00+00:00"))
    assert [when.date().isoformat() for when, _ in log.ran] == ["2028-02-29", "2032-02-29"]


# Clocks that are set, and machines that sleep.


async def test_a_clock_set_forward_a_day_misses_once_and_goes_on():
    log = Log()
    async with schedule(log, "0 * * * *") as scheduled:
        await asyncio.sleep(HOUR + 10)
        VirtualClock.current().step_wall(DAY)
        await asyncio.sleep(2 * HOUR)
        counts = scheduled.statistics()
    assert log.scheduled == ["01 01:00", "02 01:00", "02 02:00", "02 03:00"]
    assert log.ran[1][0] - log.ran[1][1].scheduled_at <= timedelta(seconds=60)
    assert (log.ran[1][1].missed, counts.jobs["log"].missed, counts.clock_changes) == (23, 23, 1)
    assert_quiet(scheduled)


async def test_a_clock_set_back_a_day_is_followed_at_once():
    """Not silent until the clock is back where it was (R78)."""
    log = Log()
    async with schedule(log, "0 * * * *") as scheduled:
        await asyncio.sleep(2 * HOUR + 10)
        VirtualClock.current().step_wall(-DAY)
        await asyncio.sleep(2 * HOUR)
        counts = scheduled.statistics()
    assert log.at == ["01 01:00", "01 02:00", "31 03:00", "31 04:00"]
    assert (counts.jobs["log"].missed, counts.clock_changes) == (0, 1)
    assert_quiet(scheduled)


async def test_a_clock_set_back_just_before_a_job_is_due_loses_no_occurrence():
    log = Log()
    async with schedule(log, "* * * * *"):
        await asyncio.sleep(MINUTE + 10)
        VirtualClock.current().step_wall(-DAY)
        await asyncio.sleep(2 * MINUTE)
    assert log.scheduled == ["01 00:01", "31 00:02", "31 00:03"]


async def test_a_clock_corrected_by_a_little_repeats_nothing():
    log = Log()
    async with schedule(log, "0 * * * *") as scheduled:
        await asyncio.sleep(HOUR + 1)
        VirtualClock.current().step_wall(-5)
        await asyncio.sleep(2 * HOUR + 10)
        assert scheduled.statistics().clock_changes == 0
    assert log.scheduled == ["01 01:00", "01 02:00", "01 03:00"]


async def test_a_clock_set_to_another_century_makes_no_storm():
    log = Log()
    async with schedule(log, "* * * * * *") as scheduled:
        await asyncio.sleep(2.5)
        VirtualClock.current().step_wall(174 * 365.25 * DAY)
        await asyncio.sleep(2)
        assert len(log.ran) == 2 + 2
        assert log.ran[2][1].scheduled_at.year == log.ran[2][0].year == 2200
        assert 900 <= scheduled.statistics().jobs["log"].missed <= 1000
        VirtualClock.current().step_wall(-174 * 365.25 * DAY)
        await asyncio.sleep(2)
        assert log.ran[-1][0].year == 2026
    assert_quiet(scheduled)


@pytest.mark.parametrize(
    ("misfire", "expected", "missed"),
    [
        ("coalesce", ["01 01:00", "01 09:00", "01 10:00"], 7),
        ("skip", ["01 01:00", "01 10:00"], 8),
        ("all", [f"01 {hour:02}:00" for hour in range(1, 11)], 0),
    ],
)
async def test_after_eight_hours_of_sleep(misfire, expected, missed):
    log = Log()
    async with schedule(log, "0 * * * *", misfire=misfire) as scheduled:
        await asyncio.sleep(HOUR + 10 * MINUTE)
        VirtualClock.current().suspend(8 * HOUR)
        await asyncio.sleep(HOUR)
        assert scheduled.statistics().jobs["log"].missed == missed
    assert log.scheduled == expected
    late = log.ran[1][0] - datetime(2026, 1, 1, 9, 10, tzinfo=UTC)
    assert late <= timedelta(seconds=60) or misfire == "skip"
    assert_quiet(scheduled)


async def test_a_late_occurrence_that_is_not_too_late_is_run_by_skip():
    log = Log()
    async with schedule(log, "0 * * * *", misfire="skip", grace=600):
        await asyncio.sleep(HOUR - 10)
        VirtualClock.current().suspend(300)
        await asyncio.sleep(MINUTE)
    assert log.scheduled == ["01 01:00"]


async def test_a_blocked_loop_is_a_misfire_too():
    log = Log()
    async with schedule(log, "* * * * *") as scheduled:
        await asyncio.sleep(90)
        VirtualClock.current().advance(10 * MINUTE)
        await asyncio.sleep(10)
        assert scheduled.statistics().jobs["log"].missed == 9
    assert log.scheduled == ["01 00:01", "01 00:11"]


async def test_what_was_missed_is_said():
    sink, said = SignalSink(), []
    sink.subscribe("schedule.*", lambda event: said.append((event.name, event.key, event.data)))
    async with schedule(Log(), "0 * * * *", misfire="skip", signals=sink):
        await asyncio.sleep(HOUR + 10 * MINUTE)
        VirtualClock.current().suspend(8 * HOUR)
        await asyncio.sleep(MINUTE)
    assert said == [
        ("schedule.due", "log", {"scheduled_at": "2026-01-01T01:00:00+00:00", "missed": 0}),
        ("schedule.missed", "log", {"count": 8}),
    ]


# Overrun.


async def test_while_as_many_run_as_may_an_occurrence_is_left_out():
    log = Log(150)
    async with schedule(log, "* * * * *") as scheduled:
        await asyncio.sleep(10 * MINUTE + 1)
        counts = scheduled.statistics().jobs["log"]
    assert log.at == ["01 00:01", "01 00:04", "01 00:07", "01 00:10"]
    assert (log.most, counts.started, counts.overrun) == (1, 4, 6)
    assert_quiet(scheduled)


async def test_several_instances_may_run():
    log = Log(150)
    async with schedule(log, "* * * * *", max_instances=3) as scheduled:
        await asyncio.sleep(10 * MINUTE + 1)
        assert scheduled.statistics().jobs["log"].overrun == 0
    assert log.most == 3


async def test_with_all_they_wait_for_their_turn_up_to_a_number():
    sink, overruns = SignalSink(), []
    sink.subscribe("schedule.overrun", overruns.append)
    log = Log(150)
    async with schedule(log, "* * * * *", misfire="all", max_backlog=2, signals=sink) as scheduled:
        await asyncio.sleep(10 * MINUTE + 1)
        counts = scheduled.statistics().jobs["log"]
        assert log.scheduled[:4] == ["01 00:01", "01 00:02", "01 00:03", "01 00:04"]
        assert (counts.waiting, counts.active, log.most) == (2, 1, 1)
        assert counts.started + counts.waiting + counts.overrun == 10
        assert len(overruns) == counts.overrun > 0
    assert scheduled.statistics().jobs["log"].missed == 2  # those that still waited at the end
    assert_quiet(scheduled)


async def test_another_job_is_not_held_up():
    slow, quick = Log(HOUR), Log()
    scheduled = Scheduled(
        [
            ScheduledJob(name="slow", cron="* * * * *", function=slow),
            ScheduledJob(name="quick", cron="* * * * *", function=quick),
        ],
        max_concurrency=4,
    )
    async with scheduled:
        await asyncio.sleep(10 * MINUTE + 1)
        assert (len(slow.ran), len(quick.ran)) == (1, 10)


async def test_a_coordinator_without_room_refuses_and_the_schedule_goes_on():
    log = Log(HOUR)
    scheduled = Scheduled(max_concurrency=1, max_pending=1)
    for name in "abc":
        scheduled.add(ScheduledJob(name=name, cron="* * * * *", function=log))
    async with scheduled:
        await asyncio.sleep(MINUTE + 1)
        assert [each.refused for each in scheduled.statistics().jobs.values()] == [0, 0, 1]
        await asyncio.sleep(MINUTE)
        assert [each.refused for each in scheduled.statistics().jobs.values()] == [0, 0, 2]


# Jitter, startup, triggering.


async def test_jitter_delays_a_start_and_moves_no_other():
    log, shares = Log(), iter([0.5, 0.0, 0.999, 0.25])
    scheduled = Scheduled(random=lambda: next(shares))
    scheduled.add(ScheduledJob(name="log", cron="0 * * * *", function=log, jitter=timedelta(minutes=20)))
    async with scheduled:
        await asyncio.sleep(4.5 * HOUR)
    assert [when.strftime("%H:%M") for when, _ in log.ran] == ["01:10", "02:00", "03:19", "04:05"]
    assert log.scheduled == ["01 01:00", "01 02:00", "01 03:00", "01 04:00"]
    assert_quiet(scheduled)


async def test_a_delayed_start_counts_as_an_instance_and_ends_with_the_schedule():
    scheduled = Scheduled(random=lambda: 0.9)
    scheduled.add(ScheduledJob(name="log", cron="* * * * *", function=Log(), jitter=HOUR))
    async with scheduled:
        await asyncio.sleep(10 * MINUTE)
        counts = scheduled.statistics().jobs["log"]
        assert (counts.active, counts.started, counts.overrun) == (1, 0, 9)
    counts = scheduled.statistics().jobs["log"]
    assert (counts.active, counts.started, counts.missed) == (0, 0, 1)
    assert_quiet(scheduled)


async def test_on_startup_and_then_on_time():
    """[atoms:scheduledtasks] 156."""
    sink, ticks = SignalSink(max_age=None), []
    sink.subscribe("schedule.tick", lambda event: ticks.append((wall(), event.key, event.data)))
    tick = ScheduledJob(
        name="tick", cron="*/1 * * * *", signal="schedule.tick", key="k", payload={"a": 1}, run_on_startup=True
    )
    async with Scheduled([tick], signals=sink) as scheduled:
        await asyncio.sleep(MINUTE + 1)
        due = [each.data["scheduled_at"] for each in sink.events("schedule.due")]
    assert ticks == [(START, "k", {"a": 1}), (START + timedelta(minutes=1), "k", {"a": 1})]
    assert due == ["2026-01-01T00:00:00+00:00", "2026-01-01T00:01:00+00:00"]
    assert_quiet(scheduled)


async def test_a_job_may_be_triggered_besides_its_schedule():
    log = Log(90)
    async with schedule(log, "0 * * * *") as scheduled:
        await asyncio.sleep(10 * MINUTE)
        operation = scheduled.trigger("log")
        assert scheduled.trigger("log") is None
        await operation
        await asyncio.sleep(HOUR)
    assert log.at == ["01 00:10", "01 01:00"]
    with pytest.raises(InvalidOption, match="one of 'log'"):
        scheduled.trigger("lok")
    with pytest.raises(InvalidOption, match="one of 'log'"):
        scheduled.next_run("lok")


async def test_jobs_come_and_go_while_others_run():
    early, late = Log(), Log()
    async with schedule(early, "*/10 * * * *", job="early", jitter=0.5) as scheduled:
        await asyncio.sleep(25 * MINUTE)
        scheduled.add(ScheduledJob(name="late", cron="* * * * *", function=late, run_on_startup=True))
        await asyncio.sleep(2 * MINUTE + 1)
        assert scheduled.remove("early")
        assert not scheduled.remove("early")
        await asyncio.sleep(10 * MINUTE)
    assert (len(early.ran), len(late.ran)) == (2, 13)
    assert_quiet(scheduled)


async def test_functions_are_declared_with_a_decorator():
    seen = []
    scheduled = Scheduled()

    @scheduled.job("* * * * *", name="one")
    async def one():
        seen.append("one")

    @scheduled.job("* * * * *")
    def two():
        seen.append("two")

    async with scheduled:
        await asyncio.sleep(MINUTE + 1)
    await one()
    assert sorted(seen) == ["one", "one", "two"]
    assert list(scheduled.statistics().jobs) == ["one", two.__qualname__]
    assert_quiet(scheduled)


# Failure and the end.


async def test_a_job_that_fails_is_an_operation_that_failed_and_runs_again():
    calls = []

    def broken():
        calls.append(1)
        raise OSError

    async with schedule(broken, "* * * * *") as scheduled:
        await asyncio.sleep(3 * MINUTE + 1)
        assert [each.status for each in scheduled.coordinator.failed()] == [OperationStatus.FAILED] * 3
    assert len(calls) == 3


async def test_the_options_of_a_coordinator_apply():
    calls = []

    async def flaky():
        calls.append(wall())
        if len(calls) < 3:
            raise OSError
        await asyncio.sleep(100)

    job = ScheduledJob(name="flaky", cron="0 * * * *", function=flaky, timeout=10)
    options = {"retry": RetryPolicy(initial=1, jitter=False), "name": "nightly"}
    async with Scheduled([job], **options) as scheduled:
        await asyncio.sleep(HOUR + MINUTE)
        (failed,) = scheduled.coordinator.failed()
        assert (failed.error.type, scheduled.coordinator.name) == ("ephemerals.errors.OperationTimeout", "nightly")
    assert len(calls) == 3


async def test_leaving_waits_for_what_runs_and_after_an_exception_does_not():
    log = Log(500)
    async with schedule(log, "* * * * *"):
        await asyncio.sleep(MINUTE + 1)
    assert (len(log.ran), wall()) == (1, START + timedelta(seconds=560))
    with pytest.raises(ZeroDivisionError):
        async with schedule(log, "* * * * *") as scheduled:
            await asyncio.sleep(MINUTE + 1)
            raise ZeroDivisionError
    assert log.running == 0
    assert_quiet(scheduled)
    await asyncio.sleep(DAY)
    assert len(log.ran) == 2


async def test_draining_and_closing_end_the_schedule():
    log = Log(5)
    for end in ("drain", "aclose"):
        scheduled = await schedule(log, "* * * * *").__aenter__()
        await asyncio.sleep(MINUTE)
        await getattr(scheduled, end)()
        await asyncio.sleep(HOUR)
        assert_quiet(scheduled)
        await scheduled.aclose()
        with pytest.raises(CoordinatorClosed):
            await scheduled.__aenter__()
    assert len(log.ran) == 2


async def test_other_work_of_the_coordinator_is_none_of_its_business():
    async with schedule(Log(), "* * * * *") as scheduled:
        await (await scheduled.coordinator.spawn(Log(), None))
        assert scheduled.statistics().jobs["log"].started == 0


# Misfires, whatever is missed.


@given(
    st.sampled_from(["* * * * *", "*/7 * * * *", "0 * * * *"]),
    st.sampled_from(["skip", "coalesce", "all"]),
    st.lists(st.floats(0, 2 * HOUR), min_size=1, max_size=6),
)
def test_every_occurrence_is_run_or_counted_as_missed_once(cron, misfire, gaps):
    planned = PlannedJob(ScheduledJob(name="x", cron=cron, function=print, misfire=misfire))
    start = now = START.timestamp()
    planned.plan(start)
    taken = []
    for gap in gaps:
        now += gap
        late = planned.take(now)
        assert len(late) <= 1 or misfire == "all"
        taken += [each.scheduled_at.timestamp() for each in late]
        assert planned.due > now
    due = list(planned.job.times.between(planned.job.times.next_after(start), now))
    assert len(taken) + planned.missed == len(due)
    assert set(taken) <= set(due)
    assert taken == sorted(taken)
    if misfire == "all":
        assert taken == due


# Declaring.


JOB = {
    "name": "daily",
    "cron": "0 0 * * *",
    "signal": "schedule.daily",
    "key": "daily",
    "description": "Every night",
    "run_on_startup": True,
    "payload": {"deep": [1, 2]},
    "tz": "Europe/Berlin",
    "misfire": "all",
    "max_instances": 2,
    "jitter": 1.5,
}
TOML = """
[[jobs]]
name = "daily"
cron = "0 0 * * *"
signal = "schedule.daily"
key = "daily"
description = "Every night"
run_on_startup = true
payload = { deep = [1, 2] }
tz = "Europe/Berlin"
misfire = "all"
max_instances = 2
jitter = 1.5
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [("jobs.toml", TOML), ("jobs.json", json.dumps([JOB])), ("jobs.JSON", json.dumps({"jobs": [JOB]}))],
)
def test_jobs_are_read_from_files(tmp_path, name, text):
    """[atoms:scheduledtasks] 157."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    [job] = load_jobs(path)
    assert {field: getattr(job, field) for field in JOB} == JOB
    assert load_jobs(str(path)) == load_jobs([JOB]) == [job]


def test_what_is_wrong_in_a_file_is_said_with_its_place(tmp_path):
    def note(entries, match):
        with pytest.raises(InvalidOption, match=match) as error:
            load_jobs(entries)
        return getattr(error.value, "__notes__", [])

    assert note([JOB, {**JOB, "cron": "61 * * * *"}], "cron") == ["in job number 2"]
    assert note([{**JOB, "retries": 3}], "one of cron, description") == ["in job number 1"]
    assert note([{"name": "x", "cron": "* * * * *"}], "signal")
    assert note(["daily"], "table")
    assert note({"job": [JOB]}, "list of jobs") == []
    with pytest.raises(DuplicateName, match="daily"):
        load_jobs([JOB, JOB])
    path = tmp_path / "jobs.ini"
    path.touch()
    with pytest.raises(InvalidOption, match=r"\.toml or \.json"):
        load_jobs(path)


def test_wrong_jobs_are_refused():
    good = {"name": "x", "cron": "* * * * *", "signal": "tick"}
    wrong = {
        "name": " ",
        "cron": "often",
        "tz": "Mars/Olympus",
        "misfire": "panic",
        "grace": -1,
        "max_instances": 0,
        "max_backlog": -1,
        "jitter": -1,
        "timeout": 0,
        "run_on_startup": "yes",
        "function": print,
    }
    for option, value in wrong.items():
        with pytest.raises(InvalidOption, match=option):
            ScheduledJob(**{**good, option: value})
    with pytest.raises(InvalidOption, match="function"):
        ScheduledJob(name="x", cron="* * * * *")
    with pytest.raises(InvalidBody):
        ScheduledJob(name="x", cron="* * * * *", function=3)
    with pytest.raises(InvalidOption, match="job"):
        Scheduled([good])
    with pytest.raises(InvalidOption, match="max_sleep"):
        Scheduled(max_sleep=0)
    with pytest.raises(InvalidOption, match="random"):
        Scheduled(random=3)
    job = ScheduledJob(**good)
    with pytest.raises(DuplicateName):
        Scheduled([job, job])
    assert Scheduled([job]).next_run("x") is None
