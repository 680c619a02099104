"""Work per entity: in order within a key, side by side across keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from .coordinator import Coordinator, as_selector
from .schedule import KeyedSchedule, KeyTable

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Hashable
    from typing import Unpack

    from ephemerals.options import EphemeralOptions, OptionKeywords
    from ephemerals.snapshot import OperationSnapshot

    from .body import AsyncBody, PlainBody
    from .coordinator import KeySelector

__all__ = ["KeyedWorkCoordinator", "keyed_schedule"]

T = TypeVar("T")
R = TypeVar("R")
U = TypeVar("U")
V = TypeVar("V")


def keyed_schedule(options: EphemeralOptions) -> KeyedSchedule:
    """Return the schedule that keeps the order within each key, as the options say."""
    return KeyedSchedule(
        KeyTable(options.max_concurrency_per_key),
        fair=options.fair_scheduling,
        threshold=options.fair_scheduling_threshold,
    )


class KeyedWorkCoordinator(Coordinator[T, R]):
    """Run a body over items, first in first out within each key, with keys that never hold one another up.

    `key` is a function from an item to its key, or the name of an attribute; it is asked once, at `enqueue`, and if
    it raises, that one `enqueue` raises. The oldest runnable item goes first; with `fair_scheduling=True` ready keys
    take turns, and a key with `fair_scheduling_threshold` waiting items has no room for more.

    >>> import asyncio
    >>> async def handle(word: str) -> None:
    ...     print(word)
    >>> async def main() -> None:
    ...     async with KeyedWorkCoordinator(lambda word: word[0], handle, max_concurrency=1) as commands:
    ...         await commands.enqueue_many(["apple", "apricot", "bean"])
    >>> asyncio.run(main())
    apple
    apricot
    bean
    """

    _example = "KeyedWorkCoordinator(key, {})"

    @overload
    def __init__(
        self,
        key: KeySelector[T],
        body: AsyncBody[T, R],
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self,
        key: KeySelector[T],
        body: PlainBody[T, R],
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None: ...

    def __init__(
        self,
        key: KeySelector[T],
        body: Any,
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        super().__init__(body, keyed_schedule, options=options, keywords=keywords, key=as_selector(key))

    @overload
    @classmethod
    def from_async_iterable(
        cls,
        source: AsyncIterable[U],
        key: KeySelector[U],
        body: AsyncBody[U, V],
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> KeyedWorkCoordinator[U, V]: ...

    @overload
    @classmethod
    def from_async_iterable(
        cls,
        source: AsyncIterable[U],
        key: KeySelector[U],
        body: PlainBody[U, V],
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> KeyedWorkCoordinator[U, V]: ...

    @classmethod
    def from_async_iterable(
        cls,
        source: AsyncIterable[Any],
        key: KeySelector[Any],
        body: Any,
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> Any:
        """Make a coordinator that is fed by a source, as `WorkCoordinator.from_async_iterable` does."""
        return cls(key, body, options=options, **keywords)._feed_from(source)

    def pending_count_for(self, key: Hashable) -> int:
        """Return how many items of a key wait for their start."""
        return cast("KeyedSchedule", self.engine.schedule).pending_for(key)

    def snapshot_for(self, key: Hashable) -> list[OperationSnapshot[R]]:
        """Return snapshots of the operations of a key in the window, ordered as `snapshot` is."""
        shown = self.engine.show_key(key)
        return [each for each in self.snapshot() if each.key == shown]
