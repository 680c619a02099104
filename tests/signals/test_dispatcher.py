"""Work for signals: in order for each name, side by side for different ones."""

from __future__ import annotations

import asyncio

import pytest

from ephemerals.errors import InvalidOption, InvalidOptionType
from ephemerals.signals import SignalDispatcher, SignalSink

from .support import names


@pytest.fixture
def sink():
    return SignalSink()


@pytest.fixture
def heard():
    return []


async def test_what_matches_is_handled(sink, heard):
    dispatcher = SignalDispatcher(sink)

    @dispatcher.on("db.*")
    async def one(event):
        heard.append(event.name)

    @dispatcher.on("cache.hit")
    def other(event):
        heard.append(event.name)

    for name in ("db.query", "cache.hit", "http"):
        sink.emit(name)
    assert heard == []
    await dispatcher.join()
    assert heard == ["db.query", "cache.hit"]
    assert dispatcher.statistics().processed == 2


async def test_handlers_run_in_the_order_in_which_they_were_added(sink, heard):
    dispatcher = SignalDispatcher(sink)

    async def first(event):
        await asyncio.sleep(0)
        heard.append("first")

    dispatcher.add("db.*", first)
    dispatcher.add("*", lambda event: heard.append("catch-all"))
    sink.emit("db.query")
    await dispatcher.join()
    assert heard == ["first", "catch-all"]


async def test_without_a_sink_events_are_given_to_it(sink, heard):
    async with SignalDispatcher() as dispatcher:
        dispatcher.add("a", heard.append)
        assert dispatcher.dispatch(sink.emit("a"))
        assert not dispatcher.dispatch(sink.emit("b"))
    assert names(heard) == ["a"]


async def test_events_of_one_name_keep_their_order_and_others_do_not_wait(sink, heard):
    dispatcher = SignalDispatcher(sink)
    gate = asyncio.Event()

    @dispatcher.on("*")
    async def handle(event):
        if event.name == "slow":
            await gate.wait()
        heard.append((event.name, event.data))

    for number in range(3):
        sink.emit("slow", number)
        sink.emit("quick", number)
    for _ in range(10):
        await asyncio.sleep(0)
    assert heard == [("quick", 0), ("quick", 1), ("quick", 2)]
    assert (dispatcher.statistics().running, dispatcher.statistics().queued) == (1, 2)
    gate.set()
    await dispatcher.join()
    assert heard[3:] == [("slow", 0), ("slow", 1), ("slow", 2)]
    assert dispatcher._lanes == {}


async def test_no_more_at_once_than_allowed(sink):
    dispatcher = SignalDispatcher(sink, max_concurrency=2)
    running = most = 0

    @dispatcher.on("*")
    async def handle(event):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    for number in range(10):
        sink.emit(f"n{number}")
    await dispatcher.join()
    assert most == 2


async def test_one_that_fails_stops_nobody(sink, heard, caplog):
    dispatcher = SignalDispatcher(sink, on_handler_error=lambda error, event, handler: heard.append(type(error)))

    @dispatcher.on("a")
    async def fail(event):
        raise ValueError("secret")

    @dispatcher.on("a")
    def give_up(event):
        raise asyncio.CancelledError

    dispatcher.add("a", heard.append)
    event = sink.emit("a")
    await dispatcher.join()
    assert heard == [ValueError, event]
    assert dispatcher.statistics().failed == 1
    assert "secret" not in caplog.text


async def test_when_too_many_wait_the_oldest_is_dropped(sink, heard):
    dispatcher = SignalDispatcher(sink, max_concurrency=1, max_queued=3)

    @dispatcher.on("*")
    async def handle(event):
        heard.append(event.data)

    for number in range(8):
        sink.emit(f"n{number % 3}", number)
    await dispatcher.join()
    assert sorted(heard) == [0, 5, 6, 7]
    assert dispatcher.statistics().dropped == 4
    assert dispatcher._lanes == dispatcher._ready == dispatcher._waiting == {}


async def test_joining_is_not_the_end(sink, heard):
    dispatcher = SignalDispatcher(sink)
    dispatcher.add("a", heard.append)
    for _ in range(2):
        sink.emit("a")
        await dispatcher.join()
    assert len(heard) == 2


async def test_closed_it_takes_nothing_more(sink, heard):
    dispatcher = SignalDispatcher(sink)
    dispatcher.add("*", heard.append)
    sink.emit("a")
    await dispatcher.aclose()
    await dispatcher.aclose()
    assert not dispatcher.dispatch(sink.emit("b"))
    await dispatcher.join()
    assert names(heard) == ["a"]


async def test_what_takes_too_long_is_cancelled_and_the_rest_dropped(sink, heard):
    dispatcher = SignalDispatcher(sink)
    started = asyncio.Event()

    @dispatcher.on("*")
    async def hang(event):
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            heard.append("unwound")

    sink.emit("a")
    sink.emit("a")
    await started.wait()
    await dispatcher.aclose(0)
    assert heard == ["unwound"]
    assert dispatcher.statistics().dropped == 1


async def test_a_handler_may_join_and_close(sink, heard):
    dispatcher = SignalDispatcher(sink)

    @dispatcher.on("*")
    async def handle(event):
        await dispatcher.join()
        await dispatcher.aclose()
        heard.append(event)

    sink.emit("a")
    await asyncio.wait_for(dispatcher.join(), 5)
    assert heard


async def test_what_it_emits_was_caused_by_its_event(sink):
    dispatcher = SignalDispatcher(sink)

    @dispatcher.on("a, b")
    async def handle(event):
        await asyncio.sleep(0)
        sink.emit({"a": "b", "b": "a"}[event.name])

    sink.emit("a")
    await dispatcher.join()
    assert names(sink.events()) == ["a", "b"]


def test_a_second_loop_goes_on_where_the_first_has_ended(sink, heard):
    dispatcher = SignalDispatcher(sink)

    @dispatcher.on("*")
    async def handle(event):
        heard.append(event.data)
        if event.data == "hang":
            await asyncio.Event().wait()

    async def main(data):
        sink.emit("a", data)
        await asyncio.sleep(0)
        if data != "hang":
            await dispatcher.join()

    sink.emit("a", 0)
    for data in (1, "hang", 2, 3):
        asyncio.run(main(data))
    assert heard == [0, 1, "hang", 2, 3]


def test_what_makes_no_sense_is_refused(sink):
    with pytest.raises(InvalidOption):
        SignalDispatcher(max_concurrency=0)
    with pytest.raises(InvalidOption):
        SignalDispatcher(max_queued=0)
    with pytest.raises(InvalidOptionType):
        SignalDispatcher().add("a", None)
    with pytest.raises(InvalidOption):
        SignalDispatcher().on("")(print)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_handler_travels_on(interrupt):
    sink = SignalSink()

    async def main():
        dispatcher = SignalDispatcher(sink)

        @dispatcher.on("a")
        async def stop(event):
            raise interrupt

        sink.emit("a")
        await asyncio.sleep(60)

    with pytest.raises(interrupt):
        asyncio.run(main())
