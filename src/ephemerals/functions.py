"""What can be found out about a function without calling it: its name, its kind, and what it takes."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from .errors import InvalidBody, InvalidOptionType

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "as_callback",
    "close_coroutine",
    "function_name",
    "innermost",
    "is_coroutine_function",
    "is_generator_function",
    "misfit",
    "refuse_coroutine",
]


def function_name(function: Callable[..., Any]) -> str:
    """Return a function's qualified name, or its class's."""
    inner = innermost(function)
    return str(getattr(inner, "__qualname__", None) or type(inner).__qualname__)


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Tell whether calling a function gives a coroutine: `async def`, also behind `partial` or as `__call__`."""
    while isinstance(function, partial):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    if inspect.isclass(function):
        return False  # calling it makes an instance, whatever calling that one does
    return inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - the method itself


def is_generator_function(function: Callable[..., Any]) -> bool:
    """Tell whether calling a function gives a generator, of either kind, of which nothing runs by itself."""
    inner = innermost(function)
    return inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)


def misfit(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> TypeError | None:
    """Return why a function cannot be called with these arguments; `None` if it can, or if nobody can tell."""
    if not keywords and _plainly_takes(function, len(arguments)):
        return None
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return None  # some built-in functions do not tell their signature
    try:
        signature.bind(*arguments, **keywords)
    except TypeError as error:
        return error.with_traceback(None)  # whose frames hold the arguments
    return None


def _plainly_takes(function: Any, count: int) -> bool:
    """Tell whether a function is of the simplest kind and takes so many arguments; much cheaper than its signature."""
    if isinstance(function, MethodType):
        function, count = function.__func__, count + 1
    if type(function) is not FunctionType or function.__dict__:
        return False
    code, optional = function.__code__, len(function.__defaults__ or ())
    return not code.co_kwonlyargcount and code.co_argcount - optional <= count <= code.co_argcount


def refuse_coroutine(value: object, advice: str) -> None:
    """Raise `InvalidBody` if `value` is a coroutine object, closing it first, so that it does not warn later."""
    if isinstance(value, Coroutine):
        name = getattr(value, "__qualname__", type(value).__qualname__)
        close_coroutine(value)
        message = f"a coroutine object was given ({name}), where a function belongs: {advice}"
        raise InvalidBody(message)


def close_coroutine(value: object) -> None:
    """Close a coroutine object that was given where none belongs, so that it does not warn later."""
    if isinstance(value, Coroutine):
        value.close()


def as_callback(
    option: str, value: object, *parameters: str, takes_async: bool = False, optional: bool = True
) -> object:
    """Return `value` if it is a function that can be called with so many arguments, and is not async unless allowed."""
    kind = "a function, plain or async," if takes_async else "a plain function"
    allowed = f"{kind} that can be called as {option}({', '.join(parameters)})" + ", or None" * optional
    if not callable(value) or is_generator_function(value) or misfit(value, *parameters) is not None:
        close_coroutine(value)
        raise InvalidOptionType(option, value, allowed)
    if not takes_async and is_coroutine_function(value):
        raise InvalidOptionType(option, value, f"{allowed}; nobody would await an async one")
    return value


def innermost(function: Any) -> Any:
    """Return what is behind a `partial`, or the `__call__` of an object: the function itself."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return getattr(function, "__call__", function) if not hasattr(function, "__qualname__") else function  # noqa: B004
