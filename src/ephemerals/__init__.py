"""Fire… and don't *quite* forget: background work for asyncio that is tracked, inspected, fetched, and then gone."""

from ephemerals.clock import Clock
from ephemerals.coordination import (
    CoordinatorStatistics,
    DrainReport,
    KeyedWorkCoordinator,
    Lane,
    PriorityWorkCoordinator,
    Quantiles,
    Report,
    ResultCoordinator,
    ResultStream,
    TimelineEntry,
    WorkCoordinator,
)
from ephemerals.echoes import Echo, FinalizationReason
from ephemerals.errors import (
    CoordinatorBroken,
    CoordinatorClosed,
    CoordinatorError,
    CoordinatorFull,
    DeadlockError,
    DuplicateName,
    EphemeralsError,
    InvalidBody,
    InvalidOption,
    InvalidOptionType,
    MissingExtra,
    OperationCancelled,
    OperationError,
    OperationFailed,
    OperationSkipped,
    OperationTimeout,
    PinLimitReached,
    RegistryClosed,
    UnknownCoordinator,
    UnknownLane,
    WrongLoop,
)
from ephemerals.failure import ErrorInfo
from ephemerals.ids import format_id, parse_id
from ephemerals.operation import Operation, current_operation
from ephemerals.options import EphemeralOptions
from ephemerals.owner_window import OperationView, OwnerWindow, status_of
from ephemerals.registry import CoordinatorRegistry
from ephemerals.snapshot import OperationSnapshot, OperationStatus
from ephemerals.window import WindowView

__all__ = [
    "Clock",
    "CoordinatorBroken",
    "CoordinatorClosed",
    "CoordinatorError",
    "CoordinatorFull",
    "CoordinatorRegistry",
    "CoordinatorStatistics",
    "DeadlockError",
    "DrainReport",
    "DuplicateName",
    "Echo",
    "EphemeralOptions",
    "EphemeralsError",
    "ErrorInfo",
    "FinalizationReason",
    "InvalidBody",
    "InvalidOption",
    "InvalidOptionType",
    "KeyedWorkCoordinator",
    "Lane",
    "MissingExtra",
    "Operation",
    "OperationCancelled",
    "OperationError",
    "OperationFailed",
    "OperationSkipped",
    "OperationSnapshot",
    "OperationStatus",
    "OperationTimeout",
    "OperationView",
    "OwnerWindow",
    "PinLimitReached",
    "PriorityWorkCoordinator",
    "Quantiles",
    "RegistryClosed",
    "Report",
    "ResultCoordinator",
    "ResultStream",
    "TimelineEntry",
    "UnknownCoordinator",
    "UnknownLane",
    "WindowView",
    "WorkCoordinator",
    "WrongLoop",
    "current_operation",
    "format_id",
    "parse_id",
    "status_of",
]
