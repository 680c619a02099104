"""What is kept of an exception: its type and where it happened, never the frames that hold the caller's data.

A traceback keeps its frames alive, and with them every local variable; a `__context__` or `__cause__` does the same
one step further. So an exception is described once (`ErrorInfo`), and what is stored is released from all three.
"""

from __future__ import annotations

import sysconfig
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from types import GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final, Literal

from .errors import EphemeralsError, OperationFailed

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["ErrorInfo", "kept_form", "qualified_name"]

_MAX_PLACES: Final = 16
_MAX_MESSAGE: Final = 200
_UNSET: Final = object()
_PACKAGE: Final = str(Path(__file__).parent)
_NOT_USER_CODE: Final = (
    _PACKAGE,
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    "<frozen",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """Describe a failure in plain text.

    `type` is the qualified name of the exception's class; `place` is `module:function:line` of the innermost frame
    in the user's own code (`""` where there is none); `trace` holds up to 16 such places of all code, outermost
    first; `message` is empty with `error_detail="type"`; `exception` is `None` except with
    `error_detail="exception"`, where it is the object without traceback, cause and context. Pickled, it leaves
    that object behind; a copy is the description itself.
    """

    type: str
    place: str
    trace: tuple[str, ...]
    message: str
    exception: BaseException | None = None

    def __str__(self) -> str:
        """Read like a short traceback."""
        lines = [f"  at {place}" for place in self.trace]
        lines.append(f"{self.type}: {self.message}" if self.message else self.type)
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as text: who unpickles it may not have the exception's class, or not be meant to see it."""
        return _restored, (self.type, self.place, self.trace, self.message)

    def __copy__(self) -> Self:
        """Return itself, which never changes."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return itself, which never changes."""
        return self

    @classmethod
    def of(cls, error: BaseException, detail: Literal["type", "message", "exception"]) -> ErrorInfo:
        """Describe `error`, without its message if `detail` is `"type"`."""
        place, trace = _places(error.__traceback__)
        message = "" if detail == "type" else message_of(error)
        # What stands for an exception that was not kept shows that one's type.
        kind = error.error_type if type(error) is OperationFailed else qualified_name(type(error))
        return cls(type=kind, place=place, trace=trace, message=message)

    def with_exception(self, exception: BaseException) -> ErrorInfo:
        """Return a copy that carries an exception, which must be released."""
        return replace(self, exception=exception)


def _restored(kind: str, place: str, trace: tuple[str, ...], message: str) -> ErrorInfo:
    return ErrorInfo(type=kind, place=place, trace=trace, message=message)


def kept_form(error: BaseException, *, is_shared: bool) -> BaseException:
    """Return what may be stored of an exception: itself, released, or a copy if somebody else holds it.

    An exception that cannot be released or copied is replaced by an `EphemeralsError` that names its type.
    """
    try:
        return copy_released(error) if is_shared else released(error)
    except Exception:  # noqa: BLE001 - both may run code of the exception's class, which may raise anything
        return EphemeralsError(f"{qualified_name(type(error))}: {message_of(error)}")


def qualified_name(kind: type) -> str:
    """Return a class's name with its module, without the module for built-in ones."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def released(error: BaseException) -> BaseException:
    """Let go of an exception's traceback, cause, context and attribute owner, in place, and return it.

    A note names the places instead. What a group contains is released too.
    """
    _note_places(error, error.__traceback__)
    _let_go(error)
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            released(inner)
    return error


def copy_released(error: BaseException) -> BaseException:
    """Return a copy of an exception, released, and leave the original as it is.

    The copy is made without calling the class, because many exceptions cannot be called with their `args`.
    A class that cannot even be created empty gives the nearest of its built-in bases.
    """
    if isinstance(error, BaseExceptionGroup):
        inner = [copy_released(each) for each in error.exceptions]
        duplicate: BaseException = BaseExceptionGroup.__new__(type(error), error.message, inner)
    else:
        duplicate = _empty(error)
        _set(duplicate, "args", error.args)
    for base in type(error).__mro__:
        for name, descriptor in vars(base).items():
            if isinstance(descriptor, MemberDescriptorType | GetSetDescriptorType) and name not in _NOT_COPIED:
                _copy_attribute(error, duplicate, name)
    vars(duplicate).update(vars(error))
    if hasattr(error, "__notes__"):
        _set(duplicate, "__notes__", list(error.__notes__))
    _note_places(duplicate, error.__traceback__)
    _let_go(duplicate)
    return duplicate


_NOT_COPIED: Final = frozenset(
    {"__dict__", "__weakref__", "__traceback__", "__context__", "__cause__", "__suppress_context__", "args"}
)


# Attributes are set past the class, because a frozen exception (a frozen dataclass, say) refuses every one.
_set: Final = BaseException.__setattr__


def _copy_attribute(error: BaseException, duplicate: BaseException, name: str) -> None:
    try:
        value = getattr(error, name)
        if getattr(duplicate, name, _UNSET) is not value:  # to some, `None` is something else than unset
            _set(duplicate, name, value)
    except (AttributeError, TypeError):
        return  # unset, or read-only and therefore made from `args` or by the class


def _empty(error: BaseException) -> BaseException:
    base: Any = next(each for each in type(error).__mro__ if each.__module__ == "builtins")
    try:
        empty: BaseException = base.__new__(type(error))
    except TypeError:
        empty = base.__new__(base)
    return empty


def _let_go(error: BaseException) -> None:
    for name in ("__traceback__", "__cause__", "__context__"):
        _set(error, name, None)
    if isinstance(error, AttributeError):
        _set(error, "obj", None)  # whose attribute was missing: often the item itself


def _note_places(error: BaseException, traceback: TracebackType | None) -> None:
    _, trace = _places(traceback)
    if not trace:
        return
    note = "raised at " + " < ".join(reversed(trace))
    notes = vars(error).setdefault("__notes__", [])  # as `add_note` does, but a class may refuse that
    if isinstance(notes, list) and note not in notes:
        notes.append(note)


def message_of(error: BaseException) -> str:
    """Return an exception's text, cut to 200 characters."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything, and must not hide the failure itself
        return "<message cannot be shown>"
    return text[:_MAX_MESSAGE]


def _places(traceback: TracebackType | None) -> tuple[str, tuple[str, ...]]:
    """Return the innermost place in the user's code and up to 16 places, leaving out the library's own."""
    place: str | None = None
    trace: deque[str] = deque(maxlen=_MAX_PLACES)
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            module = traceback.tb_frame.f_globals.get("__name__", "?")
            text = f"{module}:{code.co_qualname}:{traceback.tb_lineno}"
            trace.append(text)
            if not code.co_filename.startswith(_NOT_USER_CODE):
                place = text
        traceback = traceback.tb_next
    if place is None:
        place = trace[-1] if trace else ""
    return place, tuple(trace)
