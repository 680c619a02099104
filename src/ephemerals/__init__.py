"""Fire… and don't *quite* forget: background work for asyncio that is tracked, inspected, fetched, and then gone."""

from .clock import Clock
from .coordination import (
    CoordinatorStatistics,
    DrainReport,
    KeyedWorkCoordinator,
    Lane,
    PriorityWorkCoordinator,
    Report,
    ResultCoordinator,
    TimelineEntry,
    WorkCoordinator,
)
from .echoes import Echo, FinalizationReason
from .errors import *  # noqa: F403 - every exception is public
from .failure import ErrorInfo
from .ids import format_id, parse_id
from .operation import Operation, current_operation
from .options import EphemeralOptions
from .snapshot import OperationSnapshot, OperationStatus
from .window import WindowView
