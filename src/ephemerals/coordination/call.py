"""A call to be made later: a function and its arguments, which nobody but the call itself holds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ParamSpec, Self, cast

from ephemerals.errors import InvalidBody
from ephemerals.functions import function_name, is_coroutine_function, is_generator_function, misfit, refuse_coroutine

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ephemerals.operation import Operation

    from .engine import Engine

__all__ = ["Call", "background", "checked", "checked_call"]

P = ParamSpec("P")


class Call:
    """Hold a function and its arguments until the call is made: an item of a `Background`.

    `spawn` makes one by itself; make one by hand for the methods that take an item, as in
    `background.enqueue(Call(notify, user), metadata={"kind": "mail"})`. It refers to the arguments for as long as
    you keep it. `key` and `timeout` are as in `Background.task`, the key of this one call already chosen.
    """

    __slots__ = ("arguments", "function", "is_async", "key", "keywords", "name", "timeout")

    def __init__(self, function: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
        self._fill("Call", function, args, kwargs)

    @classmethod
    def of(cls, how: str, function: object, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Self:
        """Make a call in the name of a method, `how`, which is told of what is wrong."""
        call = cls.__new__(cls)
        call._fill(how, function, arguments, keywords)
        return call

    def _fill(self, how: str, function: object, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.function = checked(function, how)
        self.arguments = arguments
        self.keywords = keywords
        self.name = function_name(self.function)
        if (error := misfit(self.function, *arguments, **keywords)) is not None:
            message = f"{how}({self.name}, …): {self.name}() does not take these arguments: {error}"
            raise InvalidBody(message)
        self.is_async = is_coroutine_function(self.function)
        self.key: Hashable = None
        self.timeout: float | None = None

    def __repr__(self) -> str:
        """Show the function only: arguments are nobody's business."""
        return f"<Call of {self.name}>"


async def background(call: Call, operation: Operation[Any]) -> Any:
    """Be the body of every `Background`: make the call, holding on to nothing of it."""
    function, is_async, arguments, keywords = call.function, call.is_async, call.arguments, call.keywords
    del call
    if is_async:
        running = function(*arguments, **keywords)
        del arguments, keywords
        return await running
    return await cast("Engine", operation._owner).execution.run_plain(operation, function, [arguments, keywords])


def checked(function: object, how: str) -> Callable[..., Any]:
    """Return a function if it can be called in the background; raise `InvalidBody` if not."""
    if asyncio.iscoroutine(function):
        name = getattr(function, "__name__", "function")
        refuse_coroutine(function, f"use {how}({name}, ...), not {how}({name}(...))")
    if not callable(function):
        message = f"{how}() needs a function and its arguments, not {type(function).__qualname__}"
        raise InvalidBody(message)
    if is_generator_function(function):
        message = f"{function_name(function)} is a generator, which would never run: use a def or an async def"
        raise InvalidBody(message)
    return function


def checked_call(item: object) -> Call:
    """Return an item if it is a call; raise `InvalidBody` if not, such as a function that was given to `enqueue`."""
    if not isinstance(item, Call):
        name = function_name(checked(item, "spawn"))
        message = f"an item of a Background is a Call: use spawn({name}, ...), or Call({name}, ...)"
        raise InvalidBody(message)
    return item
