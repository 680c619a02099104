"""Atoms: small building blocks for work that meets the world outside, each of one idea."""

from .adaptive_concurrency import AdaptiveConcurrency, ConcurrencyStatistics, is_overload
from .adaptive_rate import AdaptiveRate
from .anomaly_detector import AnomalyDetector
from .backpressure import Backpressure
from .batch import BatcherStatistics, ItemDiscarded
from .batcher import Batcher
from .burst_detector import BurstDetector
from .cache import Cache
from .caching import CacheStatistics
from .circuit import CircuitOpen, CircuitState, CircuitStatistics
from .circuit_breaker import CircuitBreaker
from .cron import Cron
from .entropy_analyzer import EntropyAnalyzer
from .escalator import Escalator, EscalatorStatistics, TargetStatistics
from .fixed_work import FixedWork
from .gcra import GCRA
from .keyed_sequential import KeyedSequential
from .last_words import LastWords, LastWordsStatistics
from .limiter import LimiterStatistics
from .lru_cache import EphemeralLruCache
from .outlier_detector import OutlierDetector, Verdict
from .planned_job import JobStatistics, ScheduledStatistics
from .promise import Promise
from .readers_writer import ReadersWriter
from .reservation import Reservation
from .retry import Retry, RetryPolicy, RetryStatistics
from .scheduled import Scheduled
from .scheduled_job import Occurrence, ScheduledJob, load_jobs
from .signal_gate import GateRejected, SignalGate
from .single_flight import LoadCancelled, LoadCycle
from .sliding_cache import CachedFunction, SlidingCache, sliding_cache
from .sliding_window import SlidingWindowLimiter
from .throttling import RetryAfter, is_throttled, retry_after_of
from .token_bucket import TokenBucket
from .volatile import Volatile
from .window_resizer import WindowCommands, WindowResizer

__all__ = [
    "GCRA",
    "AdaptiveConcurrency",
    "AdaptiveRate",
    "AnomalyDetector",
    "Backpressure",
    "Batcher",
    "BatcherStatistics",
    "BurstDetector",
    "Cache",
    "CacheStatistics",
    "CachedFunction",
    "CircuitBreaker",
    "CircuitOpen",
    "CircuitState",
    "CircuitStatistics",
    "ConcurrencyStatistics",
    "Cron",
    "EntropyAnalyzer",
    "EphemeralLruCache",
    "Escalator",
    "EscalatorStatistics",
    "FixedWork",
    "GateRejected",
    "ItemDiscarded",
    "JobStatistics",
    "KeyedSequential",
    "LastWords",
    "LastWordsStatistics",
    "LimiterStatistics",
    "LoadCancelled",
    "LoadCycle",
    "Occurrence",
    "OutlierDetector",
    "Promise",
    "ReadersWriter",
    "Reservation",
    "Retry",
    "RetryAfter",
    "RetryPolicy",
    "RetryStatistics",
    "Scheduled",
    "ScheduledJob",
    "ScheduledStatistics",
    "SignalGate",
    "SlidingCache",
    "SlidingWindowLimiter",
    "TargetStatistics",
    "TokenBucket",
    "Verdict",
    "Volatile",
    "WindowCommands",
    "WindowResizer",
    "is_overload",
    "is_throttled",
    "load_jobs",
    "retry_after_of",
    "sliding_cache",
]
