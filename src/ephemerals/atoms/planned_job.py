"""One job on its schedule: when it is due next, and which of the times that have passed are run."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Final

from .scheduled_job import Occurrence, ScheduledJob

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["JobStatistics", "PlannedJob", "ScheduledStatistics"]

_MOST_COUNTED: Final = 1000
"""Passed times that are counted one by one; a clock that was set by centuries leaves more."""
_RECENT: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatistics:
    """Count one job's occurrences: started, missed (noticed too late), overrun (while others ran), and refused.

    `active` are about to start or running, `waiting` have yet to get their turn. `next_run` is `None` if there is none.
    """

    next_run: datetime | None
    started: int
    missed: int
    overrun: int
    refused: int
    active: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledStatistics:
    """Sum up a schedule: its jobs by name, how often it woke up, and how often it found the wall clock set."""

    jobs: Mapping[str, JobStatistics]
    wakeups: int
    clock_changes: int


class PlannedJob:
    """Hold what changes about a job: when it is due (seconds since the epoch), and its counts."""

    __slots__ = ("active", "backlog", "due", "job", "missed", "overrun", "refused", "started")

    def __init__(self, job: ScheduledJob) -> None:
        self.job = job
        self.due = math.inf
        self.backlog: deque[Occurrence] = deque()
        self.active = 0
        self.started = self.missed = self.overrun = self.refused = 0

    def plan(self, now: float) -> None:
        """Be due at the next time after `now`, whatever was before."""
        self.due = self.job.times.next_after(now)

    def occurrence(self, instant: float, missed: int = 0) -> Occurrence:
        """Return an occurrence of the job."""
        when = datetime.fromtimestamp(instant, self.job.times.tz)
        return Occurrence(job=self.job.name, scheduled_at=when, missed=missed)

    def take(self, now: float) -> list[Occurrence]:
        """Return the occurrences to run of those that have come due by `now`, and count the others as missed."""
        job = self.job
        times = list(islice(job.times.between(self.due, now), _MOST_COUNTED))
        self.plan(now)
        if not times:
            return []
        if job.misfire == "all":
            return [self.occurrence(each) for each in times]
        newest = times[-1]
        if len(times) == _MOST_COUNTED:
            newest = max(job.times.between(job.times.next_after(now - _RECENT), now), default=newest)
        others = len(times) - 1
        if job.misfire == "skip" and now - newest > job.grace:  # type: ignore[operator]  # seconds, since it was checked
            self.missed += others + 1
            return []
        self.missed += others
        return [self.occurrence(newest, others)]

    def admits(self, occurrence: Occurrence) -> bool:
        """Tell whether an occurrence may start; if not, let it wait for its turn, or leave it out."""
        if self.active < self.job.max_instances:
            return True
        if self.job.misfire == "all" and len(self.backlog) < self.job.max_backlog:
            self.backlog.append(occurrence)
        else:
            self.overrun += 1
        return False

    def statistics(self) -> JobStatistics:
        """Return the counts as they are now."""
        return JobStatistics(
            next_run=None if math.isinf(self.due) else datetime.fromtimestamp(self.due, self.job.times.tz),
            started=self.started,
            missed=self.missed,
            overrun=self.overrun,
            refused=self.refused,
            active=self.active,
            waiting=len(self.backlog),
        )
