"""Work in lanes: the more urgent first, chosen when a slot is free."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from .coordinator import Coordinator, outcome_of
from .lanes import Lane, LaneSchedule, as_lanes
from .schedule import FifoSchedule, KeyedSchedule, KeyTable

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import AsyncIterable, Hashable, Iterable, Mapping, Sequence
    from typing import Unpack

    from ephemerals.operation import Operation
    from ephemerals.options import EphemeralOptions, OptionKeywords

    from .body import AsyncBody, PlainBody
    from .coordinator import KeySelector

__all__ = ["PriorityWorkCoordinator"]

T = TypeVar("T")
R = TypeVar("R")
U = TypeVar("U")
V = TypeVar("V")

_DEFAULT_LANE = "normal"


class PriorityWorkCoordinator(Coordinator[T, R]):
    """Run a body over items that come in lanes; the next one is chosen each time a slot is free.

    `lanes` are given highest first. Lanes are strict by default: a lower one waits while a higher one has work, but
    is passed by at most `starvation_limit` items in a row. Lanes with weights share the slots in that proportion.
    Without `lane=` an item goes to the lane called "normal", else to the last. With `key` the order within each key
    holds inside a lane.

    >>> import asyncio
    >>> async def handle(word: str) -> None:
    ...     print(word)
    >>> async def main() -> None:
    ...     lanes = [Lane("hot"), Lane("normal")]
    ...     async with PriorityWorkCoordinator(handle, lanes=lanes, max_concurrency=1) as coordinator:
    ...         await coordinator.enqueue("later")
    ...         await coordinator.enqueue("at once", lane="hot")
    >>> asyncio.run(main())
    at once
    later
    """

    @overload
    def __init__(
        self,
        body: AsyncBody[T, R],
        *,
        lanes: Sequence[Lane] = (Lane(_DEFAULT_LANE),),
        key: KeySelector[T] | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self,
        body: PlainBody[T, R],
        *,
        lanes: Sequence[Lane] = (Lane(_DEFAULT_LANE),),
        key: KeySelector[T] | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None: ...

    def __init__(
        self,
        body: Any,
        *,
        lanes: Sequence[Lane] = (Lane(_DEFAULT_LANE),),
        key: KeySelector[T] | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        lanes = as_lanes(lanes)

        def make_schedule(chosen: EphemeralOptions) -> LaneSchedule:
            table = None if key is None else KeyTable(chosen.max_concurrency_per_key)

            def inside(name: str) -> FifoSchedule | KeyedSchedule:
                if table is None:
                    return FifoSchedule()
                return KeyedSchedule(
                    table, fair=chosen.fair_scheduling, threshold=chosen.fair_scheduling_threshold, lane=name
                )

            return LaneSchedule(lanes, inside, table=table, starvation_limit=chosen.starvation_limit)

        super().__init__(body, make_schedule, options=options, keywords=keywords, key=key)
        names = [each.name for each in lanes]
        self._default_lane = _DEFAULT_LANE if _DEFAULT_LANE in names else names[-1]

    @overload
    @classmethod
    def from_async_iterable(
        cls,
        source: AsyncIterable[U],
        body: AsyncBody[U, V],
        *,
        lanes: Sequence[Lane] = (Lane(_DEFAULT_LANE),),
        key: KeySelector[U] | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> PriorityWorkCoordinator[U, V]: ...

    @overload
    @classmethod
    def from_async_iterable(
        cls,
        source: AsyncIterable[U],
        body: PlainBody[U, V],
        *,
        lanes: Sequence[Lane] = (Lane(_DEFAULT_LANE),),
        key: KeySelector[U] | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> PriorityWorkCoordinator[U, V]: ...

    @classmethod
    def from_async_iterable(
        cls,
        source: AsyncIterable[Any],
        body: Any,
        *,
        lanes: Sequence[Lane] = (Lane(_DEFAULT_LANE),),
        key: KeySelector[Any] | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> Any:
        """Make a coordinator that is fed by a source, as `WorkCoordinator.from_async_iterable` does.

        Its items go to the default lane.
        """
        return cls(body, lanes=lanes, key=key, options=options, **keywords)._feed_from(source)

    def _new(self, item: T, metadata: Mapping[str, Any] | None, lane: str | None = None) -> Operation[R]:
        name = self._default_lane if lane is None else self._schedule.lane(lane).lane.name
        return super()._new(item, metadata, name)

    @property
    def _schedule(self) -> LaneSchedule:
        return cast("LaneSchedule", self.engine.schedule)

    async def enqueue(
        self, item: T, *, lane: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> Operation[R]:
        """Accept an item into a lane, as `WorkCoordinator.enqueue` does; an unknown lane raises `UnknownLane`."""
        operation = self._new(item, metadata, lane)
        if not self.engine.admit(operation):
            await self.engine.enqueue(operation)
        return operation

    def try_enqueue(
        self, item: T, *, lane: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> Operation[R] | None:
        """Accept an item into a lane if there is room at once; return its operation, or `None` if it was refused."""
        operation = self._new(item, metadata, lane)
        return operation if self.engine.enqueue_nowait(operation) else None

    async def run(self, item: T, *, lane: str | None = None, metadata: Mapping[str, Any] | None = None) -> R:
        """Enqueue an item into a lane and await its outcome; cancelling the caller cancels the operation."""
        return await outcome_of(await self.enqueue(item, lane=lane, metadata=metadata))

    async def enqueue_many(self, items: Iterable[T] | AsyncIterable[T], *, lane: str | None = None) -> int:
        """Enqueue all items of an iterable into a lane, as `WorkCoordinator.enqueue_many` does."""
        if lane is not None:
            self._schedule.lane(lane)  # an unknown one is refused even if there are no items
        return await self._enqueue_each(items, partial(self.enqueue, lane=lane))

    def enqueue_threadsafe(
        self, item: T, *, lane: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> concurrent.futures.Future[Operation[R]]:
        """Enqueue an item into a lane from another thread, as `WorkCoordinator.enqueue_threadsafe` does."""
        return self._call_threadsafe(partial(self.enqueue, item, lane=lane, metadata=metadata))

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Return the lanes, highest first."""
        return tuple(each.lane for each in self._schedule.lanes)

    def pending_counts(self) -> dict[str, int]:
        """Return how many items wait in each lane."""
        return {each.lane.name: each.pending for each in self._schedule.lanes}

    def pending_count_for(self, key: Hashable) -> int:
        """Return how many items of a key wait, in all lanes."""
        return self._schedule.pending_for(key)
