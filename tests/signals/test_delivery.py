"""Who hears what, in which order, and what happens when a handler misbehaves."""

from __future__ import annotations

import asyncio
import functools
import logging

import pytest

from ephemerals.errors import InvalidOption, InvalidOptionType
from ephemerals.signals import SignalSink

from .support import names


@pytest.fixture
def sink():
    return SignalSink()


@pytest.fixture
def heard():
    return []


class TestSubscribing:
    def test_a_handler_gets_what_matches(self, sink, heard):
        sink.subscribe("test.*", heard.append)
        event = sink.emit("test.event", 1, key=2)
        sink.emit("other")
        assert heard == [event]
        assert heard[0] is event

    def test_several_patterns_call_it_once(self, sink, heard):
        sink.subscribe(["a*", "*b, c"], heard.append)
        for name in ("ab", "c", "d"):
            sink.emit(name)
        assert names(heard) == ["ab", "c"]

    def test_cancelling_ends_it_and_may_be_repeated(self, sink, heard):
        subscription = sink.subscribe("*", heard.append)
        sink.emit("a")
        subscription.cancel()
        subscription.cancel()
        sink.emit("b")
        assert names(heard) == ["a"]
        assert not subscription.is_active

    def test_a_with_block_ends_it(self, sink, heard):
        with sink.subscribe("a", heard.append) as subscription:
            sink.emit("a")
        sink.emit("a")
        assert len(heard) == 1
        assert not subscription.is_active

    def test_the_decorator_leaves_the_function_alone(self, sink, heard):
        @sink.on("http.*")
        def listen(event):
            heard.append(event)

        sink.emit("http.done")
        listen("by hand")
        assert heard[1] == "by hand"

    def test_a_lambda_is_kept(self, sink, heard):
        sink.subscribe("a", lambda event: heard.append(event))  # noqa: PLW0108 - it is about lambdas
        sink.emit("a")
        assert heard

    def test_the_same_handler_twice_is_called_twice(self, sink, heard):
        first = sink.subscribe("a", heard.append)
        sink.subscribe("a", heard.append)
        sink.emit("a")
        first.cancel()
        sink.emit("a")
        assert len(heard) == 3

    @pytest.mark.parametrize("handler", [None, "print", 3])
    def test_a_handler_can_be_called(self, sink, handler):
        with pytest.raises(InvalidOptionType):
            sink.subscribe("a", handler)

    def test_a_pattern_is_not_empty(self, sink):
        with pytest.raises(InvalidOption):
            sink.subscribe(" , ", print)
        with pytest.raises(InvalidOption):
            sink.on("")(print)

    def test_its_repr_names_pattern_and_handler(self, sink):
        subscription = sink.subscribe("a.*", print)
        assert repr(subscription) == "<Subscription 'a.*' of builtins.print>"
        subscription.cancel()
        assert repr(subscription).endswith("(cancelled)>")


class TestOrder:
    def test_handlers_are_called_in_the_order_of_subscription(self, sink, heard):
        sink.subscribe("*", lambda event: heard.append(1))
        sink.subscribe("a", lambda event: heard.append(2))
        sink.subscribe("a*", lambda event: heard.append(3))
        sink.subscribe("a", lambda event: heard.append(4))
        sink.emit("a")
        assert heard == [1, 2, 3, 4]

    def test_what_a_handler_emits_comes_after_what_it_handles(self, sink, heard):
        sink.subscribe("a", lambda event: sink.emit("b"))
        sink.subscribe("*", lambda event: heard.append(event.name))
        sink.subscribe("a", lambda event: sink.emit("c"))
        sink.emit("a")
        assert heard == ["a", "b", "c"]
        assert names(sink.events()) == ["a", "b", "c"]

    def test_it_is_in_the_window_at_once(self, sink, heard):
        def handle(event):
            sink.emit("b")
            heard.append(sink.has("b"))

        sink.subscribe("a", handle)
        sink.emit("a")
        assert heard == [True]

    def test_cancelling_during_delivery_takes_effect_at_once(self, sink, heard):
        sink.subscribe("a", lambda event: second.cancel())
        second = sink.subscribe("a", heard.append)
        sink.subscribe("a", lambda event: heard.append("third"))
        sink.emit("a")
        assert heard == ["third"]

    def test_a_handler_may_cancel_itself(self, sink, heard):
        def once(event):
            heard.append(event)
            subscription.cancel()

        subscription = sink.subscribe("a", once)
        sink.subscribe("a", heard.append)
        sink.emit("a")
        sink.emit("a")
        assert len(heard) == 3

    def test_subscribing_during_delivery_counts_from_the_next_event_on(self, sink, heard):
        def handle(event):
            sink.emit("b")
            sink.subscribe("*", heard.append)
            sink.emit("c")
            subscription.cancel()

        subscription = sink.subscribe("a", handle)
        sink.emit("a")
        assert names(heard) == ["c"]

    def test_a_long_chain_needs_no_stack(self):
        from ephemerals.signals import SignalConstraints

        sink = SignalSink(10, constraints=SignalConstraints(max_depth=None, block_cycles=False))
        count = 0

        def again(event):
            nonlocal count
            count += 1
            if count < 5000:
                sink.emit("a")

        sink.subscribe("a", again)
        sink.emit("a")
        assert count == 5000


class TestErrors:
    def test_a_handler_that_fails_hurts_nobody(self, sink, heard):
        sink.subscribe("a", lambda event: 1 / 0)
        sink.subscribe("a", heard.append)
        event = sink.emit("a")
        assert heard == [event]
        assert sink.has("a")
        assert sink.statistics().handler_errors == 1
        sink.emit("a")
        assert len(heard) == 2

    def test_it_is_logged_without_data_or_message(self, sink, caplog):
        def fail(event):
            raise ValueError(event.data)

        sink.subscribe("a.*", fail)
        with caplog.at_level(logging.WARNING, "ephemerals.signals"):
            sink.emit("a.b", "secret")
        (record,) = caplog.records
        assert "secret" not in record.getMessage()
        assert record.exc_info is None
        for part in (
            "'a.b'",
            "TestErrors.test_it_is_logged_without_data_or_message.<locals>.fail",
            "ValueError",
        ):
            assert part in record.getMessage()

    def test_it_is_offered_to_the_hook(self):
        offered = []
        sink = SignalSink(on_handler_error=lambda *arguments: offered.append(arguments))

        def fail(event):
            raise ValueError

        sink.subscribe("a", fail)
        event = sink.emit("a")
        ((error, same, handler),) = offered
        assert isinstance(error, ValueError)
        assert same is event
        assert handler is fail

    def test_a_hook_that_fails_goes_no_further(self, heard, caplog):
        sink = SignalSink(on_handler_error=lambda *arguments: 1 / 0)
        sink.subscribe("a", lambda event: [].pop())
        sink.subscribe("a", heard.append)
        sink.emit("a")
        assert heard
        assert sink.statistics().handler_errors == 1
        assert "on_handler_error failed on 'a': ZeroDivisionError" in caplog.text

    def test_the_hook_can_be_set_later(self, sink, heard):
        assert sink.on_handler_error is None
        sink.on_handler_error = lambda error, event, handler: heard.append(type(error))
        sink.subscribe("a", lambda event: 1 / 0)
        sink.emit("a")
        assert heard == [ZeroDivisionError]

    def test_the_hook_is_a_plain_function(self):
        async def hook(*arguments): ...

        for wrong in (hook, 3):
            with pytest.raises(InvalidOptionType):
                SignalSink(on_handler_error=wrong)

    def test_a_cancelled_error_is_an_error_like_others(self, sink, heard):
        def fail(event):
            raise asyncio.CancelledError

        sink.subscribe("a", fail)
        sink.subscribe("a", heard.append)
        sink.emit("a")
        assert heard

    @pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
    def test_an_interrupt_travels_on_and_nothing_is_lost(self, sink, heard, interrupt):
        def fail(event):
            sink.emit("b")
            raise interrupt

        subscription = sink.subscribe("a", fail)
        sink.subscribe("*", heard.append)
        with pytest.raises(interrupt):
            sink.emit("a")
        assert heard == []
        subscription.cancel()
        sink.emit("c")
        assert names(heard) == ["a", "b", "c"]


class TestRetractions:
    def test_whoever_asks_hears_of_retractions(self, sink, heard):
        sink.subscribe("busy", heard.append, retractions=True)
        event = sink.emit("busy")
        assert heard == []
        sink.retract("busy")
        assert heard == [event]

    def test_in_the_order_of_the_events(self, sink, heard):
        sink.subscribe("*", lambda event: heard.append(event.name))
        sink.on("*", retractions=True)(lambda event: heard.append("-" + event.name))
        sink.emit("a")
        sink.emit("b")
        sink.retract_matching("*")
        sink.emit("c")
        with sink.hold("d"):
            pass
        assert heard == ["a", "b", "-a", "-b", "c", "d", "-d"]

    def test_clearing_and_expiry_are_no_retractions(self, sink, heard):
        sink.subscribe("*", heard.append, retractions=True)
        sink.emit("a")
        sink.clear()
        assert heard == []

    def test_retracting_what_is_not_there_tells_nobody(self, sink, heard):
        sink.subscribe("*", heard.append, retractions=True)
        sink.retract("a")
        assert heard == []


class TestStatistics:
    def test_they_are_frozen(self, sink):
        sink.subscribe("a", print)
        with sink.subscribe("b", print):
            statistics = sink.statistics()
        assert statistics.subscriptions == 2
        assert (statistics.max_capacity, statistics.max_age) == (1000, 60.0)
        with pytest.raises(AttributeError):
            statistics.count = 3

    def test_they_count(self):
        sink = SignalSink(2, name="mine")
        for name in "abc":
            sink.emit(name)
        assert (sink.statistics().count, sink.statistics().emitted) == (2, 3)
        assert repr(sink) == "<SignalSink 'mine' 2/2>"


def test_mocks_are_handlers_too(sink):
    from unittest.mock import MagicMock

    working, failing = MagicMock(), MagicMock(side_effect=ValueError)
    sink.subscribe("a", failing)
    sink.subscribe("a", working)
    event = sink.emit("a")
    working.assert_called_once_with(event)
    assert sink.statistics().handler_errors == 1


class TestOddMoments:
    def test_a_cancelled_watch_is_not_told_of_a_change_that_is_on_its_way(self, sink, heard):
        watch = sink.watch("busy", heard.append)

        def meddle(event):
            sink.emit("busy")
            watch.cancel()

        sink.subscribe("a", meddle)
        sink.emit("a")
        assert heard == []

    @pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
    def test_an_interrupt_from_a_watch_travels_on(self, sink, heard, interrupt):
        def stop(watch):
            raise interrupt

        sink.watch("busy", stop)
        sink.subscribe("busy", heard.append)
        with pytest.raises(interrupt):
            sink.emit("busy")
        sink.emit("other")
        assert [event.name for event in heard] == ["busy"]
        assert sink.statistics().undelivered == 0

    def test_a_partial_is_named_in_the_log_by_its_function(self, sink, caplog):
        def fail(extra, event):
            raise ValueError

        sink.subscribe("a", functools.partial(fail, 1))
        sink.emit("a")
        assert ".fail failed on 'a': ValueError" in caplog.text

    def test_more_names_than_routes_are_remembered_still_find_their_listeners(self, sink, heard, monkeypatch):
        monkeypatch.setattr("ephemerals.signals.routing._MAX_ROUTES", 3)
        sink.subscribe("n.*", heard.append)
        for number in range(10):
            sink.emit(f"n.{number}")
        assert len(heard) == 10
        assert len(sink._routes) <= 3

    def test_a_block_that_holds_what_a_constraint_blocks_runs_all_the_same(self):
        sink = SignalSink()
        log = []

        def react(event):
            with sink.hold("a") as held:
                log.append(held)

        sink.subscribe("a", react)
        sink.emit("a")
        assert log == [None]
        assert sink.count() == 1
