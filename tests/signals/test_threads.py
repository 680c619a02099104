"""Emission from any thread: stored at once, delivered in one order, on the loop's thread if there is one."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ephemerals.signals import SignalSink

from .support import names

THREADS = 8


def in_threads(function, count=THREADS):
    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(function, number) for number in range(count)]]


def test_nothing_is_lost_below_capacity():
    sink = SignalSink(10_000)
    in_threads(lambda number: [sink.emit("a", number) for _ in range(1250)])
    assert sink.count() == 10_000
    assert [event.sequence for event in sink.events()] == list(range(1, 10_001))


def test_emission_with_subscribers_and_queries():
    sink = SignalSink(100_000)
    first, second, starred, retracted = [], [], [], []
    sink.subscribe("*", first.append)
    sink.subscribe("n.*", lambda event: second.append(event.sequence))
    sink.subscribe("n.3", starred.append)
    sink.subscribe("*", retracted.append, retractions=True)
    watch = sink.watch("busy")
    stop = threading.Event()
    errors = []

    def ask():
        while not stop.is_set():
            try:
                assert sink.count() == sum(sink.counts().values()) or not stop.is_set()
                sink.has_matching("n.*")
                sink.events(pattern="n.3", limit=10)
                sink.last("n.*")
                sink.subscribe("n.*", lambda event: None).cancel()
                sink.emit("busy")
                assert watch.event is None or watch.event.name == "busy"
                sink.retract("busy")
            except Exception as error:  # noqa: BLE001
                errors.append(error)
                return

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    in_threads(lambda number: [sink.emit(f"n.{number}", turn) for turn in range(10_000)])
    stop.set()
    for thread in asking:
        thread.join()
    assert errors == []
    sequences = [event.sequence for event in first]
    assert sequences == sorted(sequences)
    assert second == [event.sequence for event in first if event.name != "busy"]
    assert len(second) == sink.count_matching("n.*") == THREADS * 10_000
    assert [event.data for event in starred] == list(range(10_000))
    assert sink.statistics().undelivered == 0
    assert len({event.sequence for event in retracted}) == len(retracted)


def test_a_handler_that_blocks_holds_up_no_other_thread():
    sink = SignalSink()
    heard = []
    began, released = threading.Event(), threading.Event()

    def block(event):
        began.set()
        assert released.wait(30)

    sink.subscribe("a", block)
    sink.subscribe("*", lambda event: heard.append(event.name))
    blocked = threading.Thread(target=sink.emit, args=("a",))
    blocked.start()
    assert began.wait(30)
    sink.emit("b")
    assert sink.has("b")
    assert sink.count() == 2
    sink.subscribe("b", lambda event: None).cancel()
    assert sink.retract("b") == 1
    sink.emit("c")
    assert heard == []
    assert sink.statistics().undelivered == 2
    released.set()
    blocked.join()
    assert heard == ["a", "b", "c"]
    assert sink.statistics().undelivered == 0


def test_exact_survivors_of_concurrent_clearing():
    sink = SignalSink(100_000)
    in_threads(lambda number: [sink.emit(f"{'ie'[turn % 2]}.{number}") for turn in range(100)])
    removed = in_threads(lambda number: sink.clear_matching("i.*"))
    assert sum(removed) == THREADS * 50
    assert sink.count() == THREADS * 50


async def test_with_a_loop_handlers_run_on_its_thread():
    sink = SignalSink()
    seen = []
    done = asyncio.Event()

    @sink.on("*")
    def handle(event):
        seen.append((event.data, threading.get_ident()))
        if event.data == 599:
            done.set()

    sink.emit("here", 0)
    await asyncio.to_thread(lambda: [sink.emit("there", number) for number in range(1, 600)])
    await done.wait()
    assert seen == [(number, threading.get_ident()) for number in range(600)]


async def test_an_event_of_the_loops_thread_does_not_overtake():
    sink = SignalSink()
    heard = []
    sink.subscribe("*", heard.append)
    thread = threading.Thread(target=lambda: [sink.emit("there", number) for number in range(10)])
    thread.start()
    thread.join()
    assert sink.count() == 10
    assert heard == []
    assert sink.statistics().undelivered == 10
    sink.emit("here")
    assert names(heard) == ["there"] * 10 + ["here"]


async def test_asynchronous_handlers_run_on_the_loop():
    sink = SignalSink()
    seen = []

    @sink.on("a")
    async def handle(event):
        await asyncio.sleep(0)
        seen.append(threading.get_ident())

    await asyncio.to_thread(sink.emit, "a")
    await sink.join()
    assert seen == [threading.get_ident()]


def test_a_stream_on_another_loop_is_woken():
    sink = SignalSink()
    ready = threading.Event()

    async def other():
        async with asyncio.timeout(10):
            events = sink.stream("go")
            task = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            ready.set()
            return (await task).data

    async def main():
        sink.subscribe("*", lambda event: None)
        future = asyncio.get_running_loop().run_in_executor(None, asyncio.run, other())
        await asyncio.to_thread(ready.wait)
        sink.emit("go", 1)
        return await future

    assert asyncio.run(main()) == 1


async def test_a_flood_from_another_thread_lets_the_loop_do_other_things_in_between():
    sink = SignalSink(10_000)
    heard = []
    sink.subscribe("*", lambda event: heard.append(event.data))
    await asyncio.sleep(0)
    in_threads(lambda number: [sink.emit("a", turn) for turn in range(3000)], 1)
    assert heard == []
    between = []
    while len(heard) < 3000:
        await asyncio.sleep(0)
        between.append(len(heard))
    assert heard == list(range(3000))
    assert len(between) > 5


def test_a_loop_that_closes_while_somebody_emits_is_left_behind(monkeypatch):
    sink = SignalSink()
    heard = []

    async def main():
        sink.subscribe("*", heard.append)
        loop = asyncio.get_running_loop()

        def closing(*arguments, **options):
            raise RuntimeError("Event loop is closed")

        monkeypatch.setattr(loop, "call_soon_threadsafe", closing, raising=False)
        in_threads(lambda number: sink.emit("a"), 1)

    asyncio.run(main())
    assert names(heard) == ["a"]


def test_what_a_forked_child_does_first():
    sink = SignalSink()
    told = []
    watch = sink.watch("busy", lambda watch: told.append(watch.present))
    sink.subscribe("*", lambda event: told.append(event.name))
    sink.emit("busy")
    sink._start_anew()
    assert sink.count() == 0
    assert not watch.present
    sink.emit("a")
    assert told == [True, "busy", False, "a"]


def test_joining_from_another_loop():
    sink = SignalSink()
    done = []

    @sink.on("a")
    async def handle(event):
        await asyncio.sleep(0)
        done.append(event)

    async def other():
        sink.emit("a")
        await sink.join()
        await sink.aclose()
        return len(done)

    async def main():
        sink.bind()
        return await asyncio.to_thread(asyncio.run, other())

    assert asyncio.run(main()) == 1


def test_a_closed_loop_is_left_behind():
    sink = SignalSink()
    heard = []

    async def main():
        sink.subscribe("*", heard.append)
        sink.emit("a")

    asyncio.run(main())
    sink.emit("b")
    in_threads(lambda number: sink.emit("c"), 1)
    asyncio.run(main())
    assert names(heard) == ["a", "b", "c", "a", "a"]


def test_a_loop_that_only_paused_goes_on():
    sink = SignalSink()
    heard = []
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(asyncio.sleep(0))

        async def subscribe():
            sink.subscribe("*", heard.append)

        loop.run_until_complete(subscribe())
        sink.emit("between")
        assert names(heard) == ["between"]
        in_threads(lambda number: sink.emit("there"), 1)
        assert names(heard) == ["between"]
        loop.run_until_complete(asyncio.sleep(0))
        assert names(heard) == ["between", "there"]
        other = asyncio.new_event_loop()

        async def emit():
            sink.emit("other")
            await sink.join()

        other.run_until_complete(emit())
        other.close()
        assert names(heard) == ["between", "there", "other"]
    finally:
        loop.close()


def test_a_finalizer_may_emit_at_any_moment():
    sink = SignalSink(50)
    heard = []
    sink.subscribe("*", heard.append)

    class Noisy:
        def __init__(self):
            self.myself = self

        def __del__(self):
            sink.emit("finalized")

    old = gc.get_threshold()
    gc.set_threshold(3)
    try:
        for _ in range(500):
            Noisy()
            sink.emit("a")
            sink.count("a")
            sink.retract("a")
    finally:
        gc.set_threshold(*old)
        gc.collect()
    assert sum(event.name == "finalized" for event in heard) == 500
    assert sum(sink.counts().values()) == sink.count() == len(sink.events()) <= 50
    assert sink.statistics().undelivered == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_starts_anew():
    sink = SignalSink()
    heard = []
    sink.subscribe("*", heard.append)
    watch = sink.watch("a")
    sink.emit("a")
    entered, release = threading.Event(), threading.Event()

    def occupy():
        with sink._lock:
            entered.set()
            release.wait()

    thread = threading.Thread(target=occupy)
    thread.start()
    entered.wait()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            heard.clear()
            was = (sink.count(), watch.present)
            sink.emit("b")
            os.write(writing, repr((*was, names(heard), sink.count())).encode())
        finally:
            os._exit(0)
    release.set()
    thread.join()
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "(0, False, ['b'], 1)"
    assert sink.count() == 1
