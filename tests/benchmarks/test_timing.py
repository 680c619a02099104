"""The interleaving timer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from benchmarks.plan import TINY
from benchmarks.timing import Timed, compare, timed


def test_both_sides_run_in_turns_and_every_second_pair_begins_with_the_other():
    ran = []
    compare(lambda: ran.append("ours"), lambda: ran.append("peer"), replace(TINY, pairs=4))
    warm, pairs = ran[:2], ran[2:]
    assert warm == ["ours", "peer"]
    assert pairs == ["ours", "peer", "peer", "ours", "ours", "peer", "peer", "ours"]


def test_the_ratio_is_the_median_over_the_pairs_so_that_a_slow_stretch_of_both_does_not_count():
    assert Timed((2.0, 20.0, 4.0), (1.0, 10.0, 4.0)).ratio == 2.0


def test_which_side_is_ours_survives_the_turning():
    taken = compare(lambda: 3.0, lambda: 2.0, replace(TINY, pairs=5))
    assert taken.ours == (3.0,) * 5
    assert taken.peer == (2.0,) * 5
    assert taken.ratio == 1.5


def test_pairs_are_made_for_as_long_as_the_plan_says_but_no_more_than_a_few():
    ran = []
    compare(lambda: ran.append(1), lambda: None, replace(TINY, pairs=1, seconds=3600.0))
    assert 10 < len(ran) < 100


def test_a_run_is_timed_by_the_given_clock_and_without_what_comes_before_and_after():
    ticks = iter([10.0, 12.5])
    assert timed(lambda: None, TINY, lambda: next(ticks)) == 2.5


def test_a_coroutine_function_is_timed_on_a_loop_of_its_own():
    loops = []

    async def side():
        loops.append(asyncio.get_running_loop())

    assert timed(side, TINY) >= 0.0
    timed(side, TINY)
    assert all(first is not second for first, second in pairwise(loops))
    assert all(loop.is_closed() for loop in loops)


def test_a_coroutine_function_may_say_itself_what_counts():
    async def side():
        return 0.25

    assert timed(side, TINY) == 0.25


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_plan_chooses_the_loop(loop):
    pytest.importorskip(loop)

    async def main():
        return type(asyncio.get_running_loop()).__module__.partition(".")[0]

    assert replace(TINY, loop=loop).run(main()) == loop
