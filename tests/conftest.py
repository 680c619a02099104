"""Set up every test: how many examples a property gets."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline: what is fast on average may be slow once, under coverage, on a busy machine.
settings.register_profile("quick", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("quick"), max_examples=500, print_blob=True)
settings.register_profile("long", settings.get_profile("ci"), max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "quick"))
