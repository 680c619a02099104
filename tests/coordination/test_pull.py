"""What is pulled from a source, by whom, and how it is closed."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ephemerals import CoordinatorClosed, InvalidOptionType, WorkCoordinator
from ephemerals.testing import Payload, assert_forgotten, assert_quiet


async def nothing(item):
    pass


class Stalling:
    """Yield one item, then wait until it is closed; remember which tasks came by."""

    def __init__(self, item):
        self.item = item
        self.tasks = set()
        self.closed_by = None

    async def items(self):
        self.tasks.add(asyncio.current_task())
        try:
            item, self.item = self.item, None
            yield item
            del item
            await asyncio.Event().wait()
        finally:
            self.closed_by = asyncio.current_task()


async def test_an_item_is_forgotten_while_the_source_waits_for_the_next_one():
    async with WorkCoordinator(nothing) as outer:

        async def feed(item):
            coordinator = WorkCoordinator.from_async_iterable(Stalling(item).items(), nothing)
            del item
            await asyncio.sleep(1)
            assert coordinator.total_completed == 1
            return coordinator

        async def enqueue_many(item):
            task = asyncio.create_task(outer.enqueue_many(Stalling(item).items()))
            del item
            await asyncio.sleep(1)
            assert outer.total_completed == 1
            return task

        kept = []
        for use in (feed, enqueue_many):

            async def keep(item, use=use):
                kept.append(use(item))
                del item
                kept.append(await kept.pop())
                return kept

            await assert_forgotten(keep)
        await kept[0].aclose(grace=0)
        kept[1].cancel()


async def test_a_refused_item_ends_the_pulling_and_closes_the_source_in_the_same_task():
    """R42."""
    source = Stalling(1)
    coordinator = WorkCoordinator(nothing)
    await coordinator.drain()
    with pytest.raises(CoordinatorClosed):
        await coordinator.enqueue_many(source.items())
    assert source.closed_by is asyncio.current_task()


async def test_a_cancelled_source_is_closed_by_the_task_that_reads_it():
    source = Stalling(1)
    coordinator = WorkCoordinator.from_async_iterable(source.items(), nothing)
    await asyncio.sleep(1)
    await coordinator.cancel()
    await coordinator.aclose()
    await asyncio.sleep(0)
    assert source.tasks == {source.closed_by}
    assert_quiet(coordinator)


class Broken:
    """Raise when iterated, or when closed, or both."""

    def __init__(self, when_iterated=None, when_closed=None):
        self.when_iterated = when_iterated
        self.when_closed = when_closed

    def __aiter__(self):
        return self

    async def __anext__(self):
        raise self.when_iterated or StopAsyncIteration

    async def aclose(self):
        if self.when_closed is not None:
            raise self.when_closed


async def test_of_two_errors_of_a_source_the_first_counts_and_the_second_is_logged(caplog):
    first, second = LookupError("one"), OSError("two")
    coordinator = WorkCoordinator.from_async_iterable(Broken(first, second), nothing)
    with pytest.raises(LookupError) as caught:
        await coordinator.drain()
    assert caught.value is first
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        f"the source of coordinator {coordinator.name} raised OSError"
    ]
    await coordinator.aclose()


async def test_a_source_that_cannot_be_closed_has_failed():
    coordinator = WorkCoordinator.from_async_iterable(Broken(None, OSError("two")), nothing)
    with pytest.raises(OSError, match="two"):
        await coordinator.drain()
    await coordinator.aclose()


async def test_a_source_that_raises_the_error_of_cancellation_by_itself_has_failed():
    """R41."""
    coordinator = WorkCoordinator.from_async_iterable(Broken(asyncio.CancelledError()), nothing)
    with pytest.raises(RuntimeError, match="although it was not cancelled"):
        await coordinator.drain()
    await coordinator.aclose()


async def test_a_source_of_another_kind_is_refused():
    with pytest.raises(InvalidOptionType, match="source"):
        WorkCoordinator.from_async_iterable([Payload()], nothing)
    async with WorkCoordinator(nothing) as coordinator:
        with pytest.raises(InvalidOptionType, match="items='<int>'"):
            await coordinator.enqueue_many(5)
