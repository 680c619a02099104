"""The smallest pool: a function, and how many of it may run at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from ephemerals.coordination import WorkCoordinator
from ephemerals.options import EphemeralOptions, as_count

if TYPE_CHECKING:
    from typing import Unpack

    from ephemerals.coordination.body import AsyncBody, PlainBody
    from ephemerals.options import OptionKeywords

__all__ = ["FixedWork"]

T = TypeVar("T")
R = TypeVar("R")


class FixedWork(WorkCoordinator[T, R]):
    """Run `body` over items, `concurrency` at once (`None`: as many as there are processors).

    It is a `WorkCoordinator` under the name people look for, with all that one offers.

    >>> import asyncio
    >>> async def double(number: int) -> int:
    ...     return number * 2
    >>> async def main() -> None:
    ...     async with FixedWork(double, 2) as pool:
    ...         operations = [await pool.enqueue(number) for number in (1, 2, 3)]
    ...     print([await each for each in operations], pool.statistics().completed)
    >>> asyncio.run(main())
    [2, 4, 6] 3
    """

    @overload
    def __init__(
        self,
        body: AsyncBody[T, R],
        concurrency: int | None = None,
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self,
        body: PlainBody[T, R],
        concurrency: int | None = None,
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None: ...

    def __init__(
        self,
        body: Any,
        concurrency: int | None = None,
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        if concurrency is not None:
            keywords["max_concurrency"] = as_count("concurrency", concurrency)
        super().__init__(body, options=options, **keywords)
