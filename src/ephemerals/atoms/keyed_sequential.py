"""One after the other for each entity, entities side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from ephemerals.coordination import KeyedWorkCoordinator
from ephemerals.errors import InvalidOption
from ephemerals.options import EphemeralOptions, as_count

if TYPE_CHECKING:
    from typing import Unpack

    from ephemerals.coordination.body import AsyncBody, PlainBody
    from ephemerals.coordination.coordinator import KeySelector
    from ephemerals.options import OptionKeywords

__all__ = ["KeyedSequential"]

T = TypeVar("T")
R = TypeVar("R")


class KeyedSequential(KeyedWorkCoordinator[T, R]):
    """Run `body` over items strictly one after the other within each key, `concurrency` keys at once.

    It is a `KeyedWorkCoordinator` that refuses `max_concurrency_per_key`: what is started in order also ends in order.

    >>> import asyncio
    >>> async def handle(word: str) -> None:
    ...     await asyncio.sleep(0.001 / len(word))
    ...     print(word)
    >>> async def main() -> None:
    ...     async with KeyedSequential(lambda word: word[0], handle, 4) as handler:
    ...         await handler.enqueue_many(["a", "apple", "apricots"])
    >>> asyncio.run(main())
    a
    apple
    apricots
    """

    @overload
    def __init__(
        self,
        key: KeySelector[T],
        body: AsyncBody[T, R],
        concurrency: int | None = None,
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self,
        key: KeySelector[T],
        body: PlainBody[T, R],
        concurrency: int | None = None,
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None: ...

    def __init__(
        self,
        key: KeySelector[T],
        body: Any,
        concurrency: int | None = None,
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        if concurrency is not None:
            keywords["max_concurrency"] = as_count("concurrency", concurrency)
        chosen = EphemeralOptions.of(options, keywords)
        if chosen.max_concurrency_per_key != 1:
            advice = "1, which is what it is for: use a KeyedWorkCoordinator"
            raise InvalidOption("max_concurrency_per_key", chosen.max_concurrency_per_key, advice)
        super().__init__(key, body, options=chosen)
