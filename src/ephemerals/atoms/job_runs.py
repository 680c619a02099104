"""The runs of scheduled jobs: so many of each at once, perhaps a little later, as operations of a coordinator."""

from __future__ import annotations

import logging
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from ephemerals.coordination import Call
from ephemerals.options import as_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemerals.clock import Clock
    from ephemerals.coordination import Background
    from ephemerals.operation import Operation

    from .planned_job import PlannedJob
    from .scheduled_job import Occurrence, ScheduledJob

__all__ = ["JobRuns"]

_logger: Final = logging.getLogger("ephemerals")


class JobRuns:
    """Start occurrences of jobs, and know which run; `next_due` (monotonic) is when one that is delayed may start."""

    def __init__(self, coordinator: Background, clock: Clock, random: Callable[[], float]) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._random = random
        self._runs: dict[int, PlannedJob] = {}
        self._delayed: list[tuple[float, int, PlannedJob, Occurrence]] = []
        self._numbers = count()
        coordinator.engine.listen(on_end=self._ended)

    @property
    def next_due(self) -> float:
        """Return when the next delayed occurrence may start; infinity if there is none."""
        return self._delayed[0][0] if self._delayed else float("inf")

    def release(self, planned: PlannedJob, occurrence: Occurrence) -> None:
        """Start an occurrence, after its jitter; if as many run as may, it waits for its turn or is left out."""
        overrun = planned.overrun
        if not planned.admits(occurrence):
            if planned.overrun > overrun:
                self.report("schedule.overrun", planned, None)
            return
        jitter = as_seconds("jitter", planned.job.jitter, zero=True)
        if jitter:
            planned.active += 1
            due = self._clock.monotonic() + jitter * self._random()
            heappush(self._delayed, (due, next(self._numbers), planned, occurrence))
        else:
            self.start(planned, occurrence)

    def start_delayed(self) -> None:
        """Start what was delayed until now."""
        while self._delayed and self._delayed[0][0] <= self._clock.monotonic():
            *_, planned, occurrence = heappop(self._delayed)
            planned.active -= 1
            self.start(planned, occurrence)

    def start(self, planned: PlannedJob, occurrence: Occurrence) -> Operation[Any] | None:
        """Start an occurrence now; `None` if the coordinator has no room, which is counted."""
        job = planned.job
        call = self._call(job, occurrence)
        call.name = job.name
        call.timeout = None if job.timeout is None else as_seconds("timeout", job.timeout)
        at = occurrence.scheduled_at.isoformat()
        operation = self._coordinator.try_enqueue(call, metadata={"scheduled_at": at})
        if operation is None:
            planned.refused += 1
            return None
        planned.active += 1
        planned.started += 1
        self._runs[operation.id] = planned
        said = {"scheduled_at": at, "missed": occurrence.missed}
        self._coordinator.signals.emit("schedule.due", said, key=job.name)
        return operation

    def report(self, signal: str, planned: PlannedJob, said: dict[str, int] | None) -> None:
        """Log and emit that occurrences were left out."""
        _logger.warning("%s: job %s%s", signal, planned.job.name, "" if said is None else f" {said}")
        self._coordinator.signals.emit(signal, said, key=planned.job.name)

    def forget(self, planned: PlannedJob) -> None:
        """Start no more of a job; what has not started is counted as missed."""
        kept = [entry for entry in self._delayed if entry[2] is not planned]
        dropped = len(self._delayed) - len(kept)
        self._delayed = kept
        heapify(kept)
        planned.active -= dropped
        planned.missed += dropped + len(planned.backlog)
        planned.backlog.clear()

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when nothing runs."""
        return {"delayed": len(self._delayed), "runs": len(self._runs)}

    def _call(self, job: ScheduledJob, occurrence: Occurrence) -> Call:
        if job.function is None:
            return Call(self._emit, job)
        return Call(job.function, occurrence) if job.takes_occurrence else Call(job.function)

    async def _emit(self, job: ScheduledJob) -> None:
        assert job.signal is not None
        self._coordinator.signals.emit(job.signal, job.payload, key=job.key)

    def _ended(self, operation: Operation[Any]) -> None:
        planned = self._runs.pop(operation.id, None)
        if planned is None:
            return  # somebody else has enqueued it
        planned.active -= 1
        if planned.backlog and not self._coordinator.is_closed:
            self.start(planned, planned.backlog.popleft())
