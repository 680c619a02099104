"""Nothing refers to the data of an event that has left and was delivered; the collector is off."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from ephemerals.signals import SignalConstraints, SignalSink

from .support import ManualClock, Payload


@pytest.fixture(autouse=True)
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def clock():
    return ManualClock()


def emit(sink, name="a", **fields):
    payload = Payload()
    sink.emit(name, payload, **fields)
    return weakref.ref(payload)


@pytest.mark.parametrize(
    "leave",
    [
        lambda sink, clock: sink.retract("a"),
        lambda sink, clock: sink.retract_matching("*"),
        lambda sink, clock: sink.retract_event(sink.last("a")),
        lambda sink, clock: sink.clear(),
        lambda sink, clock: sink.clear_matching("a"),
        lambda sink, clock: sink.clear_oldest(9),
        lambda sink, clock: (sink.emit("b"), sink.resize(1)),
        lambda sink, clock: (clock.advance(60), sink.emit("b")),
        lambda sink, clock: (clock.advance(60), sink.count()),
        lambda sink, clock: (sink.count(), clock.advance(60), sink.count()),
        lambda sink, clock: [sink.emit("b") for _ in range(10)],
        lambda sink, clock: (sink.count(), [sink.emit("b") for _ in range(10)]),
        lambda sink, clock: (sink.watch("a"), [sink.emit("b") for _ in range(10)]),
    ],
)
def test_an_event_that_has_left_is_gone(leave, clock):
    sink = SignalSink(10, clock=clock)
    heard = []
    sink.subscribe("*", lambda event: heard.append(event.name))
    watch = sink.watch("*a*", lambda watch: None)
    data = emit(sink)
    sink.emit("c")
    assert data() is not None
    leave(sink, clock)
    assert data() is None
    assert watch


def test_delivered_events_are_not_kept_by_emitting(clock):
    sink = SignalSink(1, clock=clock)
    sink.subscribe("*", lambda event: None)
    data = emit(sink)
    sink.emit("b")
    assert data() is None


def test_a_held_one_is_gone_afterwards(clock):
    sink = SignalSink(clock=clock)
    payload = Payload()
    data = weakref.ref(payload)
    with sink.hold("busy", payload):
        del payload
        assert data() is not None
    assert data() is None


def test_a_failed_handler_keeps_nothing(clock):
    sink = SignalSink(1, clock=clock, on_handler_error=lambda error, event, handler: None)

    def fail(event):
        mine = event.data  # noqa: F841
        raise ValueError

    sink.subscribe("a", fail)
    data = emit(sink)
    sink.emit("b")
    assert data() is None


def test_a_blocked_signal_keeps_nothing(clock):
    blocked = []
    sink = SignalSink(
        clock=clock, constraints=SignalConstraints(on_blocked=lambda event, reason: blocked.append(reason))
    )
    seen = []
    sink.subscribe("a", lambda event: seen.append(emit(sink, "a")))
    sink.emit("a")
    assert blocked
    assert seen[0]() is None


def test_a_forgotten_sink_is_gone_at_once(clock):
    sink = SignalSink(clock=clock)
    subscription = sink.subscribe("*", lambda event: None)
    watch = sink.watch("a", lambda watch: None)
    data = emit(sink)
    sink.count()
    del sink
    assert data() is None
    subscription.cancel()
    watch.cancel()


async def test_also_with_a_timer_armed():
    sink = SignalSink()
    sink.subscribe("*", lambda event: None)
    data = emit(sink)
    assert sink._timer is not None
    del sink
    assert data() is None


async def test_an_idle_window_empties_itself(clock):
    sink = SignalSink(clock=clock)
    with clock.timers():
        data = emit(sink)
        later = emit(sink, "b")
        clock.advance(59)
        assert data() is not None
        clock.advance(1)
        assert data() is None
        assert later() is None
        assert clock.armed == []


async def test_a_busy_window_is_swept_now_and_then(clock):
    sink = SignalSink(10_000, 1, clock=clock)
    with clock.timers():
        for _ in range(1000):
            emit(sink)
            clock.advance(0.001)
        clock.advance(0.5)
        assert len(sink._index.fresh) == pytest.approx(500, abs=101)
        clock.advance(0.7)
        assert not sink._index.fresh


async def test_a_sink_that_nobody_listens_to_binds_to_emptying_too(clock):
    sink = SignalSink(clock=clock)
    with clock.timers():
        data = emit(sink)
        clock.advance(60)
    assert data() is None


async def test_asynchronous_handlers_keep_nothing(clock):
    sink = SignalSink(1, clock=clock)

    async def handle(event):
        await asyncio.sleep(0)

    async def fail(event):
        mine = event.data  # noqa: F841
        raise ValueError

    sink.subscribe("a", handle)
    sink.subscribe("a", fail)
    sink.subscribe("a", lambda event: handle(event))  # noqa: PLW0108 - no coroutine function
    data = emit(sink)
    await sink.join()
    sink.emit("b")
    await asyncio.sleep(0)
    assert data() is None


async def test_a_cancelled_subscription_lets_go_of_what_waits(clock):
    sink = SignalSink(1, clock=clock, max_concurrent_handlers=1)
    gate = asyncio.Event()

    async def handle(event):
        await gate.wait()

    subscription = sink.subscribe("a", handle)
    sink.emit("a")
    data = emit(sink)
    sink.emit("b")
    assert data() is not None
    subscription.cancel()
    assert data() is None
    gate.set()
    await sink.join()


async def test_a_stream_keeps_only_what_was_not_taken(clock):
    sink = SignalSink(1, clock=clock)
    events = sink.stream("a")
    data = emit(sink)
    sink.emit("b")
    assert data() is not None
    await anext(events)
    assert data() is None


async def test_a_chain_of_causes_keeps_no_events(clock):
    sink = SignalSink(1, clock=clock)
    stop = asyncio.Event()
    tasks = []
    sink.subscribe("a", lambda event: tasks.append(asyncio.create_task(stop.wait())))
    data = emit(sink)
    sink.emit("b")
    await asyncio.sleep(0)
    assert data() is None
    stop.set()
    await tasks[0]
