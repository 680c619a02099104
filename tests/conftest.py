"""Set up every test: how many examples a property gets."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    import pytest

# No deadline: what is fast on average may be slow once, under coverage, on a busy machine.
settings.register_profile("quick", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("brief", settings.get_profile("quick"), max_examples=15)
settings.register_profile("ci", settings.get_profile("quick"), max_examples=500, print_blob=True)
settings.register_profile("long", settings.get_profile("ci"), max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "quick"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Save what a worker has measured before it says that it is done: after that it may be killed at any time."""
    if hasattr(session.config, "workerinput"):
        import coverage  # only where it is measured

        if (measuring := coverage.Coverage.current()) is not None:
            measuring.stop()
            measuring.save()
