"""Read by mypy and pyright, never run: the types that users of the lowest floors see."""

from __future__ import annotations

from datetime import datetime
from typing import assert_type

from ephemerals.clock import Clock, system_clock, utc
from ephemerals.errors import EphemeralsError, InvalidOption, OperationTimeout

assert_type(system_clock.monotonic(), float)
assert_type(utc(0.0), datetime)
Clock(monotonic=lambda: 0.0, time=lambda: 0)


def handle(error: EphemeralsError) -> str:
    """Narrow by class."""
    if isinstance(error, InvalidOption):
        assert_type(error.allowed, str)
    if isinstance(error, OperationTimeout):
        assert_type(error.operation_id, int)
        assert_type(error.timeout, float)
    return str(error)
