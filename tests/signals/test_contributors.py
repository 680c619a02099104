"""Several who each contribute something, and whoever waits until enough have."""

from __future__ import annotations

import asyncio

import pytest

from ephemerals.errors import InvalidOption
from ephemerals.signals import ContributionsOutcome, Contributors, SignalSink


async def waiting(contributors, *arguments, **options):
    task = asyncio.create_task(contributors.wait(*arguments, **options))
    await asyncio.sleep(0)
    return task


async def test_all_of_them():
    contributors = Contributors(["agent", "address", "headers"])
    task = await waiting(contributors)
    contributors.complete("agent", 0.5)
    contributors.complete("headers", None)
    await asyncio.sleep(0)
    assert not task.done()
    contributors.complete("address", 0.25)
    result = await task
    assert result
    assert dict(result.results) == {"agent": 0.5, "headers": None, "address": 0.25}
    assert result.pending == ()


async def test_enough_of_them():
    contributors = Contributors("abcde")
    for name in "ace":
        contributors.complete(name, name.upper())
    result = await contributors.wait(3, timeout=2)
    assert result.outcome is ContributionsOutcome.REACHED
    assert result.pending == ("b", "d")
    contributors.complete("b", "late")
    assert "b" in contributors.results
    assert "b" not in result.results


async def test_too_many_failures_end_the_wait():
    contributors = Contributors("abc")
    task = await waiting(contributors, 2)
    error = ValueError("no")
    contributors.fail("a", error)
    await asyncio.sleep(0)
    assert not task.done()
    contributors.fail("b", error)
    result = await task
    assert not result
    assert result.outcome is ContributionsOutcome.IMPOSSIBLE
    assert result.failed["a"] is error
    assert contributors.failed["b"] is error


async def test_running_out_of_time_is_a_result():
    contributors = Contributors("abc")
    contributors.complete("a", 1)
    result = await contributors.wait(3, timeout=0.001)
    assert result.outcome is ContributionsOutcome.TIMED_OUT
    assert dict(result.results) == {"a": 1}


async def test_being_cancelled_is_none():
    contributors = Contributors("a")
    task = await waiting(contributors)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert contributors._waiters == []


async def test_each_waits_for_its_own_minimum():
    contributors = Contributors("abc")
    one, two = await waiting(contributors, 1), await waiting(contributors, 2)
    contributors.complete("b", 2)
    assert await one
    assert not two.done()
    contributors.complete("c", 3)
    assert await two


def test_each_has_its_say_once():
    contributors = Contributors("ab")
    assert contributors.complete("a", 1)
    assert not contributors.complete("a", 2)
    assert not contributors.fail("a", ValueError())
    assert contributors.fail("b", ValueError())
    assert not contributors.complete("b", 1)
    assert contributors.results == {"a": 1}
    assert contributors.pending == ()


def test_it_tells_a_sink():
    sink = SignalSink()
    contributors = Contributors("ab", sink=sink)
    contributors.complete("a", 1)
    contributors.fail("b", ValueError())
    assert [(event.name, event.key, event.data) for event in sink.events()] == [
        ("contributor.completed", "a", None),
        ("contributor.failed", "b", None),
    ]


async def test_what_makes_no_sense_is_refused():
    with pytest.raises(InvalidOption):
        Contributors([])
    contributors = Contributors(["a", "b", "a"])
    assert contributors.names == ("a", "b")
    for name in ("c", ""):
        with pytest.raises(InvalidOption):
            contributors.complete(name, 1)
        with pytest.raises(InvalidOption):
            contributors.fail(name, ValueError())
    for minimum in (0, 3):
        with pytest.raises(InvalidOption):
            await contributors.wait(minimum)
