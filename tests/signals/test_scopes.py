"""A part of a sink's names, nested like loggers."""

from __future__ import annotations

import pytest

from ephemerals.errors import InvalidOption
from ephemerals.signals import SignalKey, SignalSink

from .support import ManualClock, names


@pytest.fixture
def sink():
    return SignalSink(clock=ManualClock())


@pytest.fixture
def orders(sink):
    return sink.scoped("shop.eu", source="eu").scoped("orders")


def test_names_get_the_prefix(sink, orders):
    event = orders.emit("placed", 3, key="42", operation_id=7)
    assert event.name == "shop.eu.orders.placed"
    assert (event.data, event.key, event.operation_id, event.source) == (3, "42", 7, "eu")
    assert sink.scoped("shop", source="a").scoped("b", source="c").source == "c"
    assert sink.has_matching("shop.*")


def test_what_is_elsewhere_is_not_seen(sink, orders):
    sink.emit("placed")
    sink.emit("shop.eu.ordersplaced")
    sink.emit("shop.eu.returns.placed")
    assert not orders.has("placed")
    assert not orders.has_matching("*")
    assert orders.count() == 0
    assert orders.events() == []
    assert orders.last() is None


def test_every_question(orders):
    orders.emit("placed", key=1)
    orders.emit("failed.card", key=2)
    orders.emit(SignalKey[int]("failed.stock"), 3)
    assert orders.has("placed", key=1)
    assert not orders.has("placed", key=2)
    assert orders.has_matching("failed.*, nothing")
    assert orders.has(SignalKey("failed.stock"))
    assert orders.count() == 3
    assert orders.count("placed") == 1
    assert orders.count_matching("nothing, failed.*, placed") == 3
    assert names(orders.events("*.card, placed")) == ["shop.eu.orders.placed", "shop.eu.orders.failed.card"]
    assert orders.events(key=2, since=0, until=1e12, limit=1)[0].key == 2
    assert orders.last("failed.*").data == 3


def test_taking_back_and_clearing(sink, orders):
    sink.emit("placed")
    orders.emit("placed")
    orders.emit("failed", key=1)
    orders.emit("other")
    assert orders.retract("placed") == 1
    assert orders.retract_matching("f*", key=1) == 1
    with orders.hold("busy"):
        assert orders.has("busy")
    assert orders.clear() == 1
    assert names(sink.events()) == ["placed"]


async def test_listening(sink, orders):
    heard = []
    orders.subscribe("*", heard.append)
    orders.subscribe("placed", lambda event: heard.append("retracted"), retractions=True)
    watch = orders.watch("placed")
    stream = orders.stream()
    sink.emit("placed")
    event = orders.emit("placed")
    assert heard == [event]
    assert watch.present
    assert await anext(stream) is event
    assert await orders.wait_for("placed", since=0, timeout=1) is event
    orders.retract("placed")
    assert heard[1:] == ["retracted"]


@pytest.mark.parametrize("prefix", ["", ".", "a.", ".a", "a*", "a,b", "a?"])
def test_a_prefix_is_a_name(sink, prefix):
    with pytest.raises(InvalidOption):
        sink.scoped(prefix)


def test_its_repr_names_both(sink):
    assert repr(sink.scoped("a")) == "<SignalScope 'a' of <SignalSink 0/1000>>"
