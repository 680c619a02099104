"""Jobs that run when a cron expression says so, by the clock on the wall."""

from __future__ import annotations

import logging
import random as _random
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from ephemerals.coordination import Background
from ephemerals.coordination.alarm import Alarm
from ephemerals.errors import DuplicateName, InvalidOption, InvalidOptionType
from ephemerals.functions import as_callback, function_name
from ephemerals.options import EphemeralOptions, as_seconds

from .job_runs import JobRuns
from .planned_job import PlannedJob, ScheduledStatistics
from .scheduled_job import ScheduledJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime
    from types import TracebackType
    from typing import Unpack

    from ephemerals.coordination import DrainReport
    from ephemerals.operation import Operation
    from ephemerals.options import OptionKeywords, Seconds

__all__ = ["Scheduled"]

F = TypeVar("F", bound="Callable[..., Any]")

_logger: Final = logging.getLogger("ephemerals")
_CONCURRENCY: Final = 64
_TOLERANCE: Final = 60.0
"""Seconds by which the wall clock may be corrected without anything being said."""


class Scheduled:
    """Run jobs when they are due; each run is an operation of its `coordinator`, under the job's name.

    Declare jobs with `@scheduled.job(...)`, `add` them, or pass them, from a file with `load_jobs(path)`; see
    `ScheduledJob` for what a job can say. They run inside `async with`; leaving it ends the schedule and waits for
    what runs, after an exception cancels it.

    What is due is decided by the wall clock; the sleep in between is monotonic. Nothing tells a process that its clock
    was set or its machine suspended, so no sleep is longer than `max_sleep` (60) seconds: that is how late a change is
    noticed, and a due job started, at most. `None` sleeps until the next job is due, for clocks that are never set.
    After a step forward `misfire` decides. After a step back of more than a minute the schedule follows the clock, and
    times that come again run again; a smaller one is waited out.

    Signals: `schedule.due` with `{"scheduled_at": …, "missed": …}`, `schedule.missed` with `{"count": …}`,
    `schedule.overrun`, with the job's name as key. The other options are those of a coordinator, with
    a `max_concurrency` of 64 by default.

    >>> import asyncio
    >>> from ephemerals.testing import run  # virtual time
    >>> scheduled = Scheduled()
    >>> @scheduled.job("0 */6 * * *", tz="Europe/Berlin")
    ... async def report(occurrence) -> None:
    ...     print(occurrence.scheduled_at)
    >>> async def main() -> None:
    ...     async with scheduled:
    ...         await asyncio.sleep(12 * 3600)
    >>> run(main())
    2026-01-01 06:00:00+01:00
    2026-01-01 12:00:00+01:00
    """

    def __init__(
        self,
        jobs: Iterable[ScheduledJob] = (),
        *,
        max_sleep: Seconds | None = 60.0,
        random: Callable[[], float] = _random.random,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        chosen = EphemeralOptions.of(options, keywords)
        if options is None and "max_concurrency" not in keywords:
            chosen = chosen.replace(max_concurrency=_CONCURRENCY)
        self._clock = chosen.clock
        self._max_sleep = None if max_sleep is None else as_seconds("max_sleep", max_sleep)
        as_callback("random", random, optional=False)
        self.coordinator = Background(options=chosen.replace(name=chosen.name or "scheduled", context="fresh"))
        self.coordinator.engine.listen(on_closed=self._stop)
        self._runs = JobRuns(self.coordinator, self._clock, random)
        self._alarm = Alarm(self._clock, self._look)
        self._jobs: dict[str, PlannedJob] = {}
        self._seen: tuple[float, float] | None = None
        self._wakeups = self._clock_changes = 0
        for job in jobs:
            self.add(job)

    def job(self, cron: str, *, name: str | None = None, **choices: Any) -> Callable[[F], F]:
        """Declare the function below as a job, with the fields of a `ScheduledJob`; it stays what it is.

        `name` is by default the function's qualified name.
        """

        def declare(function: F) -> F:
            own = function_name(function) if name is None else name
            self.add(ScheduledJob(name=own, cron=cron, function=function, **choices))
            return function

        return declare

    def add(self, job: ScheduledJob) -> None:
        """Take a job in, also while others run; a name that is taken is a `DuplicateName`."""
        if not isinstance(job, ScheduledJob):
            raise InvalidOptionType("job", job, "a ScheduledJob")
        if job.name in self._jobs:
            raise DuplicateName("job", job.name)
        self._jobs[job.name] = planned = PlannedJob(job)
        if self._is_running:
            self._begin(planned)
            self._arm()

    def remove(self, name: str) -> bool:
        """Let a job go; what has started of it goes on. False if there is none of that name."""
        planned = self._jobs.pop(name, None)
        if planned is not None:
            self._runs.forget(planned)
        return planned is not None

    def trigger(self, name: str) -> Operation[Any] | None:
        """Run a job now, besides its schedule; `None` if as many run as may. An unknown name is an `InvalidOption`."""
        planned = self._planned(name)
        if planned.active >= planned.job.max_instances:
            return None
        return self._runs.start(planned, planned.occurrence(self._clock.time()))

    def next_run(self, name: str) -> datetime | None:
        """Return when a job is due next, in its zone; `None` if it is not. An unknown name is an `InvalidOption`."""
        return self._planned(name).statistics().next_run

    def statistics(self) -> ScheduledStatistics:
        """Return the counts as they are now."""
        jobs = {name: planned.statistics() for name, planned in self._jobs.items()}
        return ScheduledStatistics(jobs=jobs, wakeups=self._wakeups, clock_changes=self._clock_changes)

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when it is closed, for tests."""
        own = {"schedule timers": int(self._alarm.is_set), **self._runs.leftovers()}
        return {**own, **self.coordinator.engine.leftovers()}

    async def drain(self, timeout: Seconds | None = None) -> DrainReport:  # noqa: ASYNC109 - as a coordinator's
        """End the schedule, and wait for what runs."""
        return await self.coordinator.drain(timeout)

    async def aclose(self, *, grace: Seconds | None = 10.0, cancel_grace: Seconds | None = 5.0) -> DrainReport:
        """End the schedule, and close as a coordinator does."""
        return await self.coordinator.aclose(grace=grace, cancel_grace=cancel_grace)

    async def __aenter__(self) -> Self:
        self.coordinator.engine.check_open()
        await self.coordinator.__aenter__()
        self._seen = (self._clock.time(), self._clock.monotonic())
        for planned in self._jobs.values():
            self._begin(planned)
        self._arm()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.coordinator.__aexit__(kind, error, traceback)

    # The schedule.

    def _planned(self, name: str) -> PlannedJob:
        if name not in self._jobs:
            raise InvalidOption("name", name, "one of " + ", ".join(map(repr, sorted(self._jobs))))
        return self._jobs[name]

    @property
    def _is_running(self) -> bool:
        return self._seen is not None and not self.coordinator.is_closed

    def _begin(self, planned: PlannedJob) -> None:
        now = self._clock.time()
        planned.plan(now)
        if planned.job.run_on_startup:
            self._runs.release(planned, planned.occurrence(now))

    def _look(self) -> None:
        """Wake up: start what is due, and sleep until something is."""
        self._wakeups += 1
        now = self._clock.time()
        self._compare_clocks(now)
        for planned in list(self._jobs.values()):
            if planned.due <= now:
                missed = planned.missed
                for occurrence in planned.take(now):
                    self._runs.release(planned, occurrence)
                if planned.missed > missed:
                    self._runs.report("schedule.missed", planned, {"count": planned.missed - missed})
        self._runs.start_delayed()
        self._arm()

    def _compare_clocks(self, wall: float) -> None:
        """Find out whether the wall clock was set since the last look."""
        monotonic = self._clock.monotonic()
        assert self._seen is not None
        slept = monotonic - self._seen[1]
        change = (wall - self._seen[0]) - slept
        self._seen = (wall, monotonic)
        if abs(change) > _TOLERANCE:
            self._clock_changes += 1
            _logger.info("schedule %s: the wall clock moved by %+.0f seconds", self.coordinator.name, change)
        if change < -_TOLERANCE:
            for planned in self._jobs.values():
                planned.plan(wall - slept)  # what came due since the clock was set is not lost

    def _arm(self) -> None:
        if not self._is_running:
            return
        now = self._clock.monotonic()
        wait = min((planned.due for planned in self._jobs.values()), default=float("inf")) - self._clock.time()
        if self._max_sleep is not None and self._jobs:
            wait = min(wait, self._max_sleep)
        wait = min(wait, self._runs.next_due - now)
        if wait < float("inf"):
            self._alarm.set(now + wait)

    def _stop(self) -> None:
        """End the schedule; what has not started does not."""
        self._alarm.stop()
        for planned in self._jobs.values():
            self._runs.forget(planned)
