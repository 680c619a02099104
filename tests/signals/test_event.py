"""Events: frozen, equal when they are the same, and discreet."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ephemerals.ids import format_id
from ephemerals.signals import SignalEvent, SignalSink

from .support import ManualClock


@pytest.fixture
def sink():
    return SignalSink(clock=ManualClock())


def test_an_event_carries_what_was_said(sink):
    event = sink.emit("order.placed", {"lines": 3}, key="42", operation_id=7, source="orders")
    assert (event.name, event.data, event.key, event.operation_id, event.source) == (
        "order.placed",
        {"lines": 3},
        "42",
        7,
        "orders",
    )
    assert event.time == datetime(2026, 1, 1, tzinfo=UTC)
    assert event.monotonic == 1000.0
    assert event.sequence == 1
    assert sink.emit("next").sequence == 2


def test_what_was_not_said_is_none(sink):
    event = sink.emit("order.placed")
    assert (event.data, event.key, event.operation_id, event.source) == (None, None, None, None)


def test_it_matches_patterns(sink):
    event = sink.emit("order.placed")
    assert event.matches("order.*")
    assert event.matches(["error.*", "*.placed"])
    assert not event.matches("error.*")
    assert event.starts_with("order.")
    assert not event.starts_with("error.")


def test_it_is_frozen(sink):
    event = sink.emit("order.placed")
    with pytest.raises(AttributeError):
        event.name = "other"
    with pytest.raises(AttributeError):
        del event.name
    with pytest.raises(AttributeError):
        event.other = 1
    assert not hasattr(event, "__dict__")


def test_it_is_not_made_by_hand():
    with pytest.raises(TypeError):
        SignalEvent()


def test_it_is_equal_to_itself_alone(sink):
    first, second = sink.emit("a"), sink.emit("a")
    assert first == sink.events()[0]
    assert first != second
    assert first != "a"
    assert len({first, second, *sink.events()}) == 2


def test_comparing_does_not_touch_the_data(sink):
    class Prickly:
        def __eq__(self, other):
            raise RuntimeError

        __hash__ = None

    assert sink.emit("a", Prickly()) != sink.emit("a", Prickly())


def test_its_repr_does_not_show_the_data(sink):
    event = sink.emit("order.placed", "secret", key="k", operation_id=3, source="s")
    assert repr(event) == "<SignalEvent 'order.placed' key='k' operation_id=3 source='s' #1>"


def test_as_plain_values_it_leaves_the_data_out_unless_asked(sink):
    event = sink.emit("order.placed", {"lines": 3}, key=42, operation_id=7, source="orders")
    plain = event.to_dict()
    assert plain == {
        "name": "order.placed",
        "operation_id": format_id(7),
        "key": "42",
        "source": "orders",
        "time": "2026-01-01T00:00:00+00:00",
        "sequence": 1,
        "propagation": ["order.placed"],
    }
    assert event.to_dict(data=True) == {**plain, "data": {"lines": 3}}
