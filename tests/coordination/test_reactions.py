"""How every coordinator reacts to signals: it skips, holds back, clears and drains."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref

import pytest
from tests.coordinators import assert_adds_up, every_coordinator

from ephemerals import (
    Background,
    CoordinatorClosed,
    EphemeralOptions,
    InvalidOption,
    InvalidOptionType,
    Lane,
    OperationSkipped,
    OperationStatus,
    PriorityWorkCoordinator,
    WorkCoordinator,
    for_each,
)
from ephemerals.signals import SignalSink
from ephemerals.testing import Payload, VirtualClock, assert_forgotten, assert_quiet


async def nothing(item):
    pass


def now():
    return VirtualClock.current().monotonic()


async def settle():
    await VirtualClock.current().settle()


def recorder():
    """Return a body that notes when each item starts, and its notes."""
    started = {}

    async def body(item):
        started[item] = now()

    return body, started


class TestCancel:
    @every_coordinator
    async def test_what_would_start_while_a_signal_is_present_is_skipped_and_counted_so(self, make):
        """C1, C2, R9."""
        sink = SignalSink()
        body, started = recorder()
        sink.emit("circuit.open")
        async with make(body, signals=sink, cancel_on_signals="circuit.*") as coordinator:
            operations = [await coordinator.enqueue(number) for number in range(5)]
            await coordinator.join()
            assert started == {}
            assert coordinator.total_skipped == 5
            assert coordinator.total_failed == 0
            assert [each.status for each in coordinator.skipped()] == [OperationStatus.SKIPPED] * 5
            assert_adds_up(coordinator)
            for operation in operations:
                with pytest.raises(OperationSkipped, match="circuit.open") as skipped:
                    await operation
                assert skipped.value.signal == "circuit.open"
                assert skipped.value.operation_id == operation.id
        assert_quiet(coordinator)

    @every_coordinator
    async def test_the_end_of_the_signal_ends_the_skipping(self, make):
        """C3."""
        sink = SignalSink(max_age=10)
        body, started = recorder()
        async with make(body, signals=sink, cancel_on_signals="open") as coordinator:
            for number, end in enumerate((lambda: sink.retract("open"), sink.clear, lambda: asyncio.sleep(10))):
                sink.emit("open")
                await coordinator.enqueue(f"skipped {number}")
                await coordinator.join()
                if asyncio.iscoroutine(ending := end()):
                    await ending
                await coordinator.enqueue(number)
                await coordinator.join()
        assert list(started) == [0, 1, 2]
        assert coordinator.total_skipped == 3

    @every_coordinator
    async def test_what_waits_is_checked_when_its_slot_is_free_and_not_before(self, make):
        """C6, L11: the signal comes while the next in line waits for the slot, and from the body that holds it."""
        ran = []

        async def body(item, operation):
            ran.append(item)
            await asyncio.sleep(1)
            if item == 1:
                operation.emit("enough")

        async with make(body, cancel_on_signals="enough", max_concurrency=1) as coordinator:
            await coordinator.enqueue_many(range(4))
        assert ran == [0, 1]
        assert coordinator.total_skipped == 2

    @every_coordinator
    async def test_a_signal_of_the_past_that_has_ended_skips_nothing(self, make):
        sink = SignalSink(max_age=5)
        sink.emit("open")
        await asyncio.sleep(5)
        async with make(nothing, signals=sink, cancel_on_signals="open") as coordinator:
            await coordinator.run(1)
        assert coordinator.total_skipped == 0

    @every_coordinator
    async def test_a_body_that_signals_at_once_stops_those_that_would_start_in_the_same_turn(self, make):
        """Its own sink, that nobody has asked for, watches before the first signal."""
        ran = []

        async def body(item, operation):
            ran.append(item)
            operation.emit("stop")

        async with make(body, cancel_on_signals="stop", max_concurrency=1) as coordinator:
            await coordinator.enqueue_many(range(10))
        assert ran == [0]

    @every_coordinator
    async def test_a_skipped_item_is_forgotten(self, make):
        sink = SignalSink()
        sink.emit("open")
        async with make(nothing, signals=sink, cancel_on_signals="open") as coordinator:

            async def use(item):
                operation = await coordinator.enqueue(item)
                del item
                await coordinator.join()
                assert operation.status is OperationStatus.SKIPPED
                return operation, coordinator.snapshot()

            await assert_forgotten(use)

    async def test_what_is_skipped_makes_room(self):
        sink = SignalSink()
        sink.emit("open")
        async with WorkCoordinator(nothing, signals=sink, cancel_on_signals="open", max_pending=1) as coordinator:
            await coordinator.enqueue_many(range(10))
        assert coordinator.total_skipped == 10

    async def test_a_paused_coordinator_skips_when_it_resumes(self):
        sink = SignalSink()
        async with WorkCoordinator(nothing, signals=sink, cancel_on_signals="open") as coordinator:
            coordinator.pause()
            await coordinator.enqueue(1)
            with sink.hold("open"):
                await settle()
                assert coordinator.pending_count == 1
                coordinator.resume()
                await settle()
        assert coordinator.total_skipped == 1


class TestDefer:
    @pytest.mark.parametrize("how", ["retract", "clear", "expiry", "resume", "hold"])
    @every_coordinator
    async def test_the_end_of_the_cause_starts_what_waits_in_the_same_turn(self, make, how):
        """C7, S3: nothing is polled."""
        sink = SignalSink(max_age=3)
        body, started = recorder()
        options = {"defer_on_signals": "load.*", "resume_on_signals": "load.gone", "max_defer_time": None}
        if how != "resume":
            del options["resume_on_signals"]
        async with make(body, signals=sink, **options) as coordinator:
            hold = sink.hold("load.high")
            if how == "hold":
                hold.__enter__()
            else:
                sink.emit("load.high")
            await coordinator.enqueue_many(range(3))
            await asyncio.sleep(2)
            assert started == {}
            ended = now()
            match how:
                case "retract":
                    sink.retract("load.high")
                case "clear":
                    sink.clear()
                case "resume":
                    sink.emit("load.gone")
                case "hold":
                    hold.__exit__(None, None, None)
                case "expiry":
                    await asyncio.sleep(1)
                    ended += 1
            for _ in range(3):
                await asyncio.sleep(0)
            assert started == dict.fromkeys(range(3), ended)

    @every_coordinator
    async def test_a_hundred_items_that_a_stuck_condition_holds_back_wait_one_time_in_total(self, make):
        """C4."""
        sink = SignalSink(max_age=None)
        sink.emit("stuck")
        body, started = recorder()
        began = now()
        async with make(
            body, signals=sink, defer_on_signals="stuck", max_defer_time=5, max_concurrency=1
        ) as coordinator:
            await coordinator.enqueue_many(range(100))
        assert len(started) == 100
        assert set(started.values()) == {began + 5}

    @every_coordinator
    async def test_when_the_time_is_over_what_waits_is_skipped_if_asked(self, make):
        sink = SignalSink(max_age=None)
        body, started = recorder()
        async with make(
            body, signals=sink, defer_on_signals="stuck", max_defer_time=5, on_defer_timeout="skip"
        ) as coordinator:
            sink.emit("stuck")
            operation = await coordinator.enqueue(1)
            with pytest.raises(OperationSkipped, match="stuck"):
                await operation
            assert operation.waiting_time == 5
            late = await coordinator.enqueue(2)
            await settle()
            assert late.status is OperationStatus.SKIPPED
            sink.retract("stuck")
            await coordinator.run(3)
        assert list(started) == [3]
        assert coordinator.total_skipped == 2

    async def test_after_the_time_is_over_the_next_episode_has_a_time_of_its_own(self):
        sink = SignalSink(max_age=None)
        body, started = recorder()
        async with WorkCoordinator(body, signals=sink, defer_on_signals="busy", max_defer_time=5) as coordinator:
            began = now()
            with sink.hold("busy"):
                await coordinator.run("first")
                await coordinator.run("second")
            with sink.hold("busy"):
                await coordinator.run("third")
        assert [at - began for at in started.values()] == [5, 5, 10]

    async def test_a_cause_that_ended_in_time_takes_nothing_from_the_next_one(self):
        sink = SignalSink(max_age=None)
        body, started = recorder()
        async with WorkCoordinator(body, signals=sink, defer_on_signals="busy", max_defer_time=5) as coordinator:
            began = now()
            with sink.hold("busy"):
                await coordinator.enqueue("first")
                await asyncio.sleep(3)
            await settle()
            with sink.hold("busy"):
                await coordinator.run("second")
        assert [at - began for at in started.values()] == [3, 8]

    async def test_no_time_runs_when_nothing_is_left_to_hold_back(self):
        async def body(item, operation):
            operation.emit("busy")
            await asyncio.sleep(1)

        async with WorkCoordinator(body, defer_on_signals="busy", max_operation_lifetime=None) as coordinator:
            await coordinator.enqueue(1)
            await settle()
            assert coordinator.engine.leftovers()["timers"] == 0

    async def test_a_cause_that_returns_before_anything_could_start_continues_its_episode(self):
        """Else a probe that holds a condition anew each second would hold everything for ever."""
        sink = SignalSink()
        body, started = recorder()

        async def probe():
            while True:
                with sink.hold("busy"):
                    await asyncio.sleep(1)

        async with WorkCoordinator(body, signals=sink, defer_on_signals="busy", max_defer_time=5) as coordinator:
            probing = asyncio.create_task(probe())
            await asyncio.sleep(0)
            began = now()
            await coordinator.run(1)
            probing.cancel()
        assert started == {1: began + 5}

    async def test_the_time_begins_when_something_is_held_back(self):
        sink = SignalSink(max_age=None)
        body, started = recorder()
        async with WorkCoordinator(body, signals=sink, defer_on_signals="busy", max_defer_time=5) as coordinator:
            sink.emit("busy")
            await asyncio.sleep(60)
            assert_quiet(coordinator)
            began = now()
            await coordinator.run(1)
        assert started == {1: began + 5}

    @every_coordinator
    async def test_the_later_of_cause_and_resume_wins(self, make):
        """C5: an old resume signal disables nothing."""
        sink = SignalSink()
        body, started = recorder()
        options = {"defer_on_signals": "batch.loading", "resume_on_signals": "batch.ready", "max_defer_time": None}
        sink.emit("batch.ready")
        sink.emit("batch.loading")
        async with make(body, signals=sink, **options) as coordinator:
            await coordinator.enqueue(1)
            await settle()
            assert started == {}
            sink.emit("batch.ready")
            await settle()
            assert list(started) == [1]
            sink.emit("batch.loading")
            await coordinator.enqueue(2)
            await settle()
            assert list(started) == [1]
            sink.emit("batch.ready")
            await coordinator.join()

    async def test_a_resume_that_has_aged_still_stands_against_a_condition_held_from_before(self):
        sink = SignalSink(max_age=10)
        body, started = recorder()
        with sink.hold("loading"):
            async with WorkCoordinator(
                body, signals=sink, defer_on_signals="loading", resume_on_signals="ready", max_defer_time=None
            ) as coordinator:
                sink.emit("ready")
                await asyncio.sleep(20)
                assert not sink.has("ready")
                await coordinator.run(1)
                with sink.hold("loading"):
                    await coordinator.enqueue(2)
                    await settle()
                    assert list(started) == [1]
                await settle()
                assert list(started) == [1, 2]

    async def test_a_resume_that_is_taken_back_at_once_counts(self):
        sink = SignalSink()
        body, started = recorder()
        async with WorkCoordinator(
            body, signals=sink, defer_on_signals="loading", resume_on_signals="ready", max_defer_time=None
        ) as coordinator:
            sink.emit("loading")
            await coordinator.enqueue(1)

            @sink.on("now")
            def resume(event):
                sink.emit("ready")
                sink.retract("ready")

            sink.emit("now")
            await settle()
            assert list(started) == [1]

    async def test_a_resume_before_the_coordinator_counts_against_an_older_cause(self):
        sink = SignalSink()
        sink.emit("loading")
        sink.emit("ready")
        async with WorkCoordinator(
            nothing, signals=sink, defer_on_signals="loading", resume_on_signals="ready", max_defer_time=None
        ) as coordinator:
            await asyncio.wait_for(coordinator.run(1), 1)

    async def test_two_causes_both_have_to_end(self):
        sink = SignalSink()
        body, started = recorder()
        async with WorkCoordinator(body, signals=sink, defer_on_signals="load.*", max_defer_time=None) as coordinator:
            with sink.hold("load.cpu"):
                with sink.hold("load.db"):
                    await coordinator.enqueue(1)
                await settle()
                assert started == {}
            await settle()
            assert list(started) == [1]

    async def test_what_runs_goes_on(self):
        sink = SignalSink()
        ended = []

        async def body(item):
            await asyncio.sleep(1)
            ended.append(item)

        async with WorkCoordinator(body, signals=sink, defer_on_signals="busy") as coordinator:
            await coordinator.enqueue(1)
            await settle()
            with sink.hold("busy"):
                await asyncio.sleep(1)
                await settle()
                assert ended == [1]

    async def test_a_wait_that_is_cancelled_leaves_nothing(self):
        sink = SignalSink(max_age=None)
        async with WorkCoordinator(
            nothing, signals=sink, defer_on_signals="busy", max_defer_time=5, max_operation_lifetime=None
        ) as coordinator:
            with sink.hold("busy"):
                operation = await coordinator.enqueue(1)
                await settle()
                operation.cancel()
            await settle()
            assert_quiet(coordinator)

    async def test_a_deferral_timed_on_a_loop_that_has_gone_is_timed_anew_on_the_next(self):
        def run(main):
            result = []
            thread = threading.Thread(target=lambda: result.append(asyncio.run(main())))
            thread.start()
            thread.join()
            return result[0]

        sink = SignalSink(max_age=None)
        coordinator = WorkCoordinator(nothing, signals=sink, defer_on_signals="busy", max_defer_time=0.05)
        sink.emit("busy")

        async def leave():
            await coordinator.enqueue(1)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return coordinator.pending_count

        async def stay():
            await asyncio.wait_for(coordinator.run(2), 5)
            await coordinator.aclose()
            return coordinator.total_completed

        assert run(leave) == 1
        assert run(stay) == 1


class TestEnding:
    @pytest.mark.parametrize("limit", [None, 5.0])
    @pytest.mark.parametrize("pauses", [False, True])
    @pytest.mark.parametrize("how", ["drain", "aclose", "leave", "signal", "cancel", "fail"])
    @every_coordinator
    async def test_it_ends_while_something_is_held_back(self, make, how, pauses, limit):
        """L8, P2, invariant 14."""
        sink = SignalSink(max_age=None)
        sink.emit("stuck")
        began = now()
        async with asyncio.timeout(100):
            coordinator = make(nothing, signals=sink, defer_on_signals="stuck", max_defer_time=limit)
            try:
                async with coordinator:
                    await coordinator.enqueue_many(range(3))
                    await settle()
                    if pauses:
                        coordinator.pause()
                    match how:
                        case "drain":
                            assert (await coordinator.drain()).completed == 3
                        case "aclose":
                            await coordinator.aclose()
                        case "signal":
                            sink.emit("coordinator.drain.all")
                            await coordinator.join()
                        case "cancel":
                            await coordinator.cancel()
                        case "fail":
                            raise ZeroDivisionError
            except ZeroDivisionError:
                assert how == "fail"
        assert now() - began <= (limit or 0)
        done = coordinator.total_cancelled if how in {"cancel", "fail"} else coordinator.total_completed
        assert done == 3
        assert_quiet(coordinator)
        assert sink.statistics().subscriptions == 0

    async def test_a_drain_lifts_an_endless_deferral_for_good(self):
        """A cause that comes and goes and comes again while it drains holds nothing any more."""
        sink = SignalSink()
        body, started = recorder()

        async def slow(item):
            await body(item)
            await asyncio.sleep(1)

        async with WorkCoordinator(
            slow, signals=sink, defer_on_signals="stuck", max_defer_time=None, max_concurrency=1
        ) as coordinator:
            with sink.hold("stuck"):
                await coordinator.enqueue_many(range(3))
                draining = asyncio.create_task(coordinator.drain())
                await asyncio.sleep(0.5)
            with sink.hold("stuck"):
                await asyncio.wait_for(draining, 10)
        assert len(started) == 3

    async def test_leaving_with_a_lane_that_is_held_back_ends(self):
        sink = SignalSink(max_age=None)
        sink.emit("night")
        async with asyncio.timeout(100):
            async with PriorityWorkCoordinator(
                nothing, lanes=[Lane("hot"), Lane("bulk", defer_on_signals="night")], signals=sink, max_defer_time=None
            ) as coordinator:
                await coordinator.enqueue(1, lane="bulk")
        assert coordinator.total_completed == 1


class TestDrain:
    @pytest.mark.parametrize(
        ("name", "key", "drains"),
        [
            ("coordinator.drain.all", None, True),
            ("coordinator.drain.all", "orders", True),
            ("coordinator.drain.all", "other", False),
            ("coordinator.drain", "orders", True),
            ("coordinator.drain", "other", False),
            ("coordinator.drain", None, False),
            ("coordinator.drain.orders", None, False),
        ],
    )
    @every_coordinator
    async def test_the_signals_for_all_and_for_one_by_name(self, make, name, key, drains):
        """S13, C12: the key is the name, a text."""
        sink = SignalSink()
        async with make(nothing, signals=sink, name="orders") as coordinator:
            await coordinator.enqueue(1)
            sink.emit(name, key=key)
            assert coordinator.is_closed is drains
        assert coordinator.total_completed == 1

    @every_coordinator
    async def test_an_idle_one_is_drained_at_once(self, make):
        """C9."""
        sink = SignalSink()
        async with make(nothing, signals=sink) as coordinator:
            sink.emit("coordinator.drain.all")
            with pytest.raises(CoordinatorClosed):
                await coordinator.enqueue(1)

    async def test_one_that_was_never_used_on_a_loop_is_drained(self):
        sink = SignalSink()
        coordinator = WorkCoordinator(nothing, signals=sink)
        sink.emit("coordinator.drain.all")
        assert coordinator.is_closed

    @every_coordinator
    async def test_an_old_signal_drains_nothing(self, make):
        """C10."""
        sink = SignalSink()
        sink.emit("coordinator.drain.all")
        async with make(nothing, signals=sink) as coordinator:
            for number in range(3):
                await coordinator.run(number)
        assert coordinator.total_completed == 3

    @every_coordinator
    async def test_names_of_ones_own_drain_too(self, make):
        """C11."""
        sink = SignalSink()
        async with make(nothing, signals=sink, drain_on_signals=("shutdown.*", "deploy")) as coordinator:
            sink.emit("coordinator.drain.all")
            sink.emit("shutdown.now", key="another")
            assert not coordinator.is_closed
            sink.emit("shutdown.now")
            assert coordinator.is_closed

    @every_coordinator
    async def test_it_may_be_completed_and_drained_again_afterwards(self, make):
        """C13, and draining runs what was accepted."""
        sink = SignalSink()
        body, started = recorder()
        async with make(body, signals=sink, max_concurrency=1) as coordinator:
            await coordinator.enqueue_many(range(3))
            sink.emit("coordinator.drain.all")
            sink.emit("coordinator.drain.all")
            coordinator.complete()
            assert (await coordinator.drain()).completed == 3
        assert len(started) == 3

    async def test_a_signal_that_is_wiped_in_the_same_breath_is_heard(self):
        """S12."""
        sink = SignalSink()
        async with WorkCoordinator(nothing, signals=sink) as coordinator:
            sink.emit("coordinator.drain.all")
            sink.clear()
            assert coordinator.is_closed

    async def test_no_patterns_no_draining(self):
        sink = SignalSink()
        async with WorkCoordinator(nothing, signals=sink, drain_on_signals=()) as coordinator:
            sink.emit("coordinator.drain.all")
            await coordinator.run(1)
        assert coordinator.total_completed == 1

    async def test_a_body_may_drain_its_own_coordinator(self):
        async def body(item, operation):
            operation.emit("coordinator.drain.all")

        async with WorkCoordinator(body, max_concurrency=1) as coordinator:
            await coordinator.enqueue(1)
            await coordinator.enqueue(2)
            await coordinator.join()
            assert coordinator.is_closed
        assert coordinator.total_completed == 2

    async def test_one_whose_loop_has_gone_is_drained(self):
        sink = SignalSink()
        coordinator = WorkCoordinator(nothing, signals=sink)
        thread = threading.Thread(target=lambda: asyncio.run(coordinator.run(1)))
        thread.start()
        thread.join()
        sink.emit("coordinator.drain.all")
        await settle()
        assert coordinator.is_closed
        await coordinator.aclose()


class TestClear:
    @every_coordinator
    async def test_a_new_signal_clears_the_sink_once(self, make):
        """C8, C12: for ever after, and for the next items, nothing more is cleared."""
        sink = SignalSink()

        async def body(item, operation):
            operation.emit("item.done")

        async with make(body, signals=sink, clear_on_signals="reset") as coordinator:
            await coordinator.enqueue_many(range(5))
            await coordinator.join()
            assert sink.count() == 5
            sink.emit("reset")
            assert sink.count() == 0
            await coordinator.enqueue_many(range(5))
            await coordinator.join()
            assert sink.count("item.done") == 5

    @every_coordinator
    async def test_matching_ones_only_if_asked(self, make):
        sink = SignalSink()
        async with make(nothing, signals=sink, clear_on_signals="error.*", clear="matching"):
            sink.emit("warning.low")
            sink.emit("errors")
            sink.emit("error.db")
            assert sorted(sink.counts()) == ["errors", "warning.low"]

    async def test_an_old_signal_clears_nothing(self):
        sink = SignalSink()
        sink.emit("reset")
        sink.emit("other")
        async with WorkCoordinator(nothing, signals=sink, clear_on_signals="reset") as coordinator:
            await coordinator.run(1)
        assert sink.count() == 2

    async def test_clearing_on_everything_ends(self):
        sink = SignalSink()
        async with WorkCoordinator(nothing, signals=sink, clear_on_signals="*"):
            sink.emit("any")
        assert sink.count() == 0

    async def test_clearing_ends_a_deferral(self):
        sink = SignalSink()
        async with WorkCoordinator(
            nothing, signals=sink, clear_on_signals="reset", defer_on_signals="busy", max_defer_time=None
        ) as coordinator:
            sink.emit("busy")
            operation = await coordinator.enqueue(1)
            await settle()
            sink.emit("reset")
            await operation


class TestOptions:
    @every_coordinator
    async def test_reactions_need_no_shared_sink(self, make):
        """OP2: the coordinator's own is as good."""
        body, started = recorder()
        async with make(
            body, defer_on_signals="busy", cancel_on_signals="closed", resume_on_signals="free", max_defer_time=None
        ) as coordinator:
            coordinator.signals.emit("busy")
            await coordinator.enqueue(1)
            await settle()
            assert started == {}
            coordinator.signals.emit("free")
            await settle()
            assert list(started) == [1]
            coordinator.signals.emit("closed")
            await coordinator.enqueue(2)
            await coordinator.join()
        assert coordinator.total_skipped == 1

    @pytest.mark.parametrize(
        "options",
        [
            {"resume_on_signals": "ready"},
            {"on_defer_timeout": "skip"},
            {"on_defer_timeout": "skip", "defer_on_signals": "busy", "max_defer_time": None},
            {"clear": "matching"},
        ],
        ids=str,
    )
    @every_coordinator
    def test_what_would_do_nothing_is_refused(self, make, options):
        """OP1."""
        with pytest.raises(InvalidOption, match="beside it"):
            make(nothing, **options)

    def test_the_signals_of_a_lane_count(self):
        PriorityWorkCoordinator(
            nothing,
            lanes=[Lane("hot", defer_on_signals="busy")],
            resume_on_signals="ready",
            on_defer_timeout="skip",
        )

    @pytest.mark.parametrize(
        "option",
        ["cancel_on_signals", "defer_on_signals", "resume_on_signals", "clear_on_signals", "drain_on_signals"],
    )
    def test_patterns_are_checked(self, option):
        for wrong in ("", " ", ", ,", ["ok", ""]):
            with pytest.raises(InvalidOption, match=option):
                EphemeralOptions(**{option: wrong})
        for wrong in (7, [7], {"a": 1}, b"a"):
            with pytest.raises(InvalidOptionType, match=option):
                EphemeralOptions(**{option: wrong})
        assert getattr(EphemeralOptions(**{option: "a, b.*"}), option) == ("a, b.*",)

    @pytest.mark.parametrize("option", ["on_signal", "on_signal_retracted", "signals"])
    def test_hooks_and_sinks_are_checked(self, option):
        with pytest.raises(InvalidOptionType, match=option):
            EphemeralOptions(**{option: "no"})

    async def test_comma_lists_and_tuples_mean_the_same(self):
        for patterns in ("a.*, b", ("a.*", "b")):
            for name in ("a.1", "b"):
                async with WorkCoordinator(nothing, cancel_on_signals=patterns) as coordinator:
                    coordinator.signals.emit(name)
                    await coordinator.enqueue(1)
                assert coordinator.total_skipped == 1


class TestSharing:
    @every_coordinator
    async def test_one_condition_holds_back_all_that_share_the_sink(self, make):
        sink = SignalSink()
        options = {"signals": sink, "defer_on_signals": "busy", "max_defer_time": None}
        async with make(nothing, **options) as one, make(nothing, **options) as two:
            with sink.hold("busy"):
                operations = [await one.enqueue(1), await two.enqueue(2)]
                await settle()
                assert [each.status for each in operations] == [OperationStatus.PENDING] * 2
            await settle()
            assert [each.status for each in operations] == [OperationStatus.COMPLETED] * 2

    @every_coordinator
    async def test_one_that_is_dropped_is_not_kept_and_leaves_no_subscription(self, make):
        """S18, V6; the hooks may refer to the coordinator itself."""
        sink = SignalSink()

        def engine_of_one():
            itself = []
            coordinator = make(
                nothing,
                signals=sink,
                cancel_on_signals="a",
                defer_on_signals="b",
                resume_on_signals="c",
                clear_on_signals="d",
                on_signal=itself.append,
                on_signal_retracted=lambda _: itself,
            )
            itself.append(coordinator)
            return weakref.ref(coordinator.engine)

        alive = engine_of_one()
        gc.collect()
        assert alive() is None
        assert sink.statistics().subscriptions == 0
        assert not sink._table.listeners

    @every_coordinator
    async def test_closing_unsubscribes(self, make):
        sink = SignalSink()
        async with make(
            nothing, signals=sink, cancel_on_signals="a", defer_on_signals="b", clear_on_signals="d", on_signal=print
        ):
            assert sink.statistics().subscriptions > 0
        assert not sink._table.listeners

    @pytest.mark.real_loop("asyncio", "uvloop")
    @every_coordinator
    async def test_a_sink_delivered_on_another_loop_wakes_it_safely(self, make):
        """The other loop owns the sink; whatever touches the coordinator is handed over to its own."""
        ready = threading.Event()
        leave = []

        async def own():
            sink.bind()
            stop = asyncio.Event()
            leave.append((asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()

        sink = SignalSink()
        other = threading.Thread(target=lambda: asyncio.run(own()))
        other.start()
        ready.wait()
        loop, stop = leave[0]
        here = threading.get_ident()
        heard = []

        async def later(event):
            heard.append((event.name, threading.get_ident()))

        def at_once(event):
            heard.append((event.name, threading.get_ident()))

        async def body(item, operation):
            operation.emit("said")
            operation.retract("said")

        try:
            async with make(
                body,
                signals=sink,
                defer_on_signals="busy",
                max_defer_time=None,
                on_signal=at_once,
                on_signal_retracted=later,
            ) as coordinator:
                sink.emit("busy")
                operation = await coordinator.enqueue(1)
                await asyncio.sleep(0.01)
                assert operation.status is OperationStatus.PENDING
                loop.call_soon_threadsafe(sink.retract, "busy")
                await asyncio.wait_for(operation, 5)
                while len(heard) < 2:  # noqa: ASYNC110 - another thread has to come to it
                    await asyncio.sleep(0.001)
                loop.call_soon_threadsafe(sink.emit, "coordinator.drain.all")
                while not coordinator.is_closed:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.001)
            assert sorted(heard) == [("said", here), ("said", here)]
        finally:
            loop.call_soon_threadsafe(stop.set)
            other.join()

    @pytest.mark.real_loop("asyncio", "uvloop")
    async def test_another_thread_may_end_a_condition(self):
        sink = SignalSink()
        async with WorkCoordinator(nothing, signals=sink, defer_on_signals="busy", max_defer_time=None) as coordinator:
            sink.emit("busy")
            operation = await coordinator.enqueue(1)
            await asyncio.sleep(0)
            thread = threading.Thread(target=sink.retract, args=("busy",))
            thread.start()
            await asyncio.wait_for(operation, 5)
            thread.join()


class TestOtherFaces:
    async def test_background_skips_defers_and_drains(self):
        sink = SignalSink()
        async with Background(
            signals=sink, cancel_on_signals="closed", defer_on_signals="busy", max_defer_time=None
        ) as background:
            with sink.hold("busy"):
                operation = await background.spawn(nothing, 1)
                await settle()
                assert operation.status is OperationStatus.PENDING
            await operation
            with sink.hold("closed"):
                skipped = await background.spawn(nothing, 1)
                with pytest.raises(OperationSkipped):
                    await skipped
            sink.emit("coordinator.drain.all")
            assert background.is_closed

    async def test_for_each_skips_and_waits(self):
        sink = SignalSink()
        body, started = recorder()
        sink.emit("busy")
        asyncio.get_running_loop().call_later(3, sink.retract, "busy")
        began = now()
        report = await for_each(range(3), body, signals=sink, defer_on_signals="busy", max_defer_time=None)
        assert report.completed == 3
        assert set(started.values()) == {began + 3}
        sink.emit("closed")
        report = await for_each(range(3), body, signals=sink, cancel_on_signals="closed", errors="collect")
        assert (report.completed, report.skipped) == (0, 3)
        assert not sink._table.listeners


class TestThings:
    async def test_deferral_and_pause_are_told_apart(self):
        sink = SignalSink()
        async with WorkCoordinator(nothing, signals=sink, defer_on_signals="busy", max_defer_time=None) as coordinator:
            coordinator.pause()
            with sink.hold("busy"):
                operation = await coordinator.enqueue(1)
                coordinator.resume()
                await settle()
                assert operation.status is OperationStatus.PENDING
                assert not coordinator.is_paused

    async def test_the_log_names_the_signal_and_never_the_item(self, caplog):
        caplog.set_level(logging.DEBUG, "ephemerals")
        sink = SignalSink()
        sink.emit("open")
        item = Payload()
        async with WorkCoordinator(nothing, signals=sink, cancel_on_signals="open") as coordinator:
            await coordinator.enqueue(item)
        assert "was skipped: open" in caplog.text
        assert item.secret not in caplog.text

    async def test_the_window_is_not_searched_for_each_item(self):
        """S19: a watch is asked, whatever the window holds."""
        sink = SignalSink(max_capacity=10_000)
        for number in range(5_000):
            sink.emit(f"name.{number % 50}")

        def refuse(*_):
            pytest.fail("the window was searched")

        async with WorkCoordinator(
            nothing, signals=sink, cancel_on_signals="x.*", defer_on_signals="y.*"
        ) as coordinator:
            searched = sink._index.cells
            sink._index.__class__.cells = refuse
            try:
                await coordinator.enqueue_many(range(100))
                await coordinator.join()
            finally:
                sink._index.__class__.cells = searched.__func__
        assert coordinator.total_completed == 100
