"""Making a decorator out of something that calls."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ephemerals.errors import InvalidBody
from ephemerals.functions import function_name, is_coroutine_function

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["decorated"]

P = ParamSpec("P")
R = TypeVar("R")


def decorated(
    function: Callable[P, Awaitable[R]], call: Callable[..., Awaitable[Any]], advice: str
) -> Callable[P, Awaitable[R]]:
    """Return a coroutine function that awaits `call(function, …)`, and looks like `function`.

    Raise `InvalidBody`, with `advice`, if that is no coroutine function.
    """
    if not is_coroutine_function(function):
        raise InvalidBody(f"{function_name(function)} is no async function: {advice}")

    @functools.wraps(function)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await call(function, *args, **kwargs)
        return result

    return wrapper
