"""Ending: join, complete, drain, cancel, close; in any order, from anywhere, within bounds, with nothing left."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref

import pytest
from tests.coordinators import assert_adds_up, every_coordinator

from ephemerals import (
    CoordinatorClosed,
    InvalidOption,
    OperationCancelled,
    OperationStatus,
    WorkCoordinator,
)
from ephemerals.testing import VirtualClock, assert_quiet


class Sleeper:
    def __init__(self, seconds=1):
        self.seconds = seconds
        self.started = []
        self.ended = []

    async def __call__(self, item):
        self.started.append(item)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.ended.append(item)
        return item


class Stubborn:
    """Be a body that swallows every cancellation, and sleeps on until it is released."""

    def __init__(self):
        self.cancellations = 0
        self.released = asyncio.Event()

    async def __call__(self, item):
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancellations += 1
        return item


async def outcome(awaitable):
    try:
        return await awaitable
    except BaseException as error:  # noqa: BLE001 - it is what is asked for
        return error


def now():
    return VirtualClock.current().monotonic() - 1000


class TestJoin:
    @every_coordinator
    async def test_it_waits_until_idle_and_the_intake_stays_open(self, make):  # fault L9
        body = Sleeper()
        async with make(body, max_concurrency=2) as coordinator:
            await coordinator.enqueue_many(range(4))
            await coordinator.join()
            assert now() == 2
            assert coordinator.is_idle
            assert not coordinator.is_closed
            assert await coordinator.run(9) == 9

    async def test_when_idle_it_returns_at_once(self):
        async with WorkCoordinator(Sleeper()) as coordinator:
            await coordinator.join()
            assert now() == 0

    async def test_several_may_join_and_one_may_give_up(self):
        async with WorkCoordinator(Sleeper(10)) as coordinator:
            await coordinator.enqueue(1)
            joining = [asyncio.ensure_future(coordinator.join()) for _ in range(3)]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await coordinator.join()
            joining[0].cancel()
            await asyncio.wait(joining)
            assert [each.cancelled() for each in joining] == [True, False, False]
            assert coordinator.engine.leftovers()["waiting for idle"] == 0

    async def test_who_waits_for_room_is_waited_for_too(self):
        body = Sleeper()
        async with WorkCoordinator(body, max_concurrency=1, max_pending=1) as coordinator:
            producers = [asyncio.ensure_future(coordinator.enqueue(each)) for each in range(4)]
            await asyncio.sleep(0)
            await coordinator.join()
            assert body.ended == [0, 1, 2, 3]
            assert all(each.done() for each in producers)

    async def test_a_waiter_for_room_that_gives_up_last_ends_the_joining(self):
        async with WorkCoordinator(Sleeper(), max_pending=1) as coordinator:
            coordinator.pause()
            pending = await coordinator.enqueue(1)
            waiter = asyncio.ensure_future(coordinator.enqueue(2))
            await asyncio.sleep(1)
            joining = asyncio.ensure_future(coordinator.join())
            await asyncio.sleep(1)
            pending.cancel()
            waiter.cancel()
            await joining
            assert waiter.cancelled()


class TestDrain:
    @every_coordinator
    async def test_it_closes_and_waits_for_everything(self, make):  # report R8, fault L9
        body = Sleeper()
        coordinator = make(body, max_concurrency=2)
        operations = [await coordinator.enqueue(each) for each in range(5)]
        report = await coordinator.drain()
        assert sorted(body.ended) == list(range(5))
        assert [each.status for each in operations] == ["completed"] * 5
        assert (report.enqueued, report.completed, report.remaining, report.stragglers) == (5, 5, 0, ())
        assert report.is_complete
        assert report.duration == 3
        assert coordinator.is_closed
        assert (await coordinator.drain()).completed == 5
        await coordinator.aclose()
        assert_quiet(coordinator)

    @every_coordinator
    async def test_a_timeout_that_runs_out_is_reported_and_the_work_goes_on(self, make):
        coordinator = make(Sleeper(10), max_concurrency=2)
        operations = [await coordinator.enqueue(each) for each in range(3)]
        report = await coordinator.drain(timeout=5)
        assert now() == 5
        assert not report.is_complete
        assert report.remaining == 3
        assert report.stragglers == tuple(each.id for each in operations[:2])
        assert (await coordinator.drain(timeout=100)).completed == 3
        await coordinator.aclose()

    async def test_a_timeout_of_zero_only_looks(self):
        coordinator = WorkCoordinator(Sleeper())
        await coordinator.enqueue(1)
        assert (await coordinator.drain(timeout=0)).remaining == 1
        assert now() == 0
        assert (await coordinator.drain()).remaining == 0
        assert (await coordinator.drain(timeout=0)).remaining == 0
        await coordinator.aclose()

    @pytest.mark.parametrize("timeout", [-1, "5", float("nan")])
    async def test_a_wrong_timeout_is_refused_and_closes_nothing(self, timeout):
        async with WorkCoordinator(Sleeper()) as coordinator:
            with pytest.raises(InvalidOption, match="timeout="):
                await coordinator.drain(timeout=timeout)
            assert not coordinator.is_closed

    @every_coordinator
    async def test_draining_what_was_cancelled_returns_once_it_has_ended(self, make):  # fault L6
        coordinator = make(Sleeper(10), max_concurrency=2)
        await coordinator.enqueue_many(range(5))
        await asyncio.sleep(1)
        coordinator.cancel()
        report = await coordinator.drain()
        assert (report.cancelled, report.remaining) == (5, 0)
        assert now() == 1
        await coordinator.aclose()

    async def test_a_body_that_enqueues_while_it_is_drained_is_refused(self):  # report R8
        async def body(_item):
            await asyncio.sleep(1)
            await coordinator.enqueue(2)

        coordinator = WorkCoordinator(body)
        operation = await coordinator.enqueue(1)
        report = await coordinator.drain()
        assert report.failed == 1
        assert isinstance(await outcome(operation), CoordinatorClosed)
        await coordinator.aclose()

    async def test_a_drain_that_is_cancelled_leaves_the_work_running(self):
        async with WorkCoordinator(Sleeper(10)) as coordinator:
            operation = await coordinator.enqueue(1)
            draining = asyncio.ensure_future(coordinator.drain())
            await asyncio.sleep(1)
            draining.cancel()
            await asyncio.wait((draining,))
            assert await operation == 1


class TestCancel:
    @every_coordinator
    async def test_what_waits_never_starts_and_what_runs_is_cancelled(self, make):  # faults L1, L2
        body = Sleeper(10)
        coordinator = make(body, max_concurrency=1)
        operations = [await coordinator.enqueue(each) for each in range(11)]
        await asyncio.sleep(1)
        ending = coordinator.cancel()
        assert [each.status for each in operations] == ["running"] + ["cancelled"] * 10
        assert coordinator.pending_count == 0
        report = await ending
        assert (report.cancelled, report.completed, report.failed, report.remaining) == (11, 0, 0, 0)
        assert body.started == body.ended == [0]
        assert coordinator.completed() == []
        assert coordinator.is_closed
        for each in operations:
            assert isinstance(await outcome(each), OperationCancelled)
        assert_adds_up(coordinator)
        await coordinator.aclose()
        assert_quiet(coordinator)

    async def test_a_genuine_error_after_it_is_a_failure(self):  # fault L2
        async def body(_item):
            try:
                await asyncio.sleep(10)
            finally:
                raise ValueError

        coordinator = WorkCoordinator(body)
        await coordinator.enqueue(1)
        await asyncio.sleep(1)
        report = await coordinator.cancel()
        assert (report.failed, report.cancelled) == (1, 0)
        await coordinator.aclose()

    async def test_it_needs_no_await_and_no_loop(self):
        coordinator = WorkCoordinator(Sleeper())
        coordinator.cancel()
        coordinator.cancel()
        assert coordinator.is_closed

    async def test_a_body_may_cancel_its_own_coordinator(self):
        async def body(_item):
            coordinator.cancel()
            await asyncio.sleep(10)

        coordinator = WorkCoordinator(body, max_concurrency=2)
        await coordinator.enqueue_many(range(5))
        report = await coordinator.drain()
        assert report.cancelled == 5
        assert now() == 0
        await coordinator.aclose()


class TestClose:
    @every_coordinator
    async def test_two_budgets_to_finish_and_to_react(self, make):  # report R11, fault L4
        async def body(item):
            try:
                await asyncio.sleep(item)
            except asyncio.CancelledError:
                await asyncio.sleep(2)
                raise

        coordinator = make(body, max_concurrency=4)
        operations = [await coordinator.enqueue(each) for each in (3, 20)]
        report = await coordinator.aclose(grace=10, cancel_grace=5)
        assert now() == 12
        assert [each.status for each in operations] == ["completed", "cancelled"]
        assert (report.remaining, report.stragglers) == (0, ())
        assert_quiet(coordinator)

    async def test_a_body_within_its_grace_finishes(self):  # report R11
        coordinator = WorkCoordinator(Sleeper(3))
        operation = await coordinator.enqueue(1)
        await coordinator.aclose(grace=10)
        assert operation.status is OperationStatus.COMPLETED
        assert now() == 3

    @every_coordinator
    async def test_a_body_that_swallows_cancellation_cannot_hold_it_up(self, make, caplog):  # report R3
        body = Stubborn()
        coordinator = make(body, max_concurrency=2, name="mail")
        operation = await coordinator.enqueue(1)
        pending = [await coordinator.enqueue(each) for each in (2, 3)]
        report = await coordinator.aclose(grace=1, cancel_grace=5)
        assert now() == 6
        assert report.stragglers == (operation.id, pending[0].id)
        assert report.remaining == 2
        assert body.cancellations == 2
        assert "mail closes while operations are still running" in caplog.text
        body.released.set()
        assert await operation == 1
        await coordinator.join()
        assert coordinator.snapshot() == []
        assert_adds_up(coordinator)
        assert_quiet(coordinator)

    async def test_stragglers_are_finalized_when_they_end(self):  # fault W13
        seen = []
        body = Stubborn()
        coordinator = WorkCoordinator(body, on_finalized=lambda snapshot, reason: seen.append((snapshot.id, reason)))
        operation = await coordinator.enqueue(1)
        await asyncio.sleep(1)
        await coordinator.aclose(grace=0, cancel_grace=0)
        assert seen == []
        body.released.set()
        await operation
        assert seen == [(operation.id, "shutdown")]

    async def test_without_limits_it_waits_as_long_as_it_takes(self):
        coordinator = WorkCoordinator(Sleeper(100_000))
        operation = await coordinator.enqueue(1)
        await coordinator.aclose(grace=None, cancel_grace=None)
        assert operation.status is OperationStatus.COMPLETED

    async def test_by_default_it_waits_ten_seconds_and_then_five(self):
        body = Stubborn()
        coordinator = WorkCoordinator(body)
        await coordinator.enqueue(1)
        await coordinator.aclose()
        assert now() == 15
        body.released.set()

    @pytest.mark.parametrize("option", ["grace", "cancel_grace"])
    @pytest.mark.parametrize("value", [-1, "1", float("inf")])
    async def test_a_wrong_budget_is_refused_and_closes_nothing(self, option, value):
        async with WorkCoordinator(Sleeper()) as coordinator:
            with pytest.raises(InvalidOption, match=f"{option}="):
                await coordinator.aclose(**{option: value})
            assert not coordinator.is_closed

    async def test_closing_what_was_never_used_is_fine(self):
        coordinator = WorkCoordinator(Sleeper())
        report = await coordinator.aclose()
        assert (report.enqueued, report.duration) == (0, 0)

    async def test_a_failure_is_not_raised(self):  # fault L16
        async def body(_item):
            raise ValueError

        coordinator = WorkCoordinator(body)
        await coordinator.enqueue(1)
        assert (await coordinator.aclose()).failed == 1

    async def test_closing_resumes_what_was_paused(self):
        body = Sleeper()
        coordinator = WorkCoordinator(body)
        coordinator.pause()
        await coordinator.enqueue(1)
        await coordinator.aclose()
        assert body.ended == [1]


ENDINGS = {
    "complete": lambda coordinator: coordinator.complete(),
    "drain": lambda coordinator: coordinator.drain(),
    "cancel": lambda coordinator: coordinator.cancel(),
    "aclose": lambda coordinator: coordinator.aclose(grace=0),
    "join": lambda coordinator: coordinator.join(),
}


@pytest.mark.parametrize("order", list(itertools.permutations(ENDINGS, 3)), ids=" ".join)
async def test_all_endings_are_idempotent_in_any_order(order):  # faults L5, L6, invariant 3
    coordinator = WorkCoordinator(Sleeper(2), max_concurrency=2)
    await coordinator.enqueue_many(range(5))
    await asyncio.sleep(1)
    for name in order * 2:
        ending = ENDINGS[name](coordinator)
        if ending is not None:
            await ending
        assert_adds_up(coordinator)
    await coordinator.aclose()
    assert coordinator.is_idle
    assert_quiet(coordinator)


@every_coordinator
async def test_all_endings_at_once_end_it_once(make):
    seen = []
    coordinator = make(Sleeper(2), max_concurrency=2, on_finalized=lambda snapshot, _: seen.append(snapshot.id))
    await coordinator.enqueue_many(range(6))
    await asyncio.sleep(1)

    async def end(name):
        ending = ENDINGS[name](coordinator)
        if ending is not None:
            await ending

    await asyncio.gather(*[end(name) for name in [*ENDINGS] * 3])
    assert len(seen) == len(set(seen)) == 6
    assert_adds_up(coordinator)
    assert_quiet(coordinator)


class TestBlock:
    @every_coordinator
    async def test_leaving_normally_drains(self, make):
        body = Sleeper()
        async with make(body) as coordinator:
            await coordinator.enqueue_many(range(5))
        assert sorted(body.ended) == list(range(5))
        assert coordinator.total_completed == 5
        assert_quiet(coordinator)

    @every_coordinator
    async def test_leaving_with_an_exception_cancels(self, make):
        body = Sleeper(100)
        with pytest.raises(LookupError):
            async with make(body, max_concurrency=2) as coordinator:
                await coordinator.enqueue_many(range(5))
                await asyncio.sleep(1)
                raise LookupError
        assert now() == 1
        assert coordinator.total_cancelled == 5
        assert len(body.ended) == 2
        assert_quiet(coordinator)

    async def test_leaving_with_an_exception_waits_for_a_stubborn_body_only_to_react(self):
        body = Stubborn()
        with pytest.raises(LookupError):
            async with WorkCoordinator(body) as coordinator:
                await coordinator.enqueue(1)
                await asyncio.sleep(1)
                raise LookupError
        assert now() == 6
        body.released.set()
        await coordinator.join()

    async def test_being_cancelled_inside_cancels(self):
        body = Sleeper(100)

        async def main():
            async with WorkCoordinator(body) as coordinator:
                await coordinator.run(1)

        task = asyncio.ensure_future(main())
        await asyncio.sleep(1)
        task.cancel()
        assert isinstance(await outcome(task), asyncio.CancelledError)
        assert body.ended == [1]
        assert now() == 1

    async def test_being_cancelled_while_it_drains_cancels(self):
        body = Sleeper(100)

        async def main():
            async with WorkCoordinator(body) as coordinator:
                await coordinator.enqueue(1)

        task = asyncio.ensure_future(main())
        await asyncio.sleep(1)
        task.cancel()
        assert isinstance(await outcome(task), asyncio.CancelledError)
        assert body.ended == [1]
        assert now() == 1


class TestOwnership:
    @every_coordinator
    async def test_accepted_work_is_owned_though_nobody_else_refers_to_anything(self, make):  # report R1
        done = []

        async def body(_item):
            future = asyncio.get_running_loop().create_future()
            waiting.append(weakref.ref(future))
            await future
            done.append(True)

        waiting = []
        coordinator = make(body)
        await coordinator.enqueue(1)
        await asyncio.sleep(1)
        gc.collect()
        assert waiting[0]() is not None
        waiting[0]().set_result(None)
        await coordinator.aclose()
        assert done == [True]

    async def test_a_forgotten_coordinator_warns_and_its_work_goes_on(self):  # report R1
        body = Sleeper(5)
        coordinator = WorkCoordinator(body, name="mail")
        await coordinator.enqueue(1)
        await coordinator.enqueue(2)
        with pytest.warns(ResourceWarning, match="coordinator 'mail' was not closed: use 'async with'"):
            del coordinator
            gc.collect()
        await asyncio.sleep(10)
        assert sorted(body.ended) == [1, 2]

    async def test_a_closed_or_unused_one_does_not_warn(self):
        coordinator = WorkCoordinator(Sleeper())
        await coordinator.run(1)
        await coordinator.aclose()
        drained = WorkCoordinator(Sleeper())
        await drained.run(1)
        await drained.drain()
        unused = WorkCoordinator(Sleeper())
        del coordinator, drained, unused
        gc.collect()

    async def test_an_idle_one_that_was_dropped_is_freed(self):
        coordinator = WorkCoordinator(Sleeper())
        await coordinator.run(1)
        await coordinator.aclose()
        reference = weakref.ref(coordinator.engine)
        del coordinator
        gc.collect()
        assert reference() is None

    async def test_a_refused_construction_leaves_nothing_to_warn_about(self):
        with pytest.raises(InvalidOption):
            WorkCoordinator(Sleeper(), max_pending=0)
        gc.collect()
