"""What is given to options and methods: what cannot be meant is refused, with name, value and what is allowed."""

from __future__ import annotations

import asyncio
import re
import sys
from datetime import datetime

import pytest

from ephemerals import (
    Background,
    CoordinatorRegistry,
    DuplicateName,
    EphemeralOptions,
    InvalidBody,
    InvalidOption,
    InvalidOptionType,
    KeyedWorkCoordinator,
    Lane,
    OwnerWindow,
    PriorityWorkCoordinator,
    ResultCoordinator,
    WorkCoordinator,
    WrongLoop,
    for_each,
    format_id,
    map_each,
)
from ephemerals.atoms import CircuitBreaker, RetryPolicy, TokenBucket
from ephemerals.clock import Clock
from ephemerals.options import _MEANT, OptionKeywords
from ephemerals.signals import SignalSink
from ephemerals.snapshot import OperationSnapshot

HUGE = 10**400


async def handle(item):
    return item


def refused(option, allowed=""):
    return pytest.raises(InvalidOption, match=rf"^{option}=.* is not allowed: expected .*{allowed}")


SECONDS = [
    "operation_timeout",
    "max_operation_lifetime",
    "echo_retention",
    "sample_interval",
    "max_defer_time",
]


@pytest.mark.parametrize("option", SECONDS)
@pytest.mark.parametrize("value", [HUGE, -HUGE])
def test_a_time_that_no_float_can_hold_is_refused(option, value):
    with refused(option, "seconds"):
        EphemeralOptions(**{option: value})


@pytest.mark.parametrize(
    ("option", "make"),
    [
        ("absolute", lambda value: OwnerWindow(absolute=value)),
        ("sliding", lambda value: OwnerWindow(sliding=value)),
        ("results_ttl", lambda value: ResultCoordinator(handle, results_ttl=value)),
        ("grace", lambda value: CoordinatorRegistry(grace=value)),
        ("cancel_grace", lambda value: CoordinatorRegistry(cancel_grace=value)),
        ("max_age", lambda value: SignalSink(max_age=value)),
        ("timeout", lambda value: Background().task(timeout=value)),
        ("rate", TokenBucket),
    ],
)
def test_a_time_that_no_float_can_hold_is_refused_elsewhere_too(option, make):
    with refused(option):
        make(HUGE)


async def test_a_time_that_no_float_can_hold_is_refused_at_the_end_too():
    async with WorkCoordinator(handle) as coordinator:
        with refused("timeout", "seconds"):
            await coordinator.drain(HUGE)
        for option in ("grace", "cancel_grace"):
            with refused(option, "seconds"):
                await coordinator.aclose(**{option: HUGE})
        assert not coordinator.is_closed


COUNTS = [
    "max_concurrency",
    "max_concurrency_per_key",
    "max_pending",
    "fair_scheduling_threshold",
    "starvation_limit",
    "max_tracked_operations",
    "max_pinned",
    "max_operation_signals",
    "echo_capacity",
]


@pytest.mark.parametrize("option", COUNTS)
def test_a_number_that_counts_nothing_in_this_machine_is_refused(option):
    with refused(option, f"to {sys.maxsize}"):
        EphemeralOptions(**{option: 10**24})
    WorkCoordinator(handle, **{option: sys.maxsize})


@pytest.mark.parametrize(
    "make",
    [
        lambda value: SignalSink(max_capacity=value),
        lambda value: OwnerWindow(max_owners=value),
        lambda value: Lane("a", max_pending=value),
        lambda value: CircuitBreaker(threshold=value),
    ],
)
def test_a_number_that_counts_nothing_is_refused_elsewhere_too(make):
    with pytest.raises(InvalidOption, match=f"{sys.maxsize}"):
        make(10**24)


UNORDERED = [None, Lane("a"), 5, "ab", {Lane("a"), Lane("b")}, frozenset({Lane("a")}), {"a": Lane("a")}]


@pytest.mark.parametrize("lanes", UNORDERED, ids=lambda lanes: type(lanes).__name__)
def test_lanes_come_in_an_order(lanes):
    for make in (
        lambda: PriorityWorkCoordinator(handle, lanes=lanes),
        lambda: CoordinatorRegistry().register_priority("name", handle, lanes=lanes),
    ):
        with pytest.raises(InvalidOptionType, match=r"^lanes=.*Lane objects in a list or tuple, the highest first"):
            make()


def test_lanes_may_come_from_any_ordered_iterable():
    made = PriorityWorkCoordinator(handle, lanes=(Lane(each) for each in "ab"))
    assert [each.name for each in made.lanes] == ["a", "b"]


def test_lanes_of_one_name_are_told_of_the_option():
    with pytest.raises(DuplicateName, match=r"^lanes: a lane named 'a' exists already"):
        PriorityWorkCoordinator(handle, lanes=[Lane("a"), Lane("a")])


@pytest.mark.parametrize("since", [datetime(2026, 1, 1), 5, "now"])  # noqa: DTZ001 - that is the point
async def test_a_timeline_begins_at_a_datetime_with_a_zone(since):
    async with WorkCoordinator(handle) as coordinator:
        for call in (coordinator.timeline, lambda since: coordinator.replay(since=since)):
            with refused("since", "a datetime with a time zone, or None"):
                call(since)


@pytest.mark.parametrize("speed", [0, -1, float("nan"), float("inf"), HUGE, "2", True])
async def test_a_replay_has_a_speed_that_is_a_factor(speed):
    async with WorkCoordinator(handle) as coordinator:
        with refused("speed", "a number above 0"):
            coordinator.replay(speed)


@pytest.mark.parametrize("method", ["get", "pin", "unpin", "evict", "cancel_operation"])
async def test_the_text_of_an_id_is_no_id(method):
    async with WorkCoordinator(handle) as coordinator:
        operation = await coordinator.enqueue(1)
        await operation
        for wrong in (format_id(operation.id), [], None, True, 1.0):
            with pytest.raises(InvalidOptionType, match=r"^operation_id=.*parse_id\(\)"):
                getattr(coordinator, method)(wrong)
        assert not getattr(coordinator, method)(operation.id + 1)


async def test_the_text_of_an_id_is_no_id_of_a_view_or_an_owner_either():
    seen = []
    async with WorkCoordinator(handle, on_sample=seen.append) as coordinator:
        operation = await coordinator.enqueue(1)
        await operation
        for look in (seen[0].get, lambda it: OwnerWindow().get("ada", it)):
            with pytest.raises(InvalidOptionType, match="parse_id"):
                look(format_id(operation.id))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
async def test_metadata_holds_only_numbers_that_json_knows(number):
    async with WorkCoordinator(handle) as coordinator:
        for metadata in ({"a": number}, {"a": [{"b": number}]}):
            with refused("metadata", "finite"):
                await coordinator.enqueue(1, metadata=metadata)


async def test_a_name_in_metadata_that_is_no_text_is_shown_as_a_name():
    async with WorkCoordinator(handle) as coordinator:
        with pytest.raises(InvalidOptionType, match=r"^metadata='\{1: …\}' is not allowed: expected texts as names"):
            await coordinator.enqueue(1, metadata={1: 2})


@pytest.mark.parametrize("option", ["monotonic", "time"])
@pytest.mark.parametrize("value", [5, None, lambda now: now, asyncio.sleep])
def test_a_clock_is_made_of_functions(option, value):
    with refused(option, "a plain function"):
        Clock(**{option: value})


@pytest.mark.parametrize("value", [5, "x", None])
async def test_what_is_true_or_false_is_nothing_else(value):
    with refused("ordered", "True or False"):
        map_each([], handle, ordered=value)
    with refused("progress", "True or False"):
        await for_each([], handle, progress=value)


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "\x1b[31mred", "a\0", "a\u2028b", "a\x85b"])
def test_a_name_fits_into_a_line_of_a_log(name):
    for make in (
        lambda: WorkCoordinator(handle, name=name),
        lambda: CoordinatorRegistry().register(name, handle),
        lambda: Lane(name),
    ):
        with pytest.raises(InvalidOption, match=r"name=.*without line breaks and other control characters"):
            make()


@pytest.mark.parametrize("name", ["Übersicht 2", "日本", "🚀 start"])
def test_a_name_may_be_in_any_language(name):
    assert WorkCoordinator(handle, name=name).name == name


class Unspeakable:
    """Be a key whose text cannot be had."""

    def __repr__(self):
        raise RuntimeError("no text")


async def test_a_key_without_a_text_breaks_nothing_that_is_shown(caplog):
    async def fail(item, operation):
        operation.emit("step")
        raise ValueError("no")

    async with KeyedWorkCoordinator(lambda _: Unspeakable(), fail, max_tracked_operations=1) as coordinator:
        for item in range(2):
            await coordinator.enqueue(item)
        await coordinator.join()
        (snapshot,) = coordinator.snapshot()
        assert isinstance(snapshot, OperationSnapshot)
        assert snapshot.to_dict()["key"] == "<Unspeakable>"
        assert "key=<Unspeakable>" in repr(coordinator.timeline())
        assert "key=<Unspeakable>" in repr(coordinator.echoes())
        assert "key=<Unspeakable>" in repr(snapshot.signals)
        assert snapshot.signals[0].to_dict()["key"] == "<Unspeakable>"


async def test_a_key_does_not_break_the_line_of_a_log(caplog):
    async def fail(item):
        raise ValueError("no")

    async with KeyedWorkCoordinator(str, fail) as coordinator:
        await coordinator.enqueue("a\nERROR forged")
        await coordinator.join()
    assert "key 'a\\nERROR forged'" in caplog.text
    assert all("\n" not in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("start", "advice"),
    [
        (lambda body: for_each([1], body), r"for_each\(items, translate\), not for_each\(items, translate\(x\)\)"),
        (lambda body: map_each([1], body), r"map_each\(items, translate\), not map_each"),
        (lambda body: KeyedWorkCoordinator(str, body), r"KeyedWorkCoordinator\(key, translate\), not Keyed"),
        (ResultCoordinator, r"ResultCoordinator\(translate\), not Result"),
    ],
)
async def test_a_coroutine_instead_of_a_body_is_told_of_the_call_that_was_meant(start, advice):
    with pytest.raises(InvalidBody, match=advice):
        if (started := start(handle(1))) is not None:
            await started


@pytest.mark.parametrize(
    ("given", "meant"),
    [("timeout", "operation_timeout"), ("max_workers", "max_concurrency"), ("max_concurency", "max_concurrency")],
)
def test_an_unknown_option_is_told_of_the_one_that_was_meant(given, meant):
    with pytest.raises(TypeError, match=f"did you mean '{meant}'"):
        WorkCoordinator(handle, **{given: 1})


def test_the_names_that_are_meant_are_options():
    assert set(_MEANT.values()) <= set(OptionKeywords.__annotations__)
    assert not set(_MEANT) & set(OptionKeywords.__annotations__)


async def test_two_loops_of_one_kind_are_told_apart():
    coordinator = WorkCoordinator(handle, name="mine")
    loops = [asyncio.new_event_loop(), asyncio.new_event_loop()]
    try:
        message = str(WrongLoop("mine", *loops))
    finally:
        for loop in loops:
            loop.close()
    assert coordinator.name in message
    shown = re.findall("0x[0-9a-f]+", message)
    assert len(set(shown)) == 2


@pytest.mark.parametrize("call", ["events", "last", "retract"])
def test_the_text_of_an_id_is_no_id_of_a_signal_either(call):
    sink = SignalSink()
    sink.emit("step", operation_id=123)
    with pytest.raises(InvalidOptionType, match=r"^operation_id=.*parse_id"):
        getattr(sink, call)("step", operation_id="3f")
    for ask in (sink.summary, sink.clear_operation):
        with pytest.raises(InvalidOptionType, match=r"^operation_id=.*parse_id"):
            ask("3f")
    assert sink.summary(123).operation_id == 123


@pytest.mark.parametrize(
    ("option", "value"), [("factor", "2"), ("factor", HUGE), ("factor", 0.5), ("factor", float("nan")), ("jitter", 5)]
)
def test_how_to_retry_is_refused_too(option, value):
    with refused(option):
        RetryPolicy(**{option: value})
