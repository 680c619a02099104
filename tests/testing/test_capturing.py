"""Capturing signals, and handlers whose errors are heard."""

from __future__ import annotations

import asyncio

import pytest

from ephemerals import WorkCoordinator
from ephemerals.errors import InvalidOption, InvalidOptionType, SinkClosed
from ephemerals.signals import SignalKey, SignalSink
from ephemerals.testing import capture, strict


@pytest.fixture
def sink():
    return SignalSink()


def names(events):
    return [event.name for event in events]


def fail(event):
    raise ValueError(event.name)


async def fail_later(event):
    await asyncio.sleep(1)
    raise LookupError(event.name)


class TestCapture:
    def test_what_matches_is_collected_inside_the_block(self, sink):
        sink.emit("order.before")
        with capture(sink, "order.*") as events:
            assert events == []
            first = sink.emit("order.placed", key="42")
            assert events == [first]
            sink.emit("cart.left")
            sink.emit("order.paid")
        sink.emit("order.after")
        assert names(events) == ["order.placed", "order.paid"]
        assert sink.statistics().subscriptions == 0

    def test_everything_if_no_pattern_is_given(self, sink):
        with capture(sink) as events:
            sink.emit("a")
            sink.emit("b.c")
        assert names(events) == ["a", "b.c"]

    def test_a_typed_name_and_a_list_will_do(self, sink):
        with capture(sink, SignalKey[int]("a")) as typed, capture(sink, ["a", "b*"]) as listed:
            sink.emit("a", 1)
            sink.emit("bb")
            sink.emit("c")
        assert names(typed) == ["a"]
        assert names(listed) == ["a", "bb"]

    def test_it_keeps_what_the_window_forgets(self):
        sink = SignalSink(max_capacity=1)
        with capture(sink) as events:
            for _ in range(3):
                sink.emit("a")
        assert len(events) == 3

    def test_it_ends_however_the_block_ends(self, sink):
        with pytest.raises(LookupError), capture(sink):
            raise LookupError
        assert sink.statistics().subscriptions == 0

    async def test_with_async_it_waits_for_asynchronous_handlers(self, sink):
        async def answer(event):
            await asyncio.sleep(1)
            sink.emit("answer")

        sink.subscribe("question", answer)
        async with capture(sink) as events:
            sink.emit("question")
        assert names(events) == ["question", "answer"]
        with pytest.raises(LookupError):
            async with capture(sink):
                raise LookupError
        assert sink.statistics().subscriptions == 1

    async def test_the_signals_of_a_coordinator(self, sink):
        async def body(item, operation):
            operation.emit("body.done")

        with capture(sink, "body.*") as events:
            async with WorkCoordinator(body, signals=sink, name="work") as coordinator:
                operation = await coordinator.enqueue(1)
        assert [(event.source, event.operation_id) for event in events] == [("work", operation.id)]

    def test_an_error_of_a_handler_is_nobodys_business_unless_asked(self, sink):
        sink.subscribe("a", fail)
        with capture(sink) as events:
            sink.emit("a")
        assert names(events) == ["a"]

    def test_what_makes_no_sense_is_refused(self, sink):
        with pytest.raises(InvalidOption):
            capture(sink, "")
        with pytest.raises(InvalidOptionType, match="sink"):
            capture("order.*")
        with pytest.raises(InvalidOptionType, match="sink"):
            strict(None)

    async def test_a_closed_sink_cannot_be_listened_to(self, sink):
        await sink.aclose()
        with pytest.raises(SinkClosed), capture(sink, strict=True):
            pass
        assert sink.on_handler_error is None


class TestStrict:
    def test_errors_are_raised_together_at_the_end(self, sink):
        sink.subscribe("a, b", fail)
        log = []
        with pytest.raises(ExceptionGroup, match="2 handlers failed") as failure, capture(sink, strict=True) as events:
            sink.emit("a")
            sink.emit("b")
            log.append("to the end")
        assert log == ["to the end"]
        assert names(events) == ["a", "b"]
        assert [(type(error), str(error)) for error in failure.value.exceptions] == [
            (ValueError, "a"),
            (ValueError, "b"),
        ]
        assert failure.value.exceptions[1].__notes__ == [f"raised by handler {__name__}.fail on signal 'b'"]
        assert sink.statistics().subscriptions == 1

    def test_without_errors_nothing_happens(self, sink):
        with strict(sink) as errors:
            sink.emit("a")
        assert errors == []

    def test_also_without_capturing(self, sink):
        sink.subscribe("a", fail)
        with pytest.raises(ExceptionGroup, match="1 handler failed"), strict(sink) as errors:
            sink.emit("a")
            assert [type(error) for error in errors] == [ValueError]

    def test_only_of_the_block(self, sink):
        sink.subscribe("a", fail)
        sink.emit("a")
        with strict(sink):
            pass
        sink.emit("a")
        assert sink.statistics().handler_errors == 2

    def test_the_hook_hears_of_them_all_the_same_and_comes_back(self, sink):
        heard = []

        def hook(error, event, handler):
            heard.append((type(error), event.name, handler))

        sink.on_handler_error = hook
        sink.subscribe("a", fail)
        with pytest.raises(ExceptionGroup), strict(sink):
            sink.emit("a")
        assert heard == [(ValueError, "a", fail)]
        assert sink.on_handler_error is hook

    def test_what_the_block_raises_travels_on_with_notes(self, sink):
        sink.subscribe("a", fail)
        with pytest.raises(AssertionError, match="mine") as failure, strict(sink):
            sink.emit("a")
            raise AssertionError("mine")
        assert failure.value.__notes__ == [f"besides, ValueError raised by handler {__name__}.fail on signal 'a'"]
        assert sink.on_handler_error is None

    def test_of_blocks_in_one_another_both_tell(self, sink):
        sink.subscribe("a", fail)
        with pytest.raises(ExceptionGroup) as failure, strict(sink), strict(sink):
            sink.emit("a")
        assert [type(error) for error in failure.value.exceptions] == [ValueError]
        assert sink.on_handler_error is None

    def test_an_error_that_is_no_exception_counts_too(self, sink):
        def give_up(event):
            raise asyncio.CancelledError

        sink.subscribe("a", give_up)
        with pytest.raises(BaseExceptionGroup) as failure, strict(sink):
            sink.emit("a")
        assert not isinstance(failure.value, ExceptionGroup)

    async def test_with_async_those_of_asynchronous_handlers_are_raised(self, sink):
        sink.subscribe("a", fail_later)
        with pytest.raises(ExceptionGroup) as failure:
            async with capture(sink, strict=True) as events:
                sink.emit("a")
        assert [type(error) for error in failure.value.exceptions] == [LookupError]
        assert names(events) == ["a"]
        with pytest.raises(ExceptionGroup):
            async with strict(sink):
                sink.emit("a")
        assert sink.on_handler_error is None

    async def test_cancelled_while_it_waits_it_is_cancelled_and_everything_is_as_before(self, sink):
        async def endless(event):
            await asyncio.Event().wait()

        sink.subscribe("a", fail)
        sink.subscribe("a", endless)

        async def block():
            async with capture(sink, strict=True):
                sink.emit("a")

        task = asyncio.ensure_future(block())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as failure:
            await task
        assert any("ValueError" in note for note in failure.value.__notes__)
        assert sink.on_handler_error is None
        assert sink.statistics().subscriptions == 2
        await sink.aclose(0.1)

    async def test_the_hooks_of_a_coordinator_are_handlers_too(self, sink):
        async def body(item, operation):
            operation.emit("said")

        with pytest.raises(ExceptionGroup) as failure, strict(sink):
            async with WorkCoordinator(body, signals=sink, on_signal=fail) as coordinator:
                await coordinator.run(1)
        assert [str(error) for error in failure.value.exceptions] == ["said"]
