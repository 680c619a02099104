"""The exceptions of the library, cut by what a caller can do about them.

EphemeralsError
├── InvalidOption (ValueError)           an option or argument has a value that is not allowed
│   └── InvalidOptionType (TypeError)    … or a value of the wrong type
├── InvalidBody (TypeError)              what was given as a body cannot be run as one
├── CoordinatorError
│   ├── CoordinatorClosed                the intake is closed; nothing more is accepted
│   │   └── RegistryClosed               … and so is the registry; it creates no coordinator any more
│   ├── CoordinatorFull                  refused for now; try again later
│   ├── CoordinatorBroken                an internal error ended the coordinator; `__cause__` is that error
│   ├── WrongLoop                        used from an event loop it is not bound to
│   └── DeadlockError                    the wait could never end
├── OperationError
│   ├── OperationCancelled               the operation was cancelled
│   ├── OperationSkipped                 a signal told the coordinator not to run it
│   ├── OperationTimeout (TimeoutError)  the operation ran longer than `operation_timeout`
│   └── OperationFailed                  stands for a failure whose exception was not kept
├── SinkClosed                           the signal sink is closed; nothing can listen to it any more
├── PinLimitReached                      as many operations are pinned as `max_pinned` allows
├── UnknownLane (LookupError)            no lane has that name
├── UnknownCoordinator (LookupError)     no coordinator has that name
├── DuplicateName (ValueError)           the name is taken
└── MissingExtra (ImportError)           an optional dependency is not installed
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "CoordinatorBroken",
    "CoordinatorClosed",
    "CoordinatorError",
    "CoordinatorFull",
    "DeadlockError",
    "DuplicateName",
    "EphemeralsError",
    "InvalidBody",
    "InvalidOption",
    "InvalidOptionType",
    "MissingExtra",
    "OperationCancelled",
    "OperationError",
    "OperationFailed",
    "OperationSkipped",
    "OperationTimeout",
    "PinLimitReached",
    "RegistryClosed",
    "SinkClosed",
    "UnknownCoordinator",
    "UnknownLane",
    "WrongLoop",
]


def closest(name: str, names: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: which of `names` was meant, or nothing if none is close."""
    import difflib  # for this alone, which most programs never need

    close = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


class EphemeralsError(Exception):
    """Be the base of every exception that the library raises itself.

    It can be copied and pickled, with its attributes; of an attribute that cannot be pickled only the text travels.
    """

    def __reduce__(self: BaseException) -> tuple[Any, ...]:
        """Travel without `__init__`, which makes the message of other arguments than `args`."""
        return restored, (type(self), self.args, {name: _portable(each) for name, each in vars(self).items()})

    def __copy__(self: BaseException) -> BaseException:
        """Return a copy with the same attributes, portable or not."""
        return restored(type(self), self.args, vars(self))


def shown(value: object, how: Callable[[object], str] = repr) -> str:
    """Return a value as text, by default its `repr`; its type if it has none that can be shown."""
    try:
        return how(value)
    except Exception:  # noqa: BLE001 - a `__repr__` may raise anything, and an int may be too long for one
        return f"<{type(value).__qualname__}>"


def shown_fields(instance: Any) -> str:
    """Return the `repr` of a dataclass, also if one of its fields has none."""
    fields = ", ".join(f"{each.name}={shown(getattr(instance, each.name))}" for each in dataclasses.fields(instance))
    return f"{type(instance).__qualname__}({fields})"


class InvalidOption(EphemeralsError, ValueError):
    """Report an option or argument whose value is not allowed.

    `option` is its name, `value` what was given, `allowed` a phrase that says what may be given.
    """

    def __init__(self, option: str, value: object, allowed: str) -> None:
        super().__init__(f"{option}={shown(value)} is not allowed: expected {allowed}")
        self.option = option
        self.value = value
        self.allowed = allowed


class InvalidOptionType(InvalidOption, TypeError):
    """Report an option or argument of the wrong type."""


class InvalidBody(EphemeralsError, TypeError):
    """Report something that cannot be run as a body, and say what to give instead."""


class CoordinatorError(EphemeralsError):
    """Be the base of what a coordinator raises about itself; `coordinator` is its name."""

    def __init__(self, message: str, coordinator: str) -> None:
        super().__init__(message)
        self.coordinator = coordinator


class CoordinatorClosed(CoordinatorError):
    """Refuse an item because the intake is closed; the item was not accepted."""

    def __init__(self, coordinator: str) -> None:
        super().__init__(
            f"coordinator {coordinator!r} is closed and accepts nothing more: create a new one",
            coordinator,
        )


class RegistryClosed(CoordinatorClosed):
    """Refuse to create a coordinator because its registry is closed."""

    def __init__(self, coordinator: str) -> None:
        CoordinatorError.__init__(
            self,
            f"the registry is closed and creates no coordinator any more (asked for {coordinator!r}): "
            "use it inside 'async with registry'",
            coordinator,
        )


class CoordinatorFull(CoordinatorError):
    """Refuse an item because too much is waiting; the item was not accepted."""

    def __init__(self, coordinator: str, reason: str, alternative: str = "use overflow='wait'") -> None:
        super().__init__(
            f"coordinator {coordinator!r} is full ({reason}): try again later, or {alternative} to wait for room",
            coordinator,
        )
        self.reason = reason


class CoordinatorBroken(CoordinatorError):
    """Report that an internal error ended the coordinator; the error is the `__cause__`."""

    def __init__(self, coordinator: str) -> None:
        super().__init__(
            f"coordinator {coordinator!r} was ended by an internal error (see the cause): "
            "create a new one, and please report it",
            coordinator,
        )


class WrongLoop(CoordinatorError):
    """Refuse a use from another event loop while the one it is bound to is still open."""

    def __init__(self, coordinator: str, bound: object, running: object) -> None:
        one, other = repr(bound), repr(running)
        if one == other:  # as loops of one kind have it
            one, other = object.__repr__(bound), object.__repr__(running)
        super().__init__(
            f"coordinator {coordinator!r} is bound to the event loop {one} and was used from "
            f"{other}: use one coordinator for each loop, or enqueue_threadsafe()",
            coordinator,
        )


class DeadlockError(CoordinatorError):
    """End a wait that could never succeed: everything it waits for waits itself.

    `operations` are the ids of the running operations that wait for one another.
    """

    def __init__(self, coordinator: str, operations: Iterable[int], listing: str) -> None:
        super().__init__(
            f"deadlock in coordinator {coordinator!r}: these running operations wait for room, or for work that "
            f"cannot end before they do ({listing}): enqueue without waiting for the outcome, raise the limits, "
            "or use a second coordinator",
            coordinator,
        )
        self.operations = tuple(operations)


class OperationError(EphemeralsError):
    """Be the base of what a handle raises; `operation_id` names the operation."""

    def __init__(self, message: str, operation_id: int) -> None:
        super().__init__(message)
        self.operation_id = operation_id


class OperationCancelled(OperationError):
    """Tell a waiter that the operation was cancelled; the waiter itself was not."""


class OperationSkipped(OperationError):
    """Tell a waiter that a signal kept the operation from running; `signal` is its name."""

    def __init__(self, message: str, operation_id: int, signal: str) -> None:
        super().__init__(message, operation_id)
        self.signal = signal


class OperationTimeout(OperationError, TimeoutError):
    """End an operation that ran longer than allowed; `timeout` is the limit in seconds."""

    def __init__(self, message: str, operation_id: int, timeout: float) -> None:
        super().__init__(message, operation_id)
        self.timeout = timeout


class OperationFailed(OperationError):
    """Stand in for a failure whose exception was not kept, or could not travel; `error_type` names its type."""

    def __init__(self, message: str, operation_id: int, error_type: str) -> None:
        super().__init__(message, operation_id)
        self.error_type = error_type


class SinkClosed(EphemeralsError):
    """Refuse to listen to a signal sink that is closed, and end a wait for its signals."""

    def __init__(self, sink: str | None) -> None:
        name = "" if sink is None else f" {sink!r}"
        super().__init__(f"signal sink{name} is closed and delivers nothing more: create a new one")
        self.sink = sink


class PinLimitReached(EphemeralsError):
    """Refuse a pin because `max_pinned` operations are pinned already."""

    def __init__(self, max_pinned: int) -> None:
        super().__init__(
            f"{max_pinned} operations are pinned already (max_pinned={max_pinned}): "
            "unpin or evict one first, or raise max_pinned"
        )
        self.max_pinned = max_pinned


class _UnknownName(EphemeralsError, LookupError):
    """Say which names exist and which one comes closest."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        names = sorted(known)
        hint = closest(str(name), names)
        listing = ", ".join(map(repr, names)) if names else "none"
        super().__init__(f"there is no {kind} named {name!r}{hint} (known: {listing})")
        self.name = name
        self.known = tuple(names)


class UnknownLane(_UnknownName):
    """Report a lane name that the coordinator was not given."""

    def __init__(self, name: object, known: Iterable[str]) -> None:
        super().__init__("lane", name, known)


class UnknownCoordinator(_UnknownName):
    """Report a coordinator name that was never registered."""

    def __init__(self, name: object, known: Iterable[str]) -> None:
        super().__init__("coordinator", name, known)


class DuplicateName(EphemeralsError, ValueError):
    """Refuse a second thing under a name that is taken."""

    def __init__(self, kind: str, name: str, option: str | None = None) -> None:
        where = "" if option is None else f"{option}: "
        super().__init__(f"{where}a {kind} named {name!r} exists already: choose another name")
        self.name = name


class MissingExtra(EphemeralsError, ImportError):
    """Report that an optional dependency is missing, and how to install it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an extra: pip install 'ephemerals[{extra}]'")
        self.extra = extra


def restored(kind: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]) -> BaseException:
    """Make an exception as it was, past its own `__init__`."""
    base: Any = next(each for each in kind.__mro__ if each.__module__ == "builtins")
    error: BaseException = base.__new__(kind, *args)
    base.__init__(error, *args)
    vars(error).update(attributes)
    return error


def _portable(value: object) -> object:
    import pickle  # for this alone

    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001 - pickling runs code of anybody, which may raise anything
        return shown(value)
    return value
