"""A virtual loop jumps to the next timer, waits really for real work, and never hangs."""

from __future__ import annotations

import asyncio
import contextlib
import math
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from ephemerals.clock import system_clock
from ephemerals.testing import VirtualClock, VirtualEventLoop, WaitsForever, run


def elapsed_really(main, **options):
    start = time.monotonic()
    run(main, **options)
    return time.monotonic() - start


class TestTime:
    def test_a_long_sleep_takes_no_time_and_ends_exactly(self):
        async def main():
            clock = VirtualClock.current()
            await asyncio.sleep(6 * 3600 + 0.1)
            assert clock.monotonic() == 1000.0 + 6 * 3600 + 0.1
            assert asyncio.get_running_loop().time() == clock.monotonic() == system_clock.monotonic()
            assert clock.time() == pytest.approx(1767225600 + 6 * 3600 + 0.1, abs=1e-5)

        assert elapsed_really(main()) < 1

    @pytest.mark.parametrize("span", [86_400.0 * 3, 3e7, 1e9, 1e12])
    def test_spans_beyond_the_resolution_of_asyncio_still_end(self, span):
        async def main():
            await asyncio.sleep(span)
            await asyncio.sleep(0.25)
            VirtualClock.current().advance(span)
            asyncio.get_running_loop().call_at(VirtualClock.current().monotonic(), lambda: None)
            await asyncio.sleep(1e-9)

        assert elapsed_really(main()) < 1

    def test_timers_run_in_order_each_at_its_own_time(self):
        async def main():
            seen = []

            async def note(delay):
                await asyncio.sleep(delay)
                seen.append((delay, VirtualClock.current().monotonic() - 1000))

            async with asyncio.TaskGroup() as group:
                for delay in (3, 1, 2):
                    group.create_task(note(delay))
            assert seen == [(1, 1.0), (2, 2.0), (3, 3.0)]

        run(main())

    def test_advance_is_a_leap_over_timers(self):
        async def main():
            clock = VirtualClock.current()
            seen = []
            for delay in (2, 1):
                asyncio.get_running_loop().call_later(delay, lambda d=delay: seen.append((d, clock.monotonic())))
            clock.advance(5)
            assert seen == []
            await clock.settle()
            assert seen == [(1, 1005.0), (2, 1005.0)]

        run(main())

    def test_a_timeout_is_virtual_too(self):
        async def main():
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 3600)
            assert VirtualClock.current().monotonic() == 4600.0

        run(main())

    def test_cancelled_timers_are_not_jumped_to(self):
        async def main():
            loop = asyncio.get_running_loop()
            for delay in range(1, 500):
                loop.call_later(delay, lambda: None).cancel()
            await asyncio.sleep(1000)
            assert loop.time() == 2000.0

        run(main())


class TestSettle:
    def test_it_runs_what_is_ready_and_moves_no_time(self):
        async def main():
            clock = VirtualClock.current()
            steps = []

            async def work():
                for step in range(50):
                    await asyncio.sleep(0)
                    steps.append(step)
                await asyncio.sleep(1)
                steps.append("late")

            task = asyncio.create_task(work())
            await clock.settle()
            assert steps == list(range(50))
            assert clock.monotonic() == 1000.0
            await task

        run(main())

    def test_several_may_wait_for_it_and_be_cancelled(self):
        async def main():
            clock = VirtualClock.current()
            cancelled = asyncio.create_task(clock.settle())
            await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.gather(clock.settle(), clock.settle())
            assert cancelled.cancelled()

        run(main())

    def test_it_waits_for_threads_unless_told_not_to(self):
        async def main():
            clock = VirtualClock.current()
            release = threading.Event()
            job = asyncio.get_running_loop().run_in_executor(None, release.wait)
            await clock.settle(external=False)
            assert not job.done()
            threading.Timer(0.05, release.set).start()
            await clock.settle()
            assert job.done()

        run(main())

    def test_another_clock_than_the_loops_is_refused(self):
        async def main():
            with pytest.raises(RuntimeError, match="current"):
                await VirtualClock().settle()

        run(main())

    def test_a_real_loop_is_refused(self):
        with pytest.raises(RuntimeError, match="VirtualEventLoop"):
            asyncio.run(VirtualClock().settle())


class TestRealWork:
    def test_time_stands_still_while_a_thread_works(self):
        async def main():
            async with asyncio.timeout(1):
                await asyncio.to_thread(time.sleep, 0.1)
            assert VirtualClock.current().monotonic() == 1000.0

        assert elapsed_really(main()) >= 0.1

    def test_a_cancelled_wait_leaves_the_thread_counted_until_it_ends(self):
        async def main():
            clock = VirtualClock.current()
            done = []
            job = asyncio.get_running_loop().run_in_executor(None, lambda: (time.sleep(0.1), done.append(1)))
            await clock.settle(external=False)
            job.cancel()
            await asyncio.sleep(100)
            assert done

        run(main())

    def test_a_thread_of_an_own_pool_counts(self):
        async def main():
            with ThreadPoolExecutor(1) as pool:
                async with asyncio.timeout(1):
                    await asyncio.get_running_loop().run_in_executor(pool, time.sleep, 0.05)

        run(main())

    def test_a_process_counts(self):
        async def main():
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                async with asyncio.timeout(1):
                    assert await asyncio.get_running_loop().run_in_executor(pool, abs, -3) == 3

        run(main(), clock=VirtualClock(patience=60))

    def test_an_own_default_executor_counts(self):
        async def main():
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
            async with asyncio.timeout(1):
                await asyncio.to_thread(time.sleep, 0.05)

        run(main())

    def test_a_failing_submission_leaves_nothing_counted(self):
        async def main():
            pool = ThreadPoolExecutor(1)
            pool.shutdown()
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop().run_in_executor(pool, abs, 1)
            assert VirtualClock.current().working == 0

        run(main())

    def test_an_own_thread_counts_if_it_says_so(self):
        async def main():
            loop, clock = asyncio.get_running_loop(), VirtualClock.current()
            done = asyncio.Event()
            work = clock.external_work()

            def thread():
                with work:
                    time.sleep(0.05)
                    loop.call_soon_threadsafe(done.set)

            threading.Thread(target=thread).start()
            await asyncio.wait_for(done.wait(), 1)

        run(main())

    def test_time_can_be_advanced_while_a_thread_works(self):
        async def main():
            clock = VirtualClock.current()
            slept = asyncio.create_task(asyncio.sleep(5))

            def body():
                time.sleep(0.02)
                clock.advance(5)
                time.sleep(0.2)
                return slept.done()

            assert await asyncio.to_thread(body)

        run(main())

    def test_a_thread_without_a_word_is_waited_for_when_there_is_no_timer(self):
        async def main():
            loop, done = asyncio.get_running_loop(), asyncio.Event()
            threading.Timer(0.05, lambda: loop.call_soon_threadsafe(done.set)).start()
            await done.wait()

        run(main())

    def test_no_result_of_a_thread_is_ever_overtaken_by_a_timer(self):
        async def main():
            for _ in range(500):
                async with asyncio.timeout(0.001):
                    await asyncio.to_thread(lambda: None)
            assert VirtualClock.current().monotonic() == 1000.0

        run(main())

    def test_sockets_work(self):
        async def main():
            async def echo(reader, writer):
                writer.write(await reader.readline())
                await writer.drain()
                writer.close()

            async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
                reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                writer.write(b"hello\n")
                assert await reader.readline() == b"hello\n"
                writer.close()
                await writer.wait_closed()

        run(main())

    def test_a_subprocess_is_waited_for(self):
        async def main():
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", "print('hi')", stdout=asyncio.subprocess.PIPE
            )
            with VirtualClock.current().external_work():
                output, _ = await asyncio.wait_for(process.communicate(), 5)
            assert output.strip() == b"hi"

        run(main())

    def test_a_signal_wakes_the_loop(self):
        async def main():
            got = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, got.set)
            os.kill(os.getpid(), signal.SIGUSR1)
            await got.wait()

        run(main())


class TestNeverHanging:
    def test_waiting_for_what_never_happens_names_the_tasks(self):
        async def forgotten():
            await asyncio.Event().wait()

        async def main():
            task = asyncio.create_task(forgotten(), name="the forgotten one")
            await task

        start = time.monotonic()
        with pytest.raises(WaitsForever, match="never happens") as caught:
            run(main())
        assert time.monotonic() - start < 1
        assert any("the forgotten one" in task and "test_loop.py" in task for task in caught.value.tasks)
        assert "in Event.wait" in str(caught.value)

    def test_sleeping_for_ever_is_no_timer(self):
        with pytest.raises(WaitsForever):
            run(asyncio.sleep(math.inf))

    def test_the_test_still_cleans_up(self):
        cleaned = []

        async def main():
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(5)
                cleaned.append(1)

        with pytest.raises(WaitsForever):
            run(main())
        assert cleaned

    def test_a_task_that_swallows_its_cancellation_cannot_hang_the_end(self):
        async def stubborn():
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()

        async def main():
            task = asyncio.create_task(stubborn(), name="stubborn")
            await asyncio.sleep(0)
            assert not task.done()

        with pytest.raises(WaitsForever, match="stubborn"):
            run(main())

    def test_idle_pool_threads_do_not_delay_the_verdict(self):
        async def main():
            await asyncio.to_thread(lambda: None)
            await asyncio.Event().wait()

        with pytest.raises(WaitsForever, match="no timer is set"):
            run(main())

    def test_a_thread_that_waits_for_virtual_time_is_found_out(self):
        async def main():
            event = threading.Event()
            job = asyncio.get_running_loop().run_in_executor(None, event.wait, 5)
            try:
                await asyncio.sleep(1)
            finally:
                event.set()
                await job

        with pytest.raises(
            WaitsForever, match=r"\(1 external, 0 in .*\) and virtual time stands still 1 s before a timer"
        ):
            run(main(), clock=VirtualClock(patience=0.1))

    def test_io_that_never_comes_is_waited_for_as_long_as_patience_lasts(self):
        async def main():
            ours, theirs = socket.socketpair()
            with ours, theirs:
                ours.setblocking(False)
                await asyncio.get_running_loop().sock_recv(ours, 1)

        with pytest.raises(WaitsForever, match="I/O is waited for on 1 file"):
            run(main(), clock=VirtualClock(patience=0.05))

    def test_a_strange_thread_is_named(self):
        over = threading.Event()

        async def main():
            threading.Thread(target=over.wait, name="the stranger").start()
            await asyncio.Event().wait()

        try:
            with pytest.raises(WaitsForever, match="threads are alive: the stranger"):
                run(main(), clock=VirtualClock(patience=0.05))
            with pytest.raises(WaitsForever, match="no timer is set"):  # it is older than this loop
                run(asyncio.Event().wait())
        finally:
            over.set()


class TestRun:
    def test_it_returns_the_result(self):
        async def main():
            return 42

        assert run(main()) == 42

    def test_it_raises_what_the_coroutine_raises_and_puts_everything_back(self):
        before = system_clock.monotonic, system_clock.time

        async def main():
            raise LookupError

        with pytest.raises(LookupError):
            run(main())
        assert (system_clock.monotonic, system_clock.time) == before

    def test_it_uses_the_clock_it_is_given(self):
        clock = VirtualClock(monotonic=5.0)

        async def main():
            assert VirtualClock.current() is clock
            await asyncio.sleep(1)

        run(main(), clock=clock)
        assert clock.monotonic() == 6.0

    def test_it_closes_asynchronous_generators_and_the_loop(self):
        closed = []

        async def generator():
            try:
                yield 1
            finally:
                await asyncio.sleep(1)
                closed.append(1)

        async def main():
            loops.append(asyncio.get_running_loop())
            iterator = generator()
            loops.append(iterator)
            await anext(iterator)

        loops = []
        run(main())
        assert closed
        assert loops[0].is_closed()

    def test_it_leaves_no_thread(self):
        before = set(threading.enumerate())
        run(asyncio.to_thread(lambda: None))
        assert set(threading.enumerate()) <= before

    def test_debug_mode_works_and_takes_no_leap_for_a_slow_callback(self, caplog):
        async def main():
            assert asyncio.get_running_loop().get_debug()
            VirtualClock.current().advance(50)
            await asyncio.sleep(1000)

        run(main(), debug=True)
        assert "took" not in caplog.text

    def test_inside_a_running_loop_it_is_refused(self):
        async def main():
            with pytest.raises(RuntimeError, match="await the coroutine"):
                run(asyncio.sleep(0))

        run(main())

    def test_a_loop_may_be_used_without_it(self):
        loop = VirtualEventLoop()
        try:
            loop.run_until_complete(asyncio.sleep(10))
            assert loop.clock.monotonic() == 1010.0
        finally:
            loop.close()
