"""What a coordinator can be asked about the signals of its operations: the queries of a sink, over its own window."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.coordinators import every_coordinator

from ephemerals import InvalidOption, InvalidOptionType, KeyedWorkCoordinator, ResultCoordinator, WorkCoordinator
from ephemerals.signals import SignalKey, SignalSink
from ephemerals.testing import VirtualClock


def names(events):
    return [event.name for event in events]


async def steps(item, operation):
    """Say a.begin and a.end for item "a", a second apart."""
    operation.emit(f"{item}.begin")
    await asyncio.sleep(1)
    operation.emit(f"{item}.end", data=len(item))


async def test_all_queries_of_a_window():
    async with KeyedWorkCoordinator(str, steps, max_concurrency=1) as coordinator:
        signals = coordinator.signals
        ids = {}
        for item in ("a", "b", "c"):
            operation = await coordinator.enqueue(item)
            await operation
            ids[item] = operation.id
        assert names(signals.events()) == ["a.begin", "a.end", "b.begin", "b.end", "c.begin", "c.end"]
        assert names(signals.events("b.end")) == ["b.end"]
        assert names(signals.events(pattern="*.end")) == ["a.end", "b.end", "c.end"]
        assert names(signals.events(pattern="a.*, c.end")) == ["a.begin", "a.end", "c.end"]
        assert names(signals.events(key="b")) == ["b.begin", "b.end"]
        assert names(signals.events(operation_id=ids["c"])) == ["c.begin", "c.end"]
        assert names(signals.events(limit=2)) == ["c.begin", "c.end"]
        assert names(signals.events(limit=0)) == []
        assert names(signals.events("b.end", key="a")) == []
        assert names(signals.events("b.end", pattern="b.*", key="b", operation_id=ids["b"], limit=9)) == ["b.end"]
        assert signals.has("a.begin")
        assert not signals.has("a")
        assert signals.has_matching("?.begin")
        assert not signals.has_matching("begin")
        assert signals.count() == 6
        assert signals.count("a.begin") == 1
        assert signals.count("a") == 0
        assert signals.count_matching("*.begin") == 3
        assert signals.last().name == "c.end"
        assert signals.last("a.*").name == "a.end"
        assert signals.last("x") is None


async def test_by_time_with_datetimes_and_with_seconds():
    async with WorkCoordinator(steps, max_concurrency=1) as coordinator:
        for item in ("a", "b"):
            await coordinator.run(item)
        end = coordinator.signals.last("a.end").time
        for moment in (end, end.timestamp(), end.astimezone()):
            assert names(coordinator.signals.events(since=moment)) == ["a.end", "b.begin", "b.end"]
            assert names(coordinator.signals.events(until=moment)) == ["a.begin", "a.end", "b.begin"]
            assert names(coordinator.signals.events(since=moment, until=moment)) == ["a.end", "b.begin"]
        assert coordinator.signals.events(since=datetime.now(UTC) + timedelta(days=1e5)) == []


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"since": datetime(2026, 1, 1)}, InvalidOption),  # noqa: DTZ001 - that is what is wrong with it
        ({"until": "yesterday"}, InvalidOptionType),
        ({"limit": -1}, InvalidOption),
        ({"limit": 1.5}, InvalidOptionType),
        ({"pattern": ""}, InvalidOption),
        ({"pattern": 7}, InvalidOptionType),
        ({"name": ""}, InvalidOption),
        ({"name": 7}, InvalidOptionType),
    ],
)
async def test_bad_questions_are_refused(query, error):
    async with WorkCoordinator(steps) as coordinator:
        with pytest.raises(error):
            coordinator.signals.events(**query)


@pytest.mark.parametrize("method", ["has", "has_matching", "count", "count_matching", "last"])
async def test_empty_names_and_patterns_are_refused(method):
    async with WorkCoordinator(steps) as coordinator:
        with pytest.raises(InvalidOption):
            getattr(coordinator.signals, method)("")


@every_coordinator
async def test_two_on_one_sink_see_only_their_own(make):
    """Sources are told apart, also when both have one name."""
    sink = SignalSink()
    async with make(steps, signals=sink, name="same") as one, make(steps, signals=sink, name="same") as two:
        await one.run("a")
        await two.run("b")
        sink.emit("foreign")
        assert names(one.signals.events()) == ["a.begin", "a.end"]
        assert names(two.signals.events()) == ["b.begin", "b.end"]
        assert sink.count() == 5
        assert one.signals.sink is two.signals.sink is sink


@every_coordinator
async def test_running_ones_are_asked_too(make):
    async with make(steps) as coordinator:
        await coordinator.enqueue("a")
        await asyncio.sleep(0.5)
        assert names(coordinator.signals.events()) == ["a.begin"]


async def test_the_window_decides_what_is_remembered():
    """And not the sink, which forgets by itself."""
    sink = SignalSink(max_capacity=1)
    async with WorkCoordinator(steps, signals=sink, max_tracked_operations=2, max_concurrency=1) as coordinator:
        for item in ("a", "b", "c"):
            await coordinator.run(item)
        assert names(coordinator.signals.events()) == ["b.begin", "b.end", "c.begin", "c.end"]
        assert names(sink.events()) == ["c.end"]
        for operation in coordinator.snapshot():
            coordinator.evict(operation.id)
        assert coordinator.signals.count() == 0


async def test_an_expired_operation_is_not_in_any_answer():
    async with WorkCoordinator(steps, max_operation_lifetime=10) as coordinator:
        await coordinator.run("a")
        VirtualClock.current().advance(10)
        assert coordinator.signals.count() == 0
        assert not coordinator.signals.has("a.begin")
        assert coordinator.signals.last() is None


async def test_pins_keep_the_signals():
    async with WorkCoordinator(steps, max_operation_lifetime=10) as coordinator:
        operation = await coordinator.enqueue("a")
        operation.pin()
        await operation
        await asyncio.sleep(20)
        assert coordinator.signals.count() == 2


class TestEmitting:
    async def test_in_its_own_name(self):
        sink = SignalSink()
        heard = []
        async with WorkCoordinator(steps, signals=sink, name="orders", on_signal=heard.append) as coordinator:
            event = coordinator.signals.emit("backpressure", {"depth": 3}, key="db")
            assert (event.name, event.data, event.key) == ("backpressure", {"depth": 3}, "db")
            assert (event.source, event.operation_id) == ("orders", None)
            assert sink.events(source="orders") == [event]
            assert coordinator.signals.events() == []  # no operation has said it
            assert heard == [event]

    async def test_a_typed_signal(self):
        score = SignalKey[float]("score", check=float)
        async with WorkCoordinator(steps) as coordinator:
            coordinator.signals.emit(score, 0.5)
            with pytest.raises(TypeError):
                coordinator.signals.emit(score, "high")
            assert coordinator.signals.sink.last(score).data == 0.5

    async def test_it_needs_no_shared_sink_and_no_loop(self):
        coordinator = WorkCoordinator(steps)
        coordinator.signals.emit("early")
        assert coordinator.signals.sink.has("early")
        assert coordinator.signals.sink.name == coordinator.name

    async def test_it_goes_on_after_closing(self):
        async with WorkCoordinator(steps) as coordinator:
            pass
        coordinator.signals.emit("late")
        assert coordinator.signals.sink.has("late")
        assert not coordinator.signals.sink._table.listeners


@every_coordinator
async def test_echoes_are_found_by_what_the_operations_said(make):
    async with make(steps, max_tracked_operations=1) as coordinator:
        for item in ("a", "b", "c"):
            await coordinator.run(item)
        assert [names(each.signals) for each in coordinator.echoes("a.*, x")] == [["a.begin", "a.end"]]
        assert len(coordinator.echoes()) == 2


async def test_results_have_their_signals():
    async def body(item, operation):
        operation.emit("priced", item)
        return item * 2

    async with ResultCoordinator(body) as coordinator:
        await coordinator.run(21)
        (snapshot,) = coordinator.successful()
        assert snapshot.result == 42
        assert names(snapshot.signals) == ["priced"]
        assert coordinator.signals.has("priced")
