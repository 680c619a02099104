"""Signals: small things that operations say while they run, and that others react to."""

from __future__ import annotations

from .event import SignalEvent
from .pattern import Pattern, PatternLike
from .propagation import BlockReason, Propagation, SignalConstraints, current_cause, uncaused
from .queries import SignalSummary
from .sink import SignalSink
from .statistics import SignalStatistics
from .stream import SignalStream
from .subscription import Subscription
from .typed import SignalKey, ValueStatistics, statistics_of
from .validation import Moment
from .watch import Watch

__all__ = [
    "BlockReason",
    "Moment",
    "Pattern",
    "PatternLike",
    "Propagation",
    "SignalConstraints",
    "SignalEvent",
    "SignalKey",
    "SignalSink",
    "SignalStatistics",
    "SignalStream",
    "SignalSummary",
    "Subscription",
    "ValueStatistics",
    "Watch",
    "current_cause",
    "statistics_of",
    "uncaused",
]
