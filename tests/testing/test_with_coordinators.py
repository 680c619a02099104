"""The helpers do their work on real coordinators."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from ephemerals import WorkCoordinator
from ephemerals.testing import VirtualClock, assert_becomes_quiet, assert_forgotten, assert_quiet, run


def test_time_stands_still_while_a_plain_body_works():
    async def main():
        async with WorkCoordinator(lambda _: time.sleep(0.05)) as coordinator, asyncio.timeout(0.01):
            await (await coordinator.enqueue("item"))
        assert VirtualClock.current().monotonic() == 1000.0

    run(main())


def test_a_body_in_a_thread_can_be_seen_at_work():
    async def main():
        release = threading.Event()
        async with WorkCoordinator(lambda _: release.wait(), max_concurrency=2) as coordinator:
            await coordinator.enqueue_many(range(3))
            await VirtualClock.current().settle(external=False)
            assert (coordinator.active_count, coordinator.pending_count) == (2, 1)
            release.set()

    run(main())


def test_what_is_left_is_listed():
    async def main():
        async with WorkCoordinator(lambda _: None, max_operation_lifetime=300) as coordinator:
            await (await coordinator.enqueue("item"))
            with pytest.raises(AssertionError, match="1 timers"):
                assert_quiet(coordinator)
            await assert_becomes_quiet(coordinator, within=400)
        assert_quiet(coordinator)

    run(main())


@pytest.mark.parametrize("fails", [False, True])
def test_an_item_is_forgotten_and_a_kept_one_is_found(fails):
    kept = []

    async def body(item):
        await asyncio.sleep(1)
        if fails:
            raise LookupError(type(item).__name__)

    async def main():
        async with WorkCoordinator(body) as coordinator:

            async def use(item):
                operation = await coordinator.enqueue(item)
                del item
                await coordinator.join()
                return operation, coordinator.snapshot()

            async def keep(item):
                kept.append(item)
                await use(item)

            await assert_forgotten(use)
            with pytest.raises(AssertionError, match="list of 1, item 0"):
                await assert_forgotten(keep)
            kept.clear()

    run(main())


OUTLIVED = """
import asyncio, threading
from ephemerals import WorkCoordinator
from ephemerals.testing import VirtualClock, WaitsForever, run

async def main():
    coordinator = WorkCoordinator(lambda _: release.wait())
    await coordinator.enqueue("item")
    await VirtualClock.current().settle(external=False)
    await coordinator.aclose(grace=0, cancel_grace=0)

release = threading.Event()
try:
    run(main(), clock=VirtualClock(patience=0.1))
except WaitsForever:  # the loop cannot end before the thread does
    release.set()
    run(asyncio.sleep(5), clock=VirtualClock(patience=0.5))
    print("time went by")
"""


def test_a_body_that_outlives_its_loop_does_not_stop_the_time_of_the_next():
    result = subprocess.run([sys.executable, "-c", OUTLIVED], capture_output=True, text=True, check=False, timeout=30)
    assert result.stdout == "time went by\n", result.stderr
