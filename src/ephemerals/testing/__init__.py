"""Help for testing code that uses the library: virtual time, quietness, the proof that an item is forgotten.

The pytest plugin is `ephemerals.testing.plugin`; nothing else here needs pytest.
"""

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
    "referrers_of",
    "run",
]
