"""What became of the workers of a run: an outcome for each, whatever happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ephemerals.errors import EphemeralsError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NoValue", "WaveReport", "WorkerOutcome", "WorkerStatus"]

R = TypeVar("R")


class WorkerStatus(StrEnum):
    """Name what can become of a worker."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    """It took longer than its own timeout."""
    SKIPPED = "skipped"
    """Its circuit is open."""
    CANCELLED = "cancelled"
    """It was under way when the run ended: by a decisive result, or by the total timeout."""
    NOT_STARTED = "not_started"
    """The run ended before its turn."""


class NoValue(EphemeralsError):
    """Refuse to give a value for a worker that did not complete; the cause is its error, if it has one."""

    def __init__(self, name: str, status: WorkerStatus) -> None:
        super().__init__(f"worker {name!r} has no value: it is {status.replace('_', ' ')}")
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOutcome(Generic[R]):
    """Say what became of one worker; `elapsed` is in seconds, `error` has no traceback but a note of the places."""

    name: str
    wave: int
    status: WorkerStatus
    elapsed: float = 0.0
    error: Exception | None = None
    _value: Any = field(default=None, repr=False)

    @property
    def value(self) -> R:
        """Return what the worker returned; raise `NoValue` if it did not."""
        if self.status is not WorkerStatus.COMPLETED:
            raise NoValue(self.name, self.status) from self.error
        result: R = self._value
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveReport(Generic[R]):
    """Hold the outcomes of a run in the order of the workers; `decisive` is the one that ended it, if one did."""

    outcomes: tuple[WorkerOutcome[R], ...]
    decisive: WorkerOutcome[R] | None
    timed_out: bool
    elapsed: float

    def __getitem__(self, name: str) -> WorkerOutcome[R]:
        """Return the outcome of the worker of a name; raise `KeyError` if there is none."""
        for outcome in self.outcomes:
            if outcome.name == name:
                return outcome
        raise KeyError(name)

    def __iter__(self) -> Iterator[WorkerOutcome[R]]:
        """Iterate over the outcomes."""
        return iter(self.outcomes)

    @property
    def values(self) -> list[R]:
        """Return the values of those that completed."""
        return [outcome.value for outcome in self.outcomes if outcome.status is WorkerStatus.COMPLETED]
