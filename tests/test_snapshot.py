"""Snapshots: plain metadata of one operation at one moment, frozen."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from ephemerals import KeyedWorkCoordinator, OperationSnapshot, OperationStatus, ResultCoordinator, WorkCoordinator
from ephemerals.testing import VirtualClock

START = datetime(2026, 1, 1, tzinfo=UTC)


async def rest(seconds):
    await asyncio.sleep(seconds)
    return seconds


async def fail(item):
    raise ValueError(f"no {item}")


async def test_a_pending_a_running_and_an_ended_operation_show_their_times():  # fault O7
    async with WorkCoordinator(rest, max_concurrency=1) as coordinator:
        first = await coordinator.enqueue(10)
        second = await coordinator.enqueue(5)
        await asyncio.sleep(4)
        running, pending = coordinator.snapshot()
        assert (running.id, running.status, running.finished_at) == (first.id, OperationStatus.RUNNING, None)
        assert (running.waiting_time, running.duration) == (0, 4)
        assert (pending.id, pending.status, pending.started_at) == (second.id, OperationStatus.PENDING, None)
        assert (pending.waiting_time, pending.duration) == (4, 0)
        await coordinator.join()
        one, two = coordinator.snapshot()
        assert (one.enqueued_at, one.started_at, one.finished_at) == (START, START, START + timedelta(seconds=10))
        assert (two.started_at, two.finished_at) == tuple(START + timedelta(seconds=each) for each in (10, 15))
        assert (two.waiting_time, two.duration) == (10, 5)


async def test_a_snapshot_stays_as_it_was():
    async with WorkCoordinator(rest) as coordinator:
        operation = await coordinator.enqueue(10)
        await asyncio.sleep(1)
        before = operation.snapshot()
        await coordinator.drain()
        assert (before.status, before.duration, before.finished_at) == (OperationStatus.RUNNING, 1, None)


async def test_the_wall_clock_set_back_makes_no_duration_negative():  # fault O6
    async with WorkCoordinator(rest, max_concurrency=1) as coordinator:
        await coordinator.enqueue(10)
        await coordinator.enqueue(10)
        await asyncio.sleep(5)
        VirtualClock.current().step_wall(-3600)
        await coordinator.join()
        snapshots = coordinator.snapshot()
        assert [each.duration for each in snapshots] == [10, 10]
        assert [each.waiting_time for each in snapshots] == [0, 10]
        assert all(each.finished_at - each.started_at == timedelta(seconds=10) for each in snapshots)


async def test_a_cancelled_operation_that_never_started_has_no_duration():
    async with WorkCoordinator(rest, max_concurrency=1) as coordinator:
        await coordinator.enqueue(10)
        operation = await coordinator.enqueue(10)
        await asyncio.sleep(3)
        operation.cancel()
        (snapshot,) = coordinator.cancelled()
        assert snapshot.started_at is None
        assert snapshot.finished_at == START + timedelta(seconds=3)
        assert (snapshot.duration, snapshot.waiting_time) == (0, 3)
        await asyncio.sleep(100)
        assert (operation.duration, operation.waiting_time) == (0, 3)


async def test_a_snapshot_is_frozen_slotted_and_not_made_by_hand():  # faults O3, O9
    async with WorkCoordinator(rest) as coordinator:
        await coordinator.run(1)
        (snapshot,) = coordinator.snapshot()
        with pytest.raises(AttributeError, match="frozen"):
            snapshot.status = OperationStatus.FAILED
        with pytest.raises(AttributeError, match="frozen"):
            del snapshot.status
        assert not hasattr(snapshot, "__dict__")
        assert isinstance(snapshot, OperationSnapshot)
        with pytest.raises(TypeError, match="not created by hand"):
            OperationSnapshot()
        with pytest.raises(TypeError):
            snapshot.metadata["new"] = 1


async def test_only_a_result_coordinators_snapshots_carry_results():
    async with WorkCoordinator(rest) as work, ResultCoordinator(rest) as results:
        await work.run(1)
        await results.run(1)
        assert [each.has_result for each in work.snapshot()] == [False]
        assert work.snapshot()[0].result is None
        assert [(each.has_result, each.result) for each in results.snapshot()] == [(True, 1)]


async def test_none_is_a_result():
    async def nothing(_item):
        return None

    async with ResultCoordinator(nothing) as results:
        await results.run(1)
        assert results.snapshot()[0].has_result
        assert results.results() == [None]


async def test_a_failed_operation_is_faulted_and_says_why_and_where():
    async with WorkCoordinator(fail) as coordinator:
        await coordinator.enqueue("luck")
        await coordinator.join()
        (snapshot,) = coordinator.failed()
        assert snapshot.is_faulted
        assert not snapshot.has_result
        assert snapshot.error.type == "ValueError"
        assert snapshot.error.message == "no luck"
        assert snapshot.error.place.startswith(f"{__name__}:fail:")


@pytest.mark.parametrize(
    ("detail", "message", "has_object"),
    [("type", "", False), ("message", "no luck", False), ("exception", "no luck", True)],
)
async def test_error_detail_says_how_much_is_kept(detail, message, has_object):
    async with WorkCoordinator(fail, error_detail=detail) as coordinator:
        await coordinator.enqueue("luck")
        await coordinator.join()
        error = coordinator.failed()[0].error
        assert error.message == message
        assert isinstance(error.exception, ValueError) == has_object
        if has_object:
            assert error.exception.__traceback__ is None


async def test_to_dict_is_ready_for_json_with_the_id_as_text_and_never_the_result():
    async with ResultCoordinator(rest, key=str) as coordinator:
        operation = await coordinator.enqueue(2, metadata={"language": "es", "sizes": [1, {"deep": None}]})
        before = operation.snapshot().to_dict()
        await coordinator.join()
        shown = coordinator.snapshot()[0].to_dict()
        assert json.loads(json.dumps(shown)) == shown
        assert isinstance(shown["id"], str)
        assert shown["status"] == "completed"
        assert shown["key"] == "2"
        assert shown["metadata"] == {"language": "es", "sizes": [1, {"deep": None}]}
        assert shown["finished_at"] == "2026-01-01T00:00:02+00:00"
        assert (shown["duration"], shown["error"]) == (2, None)
        assert "result" not in shown
        assert (before["status"], before["started_at"], before["finished_at"]) == ("pending", None, None)


async def test_to_dict_describes_an_error_in_plain_text():
    async with WorkCoordinator(fail, error_detail="exception") as coordinator:
        await coordinator.enqueue("luck")
        await coordinator.join()
        shown = coordinator.snapshot()[0].to_dict()
        assert shown["error"]["type"] == "ValueError"
        assert shown["error"]["message"] == "no luck"
        assert shown["error"]["trace"] == [shown["error"]["place"]]
        assert shown["key"] is None
        json.dumps(shown)


async def test_its_text_shows_id_name_and_status_and_no_metadata():
    async with WorkCoordinator(rest) as coordinator:
        operation = await coordinator.enqueue(1, metadata={"secret": "x"})
        assert repr(operation.snapshot()) == f"<OperationSnapshot {operation.snapshot().to_dict()['id']} rest pending>"
        await operation
        assert repr(operation).endswith(" rest completed>")


async def test_has_signal_is_false_without_signals():
    async with WorkCoordinator(rest) as coordinator:
        await coordinator.run(1)
        (snapshot,) = coordinator.snapshot()
        assert not snapshot.has_signal("anything")
        assert (snapshot.signals, snapshot.signal_count) == ((), 0)


async def test_hashed_keys_are_the_same_for_the_same_key_and_show_nothing_of_it():
    async with KeyedWorkCoordinator(lambda item: item[0], fail, key_privacy="hashed") as coordinator:
        items = (("ada@example.org", 1), ("ada@example.org", 2), ("bob@example.org", 3))
        operations = [await coordinator.enqueue(each) for each in items]
        await coordinator.join()
        ada, again, bob = (coordinator.get(each.id).key for each in operations)
        assert ada == again != bob
        assert "example" not in str([each.to_dict()["key"] for each in coordinator.snapshot()])
        assert len(coordinator.snapshot_for("ada@example.org")) == 2


async def test_hashed_keys_tell_a_number_from_its_text():  # fault K9
    async with KeyedWorkCoordinator(lambda item: item, rest_of_one, key_privacy="hashed") as coordinator:
        await coordinator.enqueue(1)
        await coordinator.enqueue("1")
        await coordinator.join()
        one, two = (each.key for each in coordinator.snapshot())
        assert one != two


async def rest_of_one(_item):
    await asyncio.sleep(1)


def test_the_final_states_are_known():
    finals = {each for each in OperationStatus if each.is_final}
    assert finals == {"completed", "failed", "cancelled", "skipped"}
