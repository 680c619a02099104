"""Programs that some tests need: without them a loud skip here, a failure in continuous integration."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def need(what, path):
    """Skip the test if a program is missing, and fail it if it must not be."""
    if shutil.which(path) or Path(path).exists():
        return
    message = f"NOT TESTED: {what} is missing ({path}): apt-get install {what}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def need_apertium():
    need("apertium", "lt-proc")
    for pair in ("eng-spa", "eng-cat", "spa-ita"):
        need(f"apertium-{pair}", f"/usr/share/apertium/modes/{pair}.mode")
