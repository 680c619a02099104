"""A coordinator fed by an async stream: pulled as there is room, closed in its task, its error raised by drain."""

from __future__ import annotations

import asyncio
import contextvars

import pytest
from tests.coordinators import assert_adds_up

from ephemerals import (
    InvalidOptionType,
    KeyedWorkCoordinator,
    Lane,
    PriorityWorkCoordinator,
    ResultCoordinator,
    WorkCoordinator,
)
from ephemerals.testing import VirtualClock, assert_quiet, run


class Source:
    """Yield numbers, and remember what was pulled and who closed it."""

    def __init__(self, count=5, *, error=None, pause=0.0, close_error=None):
        self.count = count
        self.error = error
        self.pause = pause
        self.close_error = close_error
        self.pulled = []
        self.pulled_in = set()
        self.closed_in = []

    async def stream(self):
        try:
            for each in range(self.count):
                if self.pause:
                    await asyncio.sleep(self.pause)
                self.pulled.append(each)
                self.pulled_in.add(asyncio.current_task())
                yield each
            if self.error is not None:
                raise self.error
        finally:
            self.closed_in.append(asyncio.current_task())
            if self.close_error is not None:
                raise self.close_error

    @property
    def was_closed_where_it_was_read(self):
        return len(self.closed_in) == 1 and set(self.closed_in) == self.pulled_in


async def body(item):
    await asyncio.sleep(1)
    return item


async def settle():
    await VirtualClock.current().settle()


FED = {
    "work": WorkCoordinator.from_async_iterable,
    "keyed": lambda source, body, **options: KeyedWorkCoordinator.from_async_iterable(source, str, body, **options),
    "result": ResultCoordinator.from_async_iterable,
    "priority": lambda source, body, **options: PriorityWorkCoordinator.from_async_iterable(
        source, body, lanes=[Lane("a"), Lane("b")], **options
    ),
}
every_fed = pytest.mark.parametrize("make", FED.values(), ids=FED.keys())


@every_fed
async def test_draining_reads_it_to_its_end_and_closes_it_where_it_is_read(make):
    source = Source(20, pause=0.5)
    coordinator = make(source.stream(), body, max_concurrency=4)
    report = await coordinator.drain()
    assert (report.enqueued, report.completed) == (20, 20)
    assert source.was_closed_where_it_was_read
    assert coordinator.is_closed
    await coordinator.aclose()
    assert_quiet(coordinator)


@every_fed
async def test_a_block_reads_it_to_its_end(make):
    source = Source()
    async with make(source.stream(), body) as coordinator:
        pass
    assert coordinator.total_completed == 5


async def test_its_end_closes_the_intake():
    async with WorkCoordinator.from_async_iterable(Source().stream(), body) as coordinator:
        await asyncio.sleep(1)
        assert coordinator.is_closed


async def test_items_are_pulled_only_as_there_is_room():
    source = Source(1000)
    async with WorkCoordinator.from_async_iterable(source.stream(), body, max_pending=3, max_concurrency=2) as it:
        await asyncio.sleep(0.5)
        assert len(source.pulled) <= 2 + 3 + 1
        await it.cancel()


async def test_others_may_enqueue_until_it_ends():
    async with WorkCoordinator.from_async_iterable(Source(3, pause=2).stream(), body) as coordinator:
        await coordinator.run("another")
        report = await coordinator.drain()
        assert report.completed == 4


@every_fed
async def test_a_failing_source_lets_accepted_items_end_then_drain_raises_its_error_once(make):  # fault L16
    source = Source(3, error=LookupError("source"))
    coordinator = make(source.stream(), body, max_concurrency=1)
    with pytest.raises(LookupError, match="source"):
        await coordinator.drain()
    assert coordinator.total_completed == 3
    assert source.was_closed_where_it_was_read
    assert (await coordinator.drain()).completed == 3
    await coordinator.aclose()
    assert_quiet(coordinator)


async def test_leaving_the_block_raises_the_sources_error():
    with pytest.raises(LookupError, match="source"):
        async with WorkCoordinator.from_async_iterable(Source(2, error=LookupError("source")).stream(), body) as it:
            pass
    assert it.total_completed == 2
    assert_quiet(it)


async def test_closing_never_raises_the_sources_error():  # fault L16
    coordinator = WorkCoordinator.from_async_iterable(Source(2, error=LookupError("source")).stream(), body)
    await asyncio.sleep(0.5)
    report = await coordinator.aclose()
    assert report.completed == 2


async def test_an_error_of_closing_the_source_is_its_error():  # report R41
    source = Source(2, close_error=OSError("close"))
    coordinator = WorkCoordinator.from_async_iterable(source.stream(), body)
    with pytest.raises(OSError, match="close"):
        await coordinator.drain()
    await coordinator.aclose()
    assert_quiet(coordinator)


async def test_a_failing_body_is_one_failure_and_stops_no_source():  # report R41
    async def picky(item):
        if item == 5:
            raise ValueError(item)

    coordinator = WorkCoordinator.from_async_iterable(Source(10).stream(), picky)
    report = await coordinator.drain()
    assert (report.completed, report.failed, report.cancelled) == (9, 1, 0)
    await coordinator.aclose()


@pytest.mark.parametrize("moment", [0, 0.5, 2.5, 100])
@pytest.mark.parametrize("error", [None, LookupError("source")], ids=["ends", "fails"])
@pytest.mark.parametrize("close_error", [None, OSError("close")], ids=["closes", "close fails"])
@every_fed
async def test_cancelling_at_any_moment_ends_it_and_closes_the_source(make, moment, error, close_error):  # report R41
    source = Source(20, pause=0.1, error=error, close_error=close_error)
    coordinator = make(source.stream(), body, max_concurrency=2, max_pending=2)
    await asyncio.sleep(moment)
    await coordinator.cancel()
    await coordinator.aclose()
    await settle()
    assert len(source.closed_in) == 1
    assert coordinator.total_enqueued == len(source.pulled)
    assert coordinator.is_idle
    assert_adds_up(coordinator)
    assert_quiet(coordinator)


async def test_an_item_that_was_pulled_when_the_intake_closed_is_not_lost():
    source = Source(20)
    coordinator = WorkCoordinator.from_async_iterable(source.stream(), body, max_concurrency=1, max_pending=2)
    await asyncio.sleep(0.5)
    coordinator.complete()
    report = await coordinator.drain()
    assert report.enqueued == report.completed == len(source.pulled) == 4
    assert source.was_closed_where_it_was_read
    await coordinator.aclose()


async def test_closing_and_cancelling_in_one_step_loses_no_item():
    source = Source(20)
    coordinator = WorkCoordinator.from_async_iterable(source.stream(), body, max_concurrency=1, max_pending=2)
    await asyncio.sleep(0.5)
    coordinator.complete()
    await coordinator.cancel()
    await settle()
    assert coordinator.total_enqueued == coordinator.total_cancelled == len(source.pulled)
    await coordinator.aclose()
    assert_quiet(coordinator)


async def test_a_source_that_never_yields_again_does_not_hold_up_closing():  # fault L17
    async def silent():
        yield 1
        await asyncio.get_running_loop().create_future()

    coordinator = WorkCoordinator.from_async_iterable(silent(), body)
    await asyncio.sleep(0.5)
    report = await coordinator.aclose()
    assert report.completed == 1
    assert_quiet(coordinator)


async def test_a_source_that_ignores_its_cancellation_does_not_hold_up_closing():  # fault L17
    async def stubborn():
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                released.append(True)
                if len(released) > 1:
                    return
            yield 1

    released = []
    coordinator = WorkCoordinator.from_async_iterable(stubborn(), body)
    await asyncio.sleep(0.5)
    await coordinator.aclose(grace=1, cancel_grace=1)
    assert VirtualClock.current().monotonic() <= 1002.5
    for each in asyncio.all_tasks():
        if each is not asyncio.current_task():
            each.cancel()
    await settle()


async def test_a_drain_with_a_timeout_counts_the_reading_too():
    coordinator = WorkCoordinator.from_async_iterable(Source(100, pause=1).stream(), body)
    report = await coordinator.drain(timeout=5)
    assert VirtualClock.current().monotonic() == 1005
    assert report.enqueued <= 5
    await coordinator.cancel()
    await coordinator.aclose()


async def test_joining_starts_the_reading():
    coordinator = WorkCoordinator.from_async_iterable(Source().stream(), body)
    await asyncio.sleep(0)
    await coordinator.join()
    assert coordinator.total_enqueued > 0
    await coordinator.aclose()


def test_without_a_loop_it_is_read_from_the_first_use_on():
    source = Source()
    coordinator = WorkCoordinator.from_async_iterable(source.stream(), body)

    async def main():
        async with coordinator:
            pass

    run(main())
    assert coordinator.total_completed == 5


async def test_its_items_start_in_an_empty_context():  # report R60
    variable = contextvars.ContextVar("variable", default="empty")
    variable.set("the caller's")
    seen = []

    async def look(_item):
        seen.append(variable.get())

    async with WorkCoordinator.from_async_iterable(Source(2).stream(), look):
        pass
    assert seen == ["empty", "empty"]


async def test_an_async_iterator_without_aclose_will_do():
    class Numbers:
        def __init__(self):
            self.left = 3

        def __aiter__(self):
            return self

        async def __anext__(self):
            self.left -= 1
            if self.left < 0:
                raise StopAsyncIteration
            return self.left

    async with WorkCoordinator.from_async_iterable(Numbers(), body) as coordinator:
        assert (await coordinator.drain()).completed == 3


@pytest.mark.parametrize("source", [[1, 2], 5, None, iter([])])
def test_what_is_no_async_iterable_is_refused(source):
    with pytest.raises(InvalidOptionType, match="source=.*an async iterable"):
        WorkCoordinator.from_async_iterable(source, body)


async def test_a_key_function_that_raises_ends_the_source_with_its_error():
    coordinator = KeyedWorkCoordinator.from_async_iterable(Source().stream(), lambda item: 1 // (item - 2), body)
    with pytest.raises(ZeroDivisionError):
        await coordinator.drain()
    assert coordinator.total_completed == 2
    await coordinator.aclose()
