"""Signals from one sink in another, without going round in circles."""

from __future__ import annotations

import gc
import itertools
import weakref

import pytest

from ephemerals.errors import InvalidOption
from ephemerals.signals import SignalSink, forward

from .support import Payload, names


@pytest.fixture
def sinks():
    return [SignalSink(name=name) for name in "abc"]


def test_what_matches_is_emitted_there_with_all_it_has(sinks):
    here, there, _ = sinks
    forwarding = forward(here, there, "order.*")
    here.emit("order.placed", 3, key="42", operation_id=7, source="shop")
    here.emit("other")
    (event,) = there.events()
    assert (event.name, event.data, event.key, event.operation_id, event.source) == (
        "order.placed",
        3,
        "42",
        7,
        "shop",
    )
    assert forwarding.forwarded == 1


def test_it_can_be_renamed_or_left_out(sinks):
    here, there, _ = sinks
    forward(here, there, rename=lambda event: None if event.key else f"copy.{event.name}")
    here.emit("a")
    here.emit("b", key=1)
    assert names(there.events()) == ["copy.a"]


def test_cancelled_it_stops(sinks):
    here, there, _ = sinks
    with forward(here, there) as forwarding:
        here.emit("a")
    here.emit("b")
    forwarding.cancel()
    assert names(there.events()) == ["a"]


def test_two_sinks_that_forward_to_each_other_end(sinks, caplog):
    here, there, _ = sinks
    forward(here, there)
    forward(there, here)
    here.emit("a")
    there.emit("b")
    assert names(here.events()) == names(there.events()) == ["a", "b"]
    assert here.statistics().blocked == there.statistics().blocked == 0
    assert caplog.text == ""


def test_a_ring_ends(sinks):
    for one, other in zip(sinks, [*sinks[1:], sinks[0]], strict=True):
        forward(one, other)
    sinks[1].emit("a")
    assert [sink.count() for sink in sinks] == [1, 1, 1]


def test_where_two_ways_lead_to_a_sink_an_event_comes_twice_and_that_is_all(sinks):
    for one, other in itertools.permutations(sinks, 2):
        forward(one, other)
    sinks[0].emit("a")
    assert [sink.count() for sink in sinks] == [1, 2, 2]


def test_renaming_in_circles_ends(sinks):
    here, there, _ = sinks
    forward(here, there, rename=lambda event: event.name + "x")
    forward(there, here, rename=lambda event: event.name + "y")
    here.emit("a")
    assert here.count() + there.count() == 10


def test_a_condition_that_ends_here_ends_there(sinks):
    here, there, last = sinks
    forward(here, there)
    forward(there, last)
    there.emit("busy")
    with here.hold("busy"):
        assert last.count("busy") == 2
    assert there.count("busy") == last.count("busy") == 1


def test_what_was_not_forwarded_is_not_retracted_there(sinks):
    here, there, _ = sinks
    here.emit("busy")
    forward(here, there)
    there.emit("busy")
    here.retract("busy")
    assert there.has("busy")


def test_it_keeps_no_data():
    here, there = SignalSink(1), SignalSink(1)
    forward(here, there)
    payload = Payload()
    data = weakref.ref(payload)
    gc.disable()
    try:
        here.emit("a", payload)
        del payload
        here.emit("b")
        assert data() is None
    finally:
        gc.enable()


def test_a_sink_is_not_forwarded_to_itself(sinks):
    with pytest.raises(InvalidOption):
        forward(sinks[0], sinks[0])
