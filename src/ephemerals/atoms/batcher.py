"""Doing many things at once that cost the same as one: bulk inserts, log shipping, embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ephemerals.coordination import WorkCoordinator
from ephemerals.coordination.alarm import Alarm
from ephemerals.errors import CoordinatorClosed, InvalidBody, OperationCancelled
from ephemerals.functions import function_name, is_coroutine_function
from ephemerals.options import EphemeralOptions, as_count, as_seconds
from ephemerals.snapshot import OperationStatus

from .batch import Batch, BatcherStatistics, ItemDiscarded
from .waiting import WaitingLine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType
    from typing import Unpack

    from ephemerals.coordination import DrainReport
    from ephemerals.operation import Operation
    from ephemerals.options import OptionKeywords, Seconds

    from .promise import Promise

__all__ = ["Batcher"]

T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """Call `function(items)` with up to `max_size` (32) items at once, in the order they came.

    A batch is begun when it is full, or `linger` (1) seconds after its first item; one that is due but must wait for
    another fills up meanwhile. One runs at a time, unless `max_concurrency` says otherwise. With `max_waiting` (1000;
    `None`: no limit) items waiting, `put` waits. The function gives a sequence with a result for each item, or `None`.
    A batch that fails fails its own items. The other options are those of a coordinator, for which a batch is an item:
    `retry=`, `limiter=`, `operation_timeout=`, …

    Leaving `async with` begins what is left at once and waits for it; after an exception it is cancelled.

    >>> import asyncio
    >>> async def lengths(words: list[str]) -> list[int]:
    ...     print(words)
    ...     return [len(word) for word in words]
    >>> async def main() -> None:
    ...     async with Batcher(lengths, max_size=2) as batcher:
    ...         bean, pea, onion = [await batcher.put(word) for word in ("bean", "pea", "onion")]
    ...         print(await pea)
    ...     print(await onion)
    >>> asyncio.run(main())
    ['bean', 'pea']
    3
    ['onion']
    5
    """

    def __init__(
        self,
        function: Callable[[list[T]], Awaitable[Sequence[R] | None]],
        *,
        max_size: int = 32,
        linger: Seconds = 1.0,
        max_waiting: int | None = 1000,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        if not is_coroutine_function(function):
            raise InvalidBody(f"{function_name(function)} is no async function of a list of items")
        self._function = function
        self._max_size = as_count("max_size", max_size)
        self._linger = as_seconds("linger", linger, zero=True)
        self._max_waiting = None if max_waiting is None else as_count("max_waiting", max_waiting)
        chosen = EphemeralOptions.of(options, keywords)
        self._clock = chosen.clock
        chosen = chosen.replace(
            name=chosen.name or f"batches of {function_name(function)}",
            max_concurrency=keywords.get("max_concurrency", 1),
            max_pending=None,
            context="fresh",
        )
        self.coordinator: WorkCoordinator[Batch[T, R], None] = WorkCoordinator(self._run, options=chosen)
        self.coordinator.engine.listen(on_end=self._ended)
        self._alarm = Alarm(self._clock, self._due)
        self._line: WaitingLine[None] = WaitingLine(lambda _: self._leave(1), lambda: None)
        self._open: Batch[T, R] | None = None
        self._is_due = False
        self._batches: dict[int, Batch[T, R]] = {}
        self._waiting = self._accepted = self._begun = 0
        self._completed = self._failed = self._cancelled = self._discarded = 0

    async def put(self, item: T) -> Promise[R]:
        """Accept an item, waiting for room if need be; what it returns can be awaited for the item's result.

        Nobody has to await it. It raises what the batch raised, `ItemDiscarded` or `OperationCancelled`. Raise
        `CoordinatorClosed` if the batcher is closed, also while waiting for room.
        """
        self.coordinator.engine.check_open()
        if not self._has_room:
            await self._line.wait(None)
            self._waiting -= 1  # the place that was kept
        return self._accept(item)

    def try_put(self, item: T) -> Promise[R] | None:
        """Accept an item if there is room at once; never overtake somebody who waits for room."""
        self.coordinator.engine.check_open()
        return self._accept(item) if self._has_room else None

    def flush(self) -> None:
        """Let what has been collected begin as a batch now, without waiting for more."""
        if self._open is not None:
            batch, self._open = self._open, None
            self._alarm.stop()
            self._is_due = False
            operation = self.coordinator.try_enqueue(batch)
            assert operation is not None
            self._batches[operation.id] = batch

    async def join(self) -> None:
        """Flush, and wait until nothing waits and nothing runs; the intake stays open."""
        self.flush()
        await self.coordinator.join()

    async def drain(self, timeout: Seconds | None = None) -> DrainReport:  # noqa: ASYNC109 - as a coordinator's
        """Close, let what has been collected begin at once, and wait for all; the report counts batches."""
        self._close()
        return await self.coordinator.drain(timeout)

    def cancel(self) -> list[T]:
        """Close, cancel the batches that run, and return the items whose batch never began, in order."""
        self._close()
        discarded = [item for batch in self._batches.values() if not batch.has_begun for item in batch.items]
        self.coordinator.cancel()
        return discarded

    async def aclose(self, *, grace: Seconds | None = 10.0, cancel_grace: Seconds | None = 5.0) -> DrainReport:
        """Drain for `grace` seconds, then cancel and wait `cancel_grace`, as a coordinator does."""
        self._close()
        return await self.coordinator.aclose(grace=grace, cancel_grace=cancel_grace)

    def statistics(self) -> BatcherStatistics:
        """Return the counts as they are now."""
        return BatcherStatistics(
            accepted=self._accepted,
            waiting=self._waiting,
            completed=self._completed,
            failed=self._failed,
            cancelled=self._cancelled,
            discarded=self._discarded,
            batches=self._begun,
        )

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when it is drained, for tests."""
        own = {"items": self._waiting, "putters": len(self._line), "linger timers": int(self._alarm.is_set)}
        return {**own, "batches": len(self._batches), **self.coordinator.engine.leftovers()}

    async def __aenter__(self) -> Self:
        await self.coordinator.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()
        await self.coordinator.__aexit__(kind, error, traceback)

    # From an item to its batch, and back.

    @property
    def _has_room(self) -> bool:
        return not self._line and (self._max_waiting is None or self._waiting < self._max_waiting)

    def _accept(self, item: T) -> Promise[R]:
        if self._open is None:
            self._open = Batch()
            self._alarm.set(self._clock.monotonic() + self._linger)
        promise = self._open.add(item)
        self._accepted += 1
        self._waiting += 1
        if len(self._open.items) >= self._max_size:
            self.flush()
        return promise

    @property
    def _is_busy(self) -> bool:
        return self.coordinator.pending_count > 0 or self.coordinator.active_count >= self.coordinator.max_concurrency

    def _due(self) -> None:
        """Begin the open batch; if it would have to wait for others, let it fill up until then."""
        self._is_due = True
        self._catch_up()

    async def _run(self, batch: Batch[T, R]) -> None:
        if not batch.has_begun:
            batch.has_begun = True
            self._begun += 1
            self._leave(len(batch.items))
        self._catch_up()
        batch.keep(await self._function(list(batch.items)))

    def _ended(self, operation: Operation[Any]) -> None:
        batch = self._batches.pop(operation.id)
        count = len(batch.items)
        match operation.status:
            case OperationStatus.COMPLETED:
                self._completed += count
            case OperationStatus.FAILED:
                self._failed += count
                batch.break_off(operation._outcome)
            case _ if batch.has_begun:
                self._cancelled += count
                batch.break_off(OperationCancelled("the item's batch was cancelled", operation.id))
            case _:
                self._discarded += count
                self._leave(count)
                batch.break_off(ItemDiscarded())
        self._catch_up()

    def _catch_up(self) -> None:
        if self._is_due and not self._is_busy:
            self.flush()

    def _leave(self, count: int) -> None:
        """Note that so many items wait no longer; keep the places for those who wait for room."""
        self._waiting -= count
        while self._line and (self._max_waiting is None or self._waiting < self._max_waiting):
            self._waiting += 1
            self._line.wake_first()

    def _close(self) -> None:
        if not self.coordinator.is_closed:
            self.flush()
            self.coordinator.complete()
            self._line.dismiss(lambda: CoordinatorClosed(self.coordinator.name))
