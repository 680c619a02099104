"""What operations say: to the sink, to their own history, and to the hooks of their coordinator."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref

import pytest
from tests.coordinators import every_coordinator

from ephemerals import KeyedWorkCoordinator, OperationStatus, WorkCoordinator, current_operation
from ephemerals.signals import BlockReason, SignalConstraints, SignalKey, SignalSink, current_cause
from ephemerals.testing import Payload, VirtualClock, assert_forgotten, assert_quiet

SCORE = SignalKey[float]("bot.score", check=float)


async def settle():
    await VirtualClock.current().settle()


def names(events):
    return [event.name for event in events]


class TestEmitting:
    @every_coordinator
    async def test_a_body_emits_through_its_operation(self, make):
        """O1: it reaches the sink, with id, key, source and data."""
        sink = SignalSink()

        async def body(item, operation):
            operation.emit("order.placed", {"lines": 3})

        async with make(body, signals=sink, name="orders") as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
        (event,) = sink.events()
        assert (event.name, event.operation_id, event.source) == ("order.placed", operation.id, "orders")
        assert event.key == operation.key
        assert event.data == {"lines": 3}
        assert operation.signals == (event,)
        assert operation.has_signal("order.placed")
        assert not operation.has_signal("order")

    async def test_current_operation_emits_from_anywhere_below_the_body(self):
        def deep():
            current_operation().emit("deep")

        async def body(item):
            await asyncio.to_thread(deep)
            deep()

        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
        assert names(operation.signals) == ["deep", "deep"]

    async def test_each_signal_has_its_own_time(self):
        """O8."""

        async def body(item, operation):
            operation.emit("early")
            await asyncio.sleep(300)
            operation.emit("late")

        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
            early, late = operation.signals
            assert late.monotonic - early.monotonic == 300
            assert names(coordinator.signals.events(since=late.time)) == ["late"]
            assert names(coordinator.signals.events(until=early.time)) == ["early"]

    async def test_a_typed_signal(self):
        async def body(item, operation):
            operation.emit(SCORE, 0.9)
            with pytest.raises(TypeError):
                operation.emit(SCORE, "high")
            assert operation.has_signal(SCORE)

        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
            assert operation.snapshot().has_signal(SCORE)
            assert coordinator.signals.has(SCORE)
            assert coordinator.signals.last(SCORE).data == 0.9
            assert coordinator.signals.count(SCORE) == coordinator.signals.count_matching(SCORE) == 1

    @pytest.mark.parametrize("name", ["", None, 7])
    async def test_a_name_that_is_none_is_refused(self, name):
        async def body(item, operation):
            operation.emit(name)

        async with WorkCoordinator(body) as coordinator:
            with pytest.raises(ValueError, match="name"):
                await coordinator.run(1)

    async def test_before_its_start_and_after_its_end(self):
        async def body(item):
            pass

        sink = SignalSink()
        async with WorkCoordinator(body, signals=sink) as coordinator:
            operation = await coordinator.enqueue(1)
            operation.emit("before")
            await operation
            snapshot = operation.snapshot()
            operation.emit("after")
            assert names(sink.events()) == ["before", "after"]
            assert names(operation.signals) == names(snapshot.signals) == ["before"]
            assert operation.signal_count == 1

    async def test_hashed_keys_stay_hashed(self):
        async def body(item, operation):
            operation.emit("said")

        sink = SignalSink()
        async with KeyedWorkCoordinator(str, body, signals=sink, key_privacy="hashed", on_signal=print) as coordinator:
            await coordinator.run("alice")
            coordinator.signals.emit("noted", key="alice")
            shown = coordinator.snapshot()[0].key
            assert [event.key for event in sink.events()] == [shown, shown]
            assert "alice" not in repr(sink.events()) + repr(coordinator.timeline())
            assert names(coordinator.signals.events(key="alice")) == ["said"]
            assert coordinator.signals.events(key="bob") == []


class TestRetracting:
    async def test_a_retraction_reaches_the_sink(self):
        """O4, O10: all of its own of that name, and nobody else's."""
        sink = SignalSink()
        sink.emit("busy", key="foreign")

        async def body(item, operation):
            operation.emit("busy")
            operation.emit("other")
            operation.emit("busy")
            assert operation.retract("busy") == 2
            assert operation.retract("busy") == 0
            assert not operation.has_signal("busy")

        async with WorkCoordinator(body, signals=sink) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
        assert names(operation.signals) == ["other"]
        assert operation.signal_count == 3
        assert [event.key for event in sink.events("busy")] == ["foreign"]

    async def test_a_typed_name(self):
        async def body(item, operation):
            operation.emit(SCORE, 0.9)
            assert operation.retract(SCORE) == 1
            assert not operation.has_signal(SCORE)

        async with WorkCoordinator(body) as coordinator:
            await coordinator.run(1)

    async def test_after_its_end_history_stays_and_the_condition_ends(self):
        sink = SignalSink()

        async def body(item, operation):
            operation.emit("busy")

        async with WorkCoordinator(body, signals=sink) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
            assert operation.retract("busy") == 1
            assert not sink.has("busy")
            assert operation.has_signal("busy")


class TestHistory:
    async def test_signals_are_bounded_and_counted(self):
        """O5."""

        async def body(item, operation):
            for number in range(1000):
                operation.emit(f"step.{number % 3}", number)
            assert len(operation.signals) == 256

        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
        snapshot = operation.snapshot()
        assert [event.data for event in snapshot.signals] == list(range(744, 1000))
        assert snapshot.signal_count == operation.signal_count == 1000

    async def test_the_bound_is_an_option(self):
        async def body(item, operation):
            for number in range(10):
                operation.emit("step", number)

        async with WorkCoordinator(body, max_operation_signals=3) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
        assert [event.data for event in operation.signals] == [7, 8, 9]

    async def test_a_snapshot_does_not_change_afterwards(self):
        """O3."""

        async def body(item, operation):
            operation.emit("early")
            await asyncio.sleep(1)
            operation.emit("late")
            await asyncio.sleep(1)

        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue(1)
            await asyncio.sleep(0.5)
            snapshot = operation.snapshot()
            await asyncio.sleep(1)
            assert names(snapshot.signals) == ["early"]
            assert isinstance(snapshot.signals, tuple)
            assert names(operation.signals) == ["early", "late"]
            await operation
        assert names(coordinator.snapshot()[0].signals if coordinator.snapshot() else operation.signals) == [
            "early",
            "late",
        ]

    @pytest.mark.real_loop("asyncio")
    async def test_threads_emit_while_others_look(self):
        """O2: nothing is lost, nobody stumbles, one sink is made."""
        start = threading.Barrier(4)

        def body(item, operation):
            start.wait()
            for number in range(500):
                operation.emit("step", number)

        async with WorkCoordinator(body, max_concurrency=4, max_operation_signals=10_000) as coordinator:
            operations = [await coordinator.enqueue(number) for number in range(4)]
            while not coordinator.is_idle:
                coordinator.snapshot()
                coordinator.signals.count()
                await asyncio.sleep(0)
            for operation in operations:
                assert [event.data for event in operation.signals] == list(range(500))
                assert operation.signal_count == 500
            assert coordinator.signals.count("step") == 2000

    @pytest.mark.real_loop("asyncio")
    async def test_threads_of_one_operation_lose_no_count(self):
        async def body(item, operation):
            def emit():
                for _ in range(2000):
                    operation.emit("step")

            await asyncio.gather(*(asyncio.to_thread(emit) for _ in range(4)))

        async with WorkCoordinator(body, max_operation_signals=5) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
        assert operation.signal_count == 8000

    async def test_the_timeline_and_the_window_show_them_in_their_order_even_within_one_moment(self):
        turn = asyncio.Condition()
        order = []

        async def body(item, operation):
            for _ in range(3):
                async with turn:
                    operation.emit(f"{item}.{len(order)}")
                    order.append(operation.signals[-1].name)
                await asyncio.sleep(0)

        async with WorkCoordinator(body, max_concurrency=3) as coordinator:
            for item in "abc":
                await coordinator.enqueue(item)
            await coordinator.join()
            entries = coordinator.timeline()
            assert [entry.detail for entry in entries if entry.event == "signal"] == order
            for operation in coordinator.snapshot():
                own = [entry.event for entry in entries if entry.operation_id == operation.id]
                assert own == ["enqueued", "started", "signal", "signal", "signal", "finished"]
            assert names(coordinator.signals.events()) == order

    async def test_data_leaves_with_sink_and_window(self):
        sink = SignalSink(max_age=5)

        async def body(item, operation):
            operation.emit("said", item)

        async with WorkCoordinator(body, signals=sink, max_operation_lifetime=5, echo_retention=0) as coordinator:

            async def use(item):
                await coordinator.run(item)
                del item
                await asyncio.sleep(6)

            await assert_forgotten(use)


class TestHooks:
    @pytest.mark.parametrize("is_async", [False, True])
    @every_coordinator
    async def test_they_hear_of_what_their_own_operations_say_and_take_back(self, make, is_async):
        sink = SignalSink()
        said, taken_back = [], []

        def plain(where):
            return lambda event: where.append(event.name)

        def later(where):
            async def hook(event):
                await asyncio.sleep(1)
                where.append(event.name)

            return hook

        wrap = later if is_async else plain

        async def body(item, operation):
            operation.emit(f"{item}.begins")
            operation.emit(f"{item}.ends")
            operation.retract(f"{item}.begins")

        options = {"signals": sink, "on_signal": wrap(said), "on_signal_retracted": wrap(taken_back)}
        async with make(body, **options) as coordinator, make(body, signals=sink) as other:
            sink.emit("foreign")
            await other.run("theirs")
            await coordinator.run("ours")
        assert said == ["ours.begins", "ours.ends"]
        assert taken_back == ["ours.begins"]
        assert_quiet(coordinator)

    async def test_two_coordinators_of_one_name_are_told_apart(self):
        sink = SignalSink()
        heard = {"one": [], "two": []}

        async def body(item, operation):
            operation.emit(item)

        async with (
            WorkCoordinator(body, signals=sink, name="same", on_signal=lambda e: heard["one"].append(e.name)) as one,
            WorkCoordinator(body, signals=sink, name="same", on_signal=lambda e: heard["two"].append(e.name)) as two,
        ):
            await one.run("first")
            await two.run("second")
            one.signals.emit("third")
        assert heard == {"one": ["first", "third"], "two": ["second"]}
        assert {event.source for event in sink.events()} == {"same"}

    async def test_one_that_raises_breaks_nothing_and_is_reported(self, caplog):
        failures = []
        sink = SignalSink(on_handler_error=lambda error, event, handler: failures.append((type(error), event.name)))

        def hook(event):
            raise ZeroDivisionError

        async def later(event):
            raise KeyError(event.data)

        async def body(item, operation):
            operation.emit("said", "secret")
            operation.retract("said")

        caplog.set_level(logging.DEBUG)
        async with WorkCoordinator(body, signals=sink, on_signal=hook, on_signal_retracted=later) as coordinator:
            await coordinator.run(1)
        assert coordinator.total_completed == 1
        assert failures == [(ZeroDivisionError, "said"), (KeyError, "said")]
        assert sink.statistics().handler_errors == 2
        assert "hook failed on 'said'" in caplog.text
        assert "later failed on 'said'" in caplog.text
        assert "secret" not in caplog.text

    async def test_one_may_emit_and_what_it_emits_comes_after(self):
        order = []

        def hook(event):
            order.append(event.name)
            if event.name == "a":
                coordinator.signals.emit("c")

        async def body(item, operation):
            operation.emit("a")
            operation.emit("b")

        async with WorkCoordinator(body, on_signal=hook) as coordinator:
            await coordinator.run(1)
        assert order == ["a", "c", "b"]

    async def test_one_may_cancel_pause_and_close_the_coordinator(self):
        async def body(item, operation):
            operation.emit("enough")
            await asyncio.sleep(1)

        def hook(event):
            coordinator.pause()
            coordinator.cancel()

        async with WorkCoordinator(body, on_signal=hook, max_concurrency=1) as coordinator:
            await coordinator.enqueue_many(range(3))
            await asyncio.wait_for(coordinator.join(), 10)
        assert coordinator.total_cancelled == 3

    async def test_an_asynchronous_one_may_close_the_coordinator(self):
        closed = []

        async def hook(event):
            closed.append(await coordinator.aclose())

        async def body(item, operation):
            operation.emit("enough")

        async with asyncio.timeout(60):
            async with WorkCoordinator(body, on_signal=hook) as coordinator:
                await coordinator.run(1)
        assert closed[0].completed == 1

    async def test_closing_waits_for_asynchronous_ones(self):
        """PROC-1, A2: those that wait behind others too."""
        done = []

        async def hook(event):
            await asyncio.sleep(0.1)
            done.append(event.data)

        async def body(item, operation):
            operation.emit("said", item)

        async with WorkCoordinator(body, on_signal=hook) as coordinator:
            await coordinator.enqueue_many(range(20))
        assert sorted(done) == list(range(20))

    async def test_closing_waits_no_longer_than_its_budget(self):
        cancelled = []

        async def hook(event):
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(event.name)

        async def body(item, operation):
            operation.emit("said")

        coordinator = WorkCoordinator(body, on_signal=hook)
        await coordinator.run(1)
        began = VirtualClock.current().monotonic()
        await coordinator.aclose(cancel_grace=3)
        assert VirtualClock.current().monotonic() - began == 3
        assert cancelled == ["said"]
        assert_quiet(coordinator)

    async def test_a_plain_one_may_return_a_coroutine(self):
        done = []

        async def note(event):
            done.append(event.name)

        async def body(item, operation):
            operation.emit("said")

        async with WorkCoordinator(body, on_signal=lambda event: note(event)) as coordinator:  # noqa: PLW0108 - the point
            await coordinator.run(1)
        assert done == ["said"]

    async def test_calls_that_wait_when_the_coordinator_is_dropped_are_closed(self):
        async def hook(event):
            await asyncio.sleep(1)

        async def body(item, operation):
            for _ in range(20):
                operation.emit("said")

        async def use():
            coordinator = WorkCoordinator(body, on_signal=hook, max_operation_lifetime=None)
            await coordinator.run(1)
            coordinator.complete()
            return weakref.ref(coordinator.engine)

        alive = await use()
        gc.collect()
        assert alive() is None
        await asyncio.sleep(2)

    async def test_a_retraction_by_somebody_else_is_heard(self):
        sink = SignalSink()
        taken_back = []

        async def body(item, operation):
            operation.emit("busy")

        async with WorkCoordinator(body, signals=sink, on_signal_retracted=taken_back.append) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
            sink.retract("busy")
        assert [event.operation_id for event in taken_back] == [operation.id]


class OtherLoop:
    """A loop in another thread, to which a sink is bound; a context manager."""

    def __init__(self, sink):
        self.sink = sink
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.main()))

    async def main(self):
        self.loop, self.stop = asyncio.get_running_loop(), asyncio.Event()
        self.sink.bind()
        self.ready.set()
        await self.stop.wait()

    async def catch_up(self):
        """Wait until everything emitted so far has been delivered over there, and handed over to here."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.sink.join(), self.loop))

    def __enter__(self):
        self.thread.start()
        assert self.ready.wait(30)
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join()


class TestHooksOfASinkElsewhere:
    """A hook runs on the loop of its coordinator, whichever loop delivers the sink."""

    @pytest.mark.real_loop
    async def test_one_that_raises_is_reported_there_too(self):
        reported = []
        sink = SignalSink(on_handler_error=lambda error, event, handler: reported.append((type(error), event.name)))

        def fail(event):
            raise ValueError

        async def body(item, operation):
            operation.emit("said")

        with OtherLoop(sink) as other:
            async with WorkCoordinator(body, signals=sink, on_signal=fail) as coordinator:
                await coordinator.run(1)
                await other.catch_up()
                assert await coordinator.run(2) is None
                await other.catch_up()
        assert reported == [(ValueError, "said")] * 2

    @pytest.mark.real_loop
    async def test_one_that_has_ended_meanwhile_is_not_called(self):
        sink = SignalSink()
        heard = []

        async def body(item, operation):
            operation.emit("said")

        with OtherLoop(sink) as other:
            async with WorkCoordinator(body, signals=sink, on_signal=heard.append) as coordinator:
                await coordinator.run(1)
                await other.catch_up()
                assert len(heard) == 1
                hook = coordinator.engine.signalling._reactions._hooks._hooks[0]
            hook._call_isolated(heard[0])  # as if it had been on its way
            assert len(heard) == 1


class TestCausation:
    @pytest.mark.parametrize("context", ["inherit", "fresh"])
    @every_coordinator
    async def test_handlers_and_operations_that_answer_each_other_come_to_an_end(self, make, context, caplog):
        """PROP-1: what a handler enqueues continues its chain, and the constraint is reported once."""
        blocked = []
        sink = SignalSink(
            constraints=SignalConstraints(on_blocked=lambda event, reason: blocked.append((event.name, reason)))
        )
        runs = []

        async def body(item, operation):
            runs.append(item)
            await asyncio.sleep(1)
            operation.emit("pong" if item == "ping" else "ping")

        async with make(body, signals=sink, context=context) as coordinator:

            @sink.on("ping, pong")
            def answer(event):
                coordinator.try_enqueue(event.name)

            sink.emit("ping")
            await asyncio.sleep(10)
        assert runs == ["ping", "pong"]
        assert [str(event.propagation) for event in sink.events()] == ["ping", "ping -> pong"]
        assert blocked == [("ping", BlockReason.CYCLE)]
        assert caplog.text.count("blocked") == 1

    async def test_a_chain_of_operations_is_no_longer_than_allowed(self):
        sink = SignalSink()

        async def body(item, operation):
            operation.emit(f"step.{item + 1}")

        async with WorkCoordinator(body, signals=sink) as coordinator:

            @sink.on("step.*")
            async def go_on(event):
                await coordinator.enqueue(int(event.name.removeprefix("step.")))

            sink.emit("step.0")
            await asyncio.sleep(1)
        assert max(event.propagation.depth for event in sink.events()) == 10
        assert sink.count() == 10

    async def test_a_thread_continues_the_chain(self):
        sink = SignalSink()

        def body(item, operation):
            operation.emit("effect")

        async with WorkCoordinator(body, signals=sink) as coordinator:
            sink.subscribe("cause", lambda event: coordinator.try_enqueue(event.name))
            sink.emit("cause")
            await coordinator.join()
        assert str(sink.last("effect").propagation) == "cause -> effect"

    async def test_the_hooks_of_a_coordinator_continue_the_chain(self):
        sink = SignalSink()
        seen = []

        async def hook(event):
            await asyncio.sleep(0)
            seen.append(str(current_cause()))

        async def body(item, operation):
            operation.emit("said")

        async with WorkCoordinator(body, signals=sink, on_signal=hook) as coordinator:
            sink.subscribe("cause", lambda event: coordinator.try_enqueue(event.name))
            sink.emit("cause")
            await coordinator.join()
        assert seen == ["cause -> said"]

    async def test_what_nobody_caused_is_a_root(self):
        async def body(item, operation):
            operation.emit("said")

        async with WorkCoordinator(body) as coordinator:
            for _ in range(20):
                operation = await coordinator.enqueue(1)
                await operation
                assert operation.signals[0].propagation.is_root

    async def test_the_pump_carries_no_chain_on(self):
        """What waits for a slot keeps its own chain, whoever frees the slot."""
        sink = SignalSink()

        async def body(item, operation):
            await asyncio.sleep(1)
            operation.emit(item)

        async with WorkCoordinator(body, signals=sink, max_concurrency=1) as coordinator:
            sink.subscribe("go", lambda event: coordinator.try_enqueue("caused"))
            await coordinator.enqueue("first")
            sink.emit("go")
            await coordinator.enqueue("last")
        assert [str(event.propagation) for event in sink.events()] == ["go", "first", "go -> caused", "last"]


async def test_a_signal_blocked_by_a_constraint_is_not_recorded():
    sink = SignalSink(constraints=SignalConstraints(max_depth=1))

    async def body(item, operation):
        assert operation.emit("said") is None

    async with WorkCoordinator(body, signals=sink) as coordinator:
        started = []
        sink.subscribe("go", lambda event: started.append(coordinator.try_enqueue(1)))
        sink.emit("go")
        await started[0]
    assert started[0].status is OperationStatus.COMPLETED
    assert started[0].signals == ()
    assert started[0].signal_count == 0


async def test_an_item_is_forgotten_although_its_operation_has_said_something():
    async def body(item, operation):
        operation.emit("said", len(item.secret))

    async with WorkCoordinator(body, on_signal=lambda event: None) as coordinator:

        async def use(item):
            assert isinstance(item, Payload)
            operation = await coordinator.enqueue(item)
            del item
            await operation
            return operation, coordinator.snapshot()

        await assert_forgotten(use)
