"""for_each runs a body over everything, lazily, and has exactly one outcome."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import logging
import threading
import time
import tracemalloc
import weakref

import pytest

from ephemerals import (
    CoordinatorBroken,
    EphemeralOptions,
    InvalidBody,
    InvalidOption,
    InvalidOptionType,
    MissingExtra,
    OperationFailed,
    OperationTimeout,
    current_operation,
    for_each,
)
from ephemerals.coordination.schedule import FifoSchedule
from ephemerals.signals import SignalSink
from ephemerals.testing import Payload, assert_forgotten, assert_quiet

variable = contextvars.ContextVar("variable", default="unset")


class Probe:
    """A body that takes a second, and knows who ran, at once, to the end, and into cancellation."""

    def __init__(self, *, seconds=1.0, failing=(), error=ValueError):
        self.seconds = seconds
        self.failing = failing
        self.error = error
        self.started = []
        self.ended = []
        self.cancelled = []
        self.running = 0
        self.peak = 0

    async def __call__(self, item):
        self.started.append(item)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await asyncio.sleep(self.seconds)
            if item in self.failing:
                raise self.error(item)
        except asyncio.CancelledError:
            self.cancelled.append(item)
            raise
        finally:
            self.running -= 1
        self.ended.append(item)


class Source:
    """An async iterable that remembers how far it was pulled, and by which task it was read and closed."""

    def __init__(self, count, *, error=None, close_error=None, forever=False):
        self.count = count
        self.error = error
        self.close_error = close_error
        self.forever = forever
        self.pulled = 0
        self.read_by = set()
        self.closed_by = []

    def __aiter__(self):
        return self

    async def __anext__(self):
        self.read_by.add(asyncio.current_task())
        if self.pulled < self.count:
            self.pulled += 1
            return self.pulled
        if self.forever:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        raise StopAsyncIteration

    async def aclose(self):
        self.closed_by.append(asyncio.current_task())
        if self.close_error is not None:
            raise self.close_error


class TestRunning:
    async def test_every_item_is_run_so_many_at_once(self):
        body = Probe()
        report = await for_each(range(20), body, max_concurrency=3)
        assert sorted(body.ended) == list(range(20))
        assert body.peak == 3
        assert (report.enqueued, report.completed, report.failed, report.cancelled, report.skipped) == (20, 20, 0, 0, 0)
        assert report.duration == 7.0
        assert_quiet()

    @pytest.mark.parametrize("make", [list, iter, set, lambda items: (each for each in items)])
    async def test_items_may_be_any_iterable(self, make):
        body = Probe()
        await for_each(make(range(5)), body)
        assert sorted(body.ended) == [0, 1, 2, 3, 4]

    async def test_items_may_be_an_async_iterable_which_one_task_reads_and_closes(self):
        """R42."""
        source, body = Source(5), Probe()
        report = await for_each(source, body)
        assert report.completed == 5
        assert source.closed_by == list(source.read_by)
        assert_quiet()

    async def test_nothing_is_an_empty_report(self):
        report = await for_each([], Probe())
        assert (report.enqueued, report.duration, report.failures) == (0, 0.0, ())

    async def test_the_order_within_a_key_is_kept(self):
        started = []

        async def body(item):
            started.append(item)
            await asyncio.sleep(1)

        items = [("a", 1), ("b", 1), ("a", 2), ("b", 2), (None, 1), (None, 2)]
        report = await for_each(items, body, key=lambda item: item[0], max_concurrency=4)
        assert [item for item in started if item[0] == "a"] == [("a", 1), ("a", 2)]
        assert [item for item in started if item[0] == "b"] == [("b", 1), ("b", 2)]
        assert report.duration == 2.0

    async def test_bodies_run_in_the_callers_context_and_know_their_operation(self):
        seen = []

        async def body(item, operation):
            seen.append((variable.get(), operation is current_operation()))
            variable.set("of the body")

        variable.set("of the caller")
        await for_each(range(2), body)
        assert seen == [("of the caller", True)] * 2
        assert variable.get() == "of the caller"

    async def test_options_come_as_keywords_or_ready_made(self):
        body = Probe()
        options = EphemeralOptions(max_concurrency=2, name="convert")
        await for_each(range(4), body, options=options, max_concurrency=4)
        assert body.peak == 4
        finalized = []
        await for_each(
            range(3),
            Probe(),
            options=options,
            on_finalized=lambda *each: finalized.append(each),
            max_operation_lifetime=1,
        )
        assert len(finalized) == 3

    async def test_signals_skip_what_has_not_started_and_a_skipped_item_is_no_failure(self):
        async def body(item, operation):
            if item == 1:
                operation.emit("rate.limited")

        report = await for_each(range(5), body, max_concurrency=1, cancel_on_signals="rate.*")
        assert (report.completed, report.skipped, report.failed) == (2, 3, 0)

    async def test_a_signal_to_drain_ends_it_with_what_was_accepted(self):
        source = Source(1, forever=True)
        sink = SignalSink()
        asyncio.get_running_loop().call_later(5, sink.emit, "coordinator.drain.all")
        report = await for_each(source, Probe(), signals=sink)
        assert report.completed == 1
        assert source.closed_by == list(source.read_by)
        assert_quiet()

    async def test_plain_functions_run_in_threads_of_their_own(self):
        names = []
        report = await for_each(range(3), lambda _: names.append(threading.current_thread().name), max_concurrency=2)
        assert report.completed == 3
        assert all(name.startswith("ephemerals") for name in names)

    @pytest.mark.real_loop("asyncio", "uvloop")
    async def test_it_runs_on_real_loops(self):
        async def body(item):
            await asyncio.sleep(0)
            if item == 7:
                raise ValueError(item)

        with pytest.raises(ExceptionGroup) as caught:
            await for_each(range(1000), body, max_concurrency=16)
        assert [str(each) for each in caught.value.exceptions] == ["7"]


class TestLaziness:
    async def test_items_are_pulled_as_there_is_room(self):
        """F4."""
        pulled = itertools.count()
        gate = asyncio.Event()

        async def body(item):
            await gate.wait()

        task = asyncio.create_task(for_each(itertools.islice(pulled, 10_000), body, max_concurrency=4))
        await asyncio.sleep(1)
        assert 64 <= next(pulled) <= 64 + 4 + 1
        gate.set()
        assert (await task).completed in (9_999, 10_000)

    @pytest.mark.parametrize(("options", "ahead"), [({"max_concurrency": 50}, 100), ({"max_pending": 3}, 3)])
    async def test_how_far_ahead_is_an_option(self, options, ahead):
        source = Source(1000)
        options = {"max_concurrency": 1} | options
        task = asyncio.create_task(for_each(source, Probe(seconds=60), **options))
        await asyncio.sleep(1)
        assert source.pulled == ahead + options["max_concurrency"] + 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_memory_does_not_grow_with_the_number_of_items(self):
        """F4."""

        async def body(item):
            pass

        async def peak(count):
            gc.collect()
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            await for_each(range(count), body, max_concurrency=16)
            return tracemalloc.get_traced_memory()[1] - before

        tracemalloc.start()
        try:
            few = await peak(1_000)
            many = await peak(8_000)
        finally:
            tracemalloc.stop()
        assert many < few + 300_000

    async def test_others_get_their_turn(self):
        turns = 0

        async def other():
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        async def body(item):
            pass

        task = asyncio.create_task(other())
        await for_each(range(10_000), body, max_concurrency=16)
        task.cancel()
        assert turns > 100


class TestErrors:
    async def test_everything_runs_then_the_failures_are_raised_together(self):
        """F1."""
        body = Probe(failing=(2, 5))
        raised = {}

        def error(item):
            raised[item] = ValueError(item)
            return raised[item]

        body.error = error
        with pytest.raises(ExceptionGroup, match="2 of 8 operations failed") as caught:
            await for_each(range(8), body, max_concurrency=3)
        assert list(caught.value.exceptions) == [raised[2], raised[5]]
        assert all(a is b for a, b in zip(caught.value.exceptions, raised.values(), strict=True))
        assert len(body.ended) == 6
        assert_quiet()

    async def test_except_star_finds_them_by_type(self):
        async def body(item):
            if item == 1:
                raise ValueError(item)
            if item == 2:
                raise LookupError(item)

        found = []
        try:
            await for_each(range(4), body)
        except* ValueError as group:
            found.append([each.args for each in group.exceptions])
        except* LookupError as group:
            found.append([each.args for each in group.exceptions])
        assert found == [[(1,)], [(2,)]]

    async def test_a_failure_is_raised_without_its_frames_but_says_where_it_was(self):
        with pytest.raises(ExceptionGroup) as caught:
            await for_each([1], Probe(failing=[1]))
        (error,) = caught.value.exceptions
        assert (error.__traceback__, error.__context__, error.__cause__) == (None, None, None)
        assert "Probe.__call__" in error.__notes__[0]

    async def test_at_most_a_hundred_are_kept_and_the_rest_is_counted(self):
        with pytest.raises(ExceptionGroup, match="150 of 150 operations failed, the last 100 of them with") as caught:
            await for_each(range(150), Probe(failing=range(150)), max_concurrency=10)
        assert sorted(error.args[0] for error in caught.value.exceptions) == list(range(50, 150))

    async def test_failures_are_raised_however_long_ago_they_were(self):
        body = Probe(failing=[0], seconds=400)
        with pytest.raises(ExceptionGroup, match="1 of 3"):
            await for_each(range(3), body, max_concurrency=1)

    async def test_an_error_of_cancellation_that_a_body_raises_by_itself_is_no_failure(self):
        """R41."""
        report = await for_each(range(3), Probe(failing=[1], error=asyncio.CancelledError))
        assert (report.completed, report.cancelled, report.failed) == (2, 1, 0)

    async def test_an_exception_that_is_no_exception_is_raised_in_a_base_group(self):
        class Halt(BaseException):
            pass

        with pytest.raises(BaseExceptionGroup) as caught:
            await for_each([1], Probe(failing=[1], error=Halt))
        assert not isinstance(caught.value, ExceptionGroup)
        assert isinstance(caught.value.exceptions[0], Halt)

    async def test_a_stop_iteration_becomes_a_runtime_error(self):
        """R36."""

        def plain(item):
            return next(iter([]))

        async def coroutine(item):
            return await anext(Source(0))

        for body in (plain, coroutine):
            with pytest.raises(ExceptionGroup) as caught:
                await for_each([1], body)
            assert type(caught.value.exceptions[0]) is RuntimeError

    async def test_running_out_of_time_is_told_from_an_error_of_the_body(self):
        """R43."""

        async def body(item):
            if item == "raises":
                raise TimeoutError
            await asyncio.sleep(60)

        with pytest.raises(ExceptionGroup) as caught:
            await for_each(["raises", "sleeps"], body, operation_timeout=5)
        assert [type(each) for each in caught.value.exceptions] == [TimeoutError, OperationTimeout]

    async def test_collecting_reports_failures_and_raises_nothing(self):
        report = await for_each(range(4), Probe(failing=(1, 2)), errors="collect", name="convert")
        assert (report.completed, report.failed) == (2, 2)
        assert [each.error.message for each in report.failures] == ["1", "2"]
        with pytest.raises(ExceptionGroup) as caught:
            report.raise_for_failures()
        assert [type(each) for each in caught.value.exceptions] == [ValueError, ValueError]

    async def test_what_a_report_tells_of_a_failure_is_an_option(self):
        report = await for_each([1], Probe(failing=[1]), errors="collect", error_detail="type")
        assert (report.failures[0].error.message, report.failures[0].error.exception) == ("", None)
        with pytest.raises(ExceptionGroup) as caught:
            report.raise_for_failures()
        assert isinstance(caught.value.exceptions[0], OperationFailed)
        with pytest.raises(ExceptionGroup) as caught:
            await for_each([1], Probe(failing=[1]), error_detail="type")
        assert caught.value.exceptions[0].args == (1,)

    async def test_stopping_cancels_the_rest_and_raises_the_one_failure(self):
        """R41: no cancellation noise."""
        body = Probe(failing=[4])
        body.seconds = 1
        source = Source(100)

        async def late(item):
            if item < 4:
                try:
                    await asyncio.sleep(60)
                finally:
                    body.cancelled.append(item)
                    raise OSError(item)
            await body(item)

        with pytest.raises(ExceptionGroup) as caught:
            await for_each(source, late, max_concurrency=4, max_pending=2, errors="stop")
        assert [each.args for each in caught.value.exceptions] == [(4,)]
        assert body.cancelled == [1, 2, 3]
        assert body.started == [4]
        assert source.pulled == 7
        assert source.closed_by == list(source.read_by)
        assert_quiet()

    async def test_after_the_first_failure_nothing_starts(self):
        body = Probe(failing=[0], seconds=0)
        with pytest.raises(ExceptionGroup):
            await for_each(range(10), body, errors="stop", max_concurrency=1)
        assert body.started == [0]

        async def fails_at_once(item):
            started.append(item)
            raise ValueError

        started = []
        with pytest.raises(ExceptionGroup):
            await for_each(range(10), fails_at_once, errors="stop", max_concurrency=1)
        assert started == [0]

    async def test_a_source_that_fails_just_after_the_first_failure_is_not_the_outcome(self):
        event = asyncio.Event()

        async def items():
            yield 1
            await asyncio.sleep(1)
            await event.wait()
            raise LookupError

        async def body(item):
            await event.wait()
            raise ValueError

        asyncio.get_running_loop().call_later(2, event.set)
        with pytest.raises(ExceptionGroup):
            await for_each(items(), body, errors="stop")

    async def test_stopping_does_not_wait_for_a_source_that_waits(self):
        source = Source(1, forever=True)
        with pytest.raises(ExceptionGroup):
            await for_each(source, Probe(failing=[1]), errors="stop")
        assert source.closed_by == list(source.read_by)

    async def test_without_a_failure_stopping_is_a_normal_end(self):
        assert (await for_each(range(3), Probe(), errors="stop")).completed == 3


class TestSourceErrors:
    async def test_accepted_items_end_normally_then_the_error_is_raised(self):
        """R42."""
        body, error = Probe(failing=[1]), LookupError("no more")
        with pytest.raises(LookupError) as caught:
            await for_each(Source(5, error=error), body, max_concurrency=1)
        assert caught.value is error
        assert body.ended == [2, 3, 4, 5]
        assert error.__notes__ == ["before, 1 of 5 operations failed"]
        assert_quiet()

    async def test_a_plain_iterable_may_fail_too_and_a_generator_is_closed(self):
        closed = []

        def items(error):
            try:
                yield 1
                if error is not None:
                    raise error
                yield from itertools.count(2)
            finally:
                closed.append(error)

        with pytest.raises(LookupError):
            await for_each(items(LookupError()), Probe())
        generator = items(None)
        with pytest.raises(ExceptionGroup):
            await for_each(generator, Probe(failing=[1]), errors="stop", max_concurrency=1)
        assert len(closed) == 2

    async def test_a_file_stays_open(self, tmp_path):
        path = tmp_path / "lines"
        path.write_text("1\n2\n")
        with path.open() as lines:
            await for_each(lines, Probe())
            assert not lines.closed

    async def test_an_iterable_that_cannot_be_iterated_has_failed(self):
        class Broken:
            def __iter__(self):
                raise LookupError

        with pytest.raises(LookupError):
            await for_each(Broken(), Probe())

    async def test_a_key_that_cannot_be_told_ends_the_run_like_an_error_of_the_source(self):
        body = Probe()
        with pytest.raises(ZeroDivisionError):
            await for_each([2, 1, 0, 3], body, key=lambda item: 1 / item)
        assert sorted(body.ended) == [1, 2]

    def test_a_system_exit_of_the_source_travels_on(self, caplog):
        async def main():
            await for_each(Source(2, error=SystemExit(3)), Probe(seconds=60))

        codes = []
        try:
            asyncio.run(main())
        except SystemExit as error:
            codes.append(error.code)
        assert codes == [3]
        gc.collect()
        assert "never retrieved" not in caplog.text


class TestCancellation:
    async def test_the_bodies_are_cancelled_and_awaited(self):
        """F2."""
        body, source = Probe(seconds=60), Source(1000)
        task = asyncio.create_task(for_each(source, body, max_concurrency=3, max_pending=5))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert body.started == body.cancelled == [1, 2, 3]
        assert (body.running, source.pulled) == (0, 9)
        assert source.closed_by == list(source.read_by)
        assert_quiet()

    async def test_a_body_that_takes_its_time_to_end_is_awaited(self):
        ended = []

        async def body(item):
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(2)
                ended.append(item)

        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await for_each(range(2), body, max_concurrency=2)
        assert sorted(ended) == [0, 1]
        assert loop.time() == 1003.0

    async def test_cancelling_again_does_not_leave_bodies_behind(self):
        ended = []

        async def body(item):
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(2)
                ended.append(item)

        task = asyncio.create_task(for_each(range(2), body, max_concurrency=2))
        for _ in range(3):
            await asyncio.sleep(0.5)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sorted(ended) == [0, 1]

    @pytest.mark.parametrize("errors", ["raise", "stop"])
    async def test_it_always_comes_out(self, errors, caplog):
        """R3."""
        release = asyncio.Event()

        async def stubborn(item):
            if errors == "stop" and item == 1:
                raise ValueError
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        loop = asyncio.get_running_loop()
        task = asyncio.create_task(for_each(range(2), stubborn, errors=errors, max_concurrency=2))
        await asyncio.sleep(1)
        if errors == "raise":
            task.cancel()
        with pytest.raises((asyncio.CancelledError, ExceptionGroup)):
            await task
        assert loop.time() == pytest.approx(1006.0 if errors == "raise" else 1005.0)
        assert "still running" in caplog.text
        release.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert_quiet()

    async def test_a_source_that_does_not_let_itself_be_closed_is_left_behind_and_named(self, caplog):
        release = asyncio.Event()

        async def stubborn():
            yield 1
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        task = asyncio.create_task(for_each(stubborn(), Probe(seconds=60), name="convert"))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "the source of coordinator convert does not let itself be closed" in caplog.text
        release.set()
        await asyncio.sleep(1)
        assert_quiet()

    async def test_cancelled_in_the_very_tick_in_which_all_ended_it_is_cancelled(self):
        async def body(item):
            asyncio.get_running_loop().call_soon(task.cancel)

        task = asyncio.create_task(for_each([1], body))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert_quiet()

    async def test_before_its_first_step_nothing_is_left(self):
        task = asyncio.create_task(for_each(Source(1), Probe()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert_quiet()

    async def test_a_coordinator_that_breaks_is_the_outcome(self, monkeypatch):
        source = Source(3, forever=True)
        monkeypatch.setattr(FifoSchedule, "pop", lambda _: 1 / 0)
        with pytest.raises(ExceptionGroup) as caught:
            await for_each(source, Probe())
        assert {type(each) for each in caught.value.exceptions} == {CoordinatorBroken}
        assert source.closed_by == list(source.read_by)

    async def test_it_can_run_inside_a_body(self):
        async def outer(item):
            return await for_each(range(item), Probe(), max_concurrency=2)

        assert (await for_each([3, 4], outer, max_concurrency=1)).completed == 2


@pytest.mark.parametrize("errors", ["raise", "collect", "stop"])
@pytest.mark.parametrize("body_fails", [False, True])
@pytest.mark.parametrize("source_fails", [False, True])
@pytest.mark.parametrize("close_fails", [False, True])
@pytest.mark.parametrize("source_ends_at", [0.75, 1.25])
@pytest.mark.parametrize("cancelled_at", [None, 0.0, 0.5, 0.9, 1.1, 1.5])
async def test_there_is_one_outcome_whatever_comes_together(  # noqa: PLR0917 - the matrix
    errors, body_fails, source_fails, close_fails, source_ends_at, cancelled_at, caplog
):
    """R41: outside cancellation counts most, then whatever was first; the rest is logged."""
    source_error, close_error = LookupError("source"), OSError("close")

    async def items():
        yield 1
        await asyncio.sleep(source_ends_at)
        yield 2
        if source_fails:
            raise source_error

    class Closing:
        def __init__(self):
            self.items = items()

        def __aiter__(self):
            return self

        async def __anext__(self):
            return await anext(self.items)

        async def aclose(self):
            await self.items.aclose()
            if close_fails:
                raise close_error

    body = Probe(failing=[1, 2] if body_fails else [])
    task = asyncio.create_task(for_each(Closing(), body, errors=errors, max_concurrency=2))
    if cancelled_at is not None:
        asyncio.get_running_loop().call_later(cancelled_at, task.cancel)
    (outcome,) = await asyncio.gather(task, return_exceptions=True)

    stops = body_fails and errors == "stop"
    ends_at = 1.0 if stops else source_ends_at + 1.0
    is_cancelled = cancelled_at is not None and cancelled_at < ends_at
    source_is_read = source_ends_at < (min(cancelled_at, ends_at) if is_cancelled else ends_at)
    if is_cancelled:
        assert type(outcome) is asyncio.CancelledError
    elif source_is_read and source_fails:
        assert outcome is source_error
    elif source_is_read and close_fails:
        assert outcome is close_error
    elif body_fails and errors != "collect":
        assert type(outcome) is ExceptionGroup
        assert [each.args for each in outcome.exceptions] == ([(1,)] if stops else [(1,), (2,)])
    else:
        assert (outcome.completed, outcome.failed) == ((0, 2) if body_fails else (2, 0))
    happened = {"LookupError": source_fails and source_is_read, "OSError": close_fails}
    unheard = sorted(name for name, did in happened.items() if did and name != type(outcome).__name__)
    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert sorted(line.rsplit(maxsplit=1)[-1] for line in logged if "the source" in line) == unheard
    assert body.running == 0
    assert_quiet()


class TestArguments:
    async def test_what_cannot_be_iterated_is_refused(self):
        with pytest.raises(InvalidOptionType, match="items='<int>' is not allowed: expected an iterable"):
            await for_each(5, Probe())

    async def test_a_coroutine_as_items_is_refused_and_closed(self):
        async def items():
            return [1]

        with pytest.raises(InvalidOptionType, match="await the coroutine first"):
            await for_each(items(), Probe())

    async def test_a_coroutine_as_body_is_refused_and_closed(self):
        """R4."""
        with pytest.raises(InvalidBody, match="a coroutine object was given"):
            await for_each([1], Probe()(1))

    @pytest.mark.parametrize(
        "wrong",
        [{"errors": "ignore"}, {"max_concurrency": 0}, {"overflow": "reject"}, {"overflow": "drop_oldest"}, {"key": 5}],
    )
    async def test_a_wrong_option_is_named(self, wrong):
        source = Source(1)
        with pytest.raises(InvalidOption, match=next(iter(wrong))):
            await for_each(source, Probe(), **wrong)
        assert source.pulled == 0

    async def test_an_unknown_option_is_named(self):
        with pytest.raises(TypeError, match="did you mean 'max_concurrency'"):
            await for_each([1], Probe(), max_concurency=2)


class TestProgress:
    async def test_a_bar_shows_how_far_it_is(self, capsys):
        threads = threading.active_count()
        report = await for_each([1, 2, 3], Probe(failing=[2]), progress=True, errors="collect", name="convert")
        shown = capsys.readouterr().err
        assert "convert: 100%" in shown
        assert "3/3" in shown
        assert "failed=1" in shown
        assert report.completed == 2
        assert threading.active_count() == threads

    async def test_without_a_length_it_counts(self, capsys):
        with pytest.raises(LookupError):
            await for_each(Source(4, error=LookupError()), Probe(), progress=True)
        assert "4 [" in capsys.readouterr().err

    async def test_a_bar_that_breaks_does_not_break_the_run(self, monkeypatch):
        monkeypatch.setattr("tqdm.tqdm.update", lambda *_: 1 / 0)
        assert (await for_each([1, 2], Probe(), progress=True)).completed == 2

    async def test_without_tqdm_the_extra_is_named_and_nothing_runs(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "tqdm", None)
        body = Probe()
        with pytest.raises(MissingExtra, match=r"progress=True needs an extra: pip install 'ephemerals\[progress\]'"):
            await for_each([1], body, progress=True)
        assert body.started == []


async def completes(item):
    await asyncio.sleep(1)


async def fails(item):
    await asyncio.sleep(1)
    raise ValueError


def completes_in_a_thread(item):
    del item
    time.sleep(0.001)


def fails_in_a_thread(item):
    raise ValueError


class TestPrivacy:
    @pytest.mark.parametrize("body", [completes, fails, completes_in_a_thread, fails_in_a_thread])
    @pytest.mark.parametrize("errors", ["raise", "collect", "stop"])
    async def test_an_item_is_forgotten(self, body, errors):
        async def use(item):
            items = iter([item])
            del item
            return await asyncio.gather(for_each(items, body, errors=errors), return_exceptions=True)

        await assert_forgotten(use, within=1)

    async def test_a_cancelled_item_is_forgotten(self):
        async def use(item):
            task = asyncio.create_task(for_each(iter([item, 1]), completes, max_concurrency=1))
            del item
            await asyncio.sleep(0.5)
            task.cancel()
            return await asyncio.gather(task, return_exceptions=True)

        await assert_forgotten(use)

    async def test_a_raised_failure_does_not_hold_the_list_of_items(self):
        """As long as nobody else holds it, that is."""
        references = []

        class Items(list):
            pass

        async def use(item):
            items = [Items([item])]
            del item
            references.append(weakref.ref(items[0]))
            try:
                await for_each(items.pop(), fails)
            except ExceptionGroup as group:
                return group

        await assert_forgotten(use)
        assert references[0]() is None

    async def test_an_item_that_has_ended_is_forgotten_while_others_run(self):
        async def body(item):
            await asyncio.sleep(1 if isinstance(item, Payload) else 60)

        tasks = []

        async def use(item):
            task = asyncio.create_task(for_each(iter([item, 1]), body, max_concurrency=2))
            del item
            tasks.append(task)
            await asyncio.sleep(2)
            assert not task.done()

        await assert_forgotten(use)
        await tasks[0]
