"""Read by mypy and pyright, never run: the types that users of coordinators see."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, assert_type

from ephemerals import (
    CoordinatorStatistics,
    DrainReport,
    Echo,
    EphemeralOptions,
    ErrorInfo,
    FinalizationReason,
    KeyedWorkCoordinator,
    Lane,
    Operation,
    OperationSnapshot,
    OperationStatus,
    PriorityWorkCoordinator,
    ResultCoordinator,
    ResultStream,
    TimelineEntry,
    WindowView,
    WorkCoordinator,
    current_operation,
    format_id,
    parse_id,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Order:
    """Be an item."""

    customer: str


class Price:
    """Be a result."""


async def fetch(symbol: str) -> Price:
    """Be an async body."""
    return Price()


async def fetch_with(symbol: str, operation: Operation) -> Price:
    """Be an async body that takes its operation."""
    return Price()


def compute(symbol: str) -> Price:
    """Be a plain body."""
    return Price()


def compute_with(symbol: str, operation: Operation) -> Price:
    """Be a plain body that takes its operation."""
    return Price()


async def fetch_typed(symbol: str, operation: Operation[Price]) -> Price:
    """Be an async body that says what its operation gives."""
    return Price()


async def fetch_loosely(symbol: str, operation: Operation[Any]) -> Price:
    """Be an async body that leaves it open."""
    return Price()


async def ship(order: Order) -> None:
    """Be a body without a result."""


class Service:
    """Hold bodies that are methods."""

    async def fetch(self, symbol: str) -> Price:
        """Be a bound async body."""
        return Price()

    def compute(self, symbol: str, operation: Operation[Any]) -> Price:
        """Be a bound plain body that takes its operation."""
        return Price()

    async def __call__(self, symbol: str) -> Price:
        """Make the object itself a body."""
        return Price()


async def symbols() -> AsyncIterator[str]:
    """Be a source."""
    yield ""


async def a_bodys_result_is_what_its_handle_gives() -> None:
    """Infer the result from async and plain bodies, with and without the operation."""
    assert_type(await (await ResultCoordinator(fetch).enqueue("x")), Price)
    assert_type(await (await ResultCoordinator(fetch_with).enqueue("x")), Price)
    assert_type(await (await ResultCoordinator(compute).enqueue("x")), Price)
    assert_type(await (await ResultCoordinator(compute_with).enqueue("x")), Price)
    assert_type(await (await WorkCoordinator(fetch).enqueue("x")), Price)
    assert_type(await (await WorkCoordinator(fetch_with).enqueue("x")), Price)
    assert_type(await (await WorkCoordinator(compute).enqueue("x")), Price)
    assert_type(await (await WorkCoordinator(compute_with).enqueue("x")), Price)
    assert_type(await (await KeyedWorkCoordinator(len, fetch).enqueue("x")), Price)
    assert_type(await (await KeyedWorkCoordinator(len, fetch_with).enqueue("x")), Price)
    assert_type(await (await KeyedWorkCoordinator(len, compute).enqueue("x")), Price)
    assert_type(await (await KeyedWorkCoordinator(len, compute_with).enqueue("x")), Price)
    assert_type(await (await PriorityWorkCoordinator(fetch).enqueue("x", lane="hot")), Price)
    assert_type(await (await PriorityWorkCoordinator(fetch_with).enqueue("x")), Price)
    assert_type(await (await PriorityWorkCoordinator(compute).enqueue("x")), Price)
    assert_type(await (await PriorityWorkCoordinator(compute_with).enqueue("x")), Price)
    assert_type(await WorkCoordinator(fetch).run("x"), Price)
    assert_type(await WorkCoordinator(fetch_typed).run("x"), Price)
    price: Price = await WorkCoordinator(fetch_loosely).run("x")  # an explicit Any may make it Any
    del price
    assert_type(await WorkCoordinator(Service().fetch).run("x"), Price)
    assert_type(await WorkCoordinator(Service().compute).run("x"), Price)
    assert_type(await WorkCoordinator(Service()).run("x"), Price)
    assert_type(await WorkCoordinator(ship).run(Order()), None)
    assert_type(await PriorityWorkCoordinator(fetch).run("x", lane="hot"), Price)


async def a_coordinator_knows_its_types() -> None:
    """Carry item and result through everything that is asked."""
    coordinator = ResultCoordinator(fetch, key=len, results_ttl=timedelta(minutes=1), max_concurrency=4)
    assert_type(coordinator, ResultCoordinator[str, Price])
    assert_type(coordinator.try_enqueue("x"), Operation[Price] | None)
    assert_type(coordinator.results(), list[Price])
    assert_type(coordinator.snapshot(), list[OperationSnapshot[Price]])
    assert_type(coordinator.successful(), list[OperationSnapshot[Price]])
    assert_type(coordinator.as_completed(), ResultStream[Price])
    assert_type([each async for each in coordinator.as_completed()], list[Price])
    assert_type(coordinator.statistics(), CoordinatorStatistics)
    assert_type(await coordinator.drain(timeout=5), DrainReport)
    assert_type(await coordinator.cancel(), DrainReport)
    assert_type(await coordinator.aclose(grace=1, cancel_grace=timedelta(seconds=1)), DrainReport)
    assert_type(await coordinator.enqueue_many(["x"]), int)
    assert_type(await coordinator.enqueue_many(symbols()), int)
    assert_type(coordinator.enqueue_threadsafe("x").result(), Operation[Price])
    assert_type(coordinator.echoes(), list[Echo])
    assert_type(coordinator.timeline(), list[TimelineEntry])
    assert_type([each async for each in coordinator.replay()], list[TimelineEntry])
    assert_type(coordinator.get(1), OperationSnapshot[Price] | None)
    async with coordinator as same:
        assert_type(same, ResultCoordinator[str, Price])
    async with KeyedWorkCoordinator("customer", ship, options=EphemeralOptions(max_concurrency=1)) as orders:
        assert_type(orders, KeyedWorkCoordinator[Order, None])
        assert_type(orders.snapshot_for("customer"), list[OperationSnapshot[None]])
        assert_type(orders.pending_count_for(5), int)
    async with PriorityWorkCoordinator(ship, lanes=[Lane("hot", weight=2), Lane("normal", weight=1)]) as lanes:
        assert_type(lanes.pending_counts(), dict[str, int])
        assert_type(lanes.lanes, tuple[Lane, ...])


async def a_source_gives_the_items() -> None:
    """Infer from a source and a body."""
    assert_type(await WorkCoordinator.from_async_iterable(symbols(), fetch).run("x"), Price)
    assert_type(await ResultCoordinator.from_async_iterable(symbols(), compute).run("x"), Price)
    assert_type(await KeyedWorkCoordinator.from_async_iterable(symbols(), len, fetch).run("x"), Price)
    assert_type(await PriorityWorkCoordinator.from_async_iterable(symbols(), fetch).run("x"), Price)


async def an_operation_and_its_snapshot_are_typed(operation: Operation[Price]) -> None:
    """Look at a handle and at its history."""
    assert_type(await operation, Price)
    assert_type(operation.id, int)
    assert_type(operation.status, OperationStatus)
    assert_type(operation.duration, float)
    assert_type(operation.started_at, datetime | None)
    assert_type(operation.error, ErrorInfo | None)
    assert_type(operation.cancel(), bool)
    snapshot = operation.snapshot()
    assert_type(snapshot, OperationSnapshot[Price])
    assert_type(snapshot.result, Price | None)
    assert_type(snapshot.enqueued_at, datetime)
    assert_type(snapshot.to_dict(), dict[str, Any])
    assert_type(current_operation(), Operation[Any] | None)
    assert_type(parse_id(format_id(operation.id)), int)


def on_finalized(snapshot: OperationSnapshot[Any], reason: FinalizationReason) -> None:
    """Be a hook."""


def on_sample(view: WindowView) -> None:
    """Be a hook that looks."""
    assert_type(len(view), int)
    assert_type([each.status for each in view], list[OperationStatus])


WorkCoordinator(fetch, on_finalized=on_finalized, on_sample=on_sample, overflow="reject", run_in="thread")
WorkCoordinator(fetch, overflow="no such policy")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]  # wrong on purpose
WorkCoordinator(fetch, max_concurency=4)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]  # wrong on purpose
