"""Volatile: an operation that says so is forgotten, and nobody else is."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.coordinators import assert_adds_up, every_coordinator

from ephemerals import FinalizationReason, InvalidOption, WorkCoordinator
from ephemerals.atoms import Volatile
from ephemerals.signals import SignalSink
from ephemerals.testing import assert_forgotten, assert_quiet, run


async def body(item, operation):
    for signal in item:
        operation.emit(signal)
    await asyncio.sleep(1)
    if "fail" in item:
        raise OSError


@every_coordinator
async def test_what_emits_kill_is_never_seen_as_ended(make):
    left = []
    coordinator = make(body, on_finalized=lambda snapshot, reason: left.append((snapshot.id, reason)))
    async with coordinator, asyncio.TaskGroup():
        with Volatile(coordinator) as volatile:
            wanted = [await coordinator.enqueue(["kill.me"]), await coordinator.enqueue(["fail", "kill.me"])]
            others = [await coordinator.enqueue([]), await coordinator.enqueue(["killer", "fail"])]
            await asyncio.sleep(0.5)
            assert coordinator.get(wanted[0].id).name == coordinator.get(others[0].id).name  # not cancelled
            await coordinator.join()
        assert {each.id for each in coordinator.snapshot()} == {each.id for each in others}
        assert sorted(left) == sorted((each.id, FinalizationReason.KILLED) for each in wanted)
        assert sorted(each.id for each in coordinator.echoes("kill.*")) == sorted(each.id for each in wanted)
        assert [each.id for each in (await coordinator.drain()).failures] == [others[1].id]
        assert_adds_up(coordinator)
    assert volatile.statistics() == {"killed": 2}
    assert_quiet(coordinator, volatile)


async def test_whoever_waits_gets_the_result_all_the_same():
    async def double(number, operation):
        operation.emit("kill.now")
        return number * 2

    async with WorkCoordinator(double) as coordinator:
        with Volatile(coordinator):
            operation = await coordinator.enqueue(21)
            assert await operation == 42
            assert await operation == 42
            assert coordinator.get(operation.id) is None


async def test_what_has_ended_is_forgotten_at_once_pinned_or_not():
    sink = SignalSink()
    async with WorkCoordinator(body, signals=sink) as coordinator:
        with Volatile(coordinator, "erase") as volatile:
            operations = [await coordinator.enqueue([]) for _ in range(3)]
            await coordinator.join()
            operations[1].pin()
            for operation in operations[:2]:
                sink.emit("erase", operation_id=operation.id)
            assert [each.id for each in coordinator.snapshot()] == [operations[2].id]
            assert coordinator.statistics().pinned == 0
            sink.emit("erase", operation_id=operations[0].id)
            sink.emit("erase", operation_id=12345)
            sink.emit("erase")
            assert volatile.statistics() == {"killed": 2}


async def test_a_waiting_operation_may_be_told_in_advance():
    sink = SignalSink()
    async with WorkCoordinator(body, signals=sink, max_concurrency=1) as coordinator:
        with Volatile(coordinator):
            operations = [await coordinator.enqueue([]) for _ in range(3)]
            sink.emit("kill.it", operation_id=operations[1].id)
            sink.emit("kill.it", operation_id=operations[2].id)
            operations[2].cancel()
            await coordinator.join()
            assert [each.id for each in coordinator.snapshot()] == [operations[0].id]


async def test_a_predicate_comes_on_top_of_the_pattern():
    """VOL-1."""
    async with WorkCoordinator(body) as coordinator:
        with Volatile(coordinator, when=lambda event: event.name == "kill.yes"):
            for signals in (["kill.yes"], ["kill.no"], ["yes"]):
                await coordinator.enqueue(signals)
            await coordinator.join()
            assert len(coordinator.snapshot()) == 2


async def test_it_minds_its_own_coordinator_only():
    sink = SignalSink()
    async with WorkCoordinator(body, signals=sink) as mine, WorkCoordinator(body, signals=sink) as other:
        with Volatile(mine):
            await mine.enqueue(["kill.x"])
            await other.enqueue(["kill.x"])
            await mine.join()
            await other.join()
            assert (mine.snapshot(), len(other.snapshot())) == ([], 1)
        await mine.enqueue(["kill.x"])
        await mine.join()
        assert len(mine.snapshot()) == 1  # closed


async def test_what_is_told_during_the_end_leaves_no_trace():
    async with WorkCoordinator(body) as coordinator:
        Volatile(coordinator)
        await coordinator.enqueue(["kill.x"])
        await coordinator.aclose(grace=0)
    assert coordinator.echoes() == []
    assert_quiet(coordinator)


def test_it_does_not_keep_the_coordinator_alive():
    sink = SignalSink()

    async def main():
        async with WorkCoordinator(body, signals=sink) as coordinator:
            Volatile(coordinator)
        return weakref.ref(coordinator.engine)

    reference = run(main())
    gc.collect()
    assert reference() is None
    assert sink.statistics().subscriptions == 0


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=15), st.integers(0, 4))
def test_whatever_happens_the_window_keeps_exactly_the_others(plan, tracked):
    async def main():
        async with WorkCoordinator(body, max_concurrency=3, max_tracked_operations=tracked) as coordinator:
            with Volatile(coordinator):
                kept = []
                for kills, fails, is_pinned in plan:
                    operation = await coordinator.enqueue(["kill.x"] * kills + ["fail"] * fails)
                    if is_pinned:
                        operation.pin()
                    if not kills:
                        kept.append((operation.id, is_pinned))
                await coordinator.join()
                held = {each.id for each in coordinator.snapshot()}
                assert held <= {operation_id for operation_id, _ in kept}
                assert {operation_id for operation_id, is_pinned in kept if is_pinned} <= held
                loose = [operation_id for operation_id, is_pinned in kept if not is_pinned]
                assert len(held & set(loose)) == min(tracked, len(loose))
                assert coordinator.statistics().pinned == sum(is_pinned for _, is_pinned in kept)
                assert_adds_up(coordinator)
        assert_quiet(coordinator)

    run(main())


async def test_its_item_is_forgotten():
    async def kill(item, operation):
        operation.emit("kill.x", data=item)
        await asyncio.sleep(1)

    async with WorkCoordinator(kill, echo_capacity=0) as coordinator:
        with Volatile(coordinator):

            async def use(item):
                operation = await coordinator.enqueue(item)
                del item
                await coordinator.join()
                coordinator.signals.sink.clear()
                return coordinator.snapshot(), operation.id

            await assert_forgotten(use)


def test_wrong_options_are_refused():
    with pytest.raises(InvalidOption, match="coordinator"):
        Volatile(None)
    with pytest.raises(InvalidOption, match="when"):
        Volatile(WorkCoordinator(body), when=3)
