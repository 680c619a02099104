"""Operations: handles that are awaited, cancelled and looked at, and hold their outcome as long as they are held."""

from __future__ import annotations

import asyncio
import gc
import traceback
import weakref

import pytest
from tests.coordinators import assert_adds_up, every_coordinator

from ephemerals import (
    CoordinatorBroken,
    InvalidOption,
    InvalidOptionType,
    Operation,
    OperationCancelled,
    OperationStatus,
    WorkCoordinator,
    current_operation,
)
from ephemerals.testing import Payload, VirtualClock


class Refused(Exception):
    pass


async def double(item):
    await asyncio.sleep(1)
    return item * 2


async def refuse(item):
    await asyncio.sleep(1)
    raise Refused(item)


async def outcome(awaitable):
    """Return how waiting ends."""
    try:
        return await awaitable
    except BaseException as error:  # noqa: BLE001 - it is what is asked for
        return error


class TestAwaiting:
    @every_coordinator
    async def test_a_handle_comes_back_at_once_and_gives_the_result_later(self, make):
        async with make(double) as coordinator:
            operation = await coordinator.enqueue(21)
            assert operation.status is OperationStatus.PENDING
            assert not operation.has_ended
            assert await operation == 42
            assert operation.status is OperationStatus.COMPLETED
            assert operation.has_ended

    async def test_any_number_may_wait_before_and_after_the_end(self):
        async with WorkCoordinator(double) as coordinator:
            operation = await coordinator.enqueue(1)
            before = [asyncio.ensure_future(outcome(operation)) for _ in range(10)]
            assert await asyncio.gather(*before) == [2] * 10
            assert [await operation for _ in range(3)] == [2] * 3

    async def test_who_waits_gets_the_original_exception_with_its_traceback(self):
        async with WorkCoordinator(refuse) as coordinator:
            operation = await coordinator.enqueue("x")
            with pytest.raises(Refused, match="x") as caught:
                await operation
            assert [each.name for each in traceback.extract_tb(caught.value.__traceback__)][-1] == "refuse"

    async def test_all_who_wait_get_the_same_exception(self):
        async with WorkCoordinator(refuse) as coordinator:
            operation = await coordinator.enqueue("x")
            first, second = await asyncio.gather(outcome(operation), outcome(operation))
            assert first is second

    async def test_who_comes_later_gets_it_without_traceback_and_with_a_note_of_the_places(self):
        async with WorkCoordinator(refuse) as coordinator:
            operation = await coordinator.enqueue("x")
            await coordinator.join()
            error = await outcome(operation)
            assert isinstance(error, Refused)
            assert error.args == ("x",)
            names = [each.name for each in traceback.extract_tb(error.__traceback__)]
            assert "refuse" not in names
            assert error.__notes__[0].startswith(f"raised at {__name__}:refuse:")

    async def test_waiting_later_again_and_again_makes_no_traceback_longer(self):  # report R77
        async with WorkCoordinator(refuse) as coordinator:
            operation = await coordinator.enqueue("x")
            await coordinator.join()
            lengths = {len(traceback.extract_tb((await outcome(operation)).__traceback__)) for _ in range(10)}
            assert len(lengths) == 1
            assert len((await outcome(operation)).__notes__) == 1

    async def test_the_cause_reaches_who_waits_and_not_who_comes_later(self):
        async def body(_item):
            try:
                raise LookupError("cause")
            except LookupError as error:
                raise Refused from error

        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue("x")
            waiting = await outcome(operation)
            assert isinstance(waiting.__cause__, LookupError)
            assert waiting.__traceback__ is not None
            later = await outcome(operation)
            assert later is not waiting
            assert later.__cause__ is None
            assert later.__context__ is None

    async def test_what_a_handle_keeps_is_the_very_object_if_nobody_else_got_it(self):
        raised = []

        async def body(_item):
            error = Refused("x")
            raised.append(weakref.ref(error))
            raise error

        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue(1)
            await coordinator.join()
            assert await outcome(operation) is raised[0]()

    async def test_a_cancelled_operation_is_no_cancelled_waiter(self):
        async with WorkCoordinator(double) as coordinator:
            operation = await coordinator.enqueue(1)
            waiter = asyncio.ensure_future(outcome(operation))
            await asyncio.sleep(0.5)
            assert operation.cancel()
            error = await waiter
            assert isinstance(error, OperationCancelled)
            assert not isinstance(error, asyncio.CancelledError)
            assert error.operation_id == operation.id
            with pytest.raises(OperationCancelled):
                await operation

    async def test_cancelling_a_waiter_does_not_touch_the_operation_or_another_waiter(self):
        async with WorkCoordinator(double) as coordinator:
            operation = await coordinator.enqueue(1)
            waiter = asyncio.ensure_future(outcome(operation))
            other = asyncio.ensure_future(outcome(operation))
            await asyncio.sleep(0.5)
            waiter.cancel()
            assert isinstance(await waiter, asyncio.CancelledError)
            assert operation.status is OperationStatus.RUNNING
            assert await other == 2

    async def test_a_timeout_around_waiting_does_not_touch_the_operation(self):
        async with WorkCoordinator(double) as coordinator:
            operation = await coordinator.enqueue(1)
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await operation
            assert not operation._waiters
            assert await operation == 2

    async def test_a_waiter_cancelled_in_the_very_step_in_which_the_operation_ends_is_cancelled(self):  # report R21
        async def body(item):
            item.cancel()
            return "done"

        async with WorkCoordinator(body) as coordinator:
            started = asyncio.Event()

            async def wait():
                operation = await coordinator.enqueue(asyncio.current_task())
                started.set()
                return await operation

            task = asyncio.ensure_future(wait())
            assert isinstance(await outcome(task), asyncio.CancelledError)
            assert coordinator.total_completed == 1

    async def test_a_handle_is_awaited_from_a_task_group(self):
        async with WorkCoordinator(double) as coordinator, asyncio.TaskGroup() as group:
            tasks = [group.create_task(coordinator.run(each)) for each in range(5)]
        assert [each.result() for each in tasks] == [0, 2, 4, 6, 8]

    async def test_the_outcome_lives_as_long_as_the_handle(self):
        async def body(_item):
            return Payload()

        async with WorkCoordinator(body, max_tracked_operations=0) as coordinator:
            operation = await coordinator.enqueue(1)
            reference = weakref.ref(await operation)
            await asyncio.sleep(1000)
            assert coordinator.get(operation.id) is None
            assert reference() is await operation
            del operation
            assert reference() is None

    async def test_a_result_that_is_an_exception_is_returned_and_not_raised(self):
        async def body(_item):
            return ValueError("returned")

        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue(1)
            assert isinstance(await operation, ValueError)
            assert coordinator.total_completed == 1

    async def test_awaiting_itself_is_refused(self):
        async def body(_item, operation):
            await operation

        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue(1)
            with pytest.raises(Exception, match="awaits itself"):
                await operation


class TestRun:
    @every_coordinator
    async def test_run_gives_the_outcome(self, make):
        async with make(double) as coordinator:
            assert await coordinator.run(4) == 8
        async with make(refuse) as coordinator:
            with pytest.raises(Refused):
                await coordinator.run(4)

    @every_coordinator
    async def test_cancelling_the_caller_cancels_the_operation(self, make):
        async with make(double, max_concurrency=1) as coordinator:
            running, pending = (asyncio.ensure_future(coordinator.run(each)) for each in (1, 2))
            await asyncio.sleep(0.5)
            pending.cancel()
            running.cancel()
            await asyncio.wait((running, pending))
            await coordinator.join()
            assert coordinator.total_cancelled == 2
            assert_adds_up(coordinator)


class TestCancelling:
    async def test_cancelling_a_pending_operation_keeps_it_from_starting(self):  # fault W8
        started = []

        async def body(item):
            started.append(item)
            await asyncio.sleep(1)

        async with WorkCoordinator(body, max_concurrency=1) as coordinator:
            await coordinator.enqueue(1)
            second = await coordinator.enqueue(2)
            assert second.cancel()
            assert second.status is OperationStatus.CANCELLED
            assert not second.stop_requested
            await coordinator.join()
            assert started == [1]
            assert coordinator.total_cancelled == 1

    async def test_cancelling_a_running_operation_ends_its_body(self):
        ended = []

        async def body(item):
            try:
                await asyncio.sleep(10)
            finally:
                ended.append(item)

        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue(1)
            await asyncio.sleep(1)
            assert operation.cancel()
            assert operation.stop_requested
            assert operation.cancel(), "again, while it still runs"
            await coordinator.join()
            assert ended == [1]
            assert coordinator.total_cancelled == 1
            assert operation.duration == 1

    async def test_cancelling_after_the_end_has_no_effect(self):
        async with WorkCoordinator(double) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
            assert operation.cancel() is False
            assert await operation == 2
            assert coordinator.total_cancelled == 0

    async def test_it_may_be_cancelled_by_its_id(self):
        async with WorkCoordinator(double) as coordinator:
            operation = await coordinator.enqueue(1)
            assert coordinator.cancel_operation(operation.id)
            assert not coordinator.cancel_operation(operation.id)
            assert not coordinator.cancel_operation(12345)

    async def test_a_body_that_swallows_its_cancellation_completes(self):
        async def body(_item):
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                return "all the same"

        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue(1)
            await asyncio.sleep(1)
            operation.cancel()
            assert await operation == "all the same"

    async def test_a_real_error_after_a_cancellation_is_a_failure(self):  # fault L2
        async def body(_item):
            try:
                await asyncio.sleep(10)
            finally:
                raise Refused

        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue(1)
            await asyncio.sleep(1)
            operation.cancel()
            with pytest.raises(Refused):
                await operation
            assert (coordinator.total_failed, coordinator.total_cancelled) == (1, 0)

    async def test_a_body_may_cancel_its_own_operation(self):
        async def body(_item, operation):
            operation.cancel()
            await asyncio.sleep(10)

        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue(1)
            with pytest.raises(OperationCancelled):
                await operation
            assert operation.duration == 0

    async def test_a_body_that_cancels_itself_and_ends_at_once_completes(self):
        async def body(_item, operation):
            operation.cancel()
            return "done"

        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue(1)
            assert await operation == "done"
            await asyncio.sleep(1)
            assert_adds_up(coordinator)


class TestCurrentOperation:
    async def test_it_is_found_anywhere_below_a_body_and_nowhere_else(self):
        found = []

        async def deep():
            await asyncio.sleep(0.1)
            found.append(current_operation())

        async def body(_item, operation):
            await asyncio.gather(deep(), asyncio.create_task(deep()), asyncio.to_thread(lambda: None))
            found.append(await asyncio.to_thread(current_operation))
            found.append(operation)

        async with WorkCoordinator(body) as coordinator:
            assert current_operation() is None
            operation = await coordinator.enqueue(1)
            await operation
            assert found == [operation] * 4
            assert current_operation() is None

    async def test_each_of_many_finds_its_own(self):
        async def body(item):
            await asyncio.sleep(1)
            return current_operation().id

        async with WorkCoordinator(body, max_concurrency=8) as coordinator:
            operations = [await coordinator.enqueue(each) for each in range(20)]
            assert [await each for each in operations] == [each.id for each in operations]

    async def test_a_task_that_outlives_its_body_no_longer_finds_it(self):
        left = []

        async def lagging():
            await asyncio.sleep(5)
            return current_operation()

        async def body(_item):
            left.append(asyncio.create_task(lagging()))

        async with WorkCoordinator(body) as coordinator:
            await coordinator.run(1)
            assert await left[0] is None

    async def test_a_context_that_outlives_its_body_does_not_keep_the_operation(self):
        left = []

        async def body(_item):
            left.append(asyncio.create_task(asyncio.sleep(1000)))

        async with WorkCoordinator(body, max_tracked_operations=0) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
            reference = weakref.ref(operation)
            gc.disable()
            try:
                del operation
                assert reference() is None
            finally:
                gc.enable()
            left[0].cancel()


class TestHandle:
    async def test_times_follow_the_clock_while_it_waits_and_runs(self):
        async with WorkCoordinator(double, max_concurrency=1) as coordinator:
            await coordinator.enqueue(1)
            operation = await coordinator.enqueue(2)
            await asyncio.sleep(0.25)
            assert (operation.waiting_time, operation.duration) == (0.25, 0)
            assert operation.started_at is None
            assert operation.finished_at is None
            await asyncio.sleep(1)
            assert (operation.waiting_time, operation.duration) == (1, 0.25)
            await operation
            VirtualClock.current().advance(100)
            assert (operation.waiting_time, operation.duration) == (1, 1)
            assert operation.started_at < operation.finished_at
            assert operation.enqueued_at < operation.started_at
            assert operation.attempt == 1

    async def test_a_body_that_tries_again_says_so(self):
        async def try_twice(item, operation):
            operation.attempt = 2
            with pytest.raises(InvalidOption, match="attempt=0"):
                operation.attempt = 0

        async with WorkCoordinator(try_twice) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
            assert operation.attempt == coordinator.get(operation.id).attempt == 2
            with pytest.raises(AttributeError, match="frozen"):
                operation.attempt = 3

    async def test_it_knows_its_error(self):
        async with WorkCoordinator(refuse) as coordinator:
            operation = await coordinator.enqueue("x")
            assert operation.error is None
            await coordinator.join()
            assert operation.error.type == f"{__name__}.Refused"
            assert operation.error == coordinator.failed()[0].error

    async def test_it_has_no_public_setters_for_what_happened(self):  # fault O9
        async with WorkCoordinator(double) as coordinator:
            operation = await coordinator.enqueue(1)
            for name in ("status", "duration", "error", "is_pinned", "signals", "finished_at"):
                with pytest.raises(AttributeError):
                    setattr(operation, name, None)
            with pytest.raises(AttributeError):
                operation.anything = 1

    async def test_it_can_be_pinned_from_the_moment_of_enqueue(self):  # fault W14
        async with WorkCoordinator(double, max_tracked_operations=0) as coordinator:
            operation = await coordinator.enqueue(1)
            assert operation.pin()
            assert operation.pin(), "pinning twice is the same as once"
            assert operation.is_pinned
            await coordinator.join()
            assert coordinator.get(operation.id).is_pinned
            assert operation.unpin()
            assert not operation.unpin()
            assert coordinator.get(operation.id) is None
            assert operation.pin() is False, "the window has forgotten it"

    async def test_without_signals_it_has_none(self):
        async with WorkCoordinator(double) as coordinator:
            operation = await coordinator.enqueue(1)
            assert (operation.signals, operation.signal_count, operation.has_signal("x")) == ((), 0, False)

    async def test_it_keeps_the_newest_of_its_signals_and_counts_all(self):  # fault O5
        async def body(_item, operation):
            for number in range(1000):
                operation.emit(f"step.{number}")

        async with WorkCoordinator(body, max_operation_signals=10) as coordinator:
            operation = await coordinator.enqueue(1)
            await operation
            assert [each.name for each in operation.signals] == [f"step.{each}" for each in range(990, 1000)]
            (snapshot,) = coordinator.snapshot()
            assert snapshot.signals == operation.signals
            assert snapshot.signal_count == operation.signal_count == 1000
            assert snapshot.has_signal("step.999")
            assert not snapshot.has_signal("step.1")

    async def test_what_it_emits_later_is_not_in_an_earlier_snapshot_or_in_its_history(self):  # faults O2, O3
        async with WorkCoordinator(double) as coordinator:
            operation = await coordinator.enqueue(1)
            operation.emit("early")
            before = operation.snapshot()
            operation.emit("late")
            assert operation.has_signal("late")
            assert [each.name for each in before.signals] == ["early"]
            await operation
            operation.emit("after")
            assert [each.name for each in coordinator.snapshot()[0].signals] == ["early", "late"]

    async def test_what_it_takes_back_is_gone_from_it_and_from_the_sink(self):  # fault O4
        async with WorkCoordinator(double) as coordinator:
            operation = await coordinator.enqueue(1)
            operation.emit("busy")
            operation.emit("other")
            assert operation.retract("busy") == 1
            assert not operation.has_signal("busy")
            assert operation.has_signal("other")
            assert operation.retract("busy") == 0

    async def test_it_is_generic_at_run_time_too(self):
        assert Operation[int] is not None


class TestMetadata:
    async def test_it_is_kept_as_a_frozen_copy(self):
        given = {"language": "es", "tags": ["a", {"b": 1}], "none": None, "flag": True, "ratio": 0.5}
        async with WorkCoordinator(double) as coordinator:
            operation = await coordinator.enqueue(1, metadata=given)
            given["language"] = "fr"
            given["tags"].append("c")
            assert dict(operation.metadata)["language"] == "es"
            assert operation.metadata["tags"][0] == "a"
            assert len(operation.metadata["tags"]) == 2
            await operation
            assert coordinator.snapshot()[0].metadata is operation.metadata

    async def test_without_metadata_it_is_empty(self):
        async with WorkCoordinator(double) as coordinator:
            assert dict((await coordinator.enqueue(1)).metadata) == {}

    async def test_it_is_taken_by_every_way_in(self):
        async with WorkCoordinator(double) as coordinator:
            await coordinator.run(1, metadata={"way": "run"})
            await coordinator.try_enqueue(1, metadata={"way": "try"})
            assert [each.metadata["way"] for each in coordinator.completed()] == ["run", "try"]

    @pytest.mark.parametrize(
        ("metadata", "message"),
        [
            ("text", "metadata='text'.*mapping"),
            (["list"], "metadata=.*mapping"),
            ({1: "a"}, "texts as names"),
            ({"a": {1: "b"}}, "texts as names"),
            ({"a": object()}, "<object>.*JSON-like"),
            ({"a": {1, 2}}, "<set>.*JSON-like"),
            ({"a": b"bytes"}, "<bytes>.*JSON-like"),
            ({"a": [Payload()]}, "<Payload>.*JSON-like"),
        ],
    )
    async def test_what_is_not_json_like_is_refused_and_counts_nothing(self, metadata, message):
        async with WorkCoordinator(double) as coordinator:
            with pytest.raises(InvalidOptionType, match=message):
                await coordinator.enqueue(1, metadata=metadata)
            with pytest.raises(InvalidOptionType, match=message):
                coordinator.try_enqueue(1, metadata=metadata)
            assert coordinator.total_enqueued == 0

    @pytest.mark.parametrize(
        "metadata",
        [
            {"text": "x" * 5000},
            {"x" * 5000: 1},
            {"list": list(range(10_000))},
            {"lists": [[] for _ in range(10_000)]},
            {"maps": [{} for _ in range(10_000)]},
            {"number": 10**20_000},
        ],
        ids=lambda metadata: next(iter(metadata))[:8],
    )
    async def test_what_is_large_is_refused(self, metadata):
        async with WorkCoordinator(double) as coordinator:
            with pytest.raises(InvalidOption, match="at most 4096 characters"):
                await coordinator.enqueue(1, metadata=metadata)
            assert coordinator.total_enqueued == 0

    async def test_what_contains_itself_or_is_deep_is_refused(self):
        endless = {}
        endless["again"] = [endless]
        deep = []
        for _ in range(500):
            deep = [deep]
        async with WorkCoordinator(double) as coordinator:
            for metadata in (endless, {"deep": deep}):
                with pytest.raises(InvalidOption, match="metadata=.*deep"):
                    await coordinator.enqueue(1, metadata=metadata)


async def test_an_operation_that_its_loop_left_behind_says_so():
    async def body(_item):
        await asyncio.sleep(1000)

    coordinator = WorkCoordinator(body)
    operation = await coordinator.enqueue(1)
    coordinator.engine.window.pending.clear()
    with pytest.raises(OperationCancelled, match="left behind"):
        await operation
    coordinator.engine.window.pending[operation.id] = operation
    coordinator.cancel()
    await coordinator.aclose()


def test_a_broken_coordinator_is_an_error_of_its_own():
    assert issubclass(CoordinatorBroken, Exception)
