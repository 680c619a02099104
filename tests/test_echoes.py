"""Echoes: a few fields of an operation, for a moment after it has left the window."""

from __future__ import annotations

import asyncio
import weakref
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta

import pytest
from tests.coordinators import every_coordinator

from ephemerals import FinalizationReason, KeyedWorkCoordinator, OperationStatus, ResultCoordinator, WorkCoordinator
from ephemerals.testing import Payload, assert_quiet

START = datetime(2026, 1, 1, tzinfo=UTC)


async def work(item):
    await asyncio.sleep(1)
    if item == "bad":
        raise LookupError(item)
    return item


async def test_what_leaves_the_window_echoes_with_its_last_state_and_the_reason():  # faults E2, E5
    async with KeyedWorkCoordinator(lambda item: item, work, max_tracked_operations=1) as coordinator:
        bad = await coordinator.enqueue("bad")
        await coordinator.join()
        assert coordinator.echoes() == []
        good = await coordinator.enqueue("good")
        await coordinator.join()
        (echo,) = coordinator.echoes()
        assert (echo.id, echo.key, echo.name) == (bad.id, "bad", "work")
        assert (echo.status, echo.error_type) == (OperationStatus.FAILED, "LookupError")
        assert echo.reason is FinalizationReason.SIZE
        assert echo.left_at == START + timedelta(seconds=2)
        assert echo.signals == ()
        assert coordinator.evict(good.id)
        assert [(each.id, each.reason, each.error_type) for each in coordinator.echoes()] == [
            (bad.id, FinalizationReason.SIZE, "LookupError"),
            (good.id, FinalizationReason.EVICTED, None),
        ]
        with pytest.raises(FrozenInstanceError):
            echo.key = "other"


async def test_echoes_may_be_asked_for_by_a_pattern_of_their_signals():  # fault E6
    async def body(item, operation):
        operation.emit(item)

    async with WorkCoordinator(body, max_concurrency=1, max_tracked_operations=0) as coordinator:
        for name in ("load.started", "load.failed", "mail.sent"):
            await coordinator.run(name)
        shown = [[event.name for event in each.signals] for each in coordinator.echoes(pattern="load.*")]
        assert shown == [["load.started"], ["load.failed"]]
        assert len(coordinator.echoes()) == 3


async def test_an_echo_stays_for_its_retention_and_not_a_moment_longer():
    async with WorkCoordinator(work, max_tracked_operations=0, echo_retention=60) as coordinator:
        await coordinator.run(1)
        await asyncio.sleep(59.999)
        assert len(coordinator.echoes()) == 1
        await asyncio.sleep(0.001)
        assert coordinator.echoes() == []


async def test_idle_echoes_are_dropped_by_a_timer_even_if_nobody_looks():
    async with WorkCoordinator(work, max_tracked_operations=0, echo_retention=60) as coordinator:
        await coordinator.run(1)
        assert len(coordinator.engine.window.echoes._records) == 1
        await asyncio.sleep(60)
        assert not coordinator.engine.window.echoes._records
        assert_quiet(coordinator)


async def test_the_newest_echoes_are_kept_up_to_the_capacity():
    async with WorkCoordinator(work, max_concurrency=1, max_tracked_operations=0, echo_capacity=3) as coordinator:
        operations = [await coordinator.enqueue(each) for each in range(10)]
        await coordinator.join()
        assert [each.id for each in coordinator.echoes()] == [each.id for each in operations[-3:]]


@pytest.mark.parametrize("options", [{"echo_capacity": 0}, {"echo_retention": 0}])
async def test_zero_keeps_no_echo_and_needs_no_timer(options):
    async with WorkCoordinator(work, max_tracked_operations=0, **options) as coordinator:
        await coordinator.run(1)
        assert coordinator.echoes() == []
        assert_quiet(coordinator)


@every_coordinator
async def test_every_coordinator_has_echoes_and_none_holds_a_result(make):  # fault E1
    async def body(_item):
        return Payload()

    async with make(body, max_tracked_operations=0) as coordinator:
        reference = weakref.ref(await coordinator.run(1))
        assert len(coordinator.echoes()) == 1
        assert reference() is None


async def test_a_source_fed_coordinator_has_echoes_too():  # fault E1
    async def source():
        yield 1

    coordinator = ResultCoordinator.from_async_iterable(source(), work, max_tracked_operations=0)
    async with coordinator:
        await coordinator.drain()
        assert len(coordinator.echoes()) == 1


async def test_an_echo_comes_though_the_finalization_hook_raises():  # fault E4
    def hook(_snapshot, _reason):
        raise RuntimeError

    async with WorkCoordinator(work, max_tracked_operations=0, on_finalized=hook) as coordinator:
        await coordinator.run(1)
        assert len(coordinator.echoes()) == 1


async def test_hashed_keys_stay_hashed_in_echoes():
    coordinator = KeyedWorkCoordinator(lambda item: item, work, max_tracked_operations=0, key_privacy="hashed")
    async with coordinator:
        await coordinator.run("ada@example.org")
        (echo,) = coordinator.echoes()
        assert echo.key
        assert "ada" not in repr(echo)


async def test_closing_drops_the_echoes():
    coordinator = WorkCoordinator(work, max_tracked_operations=0)
    await coordinator.run(1)
    await coordinator.aclose()
    assert coordinator.echoes() == []
