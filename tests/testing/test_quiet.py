"""assert_quiet says what a coordinator has left behind."""

from __future__ import annotations

import asyncio

import pytest

from ephemerals.testing import VirtualClock, assert_becomes_quiet, assert_quiet, run


class Engine:
    def __init__(self, **counts):
        self.counts = counts

    def leftovers(self):
        return self.counts


class Coordinator:
    name = "translations"

    def __init__(self, **counts):
        self.engine = Engine(**counts)


class Window:
    def __init__(self, **counts):
        self.counts = counts

    def _leftovers(self):
        return self.counts


def test_nothing_left_is_quiet():
    assert_quiet(Coordinator(pending=0, timers=0), Engine(), Window(owners=0))


def test_everything_left_is_listed_with_its_count():
    with pytest.raises(AssertionError) as caught:
        assert_quiet(Coordinator(pending=0, timers=1, keys=3), Engine(threads=2), Window(owners=1))
    lines = [line.strip() for line in str(caught.value).splitlines()]
    assert lines == [
        "not quiet:",
        "translations: 1 timers",
        "translations: 3 keys",
        "Engine: 2 threads",
        "Window: 1 owners",
    ]


def test_a_task_of_the_library_is_left_over_and_the_current_one_is_not():
    async def main():
        asyncio.current_task().set_name("ephemerals test")
        stray = asyncio.create_task(asyncio.sleep(1), name="ephemerals pump")
        other = asyncio.create_task(asyncio.sleep(1), name="mine")
        with pytest.raises(AssertionError, match="running loop: task 'ephemerals pump'") as caught:
            assert_quiet()
        assert "mine" not in str(caught.value)
        await asyncio.gather(stray, other)
        assert_quiet()

    run(main())


def test_it_may_become_quiet_within_a_time():
    async def main():
        coordinator = Coordinator(timers=1)
        asyncio.get_running_loop().call_later(50, coordinator.engine.counts.clear)
        with pytest.raises(AssertionError, match="1 timers"):
            await assert_becomes_quiet(coordinator, within=30)
        await assert_becomes_quiet(coordinator, within=30)
        assert VirtualClock.current().monotonic() == pytest.approx(1050, abs=0.1)

    run(main())
