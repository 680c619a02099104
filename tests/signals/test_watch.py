"""Conditions: present or not, known without searching, and told when that changes."""

from __future__ import annotations

import asyncio

import pytest

from ephemerals.errors import InvalidOption, InvalidOptionType
from ephemerals.signals import SignalSink

from .support import ManualClock, Payload


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def sink(clock):
    return SignalSink(clock=clock)


@pytest.fixture
def told():
    return []


def test_it_follows_emission_and_retraction(sink, told):
    watch = sink.watch("busy.*", lambda watch: told.append(watch.present))
    assert not watch.present
    assert watch.event is None
    event = sink.emit("busy.db")
    assert watch.present
    assert watch.event is event
    sink.emit("other")
    sink.retract("busy.db")
    assert not watch.present
    assert told == [True, False]


def test_it_sees_what_is_present_already_and_is_not_told_of_it(sink, told):
    sink.emit("busy.db")
    event = sink.emit("busy.web")
    sink.emit("other")
    watch = sink.watch("busy.*", told.append)
    assert watch.event is event
    assert told == []


def test_the_newest_counts_and_every_newer_one_is_told(sink, told):
    watch = sink.watch(["resume.*", "go"], lambda watch: told.append(watch.event.sequence))
    sink.emit("resume.x")
    sink.emit("go")
    assert watch.event.name == "go"
    assert told == [1, 2]


def test_when_the_newest_is_retracted_the_next_one_counts(sink, told):
    watch = sink.watch("busy.*", lambda watch: told.append(watch.event and watch.event.name))
    for name in ("busy.a", "busy.b", "busy.a"):
        sink.emit(name)
    sink.retract_event(watch.event)
    assert watch.event.name == "busy.b"
    sink.retract_matching("busy.*")
    assert told == ["busy.a", "busy.b", "busy.a", "busy.b", None]


def test_a_later_event_has_a_higher_sequence(sink):
    defer, resume = sink.watch("pause"), sink.watch("resume")
    sink.emit("resume")
    sink.emit("pause")
    assert defer.event.sequence > resume.event.sequence
    sink.emit("resume")
    assert defer.event.sequence < resume.event.sequence


@pytest.mark.parametrize(
    "end",
    [
        lambda sink, clock: sink.clear(),
        lambda sink, clock: sink.clear_matching("busy"),
        lambda sink, clock: sink.clear_operation(7),
        lambda sink, clock: sink.clear_key("k"),
        lambda sink, clock: sink.clear_oldest(1),
        lambda sink, clock: sink.clear_older_than(0),
        lambda sink, clock: sink.retract("busy", key="k"),
        lambda sink, clock: sink.resize(max_age=1),
        lambda sink, clock: [sink.emit("other") for _ in range(1000)],
    ],
    ids=["clear", "pattern", "operation", "key", "oldest", "older", "retract", "resize", "capacity"],
)
def test_whatever_ends_it_tells(sink, clock, told, end):
    sink.emit("busy", key="k", operation_id=7)
    watch = sink.watch("busy", told.append)
    clock.advance(2)
    end(sink, clock)
    assert not watch.present
    assert told == [watch]


def test_expiry_is_exact_for_whoever_reads(sink, clock):
    watch = sink.watch("busy")
    sink.emit("busy")
    clock.advance(59.999)
    assert watch.present
    clock.advance(0.001)
    assert not watch.present
    assert watch.event is None


def test_pushed_out_by_a_smaller_window(clock, told):
    sink = SignalSink(5, clock=clock)
    watch = sink.watch("busy", told.append)
    sink.emit("busy")
    for _ in range(4):
        sink.emit("other")
    assert watch.present
    sink.emit("other")
    assert not watch.present
    assert len(told) == 2


async def test_expiry_tells_on_time(clock, sink, told):
    with clock.timers():
        sink.watch("busy", lambda watch: told.append((clock.now, watch.present)))
        sink.emit("before")
        clock.advance(7)
        sink.emit("busy")
        clock.advance(1)
        sink.emit("after")
        clock.advance(100)
    assert told == [(1007.0, True), (1067.0, False)]


async def test_a_condition_that_was_present_first_expires_on_time_too(clock, sink, told):
    with clock.timers():
        sink.emit("busy")
        clock.advance(10)
        sink.watch("busy", lambda watch: told.append(clock.now))
        clock.advance(100)
    assert told == [1060.0]


async def test_many_conditions_each_end_on_time(clock, sink, told):
    with clock.timers():
        for number in range(20):
            sink.watch(f"busy.{number}", lambda watch: watch.present or told.append(clock.now))
        for number in range(20):
            sink.emit(f"busy.{number}")
            clock.advance(0.01)
        clock.advance(60)
    assert told == pytest.approx([1060 + number / 100 for number in range(20)])


async def test_a_shorter_age_is_timed_anew(clock, sink, told):
    with clock.timers():
        sink.watch("busy", lambda watch: watch.present or told.append(clock.now))
        sink.emit("busy")
        sink.resize(max_age=5)
        clock.advance(100)
    assert told == [1005.0]


async def test_held_it_does_not_expire(clock, sink, told):
    with clock.timers():
        watch = sink.watch("busy", lambda watch: told.append(watch.present))
        with sink.hold("busy"):
            clock.advance(1000)
            assert watch.present
            sink.emit("busy")
            clock.advance(1000)
            assert watch.present
        assert not watch.present
    assert told[-1] is False


async def test_emitted_before_the_loop_it_ends_in_it(clock):
    sink = SignalSink(clock=clock)
    told = []
    sink.watch("busy", lambda watch: watch.present or told.append(clock.now))
    await asyncio.to_thread(lambda: None)
    with clock.timers():
        sink.emit("busy")
        sink.bind()
        clock.advance(100)
    assert told == [1060.0]


def test_several_changes_in_a_row_are_told_once(sink, told):
    watch = sink.watch("a", told.append)

    def handle(event):
        for _ in range(5):
            sink.emit("a")
            sink.retract("a")
        assert told == []

    sink.subscribe("b", handle)
    sink.emit("b")
    assert told == [watch]


def test_it_is_told_in_order_with_the_handlers(sink, told):
    sink.subscribe("a", lambda event: sink.emit("busy"))
    sink.watch("busy", lambda watch: told.append("watch"))
    sink.subscribe("*", lambda event: told.append(event.name))
    sink.emit("a")
    assert told == ["a", "watch", "busy"]


def test_a_hook_that_fails_hurts_nobody(sink, told, caplog):
    sink.watch("a", lambda watch: 1 / 0)
    sink.subscribe("a", told.append)
    sink.emit("a", "secret")
    assert told
    assert "ZeroDivisionError" in caplog.text
    assert "secret" not in caplog.text
    assert sink.statistics().handler_errors == 1


def test_cancelled_it_is_absent_and_silent(sink, told):
    with sink.watch("a", told.append) as watch:
        sink.emit("a")
    assert not watch.present
    sink.emit("a")
    watch.cancel()
    assert told == [watch]
    assert repr(watch) == "<Watch 'a' cancelled>"


def test_its_repr_says_how_it_stands(sink):
    watch = sink.watch("a")
    assert repr(watch) == "<Watch 'a' absent>"
    sink.emit("a")
    assert repr(watch) == "<Watch 'a' present>"


def test_it_does_not_keep_the_sink():
    sink = SignalSink()
    watch = sink.watch("a")
    sink.emit("a", Payload())
    del sink
    assert not watch.present


def test_what_makes_no_sense_is_refused(sink):
    with pytest.raises(InvalidOption):
        sink.watch("")
    with pytest.raises(InvalidOptionType):
        sink.watch("a", 3)


def test_in_a_second_loop_expiry_is_timed_too(clock, told):
    sink = SignalSink(clock=clock)
    sink.watch("busy", lambda watch: watch.present or told.append(clock.now))

    async def main():
        with clock.timers():
            sink.emit("busy")
            await asyncio.sleep(0)
            clock.advance(100)

    asyncio.run(main())
    asyncio.run(main())
    assert told == [1060.0, 1160.0]
