"""Work whose results are kept for a while."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from ephemerals.snapshot import OperationStatus, without_result

from .coordinator import Coordinator
from .keyed import keyed_schedule
from .schedule import FifoSchedule

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterable, Callable
    from typing import Unpack

    from ephemerals.operation import Operation
    from ephemerals.options import EphemeralOptions, OptionKeywords, Seconds
    from ephemerals.snapshot import OperationSnapshot

    from .body import AsyncBody, PlainBody
    from .coordinator import KeySelector

__all__ = ["ResultCoordinator", "ResultStream"]

T = TypeVar("T")
R = TypeVar("R")
U = TypeVar("U")
V = TypeVar("V")


class ResultCoordinator(Coordinator[T, R]):
    """Run a body over items, and keep the results in the window's snapshots until they leave it.

    `results_ttl` (seconds; `None`: as long as the snapshot) drops results earlier. With `key` the order within each
    key is kept, as in a `KeyedWorkCoordinator`. A handle has its result for as long as it is held, whatever the
    window does.

    >>> import asyncio
    >>> async def price(symbol: str) -> int:
    ...     return len(symbol)
    >>> async def main() -> None:
    ...     async with ResultCoordinator(price, max_concurrency=16) as prices:
    ...         print(await (await prices.enqueue("ACME")))
    ...         await prices.enqueue("XY")
    ...         await prices.drain()
    ...         print(prices.results())
    >>> asyncio.run(main())
    4
    [4, 2]
    """

    @overload
    def __init__(
        self,
        body: AsyncBody[T, R],
        *,
        key: KeySelector[T] | None = None,
        results_ttl: Seconds | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self,
        body: PlainBody[T, R],
        *,
        key: KeySelector[T] | None = None,
        results_ttl: Seconds | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None: ...

    def __init__(
        self,
        body: Any,
        *,
        key: KeySelector[T] | None = None,
        results_ttl: Seconds | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        super().__init__(
            body,
            (lambda _: FifoSchedule()) if key is None else keyed_schedule,
            options=options,
            keywords=keywords,
            key=key,
            keeps_results=True,
            results_ttl=results_ttl,
        )

    @overload
    @classmethod
    def from_async_iterable(
        cls,
        source: AsyncIterable[U],
        body: AsyncBody[U, V],
        *,
        key: KeySelector[U] | None = None,
        results_ttl: Seconds | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> ResultCoordinator[U, V]: ...

    @overload
    @classmethod
    def from_async_iterable(
        cls,
        source: AsyncIterable[U],
        body: PlainBody[U, V],
        *,
        key: KeySelector[U] | None = None,
        results_ttl: Seconds | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> ResultCoordinator[U, V]: ...

    @classmethod
    def from_async_iterable(
        cls,
        source: AsyncIterable[Any],
        body: Any,
        *,
        key: KeySelector[Any] | None = None,
        results_ttl: Seconds | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> Any:
        """Make a coordinator that is fed by a source, as `WorkCoordinator.from_async_iterable` does."""
        return cls(body, key=key, results_ttl=results_ttl, options=options, **keywords)._feed_from(source)

    def results(self) -> list[R]:
        """Return the results of completed operations that are still in the window, as they completed."""
        return [each._result for each in self.successful() if each.has_result]

    def successful(self) -> list[OperationSnapshot[R]]:
        """Return snapshots, with results, of the completed operations in the window."""
        return self.completed()

    def base_snapshot(self) -> list[OperationSnapshot[R]]:
        """Return snapshots of all operations in the window, without results."""
        return [without_result(each) for each in self.snapshot()]

    def as_completed(self) -> ResultStream[R]:
        """Return an async iterator over results as operations complete, while the producer keeps going.

        It yields each result once: first those in the window, then each new one, until the coordinator is closed and
        idle. Failed, cancelled and skipped operations are passed over. Results that were not yet taken wait in the
        iterator; use it with `async with`, or read it to its end, so that it lets go of them.
        """
        return ResultStream(self)


class ResultStream(Generic[R]):
    """Yield results as operations complete; leaving its `async with` block ends it."""

    __slots__ = ("_ready", "_stop", "_stopped", "_waiter", "coordinator")

    def __init__(self, coordinator: ResultCoordinator[Any, R]) -> None:
        self.coordinator = coordinator
        self._ready: deque[R] = deque(coordinator.results())
        self._waiter: asyncio.Future[None] | None = None
        self._stopped = False
        self._stop: Callable[[], None] = coordinator.engine.listen(on_end=self._on_end, on_closed=self._wake)

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> R:
        """Return the next result, waiting for it."""
        while not self._ready:
            engine = self.coordinator.engine
            if self._stopped or (engine.is_closed and engine.is_idle):
                self.close()
                raise StopAsyncIteration
            if self._waiter is not None and not self._waiter.done():
                message = "a result stream has one reader: make another with as_completed()"
                raise RuntimeError(message)
            self._waiter = engine.bind().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._ready.popleft()

    async def __aenter__(self) -> Self:
        """Use it for a block."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        self.close()

    def close(self) -> None:
        """Take in nothing more and let go of what was not taken; twice is the same as once."""
        self._stopped = True
        self._stop()
        self._ready.clear()
        self._wake()

    def _on_end(self, operation: Operation[Any]) -> None:
        if operation.status is OperationStatus.COMPLETED:
            self._ready.append(operation._outcome)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
