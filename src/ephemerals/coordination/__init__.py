"""Coordinators: one engine, and the faces that people use."""

from .background import Background, BackgroundTask
from .call import Call
from .for_each import for_each
from .keyed import KeyedWorkCoordinator
from .lanes import Lane
from .map_each import MappedResults, map_each
from .priority import PriorityWorkCoordinator
from .report import CoordinatorStatistics, DrainReport, Quantiles, Report
from .responsibility import Acknowledgement, AcknowledgementOutcome
from .result import ResultCoordinator, ResultStream
from .timeline import TimelineEntry
from .work import WorkCoordinator

__all__ = [
    "Acknowledgement",
    "AcknowledgementOutcome",
    "Background",
    "BackgroundTask",
    "Call",
    "CoordinatorStatistics",
    "DrainReport",
    "KeyedWorkCoordinator",
    "Lane",
    "MappedResults",
    "PriorityWorkCoordinator",
    "Quantiles",
    "Report",
    "ResultCoordinator",
    "ResultStream",
    "TimelineEntry",
    "WorkCoordinator",
    "for_each",
    "map_each",
]
