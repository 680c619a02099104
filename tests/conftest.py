"""Set up every test: how many examples a property gets, and which event loops run it."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings

if sys.platform != "win32" and sys.implementation.name == "cpython":
    import uvloop
else:
    uvloop = None

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

# No deadline: what is fast on average may be slow once, under coverage, on a busy machine.
settings.register_profile(
    "quick", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", settings.get_profile("quick"), max_examples=500, print_blob=True)
settings.register_profile("long", settings.get_profile("ci"), max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "quick"))


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run an async test on asyncio's own loop, and one that is marked `every_loop` on uvloop too."""
    if uvloop is not None and item.get_closest_marker("every_loop"):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
