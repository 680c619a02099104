"""What the tools for tests are given: what would make an assertion say nothing is refused."""

from __future__ import annotations

import math

import pytest

from ephemerals import InvalidOption, WorkCoordinator
from ephemerals.testing import (
    VirtualClock,
    assert_becomes_quiet,
    assert_forgotten,
    assert_forgotten_sync,
    assert_quiet,
)

NUMBERS = [math.nan, math.inf, -math.inf, "1", None, True, 10**400]


async def handle(item):
    return item


@pytest.mark.parametrize("given", [5, None, "name", WorkCoordinator])
def test_only_what_counts_its_leftovers_can_be_quiet(given):
    with pytest.raises(InvalidOption, match=r"^coordinators=.* expected coordinators"):
        assert_quiet(given)


def test_where_no_loop_runs_there_is_something_to_ask():
    with pytest.raises(InvalidOption, match="at least one where no loop runs"):
        assert_quiet()
    assert_quiet(WorkCoordinator(handle))


async def test_on_a_loop_its_tasks_are_asked():
    assert_quiet()


@pytest.mark.parametrize("value", [*NUMBERS, -1])
def test_patience_is_a_time(value):
    with pytest.raises(InvalidOption, match="^patience=.* expected seconds"):
        VirtualClock(patience=value)


@pytest.mark.parametrize("option", ["monotonic", "time"])
@pytest.mark.parametrize("value", NUMBERS)
def test_a_reading_is_a_number(option, value):
    with pytest.raises(InvalidOption, match=f"^{option}=.* expected a finite number"):
        VirtualClock(**{option: value})


@pytest.mark.parametrize("method", ["advance", "advance_to", "step_wall", "suspend"])
@pytest.mark.parametrize("value", NUMBERS)
def test_a_step_is_a_number(method, value):
    clock = VirtualClock()
    with pytest.raises(InvalidOption, match="expected a finite number"):
        getattr(clock, method)(value)
    assert (clock.monotonic(), clock.time()) == (VirtualClock().monotonic(), VirtualClock().time())


@pytest.mark.parametrize("within", [-1, math.nan, "1", None])
async def test_within_is_a_time(within):
    async def use(item): ...

    for wait in (
        lambda: assert_becomes_quiet(within=within),
        lambda: assert_forgotten(use, within=within),
    ):
        with pytest.raises(InvalidOption, match="^within="):
            await wait()
    with pytest.raises(InvalidOption, match="^within="):
        assert_forgotten_sync(lambda item: None, within=within)
