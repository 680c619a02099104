"""Signals: small things that operations say while they run, and that others react to."""

from __future__ import annotations

from .contributors import Contributions, ContributionsOutcome, Contributors
from .decaying import DecayingScores
from .dispatcher import DispatcherStatistics, SignalDispatcher
from .early_exit import EarlyExit, early_exit
from .event import SignalEvent
from .forwarding import Forwarding, forward
from .graph import DependencyGraph, GraphReport, TaskStatus
from .pattern import Pattern, PatternLike
from .progress import Progress
from .propagation import BlockReason, Propagation, SignalConstraints, current_cause, uncaused
from .queries import SignalSummary
from .quorum import QuorumOutcome, QuorumResult, quorum, voter_of
from .scopes import SignalScope
from .sink import SignalSink
from .stage_run import StageOutcome, StagesReport
from .stages import Stages
from .statistics import SignalStatistics
from .stream import SignalStream
from .subscription import Subscription
from .typed import SignalKey, ValueStatistics, statistics_of
from .validation import Moment
from .watch import Watch

__all__ = [
    "BlockReason",
    "Contributions",
    "ContributionsOutcome",
    "Contributors",
    "DecayingScores",
    "DependencyGraph",
    "DispatcherStatistics",
    "EarlyExit",
    "Forwarding",
    "GraphReport",
    "Moment",
    "Pattern",
    "PatternLike",
    "Progress",
    "Propagation",
    "QuorumOutcome",
    "QuorumResult",
    "SignalConstraints",
    "SignalDispatcher",
    "SignalEvent",
    "SignalKey",
    "SignalScope",
    "SignalSink",
    "SignalStatistics",
    "SignalStream",
    "SignalSummary",
    "StageOutcome",
    "Stages",
    "StagesReport",
    "Subscription",
    "TaskStatus",
    "ValueStatistics",
    "Watch",
    "current_cause",
    "early_exit",
    "forward",
    "quorum",
    "statistics_of",
    "uncaused",
    "voter_of",
]
