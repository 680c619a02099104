"""The user's code: what may be a body, and how a call of it is made; decided once, from the signature."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from ephemerals.errors import InvalidBody
from ephemerals.functions import function_name, is_coroutine_function, is_generator_function, refuse_coroutine
from ephemerals.operation import Operation

__all__ = ["AsyncBody", "Body", "PlainBody", "examine"]

T = TypeVar("T")
R = TypeVar("R")

AsyncBody = Callable[[T], Awaitable[R]] | Callable[[T, Operation[Any]], Awaitable[R]]
"""An `async def` of the item, or of the item and its operation."""

PlainBody = Callable[[T], R] | Callable[[T, Operation[Any]], R]
"""A plain function of the item, or of the item and its operation."""

_EXPECTED: Final = "expected a function of one parameter, body(item), or of two, body(item, operation)"


@dataclass(frozen=True, slots=True)
class Body:
    """Hold a body with what was found out about it.

    `kind` says how it runs: awaited on the loop, in a thread, or in another process.
    """

    function: Callable[..., Any]
    name: str
    kind: Literal["async", "thread", "process"]
    takes_operation: bool


def examine(function: object, run_in: Literal["thread", "process"], example: str = "WorkCoordinator({})") -> Body:
    """Find out how to run a body; raise `InvalidBody` (a `TypeError`) if it cannot be run.

    A second parameter receives the operation if it has no default, is called `operation`, or is annotated as one.
    `example` is the user's call with a place for the body, for advice.
    """
    right, wrong = example.format("translate"), example.format("translate(x)")
    refuse_coroutine(function, f"pass the function itself: {right}, not {wrong}")
    if not callable(function):
        message = f"a body must be a function, not {type(function).__qualname__}: {_EXPECTED}"
        raise InvalidBody(message)
    name = function_name(function)
    if is_generator_function(function):
        message = f"body {name} is a generator, which would never run: {_EXPECTED}, that returns or awaits"
        raise InvalidBody(message)
    takes_operation = _takes_operation(function, name)
    kind: Literal["async", "thread", "process"] = "async" if is_coroutine_function(function) else run_in
    if run_in == "process":
        if kind == "async":
            message = f"body {name} is an async function, which runs on the event loop: run_in='process' needs a def"
            raise InvalidBody(message)
        if takes_operation:
            message = f"body {name} takes the operation, which cannot travel to another process: use body(item)"
            raise InvalidBody(message)
        _check_picklable(function, name)
    return Body(function, name, kind, takes_operation)


def _takes_operation(function: Callable[..., Any], name: str) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        return False  # some built-in functions do not tell their signature
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    has_rest = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    required = sum(each.default is each.empty for each in positional)
    needed = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty]
    if needed:
        message = f"body {name} needs the keyword {needed[0]!r}, which nobody would give: {_EXPECTED}"
        raise InvalidBody(message)
    if required > 2 or not (positional or has_rest):  # noqa: PLR2004 - the item and the operation
        count = required or "no"
        message = f"body {name} takes {count} parameter{'s' * (required != 1)}: {_EXPECTED}"
        raise InvalidBody(message)
    if len(positional) < 2:  # noqa: PLR2004 - the item and the operation
        return False
    second = positional[1]
    return second.default is second.empty or second.name == "operation" or _is_operation(second.annotation)


def _is_operation(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation.split("[")[0].rpartition(".")[2] == Operation.__name__
    return annotation is Operation or getattr(annotation, "__origin__", None) is Operation


def _check_picklable(function: Callable[..., Any], name: str) -> None:
    try:
        pickle.dumps(function)
    except Exception as error:  # noqa: BLE001 - pickling runs code of anybody, which may raise anything
        message = f"body {name} cannot be sent to another process ({error}): use a function of a module's top level"
        raise InvalidBody(message) from None
