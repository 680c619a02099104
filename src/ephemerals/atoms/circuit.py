"""What is known of a circuit: its state, its counts, its newest outcomes, and how it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ephemerals.errors import EphemeralsError

from .recent import Recent

__all__ = ["CircuitOpen", "CircuitState", "CircuitStatistics", "Outcomes", "Pass"]

_SAMPLE: Final = 100
"""Newest outcomes that a ratio is taken of, at least."""


class CircuitState(StrEnum):
    """Name the states: calls go through, are refused, or a few go through to find out."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"

    @property
    def signal(self) -> str:
        """Return the name of the signal that a change to it emits."""
        return {"closed": "circuit.closed", "open": "circuit.opened", "half_open": "circuit.half_opened"}[self]


class CircuitOpen(EphemeralsError):
    """Refuse a call because what it calls has failed too often; `retry_after` is in seconds."""

    def __init__(self, name: str | None, retry_after: float) -> None:
        shown = "" if name is None else f" {name!r}"
        super().__init__(f"circuit{shown} is open: try again in {retry_after:.3g} seconds")
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitStatistics:
    """Count what a breaker has seen.

    `neutral` outcomes are neither good nor bad: cancellation, and errors that are no failures. `late` ones belong to
    calls that began in an earlier state, and change nothing.
    """

    state: CircuitState
    succeeded: int
    failed: int
    neutral: int
    late: int
    rejected: int
    opened: int
    probing: int


class Pass:
    """Let one call through, in one generation of a breaker: from one change of its state to the next."""

    __slots__ = ("generation", "started")

    def __init__(self, generation: int, started: float) -> None:
        self.generation = generation
        self.started = started


class Outcomes:
    """Remember the newest outcomes, and tell when they are too bad.

    Without a `ratio` only failures are remembered, as many as the threshold.
    """

    __slots__ = ("_newest", "_ratio", "_threshold")

    def __init__(self, threshold: int, ratio: float | None, window: float) -> None:
        self._threshold = threshold
        self._ratio = ratio
        self._newest: Recent[bool] = Recent(window, threshold if ratio is None else max(threshold, _SAMPLE))

    def note(self, now: float, *, is_failure: bool) -> bool:
        """Remember an outcome; tell whether there are too many failures now."""
        newest = self._newest
        if self._ratio is not None or is_failure:
            newest.add(now, is_failure)
        newest.trim(now)
        if not is_failure or len(newest) < self._threshold:
            return False
        return self._ratio is None or sum(newest.values()) >= self._ratio * len(newest)

    def clear(self) -> None:
        """Forget all."""
        self._newest.clear()
