"""Benchmarks collect garbage before every run: what the tests have brought so far is left out of that."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def frozen():
    gc.freeze()
    yield
    gc.unfreeze()
