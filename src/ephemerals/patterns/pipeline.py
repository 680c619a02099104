"""Stages one after another, each with its own concurrency, and never much between them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from ephemerals.coordination import map_each
from ephemerals.errors import EphemeralsError
from ephemerals.options import as_count

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable
    from types import TracebackType
    from typing import Unpack

    from ephemerals.coordination import CoordinatorStatistics, MappedResults
    from ephemerals.coordination.body import AsyncBody, PlainBody
    from ephemerals.coordination.coordinator import KeySelector
    from ephemerals.options import EphemeralOptions, OptionKeywords

__all__ = ["Pipeline"]

R = TypeVar("R")
S = TypeVar("S")


class Pipeline(Generic[R]):
    """Send the items of a source through stages, and iterate over what comes out of the last one.

    A stage is a `map_each` over the one before, and understands the same options; `concurrency` (`None`: the number of
    processors) is how many of its bodies run at once. It pulls an item while fewer than `max_concurrency` +
    `max_pending` are in it, that is waiting, running, or done and not yet taken by the next stage. So a slow stage,
    or a slow reader, holds up the stages before it one by one, and in the end the source. When the source ends, the
    stages end in order, each when it has handed on what it had.

    A stage with `errors="raise"` ends the pipeline with its first failure: everything before it is cancelled, what
    was past it comes out first, and then the exception is raised. With `errors="skip"` what fails comes out of no
    stage; it is logged, and counted in `statistics()`. A stage with `ordered=True` keeps the order of its items.

    A pipeline is built by `stage`, which returns a new one, and used once, in an `async with` block. Leaving the block,
    early or not, cancels what still runs and closes the source. `drain` reads no more and loses nothing.

    >>> import asyncio
    >>> async def fetch(number: int) -> str:
    ...     return f"page {number}"
    >>> async def count(page: str) -> int:
    ...     return len(page)
    >>> async def main() -> None:
    ...     pipeline = Pipeline(range(8, 12)).stage(fetch, 16, ordered=True).stage(count, 4, ordered=True)
    ...     async with pipeline as lengths:
    ...         print([length async for length in lengths])
    >>> asyncio.run(main())
    [6, 6, 7, 7]
    """

    def __init__(self, source: Iterable[R] | AsyncIterable[R]) -> None:
        self._source: Iterable[Any] | AsyncIterable[Any] = source
        self._plan: tuple[Callable[[Any], MappedResults[Any]], ...] = ()
        self._stages: tuple[MappedResults[Any], ...] = ()
        self._stack = AsyncExitStack()
        self._out: _Link

    @overload
    def stage(
        self,
        body: AsyncBody[R, S],
        concurrency: int | None = None,
        *,
        ordered: bool = False,
        key: KeySelector[R] | None = None,
        errors: Literal["raise", "skip"] = "raise",
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> Pipeline[S]: ...

    @overload
    def stage(
        self,
        body: PlainBody[R, S],
        concurrency: int | None = None,
        *,
        ordered: bool = False,
        key: KeySelector[R] | None = None,
        errors: Literal["raise", "skip"] = "raise",
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> Pipeline[S]: ...

    def stage(self, body: Any, concurrency: int | None = None, **choices: Any) -> Pipeline[Any]:
        """Return a pipeline with one more stage; what is wrong with its options is raised now."""
        if concurrency is not None:
            choices["max_concurrency"] = as_count("concurrency", concurrency)
        make = partial(_make_stage, body, choices)
        make(())  # refuses at once what it would refuse later
        longer: Pipeline[Any] = Pipeline(self._source)
        longer._plan = (*self._plan, make)
        return longer

    def stop(self) -> None:
        """Read no more of the source; what is in the pipeline goes on to its end."""
        if self._stages:
            self._stages[0]._line.complete()

    async def drain(self) -> list[R]:
        """Stop, wait for everything that is in the pipeline, and return what had not been taken yet.

        It is at most what the stages have room for. Call it inside the block; a failure is raised as in iterating.
        """
        self.stop()
        return [result async for result in self]

    async def run(self) -> tuple[CoordinatorStatistics, ...]:
        """Read the source to its end and let go of what comes out; return the statistics of the stages."""
        async with self:
            async for result in self:
                del result  # it would be held while the next one is waited for
        return self.statistics()

    def statistics(self) -> tuple[CoordinatorStatistics, ...]:
        """Return the counts of each stage as they are now, in order; nothing before the first use."""
        return tuple(stage._line.statistics() for stage in self._stages)

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone after the block, for tests."""
        counts: dict[str, int] = {}
        for stage in self._stages:
            for kind, count in stage._line.engine.leftovers().items():
                counts[kind] = counts.get(kind, 0) + count
        return counts

    async def __aenter__(self) -> Self:
        """Begin to read the source; once only."""
        if not self._plan:
            message = "a pipeline needs a stage: Pipeline(source).stage(body)"
            raise EphemeralsError(message)
        if self._stages:
            message = "this pipeline has been used already: build a new one"
            raise EphemeralsError(message)
        source: Any
        source, self._source = self._source, ()
        async with AsyncExitStack() as stack:
            for make in self._plan:
                stage = await stack.enter_async_context(make(source))
                self._stages = (*self._stages, stage)
                source = self._out = _Link(stage, self._stages)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Cancel what still runs, the last stage first, and close the source."""
        await self._stack.__aexit__(kind, error, traceback)

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> R:
        """Return the next result of the last stage, waiting for it."""
        if not self._stages:
            message = "use it in a block: 'async with pipeline as results'"
            raise EphemeralsError(message)
        result: R = await self._out.__anext__()
        return result


class _Link:
    """Hand on what comes out of the last of some stages; cancel all of them when it fails."""

    __slots__ = ("_last", "_stages")

    def __init__(self, last: MappedResults[Any], stages: tuple[MappedResults[Any], ...]) -> None:
        self._last = last
        self._stages = stages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._last.__anext__()
        except StopAsyncIteration:
            raise
        except Exception:
            for stage in reversed(self._stages):
                stage._line._cancel_everything()
            raise


def _make_stage(body: Any, choices: dict[str, Any], source: Any) -> MappedResults[Any]:
    return map_each(source, body, **choices)
