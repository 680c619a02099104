"""Help for testing code that uses the library: virtual time, quietness, forgetting, and the signals of a test.

The pytest plugin is `ephemerals.testing.plugin`; nothing else here needs pytest.
"""

from .capturing import capture, strict
from .clock import ExternalWork, VirtualClock
from .forgotten import Payload, assert_forgotten, assert_forgotten_sync
from .loop import VirtualEventLoop, run
from .quiet import assert_becomes_quiet, assert_quiet
from .referrers import referrers_of
from .stuck import WaitsForever

__all__ = [
    "ExternalWork",
    "Payload",
    "VirtualClock",
    "VirtualEventLoop",
    "WaitsForever",
    "assert_becomes_quiet",
    "assert_forgotten",
    "assert_forgotten_sync",
    "assert_quiet",
    "capture",
    "referrers_of",
    "run",
    "strict",
]
