"""What an engine has counted since it was made, and the reports made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .report import CoordinatorStatistics, DrainReport, Quantiles

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["Counts"]


class Counts:
    """Count what came in and what came of it."""

    __slots__ = ("cancelled", "completed", "dropped", "enqueued", "failed", "hook_errors", "rejected", "skipped")

    def __init__(self) -> None:
        self.enqueued = 0
        self.completed = 0
        self.failed = 0
        self.cancelled = 0
        self.skipped = 0
        self.rejected = 0
        self.dropped = 0
        self.hook_errors = 0

    def report(self, engine: Engine) -> DrainReport:
        """Return what has come of everything so far."""
        window = engine.window
        return DrainReport(
            enqueued=self.enqueued,
            completed=self.completed,
            failed=self.failed,
            cancelled=self.cancelled,
            skipped=self.skipped,
            failures=tuple(window.failures),
            duration=0.0 if engine.started_at is None else engine.now() - engine.started_at,
            remaining=len(window.pending) + len(window.running),
            stragglers=tuple(window.running),
        )

    def statistics(self, engine: Engine) -> CoordinatorStatistics:
        """Return all counts and limits as they are now."""
        window = engine.window
        ended = window.ended()
        started = [each for each in ended if each.started_at is not None]
        return CoordinatorStatistics(
            name=engine.name,
            pending=len(window.pending),
            active=len(window.running),
            waiting=engine.admission.waiting,
            enqueued=self.enqueued,
            completed=self.completed,
            failed=self.failed,
            cancelled=self.cancelled,
            skipped=self.skipped,
            retries=0 if engine.retrying is None else engine.retrying.count,
            rejected=self.rejected,
            dropped=self.dropped,
            hook_errors=self.hook_errors,
            max_concurrency=engine.limit,
            max_pending=engine.options.max_pending,
            tracked=len(ended),
            pinned=window.pinned_count,
            is_paused=engine.is_paused,
            is_closed=engine.is_closed,
            waiting_time=Quantiles.of([each.waiting_time for each in started]),
            run_time=Quantiles.of([each.duration for each in started]),
        )
