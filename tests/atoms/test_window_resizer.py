"""The window resizer: commands change the bounds, within limits, and nonsense changes nothing."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals import InvalidOption, WorkCoordinator
from ephemerals.atoms import WindowCommands, WindowResizer
from ephemerals.signals import SignalSink
from ephemerals.testing import assert_quiet

COMMANDS = WindowCommands()


def sizes(capacity, *commands, **limits):
    """Return the sink's capacity after some commands."""
    sink = SignalSink(max_capacity=capacity)
    with WindowResizer(sink, **limits) as resizer:
        for name, data in commands:
            sink.emit(name, data)
    assert_quiet(resizer)
    return sink.max_capacity


def ages(age, *commands, **limits):
    sink = SignalSink(max_age=age)
    with WindowResizer(sink, **limits):
        for name, data in commands:
            sink.emit(name, data)
    return sink.max_age


def test_sizes():
    """[atoms:windowsize] 158, 159."""
    assert sizes(100, (COMMANDS.set_size, 200)) == 200
    assert sizes(100, (COMMANDS.grow_size, 50)) == 150
    assert sizes(200, (COMMANDS.shrink_size, 50)) == 150
    limits = {"min_size": 50, "max_size": 1000}
    assert sizes(100, (COMMANDS.set_size, 10), **limits) == 50
    assert sizes(100, (COMMANDS.set_size, 5000), **limits) == 1000
    assert sizes(100, (COMMANDS.set_size, -50), min_size=10) == 10
    assert sizes(100, (COMMANDS.grow_size, 2**70)) == 50_000  # WIN-3
    assert sizes(100, (COMMANDS.grow_size, 10**400)) == 50_000


def test_times():
    """[atoms:windowsize] 160 to 162."""
    assert ages(60, (COMMANDS.set_time, timedelta(minutes=5))) == 300
    assert ages(60, (COMMANDS.set_time, 30)) == 30  # WIN-1: seconds, not days
    assert ages(60, (COMMANDS.set_time, 0.5), min_age=0.001) == 0.5
    assert ages(60, (COMMANDS.grow_time, 30)) == 90
    assert ages(120, (COMMANDS.shrink_time, timedelta(seconds=30))) == 90
    assert ages(60, (COMMANDS.set_time, 1), min_age=10) == 10
    assert ages(60, (COMMANDS.set_time, timedelta(hours=10))) == 3600
    assert ages(None, (COMMANDS.set_time, 100)) == 100


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("window.size.set", "200"),
        ("window.size.set", None),
        ("window.size.set", True),
        ("window.size.set", 7.5),
        ("window.size.set", timedelta(seconds=200)),
        ("window.size.increase", -5),
        ("window.size.double", 2),
        ("window.size.set.now", 200),
        ("window.time.set", math.nan),
        ("window.time.set", math.inf),
        ("window.time.increase", 10),  # there is no bound to add to
        ("window.time.set", "secret"),
    ],
)
def test_nonsense_changes_nothing_and_is_told(name, data, caplog):
    """[atoms:windowsize] 163."""
    sink = SignalSink(max_capacity=100, max_age=None)
    with WindowResizer(sink) as resizer:
        sink.emit(name, data)
        sink.emit("window.shade", 5)
        sink.emit("size.set", 5)
    assert (sink.max_capacity, sink.max_age) == (100, None)
    assert resizer.statistics() == {"applied": 0, "rejected": 1}
    assert sink.last("window.command.rejected").data == {"command": name}
    assert sink.statistics().handler_errors == 0
    assert "secret" not in caplog.text


def test_typed_commands_refuse_wrong_data_where_they_are_emitted():
    sink = SignalSink()
    with pytest.raises(InvalidOption, match=r"window\.size\.set"):
        sink.emit(COMMANDS.set_size, "200")


def test_what_was_done_is_told():
    sink = SignalSink(max_capacity=100, max_age=60)
    with WindowResizer(sink) as resizer:
        sink.emit(COMMANDS.set_size, 1)
        sink.emit(COMMANDS.set_time, 90)
    assert [event.data for event in sink.events("window.resized")] == [{"size": 16, "age": 60}, {"size": 16, "age": 90}]
    assert resizer.statistics() == {"applied": 2, "rejected": 0}


def test_shrinking_forgets_at_once():
    """WIN-6."""
    sink = SignalSink(max_capacity=1000)
    for number in range(500):
        sink.emit("tick", number)
    with WindowResizer(sink):
        sink.emit(COMMANDS.set_size, 20)
    assert sink.count() == 20


def test_once_closed_it_listens_no_more():
    """[atoms:windowsize] 164."""
    sink = SignalSink(max_capacity=100)
    resizer = WindowResizer(sink)
    resizer.close()
    resizer.close()
    sink.emit(COMMANDS.set_size, 200)
    assert sink.max_capacity == 100


def test_its_commands_may_have_other_names():
    """[atoms:windowsize] 165, 167."""
    for prefix in ("custom", "app.window"):
        commands = WindowCommands(prefix)
        sink = SignalSink(max_capacity=100)
        with WindowResizer(sink, commands=commands):
            sink.emit(f"{prefix}.size.set", 300)
            sink.emit(commands.set_time, 10)
            sink.emit("window.size.set", 20)
            sink.emit(f"x{prefix}.size.set", 20)  # CMD-1
        assert (sink.max_capacity, sink.max_age) == (300, 10)
        assert sink.has(f"{prefix}.resized")


def test_many_threads_may_give_commands():
    """[atoms:windowsize] 166."""
    sink = SignalSink(max_capacity=100)
    with WindowResizer(sink) as resizer:
        threads = [Thread(target=sink.emit, args=(COMMANDS.set_size, 100 + number)) for number in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert resizer.statistics()["applied"] == 100
    assert 100 <= sink.max_capacity <= 199


async def test_a_coordinators_memory_is_changed_in_the_same_way():
    """[atoms:windowsize] 169."""
    sink = SignalSink(max_capacity=77)

    async def body(item):
        pass

    options = {"max_tracked_operations": 40, "max_operation_lifetime": 60}
    async with WorkCoordinator(body, signals=sink, max_concurrency=1, **options) as coordinator:
        with WindowResizer(sink, coordinator, min_size=3):
            operations = [await coordinator.enqueue(number) for number in range(30)]
            await coordinator.join()
            assert len(coordinator.snapshot()) == 30
            sink.emit(COMMANDS.shrink_size, 35)
            assert [each.id for each in coordinator.snapshot()] == [each.id for each in operations[-5:]]
            sink.emit(COMMANDS.set_time, 600)
            await asyncio.sleep(300)
            assert len(coordinator.snapshot()) == 5
            sink.emit(COMMANDS.set_time, 301)
            await asyncio.sleep(1.01)
            assert coordinator.engine.window._ended == {}  # by its timer, not because somebody looked
        assert sink.max_capacity == 77
    assert_quiet(coordinator)


async def test_a_memory_without_bounds_may_be_given_some():
    async def body(item):
        pass

    sink = SignalSink()
    options = {"max_tracked_operations": None, "max_operation_lifetime": None}
    async with WorkCoordinator(body, signals=sink, **options) as coordinator:
        with WindowResizer(sink, coordinator) as resizer:
            sink.emit(COMMANDS.grow_size, 5)
            sink.emit(COMMANDS.grow_time, 5)
            assert resizer.statistics()["rejected"] == 2
            sink.emit(COMMANDS.set_time, 100)
            assert (coordinator.engine.window.limit, coordinator.engine.window.lifetime) == (None, 100)
            await coordinator.run(1)
            await asyncio.sleep(100.01)
            assert not coordinator.engine.window._ended
            sink.emit(COMMANDS.set_size, 20)
            assert coordinator.engine.window.limit == 20


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["size.set", "size.increase", "size.decrease", "time.set", "time.increase", "time.decrease"]
            ),
            st.integers() | st.floats() | st.timedeltas() | st.text() | st.none() | st.booleans(),
        ),
        max_size=10,
    )
)
def test_whatever_is_sent_the_bounds_stay_within_the_limits(commands):
    sink = SignalSink(max_capacity=100, max_age=60)
    with WindowResizer(sink) as resizer:
        for name, data in commands:
            sink.emit(f"window.{name}", data)
    assert 16 <= sink.max_capacity <= 50_000
    assert 5 <= sink.max_age <= 3600
    assert sum(resizer.statistics().values()) == len(commands)
    assert sink.statistics().handler_errors == 0


def test_wrong_options_are_refused():
    """[atoms:windowsize] 168."""
    sink = SignalSink()
    for option, value in (
        ("sink", None),
        ("coordinator", 3),
        ("min_size", 0),
        ("max_size", 0),
        ("min_age", 0),
        ("max_age", -1),
    ):
        with pytest.raises(InvalidOption, match=option):
            WindowResizer(**{"sink": sink, option: value})
    with pytest.raises(InvalidOption, match="at most 10"):
        WindowResizer(sink, max_size=10)
    with pytest.raises(InvalidOption, match="at most 1"):
        WindowResizer(sink, max_age=1)
    with pytest.raises(InvalidOption, match="name"):
        WindowCommands("a*")
    assert sizes(100, ("window.size.set", 500)) == 500
