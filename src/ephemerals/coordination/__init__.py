"""Coordinators: one engine, and the faces that people use."""

from .keyed import KeyedWorkCoordinator
from .lanes import Lane
from .priority import PriorityWorkCoordinator
from .report import CoordinatorStatistics, DrainReport, Quantiles, Report
from .result import ResultCoordinator, ResultStream
from .timeline import TimelineEntry
from .work import WorkCoordinator

__all__ = [
    "CoordinatorStatistics",
    "DrainReport",
    "KeyedWorkCoordinator",
    "Lane",
    "PriorityWorkCoordinator",
    "Quantiles",
    "Report",
    "ResultCoordinator",
    "ResultStream",
    "TimelineEntry",
    "WorkCoordinator",
]
