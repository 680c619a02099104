"""What came of it: counts, failures and time, as a drain or a one-shot run reports them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ephemerals.errors import OperationFailed
from ephemerals.ids import format_id

if TYPE_CHECKING:
    from ephemerals.snapshot import OperationSnapshot

__all__ = ["CoordinatorStatistics", "DrainReport", "Quantiles", "Report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Sum up finished work.

    `failures` holds the newest 100 failed operations; `failed` counts all. `duration` is in seconds.
    """

    enqueued: int
    completed: int
    failed: int
    cancelled: int
    skipped: int
    failures: tuple[OperationSnapshot[Any], ...]
    duration: float

    def raise_for_failures(self) -> None:
        """Raise an `ExceptionGroup` with one exception for each of `failures`; do nothing if there are none.

        It holds the exceptions themselves if they were kept (`error_detail="exception"`), else an
        `OperationFailed` that describes each.
        """
        if not self.failures:
            return
        raise ExceptionGroup(
            f"{self.failed} of {self.enqueued} operations failed", [_exception_of(each) for each in self.failures]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainReport(Report):
    """Sum up a coordinator's work when it was drained or closed.

    `remaining` counts operations that had not ended by then; `stragglers` are the ids of those that were running.
    """

    remaining: int
    stragglers: tuple[int, ...]

    @property
    def is_complete(self) -> bool:
        """Tell whether everything had ended."""
        return not self.remaining


def _exception_of(snapshot: OperationSnapshot[Any]) -> Exception:
    error = snapshot.error
    if error is None:
        return OperationFailed(f"operation {format_id(snapshot.id)} failed", snapshot.id, "unknown")
    if isinstance(error.exception, Exception):
        return error.exception
    text = f"{error.type}: {error.message}" if error.message else error.type
    place = f" at {error.place}" if error.place else ""
    return OperationFailed(
        f"operation {format_id(snapshot.id)} ({snapshot.name}) failed{place}: {text}", snapshot.id, error.type
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Hold quantiles of a time in seconds, over the operations in the window; all 0.0 if there are none."""

    p50: float
    p90: float
    p99: float
    longest: float

    @classmethod
    def of(cls, values: list[float]) -> Quantiles:
        """Compute the quantiles of some values by the nearest rank."""
        if not values:
            return cls(p50=0.0, p90=0.0, p99=0.0, longest=0.0)
        values = sorted(values)
        last = len(values) - 1
        p50, p90, p99 = (values[min(last, int(share * len(values)))] for share in (0.5, 0.9, 0.99))
        return cls(p50=p50, p90=p90, p99=p99, longest=values[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorStatistics:
    """Hold every count and limit of a coordinator at one moment.

    `waiting` counts callers of `enqueue` that wait for room; `retries` the attempts after each first one;
    `rejected` the items refused; `dropped` those pushed out by `overflow="drop_oldest"` (they are among the cancelled);
    `hook_errors` what hooks of the user raised.
    Waiting times and run times are of the ended operations in the window.
    """

    name: str
    pending: int
    active: int
    waiting: int
    enqueued: int
    completed: int
    failed: int
    cancelled: int
    skipped: int
    retries: int
    rejected: int
    dropped: int
    hook_errors: int
    max_concurrency: int
    max_pending: int | None
    tracked: int
    pinned: int
    is_paused: bool
    is_closed: bool
    waiting_time: Quantiles
    run_time: Quantiles
