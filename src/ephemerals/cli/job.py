"""What is known of one line while it is worked on, and the state of the whole run as the table shows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Job", "Phase", "State"]


class Phase(Enum):
    """Say what a job is doing."""

    QUEUED = "queued"
    TURN = "waiting for its turn"
    RUNNING = "running"
    PAUSE = "waiting to try again"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class Job:
    """Follow one line: its number, its text, its key, and what has come of it so far."""

    line: int
    text: str
    key: str
    operation_id: int = 0
    phase: Phase = Phase.QUEUED
    since: float = 0.0
    attempt: int = 1
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Show a run at one moment; times are in seconds, `left` is `None` if nobody knows."""

    now: float
    elapsed: float
    active: tuple[Job, ...]
    done: int
    failed: int
    cancelled: int
    left: int | None
    note: str
