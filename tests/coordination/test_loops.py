"""Loops: none at construction, one at a time, another once the first has ended; and real ones."""

from __future__ import annotations

import asyncio
import gc
import re
import threading

import pytest
from tests.coordinators import assert_adds_up, every_coordinator

from ephemerals import (
    DeadlockError,
    KeyedWorkCoordinator,
    Lane,
    OperationCancelled,
    OperationTimeout,
    PriorityWorkCoordinator,
    ResultCoordinator,
    WorkCoordinator,
    WrongLoop,
)
from ephemerals.coordination import lifetime
from ephemerals.testing import assert_quiet


async def rest(item):
    await asyncio.sleep(0)
    return item


async def rest_long(item):
    await asyncio.sleep(1000)


async def wait_for(operation):
    return await operation


async def use(coordinator):
    await coordinator.aclose(grace=0)


def forget(tasks):
    """Let go of tasks whose loop was closed, without asyncio's complaint about each."""
    for each in tasks:
        each._log_destroy_pending = False
    tasks.clear()
    gc.collect()


class TestSeveralLoops:
    @every_coordinator
    def test_a_coordinator_of_a_module_works_under_one_loop_after_another(self, make):  # report R55
        coordinator = make(rest, max_concurrency=2)

        async def main():
            assert await coordinator.run(7) == 7

        for times in (1, 2, 3):
            asyncio.run(main())
            assert coordinator.total_completed == times
        assert_adds_up(coordinator)
        coordinator.cancel()

    @every_coordinator
    def test_what_a_loop_left_behind_is_cancelled_under_the_next(self, make):
        coordinator = make(rest_long, max_concurrency=2, max_pending=3, operation_timeout=500)
        left = []

        async def leave():
            left.extend([await coordinator.enqueue(each) for each in range(4)])
            waiting = [asyncio.ensure_future(coordinator.enqueue(each)) for each in range(10, 15)]
            joining = asyncio.ensure_future(coordinator.join())
            await asyncio.sleep(0.01)
            assert not joining.done()
            return waiting, joining

        async def main():
            for each in left:
                with pytest.raises(OperationCancelled):
                    await each
            coordinator.pause()
            operation = await coordinator.enqueue(5)
            assert coordinator.total_cancelled == coordinator.total_enqueued - 1
            operation.cancel()
            coordinator.resume()
            assert_adds_up(coordinator)
            await coordinator.aclose()
            assert_quiet(coordinator)

        asyncio.run(leave())
        asyncio.run(main())

    def test_what_a_loop_that_was_closed_hard_left_behind_is_cancelled_too(self):
        coordinator = KeyedWorkCoordinator(lambda item: item % 2, rest_long, max_concurrency=2)

        async def leave():
            operations = [await coordinator.enqueue(each) for each in range(4)]
            await asyncio.sleep(0.01)
            return operations

        loop = asyncio.new_event_loop()
        left = loop.run_until_complete(leave())
        tasks = asyncio.all_tasks(loop)
        loop.close()
        assert coordinator.active_count == 2

        async def main():
            with pytest.raises(OperationCancelled, match="its loop or process is gone"):
                await left[0]
            await coordinator.drain()
            assert [each.status for each in left] == ["cancelled"] * 4
            with pytest.raises(OperationCancelled, match="its event loop was closed"):
                await left[0]
            assert_adds_up(coordinator)
            await coordinator.aclose()
            assert_quiet(coordinator)

        asyncio.run(main())
        forget(tasks)

    def test_it_may_be_cancelled_after_its_loop_has_gone(self):
        coordinator = WorkCoordinator(rest_long, max_concurrency=1)

        async def leave():
            await coordinator.enqueue(1)
            coordinator.pause()
            await coordinator.enqueue(2)

        asyncio.run(leave())
        coordinator.cancel()
        assert coordinator.is_idle
        assert_adds_up(coordinator)

    def test_one_operation_may_be_cancelled_after_its_loop_has_gone(self):
        for chosen in (0, 1):
            coordinator = WorkCoordinator(rest_long, max_concurrency=1)

            async def leave(coordinator=coordinator):
                operations = [await coordinator.enqueue(each) for each in range(2)]
                waiters = [asyncio.ensure_future(wait_for(each)) for each in operations]
                await asyncio.sleep(0.01)
                return operations, waiters

            loop = asyncio.new_event_loop()
            operations, waiters = loop.run_until_complete(leave())
            tasks = asyncio.all_tasks(loop)
            loop.close()
            assert operations[chosen].cancel()
            assert [each.status for each in operations] == ["cancelled", "cancelled"]
            assert_adds_up(coordinator)
            coordinator.cancel()
            forget(tasks)
            del waiters, tasks

    def test_a_hook_may_cancel_others_while_what_a_loop_left_behind_is_settled(self):
        def hook(_snapshot, _reason):
            for each in left:
                each.cancel()

        left = []
        coordinator = WorkCoordinator(rest_long, max_concurrency=1, max_tracked_operations=0, on_finalized=hook)

        async def leave():
            coordinator.pause()
            left.extend([await coordinator.enqueue(each) for each in range(4)])

        asyncio.run(leave())
        asyncio.run(use(coordinator))
        assert [each.status for each in left] == ["cancelled"] * 4
        assert coordinator.total_cancelled == 4
        assert_adds_up(coordinator)

    def test_work_of_a_loop_that_has_gone_is_kept_alive_by_nobody(self):
        coordinator = WorkCoordinator(rest_long, max_concurrency=1)
        other = WorkCoordinator(rest)

        async def leave():
            coordinator.pause()
            await coordinator.enqueue(2)

        async def use_another():
            await other.run(1)
            await other.aclose()

        asyncio.run(leave())
        assert coordinator.engine in lifetime._busy
        asyncio.run(use_another())
        assert coordinator.engine not in lifetime._busy
        coordinator.cancel()

    def test_used_from_two_live_loops_it_names_both(self):  # report R55
        coordinator = WorkCoordinator(rest_long, name="mail")
        operations = []
        raised = []
        entered, leave = threading.Event(), threading.Event()

        async def first():
            operations.append(await coordinator.enqueue(1))
            entered.set()
            await asyncio.to_thread(leave.wait, 10)
            await coordinator.cancel()

        async def second():
            for use in (
                lambda: coordinator.enqueue(1),
                lambda: coordinator.run(1),
                coordinator.join,
                coordinator.drain,
                coordinator.aclose,
                lambda: coordinator.enqueue_many([1]),
                coordinator.__aenter__,
            ):
                with pytest.raises(WrongLoop) as caught:
                    await use()
                raised.append(str(caught.value))
            with pytest.raises(WrongLoop):
                coordinator.try_enqueue(1)
            with pytest.raises(WrongLoop):
                await operations[0]
            raised.append(repr(asyncio.get_running_loop()))

        thread = threading.Thread(target=asyncio.run, args=(first(),))
        thread.start()
        entered.wait(10)
        asyncio.run(second())
        leave.set()
        thread.join(10)
        *messages, loop = raised
        for message in messages:
            assert message.startswith("coordinator 'mail' is bound to the event loop <")
            assert loop.split(" ")[0].lstrip("<") in message
            assert len(set(re.findall("0x[0-9a-f]+", message))) == 2
        assert coordinator.total_enqueued == 1
        assert not coordinator.engine.admission.line

    def test_without_a_loop_it_is_only_made(self):
        coordinator = WorkCoordinator(rest)
        with pytest.raises(RuntimeError, match="no running event loop"):
            coordinator.try_enqueue(1)
        assert coordinator.total_enqueued == 0
        assert coordinator.snapshot() == []

    def test_an_ended_handle_may_be_awaited_on_any_loop(self):
        coordinator = WorkCoordinator(rest)

        async def main():
            operation = await coordinator.enqueue(7)
            await operation
            return operation

        async def later():
            return await operation

        operation = asyncio.run(main())
        assert asyncio.run(later()) == 7
        coordinator.cancel()

    def test_ages_go_on_under_the_next_loop(self):
        coordinator = WorkCoordinator(rest, max_operation_lifetime=0.05, echo_retention=0)

        async def main():
            await coordinator.run(1)

        async def later():
            assert len(coordinator.snapshot()) <= 1
            await coordinator.join()
            await asyncio.sleep(0.08)
            assert not coordinator.engine.window._ended
            assert not coordinator.engine.window.has_timer

        asyncio.run(main())
        asyncio.run(later())
        coordinator.cancel()


@pytest.mark.real_loop("asyncio", "eager", "uvloop")
class TestRealLoops:
    """What matters most, on real loops and in real time."""

    @every_coordinator
    async def test_work_runs_fails_is_cancelled_and_is_forgotten(self, make):
        async def body(item):
            await asyncio.sleep(0.001)
            if item == 3:
                raise ValueError(item)
            return item

        async with make(body, max_concurrency=2, max_pending=4) as coordinator:
            operations = [await coordinator.enqueue(each) for each in range(8)]
            operations[7].cancel()
            assert await operations[0] == 0
            with pytest.raises(ValueError, match="3"):
                await operations[3]
            report = await coordinator.drain()
            assert (report.completed, report.failed, report.cancelled) == (6, 1, 1)
            assert_adds_up(coordinator)
        assert_quiet(coordinator)

    async def test_limits_pause_and_priorities(self):
        started = []

        async def body(item):
            started.append(item)
            await asyncio.sleep(0.001)

        lanes = [Lane("high"), Lane("low")]
        async with PriorityWorkCoordinator(body, lanes=lanes, max_concurrency=1) as coordinator:
            coordinator.pause()
            for each in range(3):
                await coordinator.enqueue(f"low {each}", lane="low")
            await coordinator.enqueue("high", lane="high")
            await asyncio.sleep(0.005)
            assert started == []
            coordinator.set_max_concurrency(2)
            coordinator.resume()
        assert started == ["high", "low 0", "low 1", "low 2"]

    async def test_keys_keep_their_order(self):
        started = []

        async def body(item):
            started.append(item)
            await asyncio.sleep(0.001)

        async with KeyedWorkCoordinator(lambda item: item[0], body, max_concurrency=4) as coordinator:
            await coordinator.enqueue_many(["A1", "A2", "B1", "A3", "B2"])
        assert [each for each in started if each[0] == "A"] == ["A1", "A2", "A3"]
        assert started.index("B1") <= 1
        assert coordinator.engine.leftovers()["keys"] == 0

    async def test_results_stream_and_expire(self):
        async with ResultCoordinator(rest, max_concurrency=2, results_ttl=0.03) as coordinator:
            async with coordinator.as_completed() as stream:
                await coordinator.enqueue_many(range(5))
                coordinator.complete()
                assert sorted([each async for each in stream]) == [0, 1, 2, 3, 4]
            await asyncio.sleep(0.05)
            assert coordinator.results() == []

    async def test_threads_and_items_from_threads(self):
        def body(item):
            return item * 2, threading.current_thread() is threading.main_thread()

        async with WorkCoordinator(body, max_concurrency=2) as coordinator:
            assert await coordinator.run(2) == (4, False)
            operation = await asyncio.to_thread(lambda: coordinator.enqueue_threadsafe(3).result(10))
            assert await operation == (6, False)

    async def test_timeouts_and_deadlocks(self):
        async def body(item):
            if item == "slow":
                await asyncio.sleep(10)
            return await coordinator.run("slow")

        async with WorkCoordinator(body, max_concurrency=1, operation_timeout=0.02) as coordinator:
            with pytest.raises(OperationTimeout):
                await coordinator.run("slow")
            with pytest.raises(DeadlockError):
                await coordinator.run("parent")
            await coordinator.cancel()

    async def test_an_idle_window_empties_itself(self):
        coordinator = WorkCoordinator(rest, max_operation_lifetime=0.02, echo_retention=0.02)
        async with coordinator:
            await coordinator.run(1)
            await asyncio.sleep(0.1)
            assert not coordinator.engine.window._ended
            assert_quiet(coordinator)

    async def test_closing_is_bounded(self):
        async def body(_item):
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue

        released = asyncio.Event()
        coordinator = WorkCoordinator(body)
        operation = await coordinator.enqueue(1)
        await asyncio.sleep(0.005)
        report = await coordinator.aclose(grace=0, cancel_grace=0.01)
        assert report.stragglers == (operation.id,)
        released.set()
        await operation
