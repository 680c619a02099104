"""Background calls any function, follows it as an operation, and forgets what it was given."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import inspect
import logging
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from ephemerals import (
    Background,
    BackgroundTask,
    Call,
    CoordinatorClosed,
    CoordinatorError,
    CoordinatorFull,
    InvalidBody,
    InvalidOption,
    InvalidOptionType,
    OperationCancelled,
    OperationStatus,
    OperationTimeout,
    current_operation,
)
from ephemerals.testing import Payload, VirtualClock, assert_forgotten, assert_quiet

variable = contextvars.ContextVar("variable", default="unset")


async def add(first, second=0, *, third=0):
    await asyncio.sleep(1)
    return first + second + third


def add_in_a_thread(first, second=0, *, third=0):
    return first + second + third


async def wait(event):
    await event.wait()


class Account:
    def __init__(self, number=0):
        self.number = number
        self.seen = []

    async def book(self, amount):
        await asyncio.sleep(1)
        self.seen.append(amount)
        return self.number

    def __call__(self, amount):
        return amount

    @property
    def bank(self):
        return Account(self.number % 2)


async def made_by(method, *arguments):
    """Call a method that may be async or not."""
    made = method(*arguments)
    return await made if inspect.iscoroutine(made) else made


class TestCalling:
    @pytest.mark.parametrize("function", [add, add_in_a_thread])
    async def test_any_function_is_called_with_its_arguments(self, function):
        async with Background() as background:
            operation = await background.spawn(function, 1, 2, third=3)
            assert operation.status is OperationStatus.PENDING
            assert await operation == 6
            assert background.total_completed == 1
        assert_quiet(background)

    async def test_keywords_may_have_any_name(self):
        async def body(**keywords):
            return keywords

        given = {"function": 1, "self": 2, "key": 3, "timeout": 4, "metadata": 5, "name": 6}
        async with Background() as background:
            for spawn in (background.spawn, background.task(body).spawn):
                arguments = (body,) if spawn == background.spawn else ()
                assert await (await spawn(*arguments, **given)) == given

    @pytest.mark.parametrize(
        ("function", "name"),
        [
            (add, "add"),
            (functools.partial(functools.partial(add, 1), third=2), "add"),
            (Account().book, "Account.book"),
            (Account(), "Account.__call__"),
            (Account, "Account"),
            (str, "str"),
            (lambda _: None, "TestCalling.<lambda>"),
        ],
    )
    async def test_the_operation_has_the_functions_qualified_name(self, function, name):
        async with Background() as background:
            operation = await background.spawn(function, 1)
            await operation
            assert operation.name == background.snapshot()[0].name == name

    async def test_a_log_line_of_a_failure_has_the_name_and_not_the_arguments(self, caplog):
        async def charge(card):
            raise LookupError(card)

        async with Background(name="jobs") as background:
            await background.spawn(charge, "4111 1111")
        lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(lines) == 1
        assert "<locals>.charge) of coordinator jobs failed: LookupError" in lines[0]
        assert "4111" not in caplog.text

    async def test_the_function_gets_at_its_operation(self):
        async def body():
            return current_operation()

        async with Background() as background:
            for function in (body, current_operation):
                operation = await background.spawn(function)
                assert await operation is operation

    async def test_it_runs_in_a_copy_of_the_callers_context(self):
        async def body():
            seen = variable.get()
            variable.set("of the body")
            return seen

        variable.set("of the caller")
        async with Background() as background:
            assert await (await background.spawn(body)) == "of the caller"
            assert await (await background.spawn(variable.get)) == "of the caller"
        assert variable.get() == "of the caller"

    async def test_so_many_run_at_once_whatever_they_are(self):
        async with Background(max_concurrency=2) as background:
            operations = [await background.spawn(function, 1) for function in (add, Account().book, add, add)]
            await asyncio.sleep(0.5)
            assert (background.active_count, background.pending_count) == (2, 2)
            await operations[-1]
            assert operations[-1].waiting_time == 1.0

    async def test_without_keys_nothing_waits_for_anything_and_nothing_is_left(self):
        async with Background(max_concurrency=100) as background:
            for _ in range(50):
                background.add_task(add, 1)
            await asyncio.sleep(0.5)
            assert background.active_count == 50
            await background.join()
            assert background.engine.schedule.leftovers() == {"keys": 0, "withdrawn": 0}

    async def test_every_option_is_understood_but_processes(self):
        with pytest.raises(InvalidOption, match="run_in='process'"):
            Background(run_in="process")
        async with Background(operation_timeout=2, max_tracked_operations=1, name="jobs") as background:
            event = asyncio.Event()
            operation = await background.spawn(wait, event)
            with pytest.raises(OperationTimeout):
                await operation
            await background.spawn(add, 1)
            await background.drain()
            assert [each.name for each in background.snapshot()] == ["add"]

    async def test_metadata_goes_with_a_call(self):
        async with Background() as background:
            operation = await background.enqueue(Call(add, 1, second=2), metadata={"kind": "sum"})
            assert (await operation, operation.metadata) == (3, {"kind": "sum"})
            assert await background.run(Call(add, 4)) == 4
            assert await background.enqueue_many(Call(add, number) for number in range(3)) == 3
            assert repr(Call(add, "secret")) == "<Call of add>"

    @pytest.mark.real_loop("asyncio", "uvloop")
    async def test_it_runs_on_real_loops(self):
        async with Background(max_concurrency=4) as background:
            operations = [await background.spawn(add_in_a_thread, number) for number in range(100)]
            assert [await operation for operation in operations] == list(range(100))


class TestOwnership:
    async def test_it_owns_what_it_accepted(self):
        """R1: a task that waits for something only it knows is not collected."""
        woken = []
        hidden = []

        async def body():
            future = asyncio.get_running_loop().create_future()
            hidden.append(weakref.ref(future))
            await future
            woken.append(1)

        background = Background()
        await background.spawn(body)
        await asyncio.sleep(1)
        gc.collect()
        assert hidden[0]() is not None
        hidden[0]().set_result(None)
        await background.drain()
        assert woken == [1]
        await background.aclose()

    async def test_leaving_normally_waits_and_leaving_with_an_exception_cancels(self):
        async with Background() as background:
            operation = await background.spawn(add, 1)
        assert operation.status is OperationStatus.COMPLETED
        background = Background()
        operation = background.add_task(add, 1)
        await asyncio.sleep(0.5)
        await background.__aexit__(KeyError, KeyError(), None)
        with pytest.raises(OperationCancelled):
            await operation

    def test_one_of_a_module_serves_one_loop_after_the_other(self):
        """R55."""
        background = Background()

        @background.task
        async def double(number):
            return number * 2

        async def main(number):
            return await (await double.spawn(number))

        assert [asyncio.run(main(number)) for number in (1, 2)] == [2, 4]
        background.engine.release()


class TestRefusing:
    @pytest.mark.parametrize("how", ["spawn", "try_spawn", "add_task", "task"])
    async def test_a_coroutine_object_is_refused_and_closed_and_the_right_call_is_shown(self, how):
        """R4."""
        async with Background() as background:
            coroutine = add(1)
            with pytest.raises(InvalidBody, match=rf"use {how}\(add, \.\.\.\), not {how}\(add\(\.\.\.\)\)"):
                await made_by(getattr(background, how), coroutine)
            assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
            assert background.total_enqueued == 0
        with pytest.raises(InvalidBody, match="a coroutine object was given"):
            Call(add(1))

    @pytest.mark.parametrize("how", ["spawn", "try_spawn", "add_task"])
    async def test_nothing_is_made_before_it_is_accepted(self, how):
        """R4: after closing, there is no coroutine that nobody awaits."""
        background = Background()
        await background.aclose()
        with pytest.raises(CoordinatorClosed):
            await made_by(getattr(background, how), add, 1)
        gc.collect()

    async def test_what_is_no_function_is_refused(self):
        def generator():
            yield

        async def async_generator():
            yield

        async with Background() as background:
            for wrong in (5, None, "add"):
                with pytest.raises(InvalidBody, match="needs a function and its arguments"):
                    await background.spawn(wrong)
            for wrong in (generator, async_generator, functools.partial(generator)):
                with pytest.raises(InvalidBody, match="is a generator"):
                    background.add_task(wrong)
            with pytest.raises(InvalidBody, match=r"use spawn\(add, \.\.\.\)"):
                await background.enqueue(add)
            with pytest.raises(InvalidBody, match="needs a function"):
                background.try_enqueue(5)

    async def test_a_plain_function_that_gives_a_coroutine_fails(self):
        async with Background() as background:
            operation = await background.spawn(lambda: add(1))
            with pytest.raises(InvalidBody, match="which nobody would await"):
                await operation

    async def test_wrong_arguments_are_the_callers_error(self):
        async with Background() as background:
            for function in (add, add_in_a_thread):
                with pytest.raises(TypeError, match="fourth"):
                    await background.spawn(function, 1, fourth=4)

    @pytest.mark.parametrize("function", [add, add_in_a_thread])
    async def test_a_stop_iteration_becomes_a_runtime_error(self, function):
        """R36."""

        async def coroutine():
            raise StopAsyncIteration

        async with Background() as background:
            for stopping in (coroutine, lambda: next(iter([]))):
                with pytest.raises(RuntimeError):
                    await (await background.spawn(stopping))

    async def test_a_timeout_error_of_the_function_is_its_own(self):
        """R43."""

        async def body():
            raise TimeoutError

        async with Background() as background:
            with pytest.raises(TimeoutError) as caught:
                await (await background.spawn(body))
            assert not isinstance(caught.value, OperationTimeout)


class TestRoom:
    async def test_spawning_waits_for_room_trying_does_not_and_adding_raises(self):
        event = asyncio.Event()
        async with Background(max_concurrency=1, max_pending=1, name="jobs") as background:
            await background.spawn(wait, event)
            await asyncio.sleep(0)
            assert background.try_spawn(wait, event) is not None
            assert background.try_spawn(wait, event) is None
            with pytest.raises(CoordinatorFull, match="coordinator 'jobs' is full"):
                background.add_task(wait, event)
            waiting = asyncio.create_task(background.spawn(add, 1))
            await asyncio.sleep(1)
            assert not waiting.done()
            event.set()
            assert await (await waiting) == 1

    async def test_adding_makes_room_if_the_oldest_is_to_go(self):
        event = asyncio.Event()
        async with Background(max_concurrency=1, max_pending=1, overflow="drop_oldest") as background:
            background.add_task(wait, event)
            await asyncio.sleep(0)
            first, second = background.add_task(wait, event), background.add_task(add, 1)
            assert first.status is OperationStatus.CANCELLED
            event.set()
            assert await second == 1

    async def test_adding_counts_at_once(self):
        async with Background() as background:
            operation = background.add_task(add, 1, second=2)
            assert (background.pending_count, background.total_enqueued) == (1, 1)
            assert await operation == 3

    async def test_a_thread_may_add(self):
        async with Background() as background:
            variable.set("of the thread's caller")
            operation = await asyncio.to_thread(background.add_task, variable.get)
            assert await operation == "of the thread's caller"
            with pytest.raises(InvalidBody):
                await asyncio.to_thread(background.add_task, 5)
        with pytest.raises(CoordinatorClosed):
            await asyncio.to_thread(background.add_task, variable.get)

    async def test_a_thread_is_told_if_there_is_no_loop(self):
        with pytest.raises(CoordinatorError, match="not bound to an event loop"):
            await asyncio.to_thread(Background().add_task, add, 1)


class TestThreads:
    async def test_slow_functions_do_not_use_up_the_threads_of_others(self):
        """R62."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1, "ephemerals-default"))
        release = threading.Event()
        async with Background(max_concurrency=4) as slow, Background(max_concurrency=1) as other:
            for _ in range(8):
                await slow.spawn(release.wait)
            assert await asyncio.to_thread(add_in_a_thread, 1) == 1
            assert await (await other.spawn(add_in_a_thread, 2)) == 2
            assert (slow.active_count, slow.pending_count) == (4, 4)
            release.set()

    async def test_slow_functions_do_not_hold_up_the_loop(self):
        async with Background() as background:
            release = threading.Event()
            operation = await background.spawn(release.wait)
            for _ in range(10):
                await asyncio.sleep(0)
            release.set()
            assert await operation is True

    async def test_a_cancelled_function_keeps_its_slot_until_it_returns(self):
        release, stopped = threading.Event(), []

        def body():
            release.wait()
            stopped.append(current_operation().stop_requested)

        async with Background(max_concurrency=1) as background:
            operation = await background.spawn(body)
            following = await background.spawn(add_in_a_thread, 1)
            await VirtualClock.current().settle(external=False)
            operation.cancel()
            await VirtualClock.current().settle(external=False)
            assert operation.status is OperationStatus.CANCELLING
            assert following.status is OperationStatus.PENDING
            release.set()
            assert await following == 1
            with pytest.raises(OperationCancelled):
                await operation
            assert stopped == [True]


class TestTasks:
    async def test_a_declared_function_is_spawned_and_stays_callable(self):
        async with Background() as background:

            @background.task
            async def double(number):
                """Double it."""
                return number * 2

            @background.task()
            def halve(number):
                return number / 2

            assert await double(2) == 4
            assert halve(2) == 1
            assert background.total_enqueued == 0
            assert await (await double.spawn(2)) == 4
            assert await halve.try_spawn(number=2) == 1
            assert background.add_task(halve, 4).name.endswith("halve")
            assert (double.__name__, double.__doc__, double.background) == ("double", "Double it.", background)
            assert "double of" in repr(double)

    async def test_it_has_its_own_timeout(self):
        async with Background(operation_timeout=10) as background:
            event = asyncio.Event()
            short = background.task(timeout=2)(wait)
            other = background.task(wait)
            operations = [await short.spawn(event), await other.spawn(event)]
            for operation, seconds in zip(operations, (2, 10), strict=True):
                with pytest.raises(OperationTimeout, match=f"{seconds} seconds"):
                    await operation
                assert operation.duration == seconds
                assert operation.name == "wait"

    @pytest.mark.parametrize(
        ("key", "is_named"),
        [
            ("number", False),
            ("number", True),
            ("bank.number", False),
            (lambda account, amount: account.number, False),
            (lambda account, amount: account.number, True),
            (lambda **named: named["account"].number, True),
        ],
    )
    async def test_calls_of_one_key_run_one_after_another(self, key, is_named):
        async def book(account, amount):
            await account.book(amount)

        accounts = [Account(0), Account(1)]
        operations = []
        async with Background(max_concurrency=10) as background:
            task = background.task(key=key)(book)
            for amount in range(3):
                for each in accounts:
                    spawned = task.spawn(account=each, amount=amount) if is_named else task.spawn(each, amount)
                    operations.append(await spawned)
            free = await background.spawn(add, 1)
            await background.join()
            assert [operation.waiting_time for operation in operations] == [0, 0, 1, 1, 2, 2]
            assert [operation.key for operation in operations] == [0, 1] * 3
            assert (free.waiting_time, free.key) == (0, None)
            assert background.engine.schedule.leftovers() == {"keys": 0, "withdrawn": 0}
        assert [account.seen for account in accounts] == [[0, 1, 2]] * 2

    async def test_a_key_of_none_is_no_key(self):
        async with Background(max_concurrency=10) as background:
            task = background.task(key=lambda number: None)(add)
            operations = [await task.spawn(number) for number in range(3)]
            await background.join()
            assert [operation.waiting_time for operation in operations] == [0, 0, 0]

    async def test_a_key_that_cannot_be_told_makes_that_one_call_raise(self):
        async with Background() as background:
            task = background.task(key=lambda number: 1 / number)(add)
            with pytest.raises(ZeroDivisionError):
                await task.spawn(0)
            with pytest.raises(InvalidOptionType, match="a hashable value"):
                background.task(key=lambda number: [number])(add).try_spawn(1)
            assert background.total_enqueued == 0
            assert await (await task.spawn(1)) == 1

    @pytest.mark.parametrize("wrong", [{"timeout": 0}, {"timeout": "soon"}, {"key": 5}, {"key": "no name"}])
    def test_a_wrong_option_is_named_at_the_declaration(self, wrong):
        with pytest.raises(InvalidOption, match=next(iter(wrong))):
            Background().task(**wrong)


async def completes(*items, **named):
    await asyncio.sleep(1)


async def fails(*items, **named):
    await asyncio.sleep(1)
    raise ValueError


def completes_in_a_thread(*items, **named):
    pass


def fails_in_a_thread(*items, **named):
    raise ValueError


FUNCTIONS = [completes, fails, completes_in_a_thread, fails_in_a_thread]


class TestPrivacy:
    @pytest.mark.parametrize("function", FUNCTIONS)
    @pytest.mark.parametrize("named", [False, True])
    @pytest.mark.parametrize("is_awaited", [False, True])
    async def test_arguments_are_forgotten(self, function, named, is_awaited):
        async with Background() as background:

            async def use(item):
                spawned = background.spawn(function, item=item) if named else background.spawn(function, item)
                del item
                operation = await spawned
                if is_awaited:
                    await asyncio.gather(operation, return_exceptions=True)
                await background.join()
                return operation, background.snapshot()

            await assert_forgotten(use, within=1)

    @pytest.mark.parametrize("after", [0, 0.5])
    @pytest.mark.parametrize("function", [completes, fails])
    async def test_arguments_of_a_cancelled_call_are_forgotten(self, after, function):
        async with Background() as background:

            async def use(item):
                operation = background.add_task(function, item)
                del item
                await asyncio.sleep(after)
                operation.cancel()
                await background.join()
                return operation

            await assert_forgotten(use)

    @pytest.mark.parametrize("how", ["spawn", "try_spawn"])
    async def test_arguments_of_a_declared_task_are_forgotten_and_the_key_is_all_that_stays(self, how):
        async with Background() as background:
            task = background.task(key="secret.__class__", timeout=5)(completes)

            async def use(item):
                made = getattr(task, how)(item)
                del item
                operation = await made if how == "spawn" else made
                await background.join()
                return operation

            await assert_forgotten(use)

    async def test_arguments_are_forgotten_when_refused(self):
        background = Background()
        await background.aclose()

        async def use(item):
            try:
                background.add_task(completes, item)
            except CoordinatorClosed as error:
                return error.with_traceback(None)

        await assert_forgotten(use)

    async def test_arguments_that_a_thread_could_not_add_are_forgotten(self):
        background = Background()
        await background.spawn(completes)
        await background.aclose()

        def add_to_closed(box):
            try:
                background.add_task(completes, box.pop())
            except CoordinatorClosed as error:
                return error.with_traceback(None)

        async def use(item):
            box = [item]
            del item
            return await asyncio.to_thread(add_to_closed, box)

        await assert_forgotten(use, within=1)

    async def test_an_argument_that_the_function_lets_go_of_is_gone_while_it_still_runs(self):
        async def lets_go(item):
            del item
            await asyncio.sleep(60)

        async with Background() as background:

            async def use(item):
                background.add_task(lets_go, item)
                del item
                await asyncio.sleep(1)
                assert background.active_count == 1

            await assert_forgotten(use)

    async def test_arguments_that_a_thread_added_are_forgotten(self):
        async with Background() as background:

            async def use(item):
                box = [item]
                del item
                operation = await asyncio.to_thread(lambda: background.add_task(completes, box.pop()))
                await background.join()
                return operation

            await assert_forgotten(use, within=1)

    async def test_an_owner_of_a_method_is_forgotten(self):
        class Owner(Payload):
            async def work(self):
                await asyncio.sleep(1)

            def work_in_a_thread(self):
                time.sleep(0.001)

        async with Background() as background:
            for method in ("work", "work_in_a_thread"):

                async def use(item, method=method):
                    made = background.spawn(getattr(item, method))
                    del item
                    operation = await made
                    await background.join()
                    return operation

                await assert_forgotten(use, factory=Owner, within=1)


WRONG_CALLS = {
    "too few": lambda spawn: spawn(of_two, 1),
    "too many": lambda spawn: spawn(of_two, 1, 2, 3),
    "unknown keyword": lambda spawn: spawn(of_two, 1, 2, size=3),
    "twice": lambda spawn: spawn(of_two, 1, 2, first=3),
    "method": lambda spawn: spawn(Service("a").plain),
    "partial": lambda spawn: spawn(functools.partial(of_two, 1)),
    "plain": lambda spawn: spawn(lambda: None, 1),
    "needed keyword": lambda spawn: spawn(needs_keyword, 1),
}


async def of_two(first, second):
    return first, second


def needs_keyword(first, *, size):
    return first, size


class Service:
    jobs = Background()

    def __init__(self, name):
        self.name = name

    def plain(self, item):
        return self.name, item

    @jobs.task(key=lambda self, item: (self.name, item), timeout=5)
    async def send(self, item):
        return self.name, item

    @jobs.task(key="name")
    def send_plainly(self, item):
        return self.name, item

    @jobs.task
    @staticmethod
    def send_alone(item):
        return item


@pytest.mark.parametrize("call", WRONG_CALLS.values(), ids=WRONG_CALLS.keys())
@pytest.mark.parametrize("method", ["spawn", "try_spawn", "add_task"])
async def test_arguments_that_do_not_fit_are_the_callers_error(call, method):
    async with Background() as background:
        with pytest.raises(TypeError, match="does not take these arguments"):
            operation = call(getattr(background, method))
            await operation
        assert background.total_enqueued == 0


async def test_arguments_that_fit_are_taken():
    async with Background() as background:
        for spawning in (
            background.spawn(of_two, 1, second=2),
            background.spawn(needs_keyword, 1, size=2),
            background.spawn(max, 1, 2),
            background.spawn(Service("a").plain, item=1),
            background.spawn(dict, [(1, 2)], size=3),
        ):
            await (await spawning)


async def test_arguments_of_a_task_that_do_not_fit_are_the_callers_error_too():
    async with Background() as background:
        task = background.task(key=lambda first, second: first)(of_two)
        with pytest.raises(TypeError, match="does not take these arguments"):
            await task.spawn(1)


async def test_a_task_on_a_method_is_bound():
    service = Service("Ada")
    async with Background() as background:
        for task, key in ((service.send, ("Ada", 1)), (service.send_plainly, "Ada")):
            call = task.call(1)
            assert (call.key, call.name) == (key, task.__qualname__)
            assert await (await background.enqueue(call)) == ("Ada", 1)
        assert service.send.call(1).timeout == 5
        assert await service.send(2) == ("Ada", 2)
        assert service.send_plainly(2) == ("Ada", 2)
        assert await (await background.enqueue(service.send_alone.call(3))) == 3
        assert isinstance(Service.send, BackgroundTask)
        assert await Service.send(service, 4) == ("Ada", 4)
        assert service.send.background is Service.jobs


async def test_add_task_that_is_full_advises_what_helps():
    async with Background(max_pending=1) as background:
        background.pause()
        background.add_task(of_two, 1, 2)
        with pytest.raises(CoordinatorFull, match=r"try again later, or await spawn\(\) to wait for room"):
            background.add_task(of_two, 1, 2)
    async with Background(max_pending=1, overflow="reject") as background:
        background.pause()
        background.add_task(of_two, 1, 2)
        with pytest.raises(CoordinatorFull, match="overflow='wait'"):
            background.add_task(of_two, 1, 2)
