"""The tests that the user's page shows are real tests, and pass under the plugin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ephemerals
import ephemerals.testing

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


@pytest.mark.skipif(not hasattr(ephemerals, "WorkCoordinator"), reason="the core is not there yet")
def test_the_tests_on_the_page_pass(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(ephemerals.testing.__file__).parents[2]))
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    pytester.makeini("[pytest]\n")
    pytester.makepyfile("\n".join(blocks))
    result = pytester.runpytest_subprocess("-pephemerals.testing.plugin", "-Werror")
    result.assert_outcomes(passed=5)
