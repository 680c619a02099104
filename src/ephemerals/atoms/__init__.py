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
from .entropy_analyzer import EntropyAnalyzer
from .fixed_work import FixedWork
from .gcra import GCRA
from .keyed_sequential import KeyedSequential
from .limiter import LimiterStatistics
from .lru_cache import EphemeralLruCache
from .outlier_detector import OutlierDetector, Verdict
from .promise import Promise
from .readers_writer import ReadersWriter
from .reservation import Reservation
from .retry import Retry, RetryPolicy, RetryStatistics
from .signal_gate import GateRejected, SignalGate
from .single_flight import LoadCancelled, LoadCycle
from .sliding_cache import CachedFunction, SlidingCache, sliding_cache
from .sliding_window import SlidingWindowLimiter
from .throttling import RetryAfter, is_throttled, retry_after_of
from .token_bucket import TokenBucket

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
    "EntropyAnalyzer",
    "EphemeralLruCache",
    "FixedWork",
    "GateRejected",
    "ItemDiscarded",
    "KeyedSequential",
    "LimiterStatistics",
    "LoadCancelled",
    "LoadCycle",
    "OutlierDetector",
    "Promise",
    "ReadersWriter",
    "Reservation",
    "Retry",
    "RetryAfter",
    "RetryPolicy",
    "RetryStatistics",
    "SignalGate",
    "SlidingCache",
    "SlidingWindowLimiter",
    "TokenBucket",
    "Verdict",
    "is_overload",
    "is_throttled",
    "retry_after_of",
    "sliding_cache",
]
