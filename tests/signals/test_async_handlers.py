"""Asynchronous handlers: a bounded queue, a few tasks, an own context, and an end within a budget."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading

import pytest

from ephemerals.errors import InvalidOption, SinkClosed
from ephemerals.signals import SignalSink, current_cause, uncaused

from .support import names


@pytest.fixture
def heard():
    return []


async def test_a_coroutine_function_is_a_handler(heard):
    sink = SignalSink()

    async def handle(event):
        heard.append(event)

    sink.subscribe("a", handle)
    event = sink.emit("a")
    assert heard == []
    await sink.join()
    assert heard == [event]
    assert sink.statistics().processed == 1


async def test_so_is_what_amounts_to_one(heard):
    sink = SignalSink()

    class Handler:
        async def __call__(self, event):
            heard.append("object")

        async def method(self, event):
            heard.append("method")

    async def with_extra(extra, event):
        heard.append(extra)

    sink.subscribe("a", Handler())
    sink.subscribe("a", Handler().method)
    sink.subscribe("a", functools.partial(with_extra, "partial"))
    sink.subscribe("a", lambda event: with_extra("lambda", event))
    sink.emit("a")
    await sink.join()
    assert heard == ["object", "method", "partial", "lambda"]
    assert sink.statistics().processed == 4


async def test_no_more_than_a_few_at_once_and_in_order(heard):
    sink = SignalSink(max_concurrent_handlers=2)
    gate = asyncio.Event()
    running = most = 0

    async def handle(event):
        nonlocal running, most
        running += 1
        most = max(most, running)
        heard.append(event.data)
        await gate.wait()
        running -= 1

    sink.subscribe("a", handle)
    for number in range(5):
        sink.emit("a", number)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert heard == [0, 1]
    statistics = sink.statistics()
    assert (statistics.queued, statistics.running) == (3, 2)
    gate.set()
    await sink.join()
    assert heard == [0, 1, 2, 3, 4]
    assert most == 2
    statistics = sink.statistics()
    assert (statistics.queued, statistics.running, statistics.processed) == (0, 0, 5)


async def test_what_a_handler_emits_does_not_make_it_forget_what_runs(heard):
    sink = SignalSink(max_concurrent_handlers=1)

    @sink.on("slow")
    async def slow(event):
        heard.append("begin")
        await asyncio.sleep(10)
        heard.append("end")

    sink.subscribe("a", lambda event: sink.emit("b"))
    sink.subscribe("b", lambda event: heard.append("b"))
    sink.emit("slow")
    await asyncio.sleep(1)
    sink.emit("a")
    sink.emit("slow")
    assert sink.statistics().running == 1
    await sink.join()
    assert heard == ["begin", "b", "end", "begin", "end"]


async def test_one_that_never_returns_holds_up_nobody_else(heard):
    sink = SignalSink(max_concurrent_handlers=2, max_queued=5)
    running = most = 0

    async def stuck(event):
        await asyncio.Event().wait()

    async def fine(event):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        heard.append(event.data)
        running -= 1

    endless = sink.subscribe("a", stuck)
    sink.subscribe("a", fine)
    for number in range(8):
        sink.emit("a", number)
        await asyncio.sleep(2)
    assert heard == list(range(8))
    assert most == 1
    assert sink.statistics().running == 2
    for number in range(8, 10):
        sink.emit("a", number)
    await asyncio.sleep(5)
    assert heard == list(range(10))
    endless.cancel()
    assert sink.statistics().queued == 0
    await sink.aclose(1)
    statistics = sink.statistics()
    assert (statistics.running, statistics.processed, statistics.cancelled) == (0, 10, 2)
    assert not sink._handlers._busy
    assert not sink._handlers._waiting


async def test_what_does_not_fit_pushes_out_the_oldest(heard):
    sink = SignalSink(max_concurrent_handlers=1, max_queued=3)
    gate = asyncio.Event()

    async def handle(event):
        heard.append(event.data)
        await gate.wait()

    sink.subscribe("a", handle)
    sink.emit("a", 0)
    await asyncio.sleep(0)
    for number in range(1, 8):
        sink.emit("a", number)
    gate.set()
    await sink.join()
    assert heard == [0, 5, 6, 7]
    assert sink.statistics().dropped == 4


async def test_one_that_fails_is_counted_logged_and_offered(heard, caplog):
    sink = SignalSink(on_handler_error=lambda error, event, handler: heard.append((type(error), event.name)))

    async def fail(event):
        raise ValueError("secret")

    sink.subscribe("a", fail)
    sink.emit("a")
    sink.emit("a")
    await sink.join()
    assert heard == [(ValueError, "a")] * 2
    assert (sink.statistics().failed, sink.statistics().handler_errors) == (2, 2)
    assert "secret" not in caplog.text
    assert "fail failed on 'a': ValueError" in caplog.text


async def test_one_that_cancels_itself_is_counted_apart(heard):
    sink = SignalSink(max_concurrent_handlers=1)

    async def give_up(event):
        raise asyncio.CancelledError

    async def handle(event):
        heard.append(event)

    sink.subscribe("a", give_up)
    sink.subscribe("a", handle)
    sink.emit("a")
    await sink.join()
    assert len(heard) == 1
    assert (sink.statistics().cancelled, sink.statistics().failed) == (1, 0)


async def test_cancelling_the_subscription_drops_what_waits(heard):
    sink = SignalSink(max_concurrent_handlers=1)

    async def handle(event):
        heard.append(event.data)

    subscription = sink.subscribe("a", handle)
    sink.subscribe("a", lambda event: handle(event))  # noqa: PLW0108 - no coroutine function
    sink.emit("a", 1)
    subscription.cancel()
    sink.emit("a", 2)
    await sink.join()
    assert heard == [1, 2]


async def test_each_call_has_the_emitters_context_and_none_the_others(heard):
    sink = SignalSink(max_concurrent_handlers=1)
    user = contextvars.ContextVar("user", default="nobody")

    async def handle(event):
        heard.append(user.get())
        user.set("the handler")

    sink.subscribe("a", handle)
    user.set("ada")
    sink.emit("a")
    user.set("bob")
    sink.emit("a")
    await sink.join()
    assert heard == ["ada", "bob"]
    assert user.get() == "bob"


async def test_what_it_emits_was_caused_by_its_event():
    sink = SignalSink()

    async def handle(event):
        await asyncio.sleep(0)
        sink.emit("b")

    sink.subscribe("a", handle)
    sink.emit("a")
    await sink.join()
    assert sink.last("b").propagation.names == ("a", "b")
    assert current_cause() is None


async def test_two_that_answer_each_other_come_to_an_end(heard):
    sink = SignalSink()

    async def ping(event):
        sink.emit("pong")

    async def pong(event):
        sink.emit("ping")

    sink.subscribe("ping", ping)
    sink.subscribe("pong", pong)
    sink.emit("ping")
    await sink.join()
    assert names(sink.events()) == ["ping", "pong"]
    assert sink.statistics().blocked == 1


class TestClosing:
    async def test_leaving_the_block_waits_for_handlers(self, heard):
        async with SignalSink() as sink:

            async def handle(event):
                await asyncio.sleep(0)
                heard.append(event.data)

            sink.subscribe("a", handle)
            for number in range(10):
                sink.emit("a", number)
        assert heard == list(range(10))
        assert sink.is_closed

    async def test_what_takes_too_long_is_cancelled_and_the_rest_dropped(self, heard):
        sink = SignalSink(max_concurrent_handlers=1)
        started = asyncio.Event()

        async def hang(event):
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                heard.append("unwound")

        sink.subscribe("a", hang)
        sink.emit("a")
        sink.emit("a")
        await started.wait()
        await sink.aclose(0)
        assert heard == ["unwound"]
        statistics = sink.statistics()
        assert (statistics.cancelled, statistics.dropped, statistics.running, statistics.queued) == (
            1,
            1,
            0,
            0,
        )

    async def test_afterwards_it_stores_and_answers_but_nobody_listens(self, heard):
        sink = SignalSink()
        sink.subscribe("*", heard.append)
        watch = sink.watch("*")
        await sink.aclose()
        await sink.aclose()
        sink.emit("a")
        assert sink.has("a")
        assert heard == []
        assert not watch.present
        for listen in (
            lambda: sink.subscribe("a", print),
            lambda: sink.stream("a"),
            lambda: sink.watch("a"),
        ):
            with pytest.raises(SinkClosed):
                listen()

    async def test_from_within_a_handler_it_does_not_wait_for_itself(self, heard):
        sink = SignalSink()

        async def stop(event):
            await sink.join()
            await sink.aclose()
            heard.append(event)

        sink.subscribe("a", stop)
        sink.emit("a")
        await asyncio.wait_for(sink.join(), 5)
        assert heard

    async def test_cancelled_while_it_waits_it_cancels_too(self, heard):
        sink = SignalSink()
        started = asyncio.Event()

        async def hang(event):
            started.set()
            await asyncio.Event().wait()

        sink.subscribe("a", hang)
        sink.emit("a")
        await started.wait()
        closing = asyncio.create_task(sink.aclose(None))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await sink.join()
        assert sink.statistics().cancelled == 1


class TestLoops:
    def test_what_is_emitted_before_the_loop_is_handled_in_it(self, heard):
        sink = SignalSink()

        @sink.on("a")
        async def handle(event):
            heard.append(event.data)

        sink.emit("a", 1)

        async def main():
            sink.emit("a", 2)
            await sink.join()

        asyncio.run(main())
        assert heard == [1, 2]

    def test_a_second_run_works_once_the_first_has_ended(self, heard):
        sink = SignalSink()

        @sink.on("a")
        async def handle(event):
            heard.append(event.data)
            if event.data == "hang":
                await asyncio.Event().wait()

        async def main(data):
            sink.emit("a", data)
            await asyncio.sleep(0)
            if data != "hang":
                await sink.join()

        for data in (1, "hang", 2, 3):
            asyncio.run(main(data))
        assert heard == [1, "hang", 2, 3]
        statistics = sink.statistics()
        assert (statistics.processed, statistics.cancelled, statistics.running) == (3, 1, 0)

    def test_a_sink_that_is_forgotten_leaves_nothing_behind(self):
        async def main():
            sink = SignalSink()

            @sink.on("a")
            async def handle(event):
                await asyncio.Event().wait()

            sink.emit("a")
            await asyncio.sleep(0)

        asyncio.run(main())


def test_the_bounds_are_positive():
    for option in ("max_concurrent_handlers", "max_queued"):
        with pytest.raises(InvalidOption):
            SignalSink(**{option: 0})


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="came with Python 3.12")
async def test_eager_tasks_keep_to_the_limit(heard):
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    sink = SignalSink(max_concurrent_handlers=1)
    running = most = 0

    @sink.on("a")
    async def handle(event):
        nonlocal running, most
        running += 1
        most = max(most, running)
        if event.data:
            with uncaused():
                sink.emit("a", event.data - 1)
        if event.data % 2:
            await asyncio.sleep(0)
        running -= 1
        heard.append(event.data)

    sink.emit("a", 20)
    await sink.join()
    assert heard == list(range(20, -1, -1))
    assert most == 1


def test_cancelling_from_another_thread_loses_nothing_of_the_others(heard):
    sink = SignalSink(max_concurrent_handlers=1, max_queued=100_000)

    async def handle(event):
        heard.append(event.data)

    sink.subscribe("a", handle)
    stop = threading.Event()

    def disturb():
        while not stop.is_set():
            sink.subscribe("a", handle).cancel()

    async def main():
        thread = threading.Thread(target=disturb)
        thread.start()
        for number in range(2000):
            sink.emit("b" if number % 2 else "a", number)
        stop.set()
        thread.join()
        await sink.join()

    asyncio.run(main())
    assert set(heard) == set(range(0, 2000, 2))


async def test_what_a_plain_handler_returned_is_closed_when_nobody_will_await_it(heard):
    sink = SignalSink(max_concurrent_handlers=1, max_queued=2)

    async def later(event):
        try:
            await asyncio.Event().wait()
        finally:
            heard.append(event.data)

    subscription = sink.subscribe("a", lambda event: later(event))  # noqa: PLW0108 - a plain function
    for number in range(5):
        sink.emit("a", number)
        await asyncio.sleep(0)
    statistics = sink.statistics()
    assert (statistics.running, statistics.queued, statistics.dropped) == (1, 2, 2)
    subscription.cancel()
    assert sink.statistics().queued == 0
    await sink.aclose(0.1)
    assert heard == [0]  # the others had not begun, and were closed without a warning


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_one_travels_on(heard, interrupt):
    sink = SignalSink()

    async def stop(event):
        raise interrupt

    async def main():
        sink.subscribe("a", stop)
        sink.emit("a")
        await asyncio.sleep(60)

    with pytest.raises(interrupt):
        asyncio.run(main())
    assert sink.statistics().failed == 1
