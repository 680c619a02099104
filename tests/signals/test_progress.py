"""Progress: limited by time, and the last state is always told."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals import WorkCoordinator
from ephemerals.errors import InvalidOption, InvalidOptionType
from ephemerals.signals import Progress, SignalKey, SignalSink
from ephemerals.testing import assert_quiet

from .support import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def sink(clock):
    return SignalSink(clock=clock)


def told(sink, name="progress"):
    return [event.data["current"] for event in sink.events(name)]


def test_it_is_told_now_and_then_and_at_the_end(sink, clock):
    with Progress(sink.emit, 100, min_interval=10, clock=clock) as bar:
        for _ in range(35):
            clock.advance(1)
            bar.update()
    assert told(sink) == [0, 10, 20, 30, 35]
    assert sink.last("progress").data == {"current": 35, "total": 100}


def test_a_long_pause_is_ended_by_the_next_step(sink, clock):
    with Progress(sink.emit, 100, min_interval=10, clock=clock) as bar:
        bar.update()
        clock.advance(9.999)
        bar.update()
        assert told(sink) == [0]
        clock.advance(0.001)
        bar.update()
        assert told(sink) == [0, 3]


def test_reaching_the_total_is_told_at_once_and_only_once(sink, clock):
    with Progress(sink.emit, 3, min_interval=10, clock=clock) as bar:
        bar.update(2)
        bar.update()
        assert told(sink) == [0, 3]
        bar.update()
        bar.update()
        assert told(sink) == [0, 3]
    assert told(sink) == [0, 3, 5]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, asyncio.CancelledError])
def test_the_last_state_is_told_however_it_ends(sink, clock, error):
    with pytest.raises(error), Progress(sink.emit, 10, min_interval=10, clock=clock) as bar:
        bar.update(4)
        raise error
    assert told(sink) == [0, 4]


def test_a_state_that_has_been_told_is_not_told_again(sink, clock):
    with Progress(sink.emit, 10, min_interval=0, clock=clock) as bar:
        bar.update(4)
        bar.update(0)
        bar.set(4)
    assert told(sink) == [0, 4]


def test_with_no_interval_every_step_is_told(sink, clock):
    with Progress(sink.emit, min_interval=timedelta(0), clock=clock) as bar:
        for _ in range(3):
            bar.update()
    assert told(sink) == [0, 1, 2, 3]
    assert sink.last("progress").data == {"current": 3, "total": None}


def test_what_it_knows_can_be_asked(sink, clock):
    bar = Progress(sink.emit, 8, clock=clock)
    assert (bar.current, bar.total, bar.fraction) == (0, 8, 0.0)
    bar.update(2)
    assert (bar.current, bar.fraction) == (2, 0.25)
    bar.set(1)
    assert bar.current == 1
    bar.set(20)
    assert (bar.current, bar.fraction) == (20, 1.0)
    assert repr(bar) == "<Progress 'progress' 20/8>"
    endless = Progress(sink.emit, clock=clock)
    assert endless.fraction is None
    assert repr(endless) == "<Progress 'progress' 0/?>"


def test_two_bars_are_told_apart_by_name(sink, clock):
    rows = SignalKey[dict]("progress.rows")
    with (
        Progress(sink.emit, 2, name="progress.files", clock=clock) as outer,
        Progress(sink.emit, 5, name=rows, clock=clock) as inner,
    ):
        outer.update(2)
        inner.update(5)
    assert told(sink, "progress.files") == [0, 2]
    assert told(sink, "progress.rows") == [0, 5]


def test_setting_the_wall_clock_changes_nothing(sink, clock):
    with Progress(sink.emit, 10, min_interval=10, clock=clock) as bar:
        clock.wall += 3600
        bar.update()
        assert told(sink) == [0]


def test_a_handler_may_count_and_what_a_constraint_blocks_is_told_later(sink, clock):
    with Progress(sink.emit, 3, min_interval=0, clock=clock) as bar:
        sink.subscribe("progress", lambda event: bar.update() if event.data["current"] == 1 else None)
        bar.update()
        assert bar.current == 2
    assert told(sink) == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"total": 0}, InvalidOption),
        ({"total": -1}, InvalidOption),
        ({"total": float("nan")}, InvalidOption),
        ({"total": float("inf")}, InvalidOption),
        ({"total": "3"}, InvalidOptionType),
        ({"total": True}, InvalidOptionType),
        ({"min_interval": -1}, InvalidOption),
        ({"min_interval": "often"}, InvalidOptionType),
        ({"name": ""}, InvalidOption),
        ({"name": None}, InvalidOptionType),
    ],
)
async def test_what_makes_no_sense_is_refused_at_once(options, error):
    async def body(item, operation):
        with pytest.raises(error, match=next(iter(options))):
            operation.progress(**options)

    async with WorkCoordinator(body) as coordinator:
        await coordinator.run(1)


@pytest.mark.parametrize("method", ["update", "set"])
@pytest.mark.parametrize(
    ("steps", "error"), [(-1, InvalidOption), (float("nan"), InvalidOption), ("1", InvalidOptionType)]
)
def test_steps_are_numbers(sink, clock, method, steps, error):
    bar = Progress(sink.emit, 3, clock=clock)
    with pytest.raises(error):
        getattr(bar, method)(steps)
    assert bar.current == 0


async def test_an_operation_tells_how_far_it_has_come():
    seen = []

    async def body(rows, operation):
        with operation.progress(total=len(rows), min_interval=10) as bar:
            for _ in rows:
                await asyncio.sleep(4)
                bar.update()

    async with WorkCoordinator(body, on_signal=seen.append) as coordinator:
        operation = await coordinator.enqueue(range(7))
        await operation
        assert [(event.data["current"], event.data["total"]) for event in seen] == [(0, 7), (3, 7), (6, 7), (7, 7)]
        assert {event.operation_id for event in seen} == {operation.id}
        assert coordinator.signals.last("progress").data["current"] == 7
    assert_quiet(coordinator)


async def test_a_cancelled_operation_has_told_how_far_it_came():
    async def body(rows, operation):
        with operation.progress(total=len(rows), min_interval=1000) as bar:
            for _ in rows:
                bar.update()
                await asyncio.sleep(1)

    async with WorkCoordinator(body) as coordinator:
        operation = await coordinator.enqueue(range(100))
        await asyncio.sleep(4.5)
        operation.cancel()
        await coordinator.join()
        assert [event.data["current"] for event in operation.signals] == [0, 5]


async def test_steps_of_many_threads_are_all_counted():
    def body(item, operation):
        with operation.progress(total=8 * 500, min_interval=0) as bar:
            threads = [threading.Thread(target=lambda: [bar.update() for _ in range(500)]) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert bar.current == 8 * 500

    async with WorkCoordinator(body) as coordinator:
        operation = await coordinator.enqueue(1)
        await operation
        assert operation.signals[-1].data["current"] == 8 * 500


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 0.4, 1, 7])), max_size=30), st.integers(1, 20))
def test_whatever_the_rhythm_it_is_told_rarely_and_ends_with_the_truth(steps, total):
    clock = ManualClock()
    sink = SignalSink(clock=clock, max_age=None)
    with Progress(sink.emit, total, min_interval=1, clock=clock) as bar:
        for count, pause in steps:
            clock.advance(pause)
            bar.update(count)
    events = sink.events("progress")
    counts = told(sink)
    assert counts[0] == 0
    assert counts[-1] == sum(count for count, _ in steps)
    assert counts == sorted(set(counts))
    for earlier, later in pairwise(events[:-1]):
        reached = earlier.data["current"] < total <= later.data["current"]
        assert reached or later.monotonic - earlier.monotonic >= 1
