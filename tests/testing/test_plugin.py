"""The pytest plugin runs its own async tests, on the loop they ask for, and leaves all others alone."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path

import pytest

import ephemerals.testing

pytest_plugins = ["pytester"]

HEADER = """
import asyncio, pytest, sys, time
from ephemerals.clock import system_clock
from ephemerals.testing import VirtualClock
"""


@pytest.fixture
def outcome(pytester, monkeypatch):
    """Run the given test file with this plugin and the others named; return the counts of outcomes."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(ephemerals.testing.__file__).parents[2]))

    def run(source, *arguments, plugins=(), ini="", apart=False):
        pytester.makepyfile(HEADER + source)
        pytester.makeini(f"[pytest]\n{ini}\n")
        names = [f"-p{name}" for name in (*plugins, "ephemerals.testing.plugin")]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "already imported", about this very plugin
            method = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
            result = method(*names, "-Werror", "--strict-markers", "-pno:cacheprovider", *arguments)
        counts = result.parseoutcomes()
        return {**counts, "output": result.stdout.str()} if "failed" in counts or "errors" in counts else counts

    return run


def needs(module):
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


def test_a_test_that_requests_the_clock_runs_on_its_loop(outcome):
    source = """
async def test_jump(ephemeral_clock):
    assert VirtualClock.current() is ephemeral_clock
    await asyncio.sleep(100)
    assert ephemeral_clock.monotonic() == system_clock.monotonic() == 1100.0

class TestMethod:
    async def test_jump(self, ephemeral_clock, tmp_path):
        await asyncio.sleep(100)
        assert isinstance(self, TestMethod) and tmp_path.exists()
"""
    assert outcome(source) == {"passed": 2}


def test_a_plain_test_gets_the_clock_installed(outcome):
    source = """
def test_plain(ephemeral_clock):
    ephemeral_clock.advance(5)
    assert system_clock.monotonic() == 1005.0

def test_after():
    assert system_clock.monotonic is time.monotonic
"""
    assert outcome(source) == {"passed": 2}


def test_a_marked_test_runs_on_a_virtual_loop(outcome):
    source = """
pytestmark = pytest.mark.ephemeral

async def test_async():
    await asyncio.sleep(1e6)
    assert VirtualClock.current().monotonic() == 1001000.0

def test_plain():
    pass
"""
    assert outcome(source) == {"passed": 2}


def test_a_mark_that_a_conftest_adds_counts(outcome, pytester):
    pytester.makeconftest("""
import pytest
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.ephemeral)
""")
    assert outcome("async def test_it(): await asyncio.sleep(1e6)") == {"passed": 1}


def test_auto_mode_runs_every_unclaimed_test(outcome):
    source = """
async def test_it():
    await asyncio.sleep(1e6)

@pytest.mark.asyncio
async def test_claimed():
    pass
"""
    ini = "ephemeral_mode = auto\nmarkers = asyncio"
    result = outcome(source, ini=ini)
    assert (result["passed"], result["failed"]) == (1, 1)


def test_strict_mode_leaves_unmarked_tests_alone(outcome):
    assert outcome("async def test_it(): pass")["failed"] == 1


def test_an_unknown_mode_is_refused(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(ephemerals.testing.__file__).parents[2]))
    pytester.makeini("[pytest]\nephemeral_mode = wild")
    result = pytester.runpytest_subprocess("-pephemerals.testing.plugin")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines("*ephemeral_mode='wild' is not allowed: expected 'auto' or 'strict'*")


def test_a_real_loop_takes_real_time(outcome):
    source = """
@pytest.mark.real_loop
async def test_it(ephemeral_loop):
    start = time.monotonic()
    await asyncio.sleep(0.02)
    assert time.monotonic() - start > 0.01
    assert system_clock.monotonic is time.monotonic
    assert ephemeral_loop == "asyncio"
"""
    assert outcome(source) == {"passed": 1}


def test_a_real_loop_test_ends_after_its_timeout(outcome):
    source = """
@pytest.mark.real_loop(timeout=0.05)
async def test_it():
    await asyncio.Event().wait()
"""
    result = outcome(source)
    assert result["failed"] == 1
    assert "the test did not end within 0.05 s" in result["output"]


def test_a_timeout_of_the_test_itself_is_its_own(outcome):
    source = """
@pytest.mark.real_loop
async def test_it():
    raise TimeoutError("mine")
"""
    assert "TimeoutError: mine" in outcome(source)["output"]


@needs("uvloop")
def test_a_test_may_run_once_on_each_of_several_loops(outcome):
    source = """
def factory():
    return asyncio.SelectorEventLoop()

@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.ephemeral("virtual", "asyncio", "eager", "uvloop", factory)
async def test_it(ephemeral_loop, number):
    names = {"virtual": "VirtualEventLoop", "uvloop": "Loop"}
    name = type(asyncio.get_running_loop()).__name__
    assert name == names.get(ephemeral_loop, "_UnixSelectorEventLoop")
    steps = []
    async def step(): steps.append(1)
    task = asyncio.create_task(step())
    assert bool(steps) == (ephemeral_loop == "eager")
    await task

@pytest.mark.real_loop("asyncio", "uvloop")
async def test_without_asking_for_it():
    pass

@pytest.mark.real_loop("asyncio", "uvloop")
def test_plain():
    pass
"""
    eager = sys.version_info >= (3, 12)
    assert outcome(source) == {"passed": 13} if eager else {"passed": 11, "skipped": 2}


def test_an_unknown_loop_is_a_failure_that_lists_the_known_ones(outcome):
    source = """
@pytest.mark.real_loop("curio")
async def test_it():
    pass
"""
    assert "loop='curio' is not allowed: expected 'virtual'" in outcome(source)["output"]


def test_a_timeout_that_is_none_is_a_failure_that_says_so(outcome):
    source = """
@pytest.mark.real_loop(timeout=0)
async def test_it():
    pass
"""
    assert "timeout=0 is not allowed: expected seconds" in outcome(source)["output"]


def test_the_clock_on_a_real_loop_is_an_error(outcome):
    source = """
@pytest.mark.real_loop
async def test_it(ephemeral_clock):
    pass
"""
    assert "drives the virtual loop, not 'asyncio'" in outcome(source)["output"]


def test_failures_show_only_the_test(outcome):
    source = """
async def test_it(ephemeral_clock):
    await asyncio.sleep(1)
    assert ephemeral_clock.monotonic() == 5
"""
    output = outcome(source)["output"]
    assert "assert 1001.0 == 5" in output
    assert "plugin.py" not in output


def test_a_test_that_would_hang_fails_with_the_names_of_its_tasks(outcome):
    source = """
async def test_it(ephemeral_clock):
    await asyncio.Event().wait()
"""
    assert "the test waits for something that never happens" in outcome(source)["output"]


def test_skips_and_expected_failures_work(outcome):
    source = """
async def test_skip(ephemeral_clock):
    pytest.skip("not now")

@pytest.mark.xfail(strict=True)
async def test_xfail(ephemeral_clock):
    assert False
"""
    assert outcome(source) == {"skipped": 1, "xfailed": 1}


def test_asynchronous_unittest_cases_are_left_to_unittest(outcome):
    source = """
import unittest
class TestIt(unittest.IsolatedAsyncioTestCase):
    async def test_it(self):
        assert not isinstance(getattr(asyncio.get_running_loop(), "clock", None), VirtualClock)
"""
    assert outcome(source, ini="ephemeral_mode = auto") == {"passed": 1}


HYPOTHESIS = """
from hypothesis import given, settings, strategies

@pytest.mark.ephemeral
@pytest.mark.parametrize("start", [1000.0, 1000])
@settings(max_examples=20, database=None, deadline=None)
@given(strategies.integers(1, 10**6))
async def test_it(start, delay):
    await asyncio.sleep(delay)
    assert VirtualClock.current().monotonic() == start + delay
"""


@needs("hypothesis")
def test_hypothesis_gets_a_new_virtual_loop_for_each_example(outcome):
    assert outcome(HYPOTHESIS, apart=True) == {"passed": 2}


TOGETHER = """
async def test_ours(ephemeral_clock):
    await asyncio.sleep(1e6)

@pytest.mark.ephemeral
async def test_ours_by_mark():
    await asyncio.sleep(1e6)

@pytest.mark.{mark}
async def test_theirs():
    await asyncio.sleep(0)
    assert not isinstance(getattr(asyncio.get_running_loop(), "clock", None), VirtualClock)
"""


@needs("pytest_asyncio")
@pytest.mark.parametrize("mode", ["strict", "auto"])
@pytest.mark.parametrize("ours", ["strict", "auto"])
def test_pytest_asyncio_works_beside_it(outcome, mode, ours):
    source = TOGETHER.format(mark="asyncio") + HYPOTHESIS.replace("test_it", "test_hypothesis")
    ini = f"ephemeral_mode = {ours}\nasyncio_mode = {mode}\nasyncio_default_fixture_loop_scope = function"
    assert outcome(source, plugins=["pytest_asyncio.plugin"], ini=ini, apart=True) == {"passed": 5}


@needs("pytest_asyncio")
def test_in_auto_mode_pytest_asyncio_keeps_the_unmarked_tests(outcome):
    source = """
async def test_theirs():
    assert not isinstance(getattr(asyncio.get_running_loop(), "clock", None), VirtualClock)
"""
    ini = "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function"
    assert outcome(source, plugins=["pytest_asyncio.plugin"], ini=ini, apart=True) == {"passed": 1}


@needs("pytest_asyncio")
def test_a_whole_module_marked_asyncio_may_hold_tests_with_the_clock(outcome):
    source = "pytestmark = pytest.mark.asyncio\n" + TOGETHER.format(mark="asyncio")
    ini = "asyncio_default_fixture_loop_scope = function"
    assert outcome(source, plugins=["pytest_asyncio.plugin"], ini=ini, apart=True) == {"passed": 3}


@needs("anyio")
@pytest.mark.parametrize("ours", ["strict", "auto"])
def test_anyio_works_beside_it(outcome, ours):
    source = """
@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"
""" + TOGETHER.format(mark="anyio")
    ini = f"ephemeral_mode = {ours}"
    assert outcome(source, plugins=["anyio.pytest_plugin"], ini=ini, apart=True) == {"passed": 3}
