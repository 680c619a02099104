"""What bodies raise: every way ends the operation in one state, tells who waits, and breaks nothing."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.coordinators import assert_adds_up, every_coordinator

from ephemerals import (
    CoordinatorBroken,
    CoordinatorClosed,
    InvalidBody,
    KeyedWorkCoordinator,
    OperationCancelled,
    OperationFailed,
    OperationStatus,
    OperationTimeout,
    ResultCoordinator,
    WorkCoordinator,
)
from ephemerals.coordination.schedule import FifoSchedule
from ephemerals.testing import VirtualClock, assert_quiet, run


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Uncopyable(Exception):
    @property
    def __dict__(self):
        raise RuntimeError("no copy")

    def __setattr__(self, name, value):
        raise RuntimeError("frozen")


class Odd(BaseException):
    pass


async def outcome(awaitable):
    try:
        return await awaitable
    except BaseException as error:  # noqa: BLE001 - it is what is asked for
        return error


def raising(error):
    """Return a body that raises, unless its item is "fine"."""

    async def body(item):
        await asyncio.sleep(1)
        if item != "fine":
            raise error
        return item

    return body


class TestFailing:
    @pytest.mark.parametrize("waited_for", [True, False])
    @pytest.mark.parametrize(
        "error",
        [
            ValueError("x"),
            Odd(),
            GeneratorExit(),
            Unprintable(),
            Uncopyable(),
            ExceptionGroup("g", [ValueError()]),
            BaseExceptionGroup("g", [Odd()]),
            StopAsyncIteration(),
            InvalidBody("mine"),
            CoordinatorClosed("other"),
        ],
        ids=lambda error: type(error).__name__,
    )
    @every_coordinator
    async def test_whatever_is_raised_the_operation_ends_and_the_others_go_on(self, make, error, waited_for):
        async with make(raising(error), max_concurrency=1) as coordinator:
            operation = await coordinator.enqueue("bad")
            fine = await coordinator.enqueue("fine")
            if waited_for:
                waiter = asyncio.ensure_future(outcome(operation))
            await coordinator.join()
            expected = OperationStatus.CANCELLED if isinstance(error, GeneratorExit) else OperationStatus.FAILED
            assert operation.status is expected
            assert fine.status is OperationStatus.COMPLETED
            assert isinstance(await outcome(operation), BaseException)
            if waited_for:
                assert isinstance(await waiter, BaseException)
            assert_adds_up(coordinator)

    @pytest.mark.parametrize("kind", ["async", "thread"])
    @pytest.mark.parametrize("error", [StopIteration(5), StopAsyncIteration(5)], ids=["stop", "async stop"])
    async def test_stop_iteration_becomes_a_runtime_error_with_the_cause(self, error, kind):  # report R36
        async def asynchronous(_item):
            raise error

        def plain(_item):
            raise error

        async with WorkCoordinator(asynchronous if kind == "async" else plain) as coordinator:
            operation = await coordinator.enqueue(1)
            with pytest.raises(RuntimeError) as caught:
                await operation
            assert caught.value.__cause__ is error

    async def test_next_on_an_empty_iterator_in_a_thread_ends_the_operation(self):  # report R36
        async with WorkCoordinator(lambda _item: next(iter([]))) as coordinator:
            with pytest.raises(RuntimeError, match="StopIteration"):
                await coordinator.run(1)

    async def test_a_body_that_cancels_itself_ends_as_cancelled_and_the_rest_goes_on(self):  # report R41, fault L3
        async with WorkCoordinator(raising(asyncio.CancelledError()), max_concurrency=1) as coordinator:
            operation = await coordinator.enqueue("bad")
            fine = await coordinator.enqueue("fine")
            with pytest.raises(OperationCancelled):
                await operation
            assert await fine == "fine"
            assert (coordinator.total_cancelled, coordinator.total_failed) == (1, 0)
            assert not operation.stop_requested

    async def test_a_cancelled_inner_task_ends_the_body_as_cancelled(self):  # fault L3
        async def body(_item):
            inner = asyncio.ensure_future(asyncio.sleep(10))
            asyncio.get_running_loop().call_later(1, inner.cancel)
            await inner

        async with WorkCoordinator(body) as coordinator:
            with pytest.raises(OperationCancelled):
                await coordinator.run(1)

    async def test_a_task_cancelled_by_a_stranger_ends_as_cancelled(self):
        async def body(_item):
            tasks.append(asyncio.current_task())
            await asyncio.sleep(10)

        tasks = []
        async with WorkCoordinator(body) as coordinator:
            operation = await coordinator.enqueue(1)
            await asyncio.sleep(1)
            tasks[0].cancel()
            with pytest.raises(OperationCancelled):
                await operation
            assert_adds_up(coordinator)

    async def test_a_task_cancelled_by_a_stranger_before_its_first_step_ends_as_cancelled(self):
        started = []

        async def body(item):
            started.append(item)
            await asyncio.sleep(10)

        async with WorkCoordinator(body, max_concurrency=4) as coordinator:
            operations = [await coordinator.enqueue(each) for each in range(3)]
            coordinator.engine._pump()
            for each in asyncio.all_tasks():
                if each is not asyncio.current_task():
                    each.cancel()
            await coordinator.join()
            assert [each.status for each in operations] == ["cancelled"] * 3
            assert_adds_up(coordinator)

    async def test_a_failure_is_logged_once_without_message_and_item(self, caplog):  # report R68
        async def body(item):
            raise ValueError(f"secret {item}")

        async with KeyedWorkCoordinator(lambda _: "customer 7", body, name="mail") as coordinator:
            operation = await coordinator.enqueue("payload")
            await outcome(operation)
        (record,) = [each for each in caplog.records if each.name == "ephemerals"]
        assert record.levelno == logging.WARNING
        text = record.getMessage()
        assert text.startswith("operation ")
        for part in ("coordinator mail", "ValueError", f"at {__name__}:", "[key customer 7]"):
            assert part in text
        assert "secret" not in text
        assert "payload" not in text
        assert record.exc_info is None

    async def test_hashed_keys_stay_hashed_in_the_log(self, caplog):
        async with KeyedWorkCoordinator(lambda _: "ada@example.org", raising(ValueError()), key_privacy="hashed") as it:
            await outcome(it.run("bad"))
        assert "[key " in caplog.text
        assert "ada" not in caplog.text

    async def test_a_log_handler_that_raises_breaks_nothing(self):
        class Filter(logging.Filter):
            def filter(self, record):
                raise RuntimeError("bad filter")

        bad = Filter()
        logging.getLogger("ephemerals").addFilter(bad)
        try:
            async with WorkCoordinator(raising(ValueError("x"))) as coordinator:
                with pytest.raises(ValueError, match="x"):
                    await coordinator.run("bad")
                assert_adds_up(coordinator)
        finally:
            logging.getLogger("ephemerals").removeFilter(bad)

    @pytest.mark.parametrize("kind", ["async", "plain"])
    async def test_a_plain_function_that_returns_a_coroutine_fails_with_the_advice(self, kind):
        async def inner(_item):
            pass

        async with WorkCoordinator(lambda item: inner(item)) as coordinator:  # noqa: PLW0108 - that is the mistake
            with pytest.raises(InvalidBody, match="plain function that returned a coroutine.*use an async def"):
                await coordinator.run(1)

    async def test_a_failing_task_factory_fails_the_item_and_not_the_coordinator(self):  # report R4
        def factory(loop, coroutine, **_options):
            raise RuntimeError("no task")

        loop = asyncio.get_running_loop()
        async with WorkCoordinator(raising(ValueError())) as coordinator:
            coordinator.pause()
            operation = await coordinator.enqueue("fine")
            waiter = asyncio.ensure_future(outcome(operation))
            loop.set_task_factory(factory)
            coordinator.resume()
            await asyncio.sleep(0)
            loop.set_task_factory(None)
            assert str(await waiter) == "no task"
            assert operation.status is OperationStatus.FAILED
            assert await coordinator.run("fine") == "fine"

    async def test_a_custom_task_factory_is_used(self):
        made = []

        def factory(loop, coroutine, **options):
            made.append(coroutine)
            return asyncio.Task(coroutine, loop=loop, **options)

        asyncio.get_running_loop().set_task_factory(factory)
        async with WorkCoordinator(raising(ValueError())) as coordinator:
            assert await coordinator.run("fine") == "fine"
        assert len(made) >= 1


class TestTimeout:
    async def test_a_body_that_runs_too_long_ends_with_our_own_timeout_error(self):
        async with WorkCoordinator(raising(ValueError()), operation_timeout=0.5, name="mail") as coordinator:
            operation = await coordinator.enqueue("fine")
            with pytest.raises(OperationTimeout, match="ran longer than 0.5 seconds") as caught:
                await operation
            assert isinstance(caught.value, TimeoutError)
            assert (caught.value.operation_id, caught.value.timeout) == (operation.id, 0.5)
            assert operation.status is OperationStatus.FAILED
            assert operation.duration == 0.5
            assert operation.stop_requested
            assert coordinator.failed()[0].error.type.endswith("OperationTimeout")

    async def test_a_timeout_error_of_the_bodys_own_is_an_ordinary_failure(self):  # report R43
        async def body(_item):
            async with asyncio.timeout(1):
                await asyncio.sleep(5)

        for options in ({}, {"operation_timeout": 100}):
            async with WorkCoordinator(body, **options) as coordinator:
                with pytest.raises(TimeoutError) as caught:
                    await coordinator.run(1)
                assert type(caught.value) is TimeoutError
                assert coordinator.total_failed == 1

    async def test_waiting_for_a_slot_does_not_count(self):
        async with WorkCoordinator(raising(ValueError()), max_concurrency=1, operation_timeout=1.5) as coordinator:
            operations = [await coordinator.enqueue("fine") for _ in range(5)]
            await coordinator.join()
            assert {each.status for each in operations} == {"completed"}

    async def test_a_body_that_swallows_the_timeout_completes(self):
        async def body(_item):
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                return "partial"

        async with WorkCoordinator(body, operation_timeout=1) as coordinator:
            assert await coordinator.run(1) == "partial"

    async def test_one_timer_serves_all_and_goes_with_the_last(self):
        async def body(seconds):
            await asyncio.sleep(seconds)

        coordinator = WorkCoordinator(
            body, operation_timeout=5, max_concurrency=50, max_operation_lifetime=None, echo_retention=0
        )
        async with coordinator:
            operations = [await coordinator.enqueue(each) for each in (1, 2, 3, 8, 9, 9)]
            await asyncio.sleep(0.5)
            await asyncio.gather(*map(outcome, operations))
            assert [each.status for each in operations] == ["completed"] * 3 + ["failed"] * 3
            assert {each.duration for each in operations[3:]} == {5}
            assert_quiet(coordinator)

    async def test_cancelling_in_the_step_of_the_timeout_gives_one_outcome(self):
        async with WorkCoordinator(raising(ValueError()), operation_timeout=0.5) as coordinator:
            operation = await coordinator.enqueue("fine")
            asyncio.get_running_loop().call_later(0.5, operation.cancel)
            assert isinstance(await outcome(operation), OperationTimeout | OperationCancelled)
            assert coordinator.total_failed + coordinator.total_cancelled == 1

    async def test_a_cancelled_operation_that_lingers_until_its_timeout_is_cancelled(self):
        async def body(_item):
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                await asyncio.sleep(10)

        async with WorkCoordinator(body, operation_timeout=2) as coordinator:
            operation = await coordinator.enqueue(1)
            await asyncio.sleep(1)
            operation.cancel()
            assert isinstance(await outcome(operation), OperationCancelled)


class TestTravellingOn:
    @pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), SystemExit(3)], ids=["interrupt", "exit"])
    @pytest.mark.parametrize("kind", ["async", "thread"])
    def test_it_is_recorded_then_travels_on_untouched(self, error, kind):
        coordinator_box = []

        async def asynchronous(_item):
            raise error

        def plain(_item):
            raise error

        async def main():
            coordinator = WorkCoordinator(asynchronous if kind == "async" else plain, max_concurrency=1)
            coordinator_box.append(coordinator)
            operation = await coordinator.enqueue(1)
            coordinator_box.append(operation)
            await asyncio.sleep(10)

        with pytest.raises(type(error)) as caught:
            run(main())
        assert caught.value is error
        coordinator, operation = coordinator_box
        assert operation.status is OperationStatus.FAILED
        assert (coordinator.total_failed, coordinator.active_count) == (1, 0)
        assert_adds_up(coordinator)
        coordinator.cancel()

    def test_a_hook_that_asks_for_the_exit_is_heard_too(self):
        def hook(_snapshot, _reason):
            raise SystemExit(4)

        async def main():
            async with WorkCoordinator(raising(ValueError()), max_tracked_operations=0, on_finalized=hook) as it:
                await it.enqueue("fine")
                await it.join()
                await asyncio.sleep(1)

        with pytest.raises(SystemExit, match="4"):
            run(main())


class TestReports:
    async def test_errors_of_bodies_never_come_out_of_drain_or_close(self):  # fault L7
        async with WorkCoordinator(raising(ValueError("x"))) as coordinator:
            await coordinator.enqueue_many(["bad"] * 5)
            report = await coordinator.drain()
            assert report.failed == 5
            assert report.is_complete

    async def test_a_report_raises_a_group_when_asked_to(self):
        async with WorkCoordinator(raising(ValueError("x")), error_detail="exception") as coordinator:
            await coordinator.enqueue_many(["bad", "fine", "bad"])
            report = await coordinator.drain()
            with pytest.raises(ExceptionGroup, match="2 of 3 operations failed") as caught:
                report.raise_for_failures()
            assert [type(each) for each in caught.value.exceptions] == [ValueError, ValueError]

    async def test_without_the_exceptions_it_raises_stand_ins(self):
        async with WorkCoordinator(raising(ValueError("x"))) as coordinator:
            operation = await coordinator.enqueue("bad")
            report = await coordinator.drain()
            with pytest.raises(ExceptionGroup) as caught:
                report.raise_for_failures()
            (error,) = caught.value.exceptions
            assert isinstance(error, OperationFailed)
            assert (error.operation_id, error.error_type) == (operation.id, "ValueError")
            assert "ValueError: x" in str(error)
            assert f"failed at {__name__}:" in str(error)

    async def test_an_odd_failure_has_a_stand_in_too(self):
        async with WorkCoordinator(raising(Odd()), error_detail="exception") as coordinator:
            await coordinator.enqueue("bad")
            report = await coordinator.drain()
            with pytest.raises(ExceptionGroup) as caught:
                report.raise_for_failures()
            assert isinstance(caught.value.exceptions[0], OperationFailed)

    async def test_without_failures_nothing_is_raised(self):
        async with WorkCoordinator(raising(ValueError())) as coordinator:
            await coordinator.enqueue("fine")
            (await coordinator.drain()).raise_for_failures()


class TestBroken:
    """The pump itself fails: everybody who waits hears of it, and nothing hangs (fault L15)."""

    @pytest.fixture
    def break_it(self, monkeypatch):
        def break_it(method="pop"):
            def fail(*_):
                raise ZeroDivisionError("internal")

            monkeypatch.setattr(FifoSchedule, method, fail)

        return break_it

    async def test_every_handle_and_every_call_gets_the_cause(self, break_it, caplog):
        async def body(_item):
            await asyncio.sleep(1000)

        coordinator = WorkCoordinator(body, max_concurrency=1, max_pending=2, operation_timeout=500, name="mail")
        running = await coordinator.enqueue(1)
        await asyncio.sleep(1)
        pending = await coordinator.enqueue(2)
        await coordinator.enqueue(3)
        waiters = [asyncio.ensure_future(outcome(each)) for each in (running, pending)]
        blocked = asyncio.ensure_future(outcome(coordinator.enqueue(4)))
        joining = asyncio.ensure_future(coordinator.join())
        draining = asyncio.ensure_future(coordinator.drain())
        await VirtualClock.current().settle()
        break_it()
        coordinator.set_max_concurrency(2)
        for error in await asyncio.gather(*waiters):
            assert isinstance(error, CoordinatorBroken)
            assert isinstance(error.__cause__, ZeroDivisionError)
        assert isinstance(await blocked, CoordinatorClosed | CoordinatorBroken)
        await joining
        report = await draining
        assert (report.failed, report.remaining) == (3, 0)
        for enqueue in (coordinator.enqueue, coordinator.run):
            with pytest.raises(CoordinatorBroken, match="'mail' was ended by an internal error"):
                await enqueue(5)
        with pytest.raises(CoordinatorBroken):
            coordinator.try_enqueue(5)
        assert_adds_up(coordinator)
        assert "mail is broken by an internal error" in caplog.text
        assert VirtualClock.current().monotonic() == 1001
        await coordinator.aclose()
        assert_quiet(coordinator)

    async def test_a_hook_that_cancels_the_others_meanwhile_breaks_nothing_more(self, break_it):
        def hook(_snapshot, _reason):
            for each in operations:
                each.cancel()

        coordinator = WorkCoordinator(raising(ValueError()), max_tracked_operations=0, on_finalized=hook)
        operations = [await coordinator.enqueue("fine") for _ in range(3)]
        break_it()
        await coordinator.join()
        assert {each.status for each in operations} == {"failed", "cancelled"}
        assert_adds_up(coordinator)
        await coordinator.aclose()

    async def test_who_waits_for_results_is_told(self, break_it):
        async with ResultCoordinator(raising(ValueError())) as coordinator:
            async with coordinator.as_completed() as stream:
                break_it()
                await coordinator.enqueue("fine")
                assert [each async for each in stream] == []

    @pytest.mark.parametrize("method", ["finished", "push", "withdrawn"])
    async def test_an_error_elsewhere_in_the_schedule_hangs_nobody(self, break_it, method):
        async with WorkCoordinator(raising(ValueError()), max_concurrency=1) as coordinator:
            operation = await coordinator.enqueue("fine")
            other = await coordinator.enqueue("fine")
            await asyncio.sleep(0.5)
            break_it(method)
            if method == "push":
                with pytest.raises(ZeroDivisionError):
                    await coordinator.enqueue("fine")
                assert await operation == "fine"
            else:
                if method == "withdrawn":
                    other.cancel()
                assert isinstance(await outcome(operation), CoordinatorBroken)
                assert isinstance(await outcome(other), CoordinatorBroken)
            await coordinator.join()
            assert_adds_up(coordinator)
