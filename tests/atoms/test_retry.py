"""Trying again, as a decorator and as an option of every coordinator."""

from __future__ import annotations

import asyncio
import functools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.coordinators import assert_adds_up, every_coordinator

from ephemerals import (
    Background,
    InvalidBody,
    InvalidOption,
    KeyedWorkCoordinator,
    Lane,
    OperationCancelled,
    OperationStatus,
    OperationTimeout,
    PriorityWorkCoordinator,
    ResultCoordinator,
    WorkCoordinator,
    current_operation,
    for_each,
    map_each,
)
from ephemerals.atoms import Retry, RetryAfter, RetryPolicy
from ephemerals.testing import VirtualClock, assert_forgotten, assert_quiet

exactly = functools.partial(RetryPolicy, jitter=False)


def now():
    return VirtualClock.current().monotonic() - 1000


class Flaky:
    """Fail so many times, then give the item back."""

    def __init__(self, failures=2, error=OSError):
        self.failures = failures
        self.error = error
        self.calls = []

    async def __call__(self, item, operation=None):
        self.calls.append((item, now()))
        if sum(each == item for each, _ in self.calls) <= self.failures:
            raise self.error("no")
        return item


# The policy.


def test_the_pause_doubles_up_to_the_cap():
    policy = exactly(attempts=None, initial=1, max_delay=10)
    assert [policy.delay_after(OSError(), attempt, 0) for attempt in (1, 2, 3, 4, 5, 5000)] == [1, 2, 4, 8, 10, 10]


@given(st.integers(1, 60), st.floats(0, 1, exclude_max=True))
def test_full_jitter_is_a_share_of_the_pause(attempt, share):
    policy = RetryPolicy(attempts=None, initial=0.5, max_delay=20, random=lambda: share)
    assert policy.delay_after(OSError(), attempt, 0) == share * min(20, 0.5 * 2 ** (attempt - 1))


@pytest.mark.parametrize("retry_on", [Exception, lambda _: True, OSError])
@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_cancellation_and_exits_are_never_retried_whatever_the_predicate_says(retry_on, error):
    """R28."""
    assert RetryPolicy(retry_on=retry_on).delay_after(error(), 1, 0) is None


def test_only_the_chosen_errors_are_retried():
    for retry_on in (OSError, (OSError, KeyError), lambda error: isinstance(error, OSError)):
        policy = exactly(retry_on=retry_on)
        assert policy.delay_after(ConnectionError(), 1, 0) == 0.1
        assert policy.delay_after(ValueError(), 1, 0) is None


def test_an_exception_that_says_when_is_waited_for_also_beyond_the_cap():
    policy = exactly(max_delay=1, deadline=100)
    assert policy.delay_after(RetryAfter(60), 1, 0) == 60
    assert policy.delay_after(RetryAfter(0), 1, 0) == 0.1
    assert policy.delay_after(RetryAfter(60), 1, 41) is None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("attempts", 0),
        ("attempts", 2.5),
        ("initial", -1),
        ("max_delay", "1"),
        ("factor", 0.5),
        ("deadline", 0),
        ("retry_on", asyncio.CancelledError),
        ("retry_on", (OSError, KeyboardInterrupt)),
        ("retry_on", "OSError"),
        ("random", 4),
    ],
)
def test_a_wrong_option_is_refused(option, value):
    with pytest.raises(InvalidOption, match=option):
        RetryPolicy(**{option: value})


# As a decorator.


async def test_a_decorated_function_is_called_until_it_works():
    flaky = Flaky()
    retry = Retry(exactly(initial=1))
    assert await retry(flaky.__call__)("x") == "x"
    assert flaky.calls == [("x", 0), ("x", 1), ("x", 3)]
    assert retry.statistics().retries == 2


async def test_the_last_error_comes_out_when_the_attempts_are_used_up():
    retry = Retry(exactly(attempts=2))
    with pytest.raises(OSError, match="no"):
        await retry.call(Flaky(9), "x")
    assert (retry.statistics().calls, retry.statistics().failed) == (1, 1)


async def test_no_attempt_begins_after_the_deadline():
    flaky = Flaky(99)
    with pytest.raises(OSError, match="no"):
        await Retry(exactly(attempts=None, initial=1, factor=1, deadline=3.5)).call(flaky, "x")
    assert [when for _, when in flaky.calls] == [0, 1, 2, 3]


async def test_a_cancelled_call_is_not_retried():
    flaky = Flaky(99, error=lambda _: asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await Retry(exactly(attempts=9, retry_on=lambda _: True)).call(flaky, "x")
    assert len(flaky.calls) == 1


async def test_a_timeout_around_it_ends_it():
    flaky = Flaky(99)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await Retry(exactly(attempts=None, retry_on=lambda error: not isinstance(error, ValueError))).call(flaky, 1)
    assert now() == 10


async def test_a_predicate_that_fails_does_not_replace_the_error(caplog):
    def broken(error):
        raise ZeroDivisionError

    with pytest.raises(OSError, match="no"):
        await Retry(RetryPolicy(retry_on=broken)).call(Flaky(1), "x")
    assert "a retry policy raised ZeroDivisionError" in caplog.text


async def test_nested_retries_are_noticed():
    """T3."""
    flaky = Flaky(99)
    inner = Retry(exactly(initial=0))(flaky.__call__)
    outer = Retry(exactly(initial=0))
    with pytest.warns(RuntimeWarning, match="attempts multiply"), pytest.raises(OSError, match="no"):
        await outer.call(inner, "x")
    assert len(flaky.calls) == 9


async def test_a_nested_retry_may_leave_it_to_the_outer_one():
    for nested, calls in (("once", 3), ("allow", 9)):
        flaky = Flaky(99)
        with pytest.raises(OSError, match="no"):
            await Retry(exactly(initial=0)).call(Retry(exactly(initial=0), nested=nested)(flaky.__call__), "x")
        assert len(flaky.calls) == calls


async def test_a_retry_after_another_is_not_nested():
    retry = Retry(exactly(initial=0))
    await retry.call(Flaky(1), "x")
    await retry.call(Flaky(1), "x")


async def test_a_retry_in_the_body_of_a_retried_operation_is_nested():
    inner = Retry(exactly(initial=0))

    async def body(item):
        return await inner.call(Flaky(0), item)

    async with WorkCoordinator(body, retry=RetryPolicy(), name="nested") as coordinator:
        with pytest.warns(RuntimeWarning, match="attempts multiply"):
            await coordinator.run("x")
        assert coordinator.statistics().retries == 0


async def test_work_that_a_retried_body_enqueues_elsewhere_is_not_nested():
    async with WorkCoordinator(lambda_body := Retry(exactly(initial=0))(Flaky(1).__call__)) as plain:

        async def body(item):
            await (await plain.enqueue(item))

        async with WorkCoordinator(body, retry=RetryPolicy()) as coordinator:
            await coordinator.run("x")
    assert lambda_body


def test_a_plain_function_is_not_decorated():
    with pytest.raises(InvalidBody, match="give it to a coordinator"):
        Retry()(print)


async def test_a_decorated_call_in_a_body_says_so_on_the_operation():
    retry = Retry(exactly(attempts=2))

    async def body(item):
        await retry.call(Flaky(9), item)

    async with WorkCoordinator(body) as coordinator:
        operation = await coordinator.enqueue("x")
        await coordinator.join()
        assert [(each.name, each.data) for each in operation.signals] == [
            ("retry.scheduled", {"attempt": 1, "error": "OSError", "delay": 0.1}),
            ("retry.exhausted", {"attempt": 2, "error": "OSError"}),
        ]


# As an option.


@every_coordinator
async def test_every_coordinator_retries(make):
    flaky = Flaky()
    async with make(flaky, retry=exactly(initial=1), max_concurrency=2) as coordinator:
        items = ["a", "b", "c"]
        operations = [await coordinator.enqueue(each) for each in items]
        assert_adds_up(coordinator)
        assert [await each for each in operations] == items
        assert [each.attempt for each in operations] == [3, 3, 3]
        assert coordinator.statistics().retries == 6
        assert_adds_up(coordinator)
    assert_quiet(coordinator)
    assert len(flaky.calls) == 9


async def test_a_one_shot_run_and_a_background_retry():
    flaky = Flaky()
    report = await for_each("abc", flaky, retry=exactly(), max_concurrency=2)
    assert report.completed == 3
    async with Background(retry=exactly()) as background:
        flaky = Flaky()
        assert await (await background.spawn(flaky, "x")) == "x"
        lock, calls = threading.Lock(), []

        def plain(item):
            with lock:
                calls.append(item)
            if len(calls) < 3:
                raise OSError
            return item

        assert await (await background.spawn(plain, "y")) == "y"
    assert_quiet(background)


@pytest.mark.parametrize("ordered", [False, True])
async def test_mapping_retries(ordered):
    flaky = Flaky()
    async with map_each("abc", flaky, retry=exactly(initial=1), max_concurrency=1, ordered=ordered) as results:
        assert sorted([each async for each in results]) == ["a", "b", "c"]
    assert len(flaky.calls) == 9


async def test_plain_functions_are_retried_in_their_threads():
    calls = []

    def plain(item):
        calls.append(current_operation().attempt)
        if len(calls) < 3:
            raise OSError
        return item

    async with WorkCoordinator(plain, retry=exactly()) as coordinator:
        assert await coordinator.run("x") == "x"
    assert calls == [1, 2, 3]


async def test_at_concurrency_one_others_run_during_the_pause():
    order = []

    async def body(item, operation):
        order.append((item, operation.attempt, now()))
        if item == "bad" and operation.attempt < 3:
            raise OSError

    async with WorkCoordinator(body, max_concurrency=1, retry=exactly(initial=10)) as coordinator:
        await coordinator.enqueue_many(["bad", "one", "two"])
    assert order == [("bad", 1, 0), ("one", 1, 0), ("two", 1, 0), ("bad", 2, 10), ("bad", 3, 30)]


async def test_what_comes_back_goes_before_what_came_later():
    order = []

    async def body(item, operation):
        order.append(item)
        await asyncio.sleep(1)
        if item in {"a", "b"} and operation.attempt == 1:
            raise OSError

    async with WorkCoordinator(body, max_concurrency=1, retry=exactly(initial=0.5)) as coordinator:
        await coordinator.enqueue_many("abcdef")
    assert order == ["a", "b", "a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize("fair", [False, True])
async def test_nothing_of_a_key_overtakes_what_is_retried_while_other_keys_go_on(fair):
    order = []

    async def body(item, operation):
        order.append((item, now()))
        if item == "a1" and operation.attempt < 3:
            raise OSError

    def key(item):
        return item[0]

    options = {"max_concurrency": 2, "retry": exactly(initial=10), "fair_scheduling": fair}
    async with KeyedWorkCoordinator(key, body, **options) as coordinator:
        await coordinator.enqueue_many(["a1", "a2", "b1", "b2", "a3"])
        await asyncio.sleep(1)
        assert [item for item, _ in order] == ["a1", "b1", "b2"]
        assert_adds_up(coordinator)
    assert [entry for entry in order if entry[0][0] == "a"] == [
        ("a1", 0),
        ("a1", 10),
        ("a1", 30),
        ("a2", 30),
        ("a3", 30),
    ]
    assert_quiet(coordinator)


async def test_a_key_in_several_lanes_is_never_run_twice_at_once():
    running, order = set(), []

    async def body(item, operation):
        assert item[0] not in running
        running.add(item[0])
        await asyncio.sleep(1)
        running.remove(item[0])
        order.append(item)
        if item == "a1" and operation.attempt < 3:
            raise OSError

    lanes = [Lane("hot", max_concurrency=1), Lane("cold")]
    async with PriorityWorkCoordinator(
        body, lanes=lanes, key=lambda item: item[0], retry=exactly(initial=2), max_concurrency=4
    ) as coordinator:
        first = await coordinator.enqueue("a1", lane="cold")
        await asyncio.sleep(1.5)
        assert first.status == "pending"
        await coordinator.enqueue("a2", lane="hot")
        await coordinator.enqueue("a3", lane="hot")
        await coordinator.enqueue("b1", lane="hot")
        await asyncio.sleep(0.1)
        assert_adds_up(coordinator)
    assert sorted(order) == ["a1", "a1", "a1", "a2", "a3", "b1"]
    assert order.index("a2") < order.index("a3")
    assert_quiet(coordinator)


async def test_cancelling_what_waits_in_a_lane_lets_the_key_go_on_in_another():
    order = []

    async def body(item):
        order.append(item)
        if item == "a1":
            raise OSError

    lanes = [Lane("hot"), Lane("cold")]
    async with PriorityWorkCoordinator(
        body, lanes=lanes, key=lambda item: item[0], retry=exactly(initial=100)
    ) as coordinator:
        first = await coordinator.enqueue("a1", lane="cold")
        await asyncio.sleep(0.5)
        await coordinator.enqueue("a2", lane="hot")
        await asyncio.sleep(0.5)
        assert order == ["a1"]
        first.cancel()
        await coordinator.join()
        assert now() == 1
        assert order == ["a1", "a2"]
    assert_quiet(coordinator)


async def test_an_operation_that_waits_for_its_next_attempt_is_pending_and_shows_it():
    async with WorkCoordinator(Flaky(1), retry=exactly(initial=10), max_concurrency=1) as coordinator:
        operation = await coordinator.enqueue("x")
        await asyncio.sleep(4)
        assert (operation.status, operation.attempt, operation.started_at) == ("pending", 2, None)
        assert (coordinator.pending_count, coordinator.active_count) == (1, 0)
        (snapshot,) = coordinator.pending()
        assert snapshot.attempt == 2
        assert [each.name for each in operation.signals] == ["retry.scheduled"]
        assert operation.signals[0].data == {"attempt": 1, "error": "OSError", "delay": 10}
        await operation
        assert coordinator.snapshot()[0].attempt == 2
        assert coordinator.snapshot()[0].duration == 0
        assert coordinator.snapshot()[0].waiting_time == 10


async def test_used_up_attempts_end_in_the_failure():
    async with WorkCoordinator(Flaky(9), retry=exactly()) as coordinator:
        operation = await coordinator.enqueue("x")
        with pytest.raises(OSError, match="no"):
            await operation
        assert [each.name for each in operation.signals] == ["retry.scheduled", "retry.scheduled", "retry.exhausted"]
        assert coordinator.failed()[0].attempt == 3
        assert coordinator.total_failed == 1


async def test_cancelling_what_waits_ends_it_at_once():
    async with WorkCoordinator(Flaky(9), retry=exactly(initial=1000)) as coordinator:
        operation = await coordinator.enqueue("x")
        await asyncio.sleep(1)
        assert operation.cancel()
        with pytest.raises(OperationCancelled):
            await operation
        assert_adds_up(coordinator)
        assert now() == 1
    assert_quiet(coordinator)


async def test_cancelling_many_that_wait_leaves_no_trace_of_their_times():
    async with WorkCoordinator(Flaky(9), retry=exactly(initial=1000), max_pending=None) as coordinator:
        operations = [await coordinator.enqueue(each) for each in range(200)]
        await asyncio.sleep(1)
        for operation in operations[1:]:
            operation.cancel()
        assert len(coordinator.engine.retrying._due) < 50
        operations[0].cancel()
    assert_quiet(coordinator)


async def test_a_cancelled_body_is_not_retried():
    """R13."""
    calls = []

    async def body(item):
        calls.append(item)
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            raise OSError from None  # cleaning up failed

    async with WorkCoordinator(body, retry=exactly(attempts=9, retry_on=lambda _: True)) as coordinator:
        operation = await coordinator.enqueue("x")
        await asyncio.sleep(1)
        operation.cancel()
        with pytest.raises(OSError):
            await operation
    assert calls == ["x"]


async def test_a_drain_makes_the_attempts_that_are_left():
    flaky = Flaky()
    coordinator = WorkCoordinator(flaky, retry=exactly(initial=10))
    await coordinator.enqueue("x")
    report = await coordinator.drain()
    assert (report.completed, now()) == (1, 30)
    await coordinator.aclose()
    assert_quiet(coordinator)


async def test_closing_ends_the_pause_when_the_grace_is_over():
    """R13."""
    flaky = Flaky(9)
    coordinator = WorkCoordinator(flaky, retry=exactly(attempts=9, initial=100))
    operation = await coordinator.enqueue("x")
    report = await coordinator.aclose(grace=5)
    assert (report.cancelled, report.remaining, now()) == (1, 0, 5)
    assert operation.status == OperationStatus.CANCELLED
    assert len(flaky.calls) == 1
    assert_quiet(coordinator)


@every_coordinator
async def test_cancelling_all_ends_every_pause_at_once(make):
    coordinator = make(Flaky(9), retry=exactly(initial=100), max_concurrency=3)
    for item in ["a", "b", "c", "d"]:
        await coordinator.enqueue(item)
    await asyncio.sleep(1)
    report = await coordinator.cancel()
    assert (report.cancelled, now()) == (4, 1)
    assert_adds_up(coordinator)
    await coordinator.aclose()
    assert_quiet(coordinator)


async def test_a_pause_of_the_coordinator_holds_retries_too():
    flaky = Flaky(1)
    async with WorkCoordinator(flaky, retry=exactly(initial=1)) as coordinator:
        await coordinator.enqueue("x")
        await asyncio.sleep(0.5)
        coordinator.pause()
        await asyncio.sleep(10)
        assert len(flaky.calls) == 1
        coordinator.resume()
    assert [when for _, when in flaky.calls] == [0, 10.5]


async def test_a_time_limit_is_for_each_attempt():
    starts = []

    async def body(item, operation):
        starts.append(now())
        await asyncio.sleep(10 if operation.attempt < 3 else 1)

    async with WorkCoordinator(body, retry=exactly(initial=0, retry_on=OperationTimeout), operation_timeout=2) as work:
        await work.run("x")
    assert starts == pytest.approx([0, 2, 4])


async def test_a_full_queue_stays_bounded_by_what_waits_to_be_retried():
    async with WorkCoordinator(Flaky(1), retry=exactly(initial=10), max_pending=2, max_concurrency=1) as coordinator:
        for item in range(2):
            await coordinator.enqueue(item)
            await asyncio.sleep(0.1)
        assert coordinator.pending_count == 2
        assert coordinator.try_enqueue(4) is None
        assert_adds_up(coordinator)


async def test_the_oldest_may_be_dropped_while_it_waits():
    options = {"max_pending": 1, "max_concurrency": 1, "overflow": "drop_oldest"}
    async with KeyedWorkCoordinator(id, Flaky(1), retry=exactly(initial=10), **options) as coordinator:
        first = await coordinator.enqueue("x")
        await asyncio.sleep(1)
        second = await coordinator.enqueue("y")
        assert (first.status, second.status) == ("cancelled", "pending")
        assert_adds_up(coordinator)
    assert_quiet(coordinator)


async def test_each_attempt_runs_in_a_fresh_copy_of_the_callers_context():
    import contextvars

    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("caller")
    seen = []

    async def body(item):
        seen.append(variable.get())
        variable.set("attempt")
        if len(seen) < 3:
            raise OSError

    async with WorkCoordinator(body, retry=exactly()) as coordinator:
        await coordinator.run("x")
    assert seen == ["caller"] * 3


async def test_a_policy_that_fails_lets_the_operation_fail_with_its_own_error():
    def broken(error):
        raise ZeroDivisionError

    async with WorkCoordinator(Flaky(1), retry=RetryPolicy(retry_on=broken)) as coordinator:
        with pytest.raises(OSError, match="no"):
            await coordinator.run("x")


async def test_ten_thousand_that_wait_cost_one_timer_and_no_task():
    async with WorkCoordinator(
        Flaky(9), retry=exactly(attempts=2, initial=50), max_pending=None, context="fresh", max_concurrency=50
    ) as coordinator:
        coordinator.engine.body.function.calls = calls = _Count()
        await coordinator.enqueue_many(range(10_000))
        await asyncio.sleep(1)
        assert calls.count == 10_000
        loop = asyncio.get_running_loop()
        timers = [timer for timer in loop._scheduled if not timer.cancelled()]
        assert len(timers) == 2  # the other one is the sink's
        assert len(asyncio.all_tasks()) == 1
        await coordinator.cancel()
    assert_quiet(coordinator)


class _Count(list):
    count = 0

    def append(self, each):
        self.count += 1


async def test_a_loop_that_goes_away_takes_what_waits_with_it():
    def body_of_another_life():
        coordinator = KeyedWorkCoordinator(lambda item: "k", Flaky(9), retry=RetryPolicy(initial=100, jitter=False))

        async def first():
            operation = await coordinator.enqueue("x")
            await asyncio.sleep(0.01)
            return operation

        async def second():
            async with coordinator:
                await coordinator.enqueue("y")
                await asyncio.sleep(0.01)
                coordinator.cancel()
            assert_quiet(coordinator)

        operation = asyncio.run(first())
        asyncio.run(second())
        return operation.status

    assert await asyncio.to_thread(body_of_another_life) == "cancelled"


@pytest.mark.parametrize("end", ["success", "failure", "cancel while it waits", "cancel all"])
async def test_an_item_is_forgotten_after_retries(end):
    calls = []

    async def body(item):
        calls.append(1)
        if len(calls) < 3 or end != "success":
            raise OSError(item.secret)

    coordinator = ResultCoordinator(body, retry=exactly(initial=10))

    async def use(item):
        operation = await coordinator.enqueue(item)
        del item
        if end.startswith("cancel"):
            await asyncio.sleep(15)
            coordinator.cancel() if end == "cancel all" else operation.cancel()
        await coordinator.join()
        return operation, coordinator.snapshot()

    await assert_forgotten(use)
    await coordinator.aclose()


async def test_between_two_attempts_the_error_of_the_first_is_gone():
    import gc
    import weakref

    errors = []

    class Refused(OSError):
        pass

    async def body(item):
        error = Refused()
        errors.append(weakref.ref(error))
        raise error

    async with WorkCoordinator(body, retry=exactly(attempts=2, initial=10)) as coordinator:
        await coordinator.enqueue("x")
        gc.disable()
        try:
            await asyncio.sleep(1)
            assert errors[0]() is None
        finally:
            gc.enable()


def test_what_is_no_policy_is_refused():
    with pytest.raises(InvalidOption, match="retry=3 is not allowed: expected a RetryPolicy"):
        WorkCoordinator(Flaky(), retry=3)
    with pytest.raises(InvalidOption, match="limiter=10 is not allowed"):
        WorkCoordinator(Flaky(), limiter=10)
