"""Gates: a door that signals close, pressure that does not flicker, and readers who wait for a writer."""

from __future__ import annotations

import asyncio
import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals import InvalidOption, WorkCoordinator
from ephemerals.atoms import Backpressure, GateRejected, ReadersWriter, SignalGate
from ephemerals.signals import SignalSink
from ephemerals.testing import VirtualClock, assert_quiet, run


def now():
    return VirtualClock.current().monotonic() - 1000


# SignalGate.


async def test_a_gate_opens_for_all_in_order_in_the_moment_the_signal_goes():
    sink, order = SignalSink(), []
    gate = SignalGate(sink, block="backpressure.*")

    async def enter(number):
        await gate.wait()
        order.append((number, now()))

    with sink.hold("backpressure.db"):
        callers = [asyncio.create_task(enter(number)) for number in range(5)]
        await asyncio.sleep(7)
        assert not gate.is_open
        callers[2].cancel()
        assert order == []
    await asyncio.gather(*callers, return_exceptions=True)
    assert order == [(number, 7) for number in (0, 1, 3, 4)]
    assert gate.statistics() == {"waiting": 0, "passed": 4, "rejected": 0, "timed_out": 0}
    assert_quiet(gate)


async def test_a_signal_that_expires_blocks_no_longer():
    sink = SignalSink(max_age=30)
    gate = SignalGate(sink, block="busy")
    sink.emit("busy")
    await gate.wait()
    assert now() == pytest.approx(30)


async def test_a_rejecting_signal_refuses_those_who_come_and_those_who_wait():
    sink = SignalSink()
    gate = SignalGate(sink, block="busy", reject="shutdown, closed.*")
    sink.emit("busy")
    waiting = asyncio.create_task(gate.wait())
    await asyncio.sleep(1)
    sink.emit("closed.today")
    with pytest.raises(GateRejected, match=r"closed\.today is present"):
        await waiting
    with pytest.raises(GateRejected) as refusal:
        await gate.wait()
    assert refusal.value.signal == "closed.today"
    assert not gate.is_open
    assert gate.statistics()["rejected"] == 2
    sink.retract("closed.today")
    sink.retract("busy")
    await gate.wait()  # one rejection is not for ever
    assert_quiet(gate)


async def test_after_its_time_a_caller_goes_on_or_gives_up_as_it_said():
    sink = SignalSink()
    gate = SignalGate(sink, block="busy")
    with sink.hold("busy"):
        await gate.wait(5, on_timeout="run")
        assert now() == 5
        with pytest.raises(TimeoutError):
            await gate.wait(timeout=5)
        assert now() == 10
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await gate.wait(5, on_timeout="run")  # the caller's own time is up
    assert gate.statistics()["timed_out"] == 2
    with pytest.raises(InvalidOption):
        await gate.wait(on_timeout="wait")


async def test_a_closed_gate_holds_nobody():
    sink = SignalSink()
    gate = SignalGate(sink, block="busy")
    sink.emit("busy")
    waiting = asyncio.create_task(gate.wait())
    await asyncio.sleep(1)
    gate.close()
    await waiting
    await gate.wait()
    assert gate.is_open


async def test_a_gate_that_is_dropped_leaves_the_sink_alone():
    sink = SignalSink()
    gate = SignalGate(sink, block="busy")
    del gate
    gc.collect()
    sink.emit("busy")
    sink.retract("busy")
    assert sink.statistics().handler_errors == 0


# Backpressure.


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 20), st.integers(0, 19))
def test_pressure_begins_at_the_high_mark_and_ends_at_the_low_one(depths, high, low):
    if low >= high:
        return
    sink = SignalSink()
    pressure, expected = Backpressure(sink, high=high, low=low), False
    for depth in depths:
        pressure.update(depth)
        expected = depth >= high or (expected and depth > low)
        assert pressure.is_high == sink.has("backpressure.depth") == expected
    pressure.close()
    assert_quiet(pressure)


async def test_a_coordinator_holds_back_while_there_is_pressure():
    sink, started = SignalSink(), []
    pressure = Backpressure(sink, high=2, name="backpressure.db")

    async def body(item):
        started.append(now())

    options = {"signals": sink, "defer_on_signals": "backpressure.*", "max_defer_time": None}
    async with WorkCoordinator(body, **options) as coordinator:
        with pressure.item(), pressure.item():
            await coordinator.enqueue("x")
            await asyncio.sleep(7)
            assert (started, pressure.depth) == ([], 2)
    assert started == [7]
    assert_quiet(pressure, coordinator)


async def test_who_waits_for_relief_gets_it():
    pressure = Backpressure(SignalSink(), high=3, low=1)
    await pressure.relieved()
    pressure.add(3)
    waiting = [asyncio.create_task(pressure.relieved()) for _ in range(3)]
    await asyncio.sleep(1)
    waiting[0].cancel()
    pressure.remove()
    await asyncio.sleep(1)
    assert not waiting[1].done()
    pressure.remove()
    await asyncio.gather(*waiting[1:])
    assert pressure.statistics() == {"depth": 1, "times": 1, "waiting": 0}
    assert_quiet(pressure)


def test_wrong_marks_are_refused():
    sink = SignalSink()
    with pytest.raises(InvalidOption, match="low="):
        Backpressure(sink, high=3, low=3)
    with pytest.raises(InvalidOption, match="high="):
        Backpressure(sink, high=0)
    with pytest.raises(InvalidOption, match="depth="):
        Backpressure(sink, high=3).remove()


# ReadersWriter.


async def test_a_writer_waits_for_those_who_read_and_those_who_come_after_wait_for_it():
    gate, log = ReadersWriter(), []

    async def read(name, seconds=10):
        async with gate.read():
            log.append((f"{name} in", now()))
            await asyncio.sleep(seconds)
        log.append((f"{name} out", now()))

    async def write():
        async with gate.exclusive("migration"):
            log.append(("writer in", now()))
            await asyncio.sleep(5)
            log.append(("writer out", now()))

    tasks = [asyncio.create_task(read("a")), asyncio.create_task(read("b", 20))]
    await asyncio.sleep(1)
    tasks.append(asyncio.create_task(write()))
    await asyncio.sleep(1)
    tasks += [asyncio.create_task(read("c")), asyncio.create_task(read("d"))]
    await asyncio.gather(*tasks)
    assert log == [
        ("a in", 0),
        ("b in", 0),
        ("a out", 10),
        ("b out", 20),
        ("writer in", 20),
        ("writer out", 25),
        ("c in", 25),
        ("d in", 25),
        ("c out", 35),
        ("d out", 35),
    ]
    assert_quiet(gate)


async def test_a_writer_that_fails_or_gives_up_lets_the_readers_go_on():
    gate = ReadersWriter()
    with pytest.raises(ZeroDivisionError):
        async with gate.exclusive():
            raise ZeroDivisionError
    async with gate.read():
        writer = asyncio.create_task(gate.exclusive().__aenter__())
        await asyncio.sleep(1)
        reader = asyncio.create_task(gate.read().__aenter__())
        await asyncio.sleep(1)
        assert not reader.done()
        writer.cancel()
        await reader
    assert gate.statistics() == {"reading": 1, "writing": 0, "waiting": 0}


async def test_a_task_may_read_within_reading_while_a_writer_waits():
    gate = ReadersWriter()

    async def write():
        async with gate.exclusive():
            pass

    async with gate.read():
        writer = asyncio.create_task(write())
        await asyncio.sleep(1)
        async with gate.read():
            assert not writer.done()
    await writer
    assert_quiet(gate)


async def test_waiting_for_oneself_is_an_error():
    gate = ReadersWriter()
    async with gate.read():
        with pytest.raises(RuntimeError, match=r"leave read\(\) before exclusive\(\)"):
            await gate.exclusive().__aenter__()
    async with gate.exclusive():
        for inner in (gate.read(), gate.exclusive()):
            with pytest.raises(RuntimeError, match="already"):
                await inner.__aenter__()
    assert_quiet(gate)


async def test_a_coordinator_pauses_while_somebody_wants_it_alone():
    sink, started = SignalSink(), []
    gate = ReadersWriter(signals=sink)

    async def body(item):
        async with gate.read():
            started.append(now())
            await asyncio.sleep(10)

    async def update():
        async with gate.exclusive("migration"):
            (event,) = sink.events("exclusive.active")
            assert event.key == "migration"
            await asyncio.sleep(5)

    options = {"signals": sink, "defer_on_signals": "exclusive.active", "max_defer_time": None}
    async with WorkCoordinator(body, max_concurrency=1, **options) as coordinator:
        await coordinator.enqueue_many("ab")
        await asyncio.sleep(1)
        await update()
    assert started == [0, 15]
    assert_quiet(gate, coordinator)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 3), st.floats(0, 3)), max_size=30))
def test_whatever_comes_a_writer_is_alone_and_everybody_has_a_turn(plan):
    async def main():
        gate, inside, served = ReadersWriter(), [], []

        async def visit(number, writes, seconds):
            async with gate.exclusive() if writes else gate.read():
                inside.append(writes)
                assert inside == [True] or not any(inside)
                await asyncio.sleep(seconds)
                inside.remove(writes)
            served.append(number)

        visits = []
        for number, (writes, gap, seconds) in enumerate(plan):
            await asyncio.sleep(gap)
            visits.append(asyncio.create_task(visit(number, writes, seconds)))
        await asyncio.gather(*visits)
        assert sorted(served) == list(range(len(plan)))
        assert_quiet(gate)

    run(main())


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=1, max_size=20))
def test_cancelled_visits_leave_the_gate_as_if_they_had_never_come(plan):
    async def main():
        gate, visits = ReadersWriter(), []

        async def visit(*, writes):
            async with gate.exclusive() if writes else gate.read():
                await asyncio.sleep(1)

        for writes, victim in plan:
            visits.append(asyncio.create_task(visit(writes=writes)))
            await asyncio.sleep(0.3)
            if victim < len(visits):
                visits[victim].cancel()
        await asyncio.gather(*visits, return_exceptions=True)
        assert_quiet(gate)
        async with gate.exclusive():
            pass

    run(main())
