"""Atoms: small building blocks for work that meets the world outside, each of one idea."""

from .adaptive_rate import AdaptiveRate
from .circuit import CircuitOpen, CircuitState, CircuitStatistics
from .circuit_breaker import CircuitBreaker
from .gcra import GCRA
from .limiter import LimiterStatistics
from .reservation import Reservation
from .retry import Retry, RetryPolicy, RetryStatistics
from .sliding_window import SlidingWindowLimiter
from .throttling import RetryAfter, is_throttled, retry_after_of
from .token_bucket import TokenBucket

__all__ = [
    "GCRA",
    "AdaptiveRate",
    "CircuitBreaker",
    "CircuitOpen",
    "CircuitState",
    "CircuitStatistics",
    "LimiterStatistics",
    "Reservation",
    "Retry",
    "RetryAfter",
    "RetryPolicy",
    "RetryStatistics",
    "SlidingWindowLimiter",
    "TokenBucket",
    "is_throttled",
    "retry_after_of",
]
