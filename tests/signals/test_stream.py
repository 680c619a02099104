"""Signals as an asynchronous iterator, and waiting for one."""

from __future__ import annotations

import asyncio
import gc
from datetime import UTC, datetime

import pytest

from ephemerals.errors import InvalidOption, SinkClosed
from ephemerals.signals import SignalSink

from .support import ManualClock, names


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def sink(clock):
    return SignalSink(clock=clock)


class TestStream:
    async def test_it_yields_what_matches_from_its_making_on(self, sink):
        sink.emit("a.0")
        async with sink.stream("a.*") as events:
            for name in ("a.1", "b", "a.2"):
                sink.emit(name)
            assert [(await anext(events)).name, (await anext(events)).name] == ["a.1", "a.2"]

    async def test_whoever_waits_is_woken(self, sink):
        got = []

        async def listen():
            async for event in sink.stream("*"):
                got.append(event.name)
                if event.name == "end":
                    break

        task = asyncio.create_task(listen())
        await asyncio.sleep(0)
        for name in ("a", "b", "end", "late"):
            sink.emit(name)
        await task
        assert got == ["a", "b", "end"]

    async def test_with_since_it_starts_in_the_past(self, sink, clock):
        sink.emit("a")
        clock.advance(10)
        sink.emit("b")
        sink.emit("x.c")
        events = sink.stream("a, b", since=clock.wall)
        sink.emit("a")
        assert [(await anext(events)).name for _ in range(2)] == ["b", "a"]
        everything = sink.stream("*", since=datetime(2020, 1, 1, tzinfo=UTC))
        assert names([await anext(everything) for _ in range(4)]) == ["a", "b", "x.c", "a"]

    async def test_what_nobody_takes_is_bounded(self, sink):
        events = sink.stream("a", size=3)
        for number in range(10):
            sink.emit("a", number)
        events.close()
        assert [event.data async for event in events] == [7, 8, 9]
        assert events.dropped == 7
        with pytest.raises(InvalidOption):
            sink.stream("a", size=0)

    async def test_closed_it_ends_after_what_has_come(self, sink):
        events = sink.stream("a")
        sink.emit("a")
        events.close()
        events.close()
        sink.emit("a")
        assert len([event async for event in events]) == 1

    async def test_closing_ends_a_wait(self, sink):
        events = sink.stream("a")
        task = asyncio.create_task(anext(events, None))
        await asyncio.sleep(0)
        events.close()
        assert await task is None

    async def test_closing_the_sink_ends_it(self, sink):
        events = sink.stream("a")
        task = asyncio.create_task(anext(events, None))
        await asyncio.sleep(0)
        await sink.aclose()
        assert await task is None

    async def test_several_tasks_share_it(self, sink):
        events = sink.stream("a")
        tasks = [asyncio.create_task(anext(events)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        for number in range(2):
            sink.emit("a", number)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert sorted(event.data for event in results[1:]) == [0, 1]

    async def test_forgotten_it_no_longer_listens(self, sink):
        events = sink.stream("a")
        assert sink.statistics().subscriptions == 1
        del events
        gc.collect()
        assert sink.statistics().subscriptions == 0

    async def test_left_early_it_no_longer_listens(self, sink):
        sink.emit("a")
        async for _ in sink.stream("a", since=0):
            break
        gc.collect()
        assert sink.statistics().subscriptions == 0


class TestWaitFor:
    async def test_the_next_event_that_matches(self, sink):
        sink.emit("a.0")
        task = asyncio.create_task(sink.wait_for("a.*"))
        await asyncio.sleep(0)
        sink.emit("b")
        event = sink.emit("a.1")
        sink.emit("a.2")
        assert await task is event
        assert sink.statistics().subscriptions == 0

    async def test_with_the_right_key(self, sink):
        task = asyncio.create_task(sink.wait_for("done", key=2))
        await asyncio.sleep(0)
        sink.emit("done", key=1)
        event = sink.emit("done", key=2)
        assert await task is event

    async def test_with_since_one_from_the_past_will_do(self, sink):
        first = sink.emit("a")
        sink.emit("a")
        assert await sink.wait_for("a", since=0) is first

    async def test_it_gives_up_after_the_timeout(self, sink):
        with pytest.raises(TimeoutError):
            await sink.wait_for("a", timeout=0.001)
        assert sink.statistics().subscriptions == 0

    async def test_cancelled_it_leaves_nothing_behind(self, sink):
        task = asyncio.create_task(sink.wait_for("a"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sink.statistics().subscriptions == 0

    async def test_closing_the_sink_ends_it(self, sink):
        task = asyncio.create_task(sink.wait_for("a"))
        await asyncio.sleep(0)
        await sink.aclose()
        with pytest.raises(SinkClosed, match="signal sink is closed"):
            await task
