"""Patterns: ready-made compositions of coordinators, signals and atoms."""

from .failover import FailoverExhausted, FailoverStatistics, PriorityFailover
from .wave_report import NoValue, WaveReport, WorkerOutcome, WorkerStatus
from .waves import Waves

__all__ = [
    "FailoverExhausted",
    "FailoverStatistics",
    "NoValue",
    "PriorityFailover",
    "WaveReport",
    "Waves",
    "WorkerOutcome",
    "WorkerStatus",
]
