"""Work over time: a queue in front, so many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from .coordinator import Coordinator
from .schedule import FifoSchedule

if TYPE_CHECKING:
    from collections.abc import AsyncIterable
    from typing import Unpack

    from ephemerals.options import EphemeralOptions, OptionKeywords

    from .body import AsyncBody, PlainBody

__all__ = ["WorkCoordinator"]

T = TypeVar("T")
R = TypeVar("R")
U = TypeVar("U")
V = TypeVar("V")


class WorkCoordinator(Coordinator[T, R]):
    """Run a body over items in the order they come, so many at once.

    >>> import asyncio
    >>> async def greet(name: str) -> str:
    ...     return f"Hello {name}"
    >>> async def main() -> None:
    ...     async with WorkCoordinator(greet, max_concurrency=8) as coordinator:
    ...         operation = await coordinator.enqueue("Ada", metadata={"language": "en"})
    ...         print(await operation, operation.status)
    >>> asyncio.run(main())
    Hello Ada completed
    """

    @overload
    def __init__(
        self,
        body: AsyncBody[T, R],
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self,
        body: PlainBody[T, R],
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None: ...

    def __init__(
        self, body: Any, *, options: EphemeralOptions | None = None, **keywords: Unpack[OptionKeywords]
    ) -> None:
        super().__init__(body, lambda _: FifoSchedule(), options=options, keywords=keywords)

    @overload
    @classmethod
    def from_async_iterable(
        cls,
        source: AsyncIterable[U],
        body: AsyncBody[U, V],
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> WorkCoordinator[U, V]: ...

    @overload
    @classmethod
    def from_async_iterable(
        cls,
        source: AsyncIterable[U],
        body: PlainBody[U, V],
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> WorkCoordinator[U, V]: ...

    @classmethod
    def from_async_iterable(
        cls,
        source: AsyncIterable[Any],
        body: Any,
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> Any:
        """Make a coordinator that is fed by a source, as fast as there is room; the source's end closes the intake.

        The source is read from now on if a loop runs, else from the first use. `drain` reads it to its end, and
        raises its error if it failed; it is closed in the task that reads it.
        """
        return cls(body, options=options, **keywords)._feed_from(source)
