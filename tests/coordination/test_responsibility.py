"""Responsibility: a finished operation stays pinned until somebody acknowledges it, or time runs out."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref

import pytest
from tests.coordinators import every_coordinator

from ephemerals import (
    AcknowledgementOutcome,
    DeadlockError,
    InvalidOption,
    InvalidOptionType,
    KeyedWorkCoordinator,
    PinLimitReached,
    WorkCoordinator,
    WrongLoop,
)
from ephemerals.errors import SinkClosed
from ephemerals.signals import SignalKey, SignalSink
from ephemerals.testing import Payload, VirtualClock, assert_quiet

ACKNOWLEDGED, TIMED_OUT, FORGOTTEN = AcknowledgementOutcome

ONE = {"max_tracked_operations": 1, "max_operation_lifetime": 10}


async def work(item):
    await asyncio.sleep(1)
    return item


async def settle():
    await VirtualClock.current().settle()


async def push_out(coordinator):
    for _ in range(3):
        await coordinator.run("other")


@pytest.fixture
def sink():
    return SignalSink(max_age=3600)


@every_coordinator
async def test_it_stays_until_it_is_acknowledged(make, sink):
    async with make(work, signals=sink, **ONE) as coordinator:
        operation = await coordinator.enqueue("file")
        wait = asyncio.ensure_future(operation.acknowledged("file.*", timeout=300))
        await settle()
        assert operation.is_pinned  # before it has even started
        await push_out(coordinator)
        await asyncio.sleep(100)
        assert coordinator.get(operation.id) is not None
        event = sink.emit("file.fetched", operation_id=operation.id)
        result = await wait
        assert result
        assert (result.outcome, result.event) == (ACKNOWLEDGED, event)
        assert not operation.is_pinned
        assert coordinator.get(operation.id) is None  # it had outlived its time
        assert coordinator.statistics().pinned == 0
    assert_quiet(coordinator)
    assert sink.statistics().subscriptions <= 1  # the coordinator's own, of which it lets go when it is collected


@every_coordinator
async def test_when_nobody_does_it_is_let_go_on_time(make, sink, caplog):
    clock = VirtualClock.current()
    async with make(work, signals=sink, **ONE) as coordinator:
        operation = await coordinator.enqueue("file")
        began = clock.monotonic()
        with caplog.at_level(logging.WARNING, "ephemerals"):
            result = await operation.acknowledged("file.fetched", timeout=300)
        assert clock.monotonic() - began == pytest.approx(301)  # counted from its end
        assert not result
        assert (result.outcome, result.event) == (TIMED_OUT, None)
        assert coordinator.get(operation.id) is None
        assert sink.last("responsibility.expired").operation_id == operation.id
        assert [record.levelname for record in caplog.records if "acknowledged" in record.getMessage()] == ["WARNING"]
    assert_quiet(coordinator)


async def test_nobody_has_to_emit_for_time_to_run_out():
    """RESP-3: it is a timer that ends it."""
    async with WorkCoordinator(work) as coordinator:
        operation = await coordinator.enqueue("file")
        await operation
        wait = asyncio.ensure_future(operation.acknowledged("file.fetched", timeout=5))
        await asyncio.sleep(4.9)
        assert operation.is_pinned
        await asyncio.sleep(0.2)
        assert not operation.is_pinned
        assert (await wait).outcome is TIMED_OUT


class TestWhatCounts:
    async def test_the_id_at_any_time(self, sink):
        """RESP-1: an acknowledgement that comes early is not lost, wherever it comes."""
        async with WorkCoordinator(work, signals=sink) as coordinator:
            early, between, late = [await coordinator.enqueue(number) for number in range(3)]
            sink.emit("seen", operation_id=early.id)
            await asyncio.gather(early, between, late)
            sink.emit("seen", operation_id=between.id)
            assert (await early.acknowledged("seen", timeout=1)).outcome is ACKNOWLEDGED
            assert (await between.acknowledged("seen", timeout=1)).outcome is ACKNOWLEDGED
            assert (await late.acknowledged("seen", timeout=1)).outcome is TIMED_OUT
        assert_quiet(coordinator)

    async def test_one_that_comes_while_it_runs_counts_when_it_has_ended(self, sink):
        async with WorkCoordinator(work, signals=sink) as coordinator:
            operation = await coordinator.enqueue(1)
            wait = asyncio.ensure_future(operation.acknowledged("seen", timeout=60))
            await asyncio.sleep(0.5)
            sink.emit("seen", operation_id=operation.id)
            await settle()
            assert not wait.done()
            await operation
            assert await wait

    async def test_the_key_only_once_it_has_ended(self, sink):
        async with KeyedWorkCoordinator(str, work, signals=sink) as coordinator:
            first = await coordinator.enqueue("a")
            second = await coordinator.enqueue("a")
            waits = [asyncio.ensure_future(each.acknowledged("seen", timeout=60)) for each in (first, second)]
            await asyncio.sleep(1.5)
            sink.emit("seen", key="a")
            sink.emit("seen", key="b")
            sink.emit("seen")
            await settle()
            assert [each.done() for each in waits] == [True, False]
            await second
            later = coordinator.signals.emit("seen", key="a")
            assert (await waits[0]).event is not later
            assert (await waits[1]).event is later
        assert_quiet(coordinator)

    async def test_a_hashed_key_by_either_of_its_forms(self, sink):
        async with KeyedWorkCoordinator(str, work, signals=sink, key_privacy="hashed") as coordinator:
            one, other = await coordinator.enqueue("a"), await coordinator.enqueue("b")
            await asyncio.gather(one, other)
            waits = [asyncio.ensure_future(each.acknowledged("seen", timeout=60)) for each in (one, other)]
            await settle()
            coordinator.signals.emit("seen", key="a")
            sink.emit("seen", key="b")
            assert all(await asyncio.gather(*waits))

    async def test_not_what_is_meant_for_another(self, sink):
        async with KeyedWorkCoordinator(str, work, signals=sink) as coordinator:
            one, other = await coordinator.enqueue("a"), await coordinator.enqueue("a")
            await asyncio.gather(one, other)
            wait = asyncio.ensure_future(one.acknowledged("seen", timeout=60))
            await settle()
            sink.emit("seen", key="a", operation_id=other.id)
            sink.emit("other", operation_id=one.id)
            assert (await wait).outcome is TIMED_OUT

    @pytest.mark.parametrize("is_late", [True, False])
    async def test_not_what_it_said_itself_while_it_ran(self, sink, is_late):
        """RESP-5."""

        async def body(item, operation):
            operation.emit("file.saved")

        async with WorkCoordinator(body, signals=sink) as coordinator:
            operation = await coordinator.enqueue(1)
            if is_late:
                await operation
            wait = asyncio.ensure_future(operation.acknowledged("file.*", timeout=60))
            await asyncio.sleep(1)
            assert not wait.done()
            event = operation.emit("file.fetched")  # by whoever holds the handle
            assert (await wait).event is event

    async def test_a_handler_that_reacts_to_its_words_may_acknowledge_it_before_it_has_ended(self, sink):
        async def body(item, operation):
            operation.emit("file.saved")

        sink.subscribe("file.saved", lambda event: sink.emit("file.fetched", operation_id=event.operation_id))
        async with WorkCoordinator(body, signals=sink) as coordinator:
            operation = await coordinator.enqueue(1)
            assert await operation.acknowledged("file.fetched", timeout=1)

    async def test_a_typed_name_and_a_comma_list(self, sink):
        async with WorkCoordinator(work, signals=sink) as coordinator:
            for pattern in (SignalKey[int]("seen"), "fetched, seen"):
                operation = await coordinator.enqueue(1)
                wait = asyncio.ensure_future(operation.acknowledged(pattern, timeout=None))
                await operation
                sink.emit("seen", 3, operation_id=operation.id)
                assert (await wait).event.data == 3


class TestEnds:
    @pytest.mark.parametrize("how", ["fails", "is cancelled"])
    async def test_however_the_operation_ends_it_stays(self, sink, how):
        async def body(item):
            await asyncio.sleep(1)
            raise ValueError(item)

        async with WorkCoordinator(body, signals=sink) as coordinator:
            operation = await coordinator.enqueue(1)
            wait = asyncio.ensure_future(operation.acknowledged("seen", timeout=60))
            await asyncio.sleep(0.5)
            if how == "is cancelled":
                operation.cancel()
            await coordinator.join()
            assert operation.is_pinned
            sink.emit("seen", operation_id=operation.id)
            assert await wait

    @pytest.mark.parametrize("seconds", [0.5, 5])
    async def test_a_wait_that_is_cancelled_is_cancelled_and_unpins(self, sink, seconds):
        async with WorkCoordinator(work, signals=sink) as coordinator:
            operation = await coordinator.enqueue(1)
            subscriptions = sink.statistics().subscriptions
            wait = asyncio.ensure_future(operation.acknowledged("seen", timeout=60))
            await asyncio.sleep(seconds)
            assert operation.is_pinned
            wait.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wait
            assert not operation.is_pinned
            assert sink.statistics().subscriptions == subscriptions
            assert await operation == 1
        assert_quiet(coordinator)

    @pytest.mark.parametrize("how", ["evict", "unpin", "aclose"])
    async def test_what_is_taken_away_is_told_at_once(self, sink, how):
        async with WorkCoordinator(work, signals=sink) as coordinator:
            operation = await coordinator.enqueue(1)
            wait = asyncio.ensure_future(operation.acknowledged("seen", timeout=None))
            await operation
            await settle()
            if how == "evict":
                coordinator.evict(operation.id)
            elif how == "unpin":
                operation.unpin()
            else:
                await coordinator.aclose()
            assert (await wait).outcome is FORGOTTEN
            assert coordinator.statistics().pinned == 0

    async def test_what_is_gone_already_cannot_be_pinned(self, sink):
        async with WorkCoordinator(work, signals=sink) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
            coordinator.evict(operation.id)
            assert (await operation.acknowledged("seen", timeout=60)).outcome is FORGOTTEN
            sink.emit("seen", operation_id=operation.id)
            assert (await operation.acknowledged("seen", timeout=60)).outcome is ACKNOWLEDGED

    async def test_closing_the_sink_ends_it(self, sink):
        async with WorkCoordinator(work, signals=sink) as coordinator:
            operation = await coordinator.enqueue(1)
            wait = asyncio.ensure_future(operation.acknowledged("seen", timeout=60))
            await operation
            await sink.aclose()
            with pytest.raises(SinkClosed):
                await wait
            assert not operation.is_pinned
            with pytest.raises(SinkClosed):
                await operation.acknowledged("seen", timeout=60)


class TestPins:
    async def test_a_pin_by_hand_stays(self, sink):
        async with WorkCoordinator(work, signals=sink) as coordinator:
            before, meanwhile = await coordinator.enqueue(1), await coordinator.enqueue(2)
            before.pin()
            waits = [asyncio.ensure_future(each.acknowledged("seen", timeout=5)) for each in (before, meanwhile)]
            await settle()
            meanwhile.pin()
            await asyncio.gather(*waits)
            assert before.is_pinned
            assert meanwhile.is_pinned
            assert coordinator.get(before.id).is_pinned

    async def test_each_of_several_waits_for_its_own_acknowledgement(self, sink):
        """RESP-2."""
        async with WorkCoordinator(work, signals=sink) as coordinator:
            operation = await coordinator.enqueue(1)
            first = asyncio.ensure_future(operation.acknowledged("fetched", timeout=60))
            second = asyncio.ensure_future(operation.acknowledged("archived", timeout=60))
            await operation
            sink.emit("fetched", operation_id=operation.id)
            assert await first
            assert operation.is_pinned
            sink.emit("archived", operation_id=operation.id)
            assert await second
            assert not operation.is_pinned

    async def test_too_many_are_refused(self, sink):
        async with WorkCoordinator(work, signals=sink, max_pinned=1) as coordinator:
            one, other = await coordinator.enqueue(1), await coordinator.enqueue(2)
            one.pin()
            with pytest.raises(PinLimitReached):
                await other.acknowledged("seen", timeout=60)
            one.unpin()
            wait = asyncio.ensure_future(other.acknowledged("seen", timeout=60))
            await settle()
            assert other.is_pinned
            sink.emit("seen", operation_id=other.id)
            await wait


async def test_a_body_that_waits_for_itself_is_told_so():
    async def body(item, operation):
        with pytest.raises(DeadlockError):
            await operation.acknowledged("seen", timeout=60)
        assert not operation.is_pinned

    async with WorkCoordinator(body) as coordinator:
        await coordinator.run(1)
    assert_quiet(coordinator)


async def test_a_body_that_waits_for_what_cannot_start_before_it_ends_is_told_so():
    told = []

    async def body(item):
        if item is None:
            return
        try:
            await others[0].acknowledged("seen", timeout=60)
        except DeadlockError as error:
            told.append(error)

    others = []
    async with WorkCoordinator(body, max_concurrency=1) as coordinator:
        await coordinator.enqueue(1)
        others.append(await coordinator.enqueue(None))
        await coordinator.join()
    assert len(told) == 1
    assert_quiet(coordinator)


async def test_so_it_is_when_that_becomes_so_while_it_waits():
    told = []

    async def body(item, operation):
        if item is None:
            return
        coordinator.pause()
        other = await coordinator.enqueue(None)
        try:
            await other.acknowledged("seen", timeout=60)
        except DeadlockError as error:
            told.append(error)
        assert not other.is_pinned

    async with WorkCoordinator(body, max_concurrency=1) as coordinator:
        await coordinator.enqueue(1)
        await asyncio.sleep(5)
        assert told == []
        coordinator.resume()
        await coordinator.join()
    assert len(told) == 1
    assert_quiet(coordinator)


@pytest.mark.parametrize(
    ("pattern", "timeout", "error"),
    [
        ("", 1, InvalidOption),
        (" , ", 1, InvalidOption),
        (None, 1, InvalidOptionType),
        ("seen", 0, InvalidOption),
        ("seen", -1, InvalidOption),
        ("seen", "soon", InvalidOptionType),
    ],
)
async def test_what_makes_no_sense_is_refused(pattern, timeout, error):
    async with WorkCoordinator(work) as coordinator:
        operation = await coordinator.enqueue(1)
        with pytest.raises(error):
            await operation.acknowledged(pattern, timeout=timeout)
        assert not operation.is_pinned


async def test_waiting_for_it_keeps_nothing_of_a_failure(sink):
    async def body(item):
        raise ValueError("no luck")

    gc.disable()
    try:
        async with WorkCoordinator(body, signals=sink) as coordinator:
            item = Payload()
            alive = weakref.ref(item)
            operation = await coordinator.enqueue(item)
            del item
            wait = asyncio.ensure_future(operation.acknowledged("seen", timeout=60))
            await coordinator.join()
            await settle()
            assert operation.is_pinned
            assert alive() is None
            sink.emit("seen", operation_id=operation.id)
            assert await wait
    finally:
        gc.enable()


@pytest.mark.real_loop
async def test_another_loop_is_refused():
    async with WorkCoordinator(work) as coordinator:
        operation = await coordinator.enqueue(1)

        def elsewhere():
            with pytest.raises(WrongLoop):
                asyncio.run(operation.acknowledged("seen", timeout=1))

        await asyncio.to_thread(elsewhere)
        operation.cancel()
