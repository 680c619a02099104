"""Find out who still refers to an object, in words: types, attribute and variable names, functions and lines.

Contents never appear, only types and names: the object may be just what must not be shown. Running
functions are searched too, because the garbage collector does not know their local variables.
"""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import PurePath
from types import (
    AsyncGeneratorType,
    CellType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["referrers_of"]

_SUSPENDED: Final = {CoroutineType: "cr", GeneratorType: "gi", AsyncGeneratorType: "ag"}
_LINKS: Final = ("args", "__traceback__", "__cause__", "__context__")
_MOST_NAMES: Final = 3


def referrers_of(obj: object, *, levels: int = 6, breadth: int = 8) -> str:
    """Return a tree of text that shows what refers to `obj`, and what refers to that.

    `levels` is how deep the tree goes, `breadth` how many referrers are shown for one object. The variables
    of the calling function are part of it, as of every running function. Looking can itself prolong a life
    on Python 3.11 and 3.12 (frames keep the variables that were looked at), so do it when all is lost
    already.
    """
    search = _Search(levels, breadth)
    lines = [f"<{_type_name(obj)}> is referred to by"]
    lines += search.tree(obj, 1)
    if len(lines) == 1:
        lines.append("  nothing that can be seen (a C extension, or a function that has just ended)")
    return "\n".join(lines)


class _Search:
    """Walk up the references, once to every referrer, never to what belongs to the search.

    Lists are walked by index, because an iterator over them would be found as a referrer.
    """

    def __init__(self, levels: int, breadth: int) -> None:
        self._levels = levels
        self._breadth = breadth
        self._running = {id(frame) for _, frame in _running_frames()}
        self._seen: set[int] = {id(self), id(self.__dict__)}

    def tree(self, target: object, level: int) -> Iterator[str]:
        if level > self._levels:
            return
        self._seen.add(id(target))
        indent = "  " * level
        referrers = [referrer for referrer in gc.get_referrers(target) if self._is_news(referrer)]
        self._seen.update(map(id, referrers), (id(referrers),))
        texts = [indent + text for text in _running_variables(target)] if level == 1 else []
        yield from texts[: self._breadth]
        for index in range(min(len(referrers), self._breadth)):
            yield indent + _describe(referrers[index], target)
            if self._leads_on(referrers[index]):
                yield from self.tree(referrers[index], level + 1)
        hidden = max(0, len(referrers) - self._breadth) + max(0, len(texts) - self._breadth)
        if hidden:
            yield f"{indent}… and {hidden} more"

    def _is_news(self, referrer: object) -> bool:
        if id(referrer) in self._seen or _is_own(referrer):
            return False
        return id(referrer) not in self._running  # its variables are listed anyway

    def _leads_on(self, referrer: object) -> bool:
        return not isinstance(referrer, ModuleType | type)


def _is_own(referrer: object) -> bool:
    """Tell whether the referrer is a frame or generator of this module, hence of the search itself."""
    if isinstance(referrer, FrameType):
        return referrer.f_code.co_filename == __file__
    return isinstance(referrer, GeneratorType) and referrer.gi_code.co_filename == __file__


def _running_frames() -> Iterator[tuple[int, FrameType]]:
    """Yield every frame that runs now, but for this module's, with the identity of its thread."""
    for ident, innermost in sys._current_frames().items():
        frame: FrameType | None = innermost
        while frame is not None:
            if not _is_own(frame):
                yield ident, frame
            frame = frame.f_back


def _running_variables(target: object) -> Iterator[str]:
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in _running_frames():
        if names := _names_in(frame.f_locals, target):
            yield f"running {_place(frame)} in thread {threads.get(ident, ident)!r}: {_variables(names)}"


def _describe(referrer: object, target: object) -> str:
    match referrer:
        case FrameType():
            text = f"frame {_place(referrer)}: {_variables(_names_in(referrer.f_locals, target))}"
        case TracebackType():
            text = f"traceback through {_place(referrer.tb_frame)}"
        case CoroutineType() | GeneratorType() | AsyncGeneratorType():
            text = _describe_suspended(referrer, target)
        case CellType():
            text = "closure variable"
        case FunctionType():
            names = referrer.__code__.co_freevars if referrer.__closure__ is target else ()
            text = f"function {referrer.__qualname__}{_joined(', closed over', names)}"
        case MethodType():
            text = f"bound method {referrer.__func__.__qualname__}"
        case ModuleType():
            text = f"module {referrer.__name__}: {_variables(_names_in(vars(referrer), target))}"
        case _:
            text = _describe_data(referrer, target)
    return text


def _describe_data(referrer: object, target: object) -> str:
    kind = _type_name(referrer)
    match referrer:
        case dict():
            entries = cast("dict[object, object]", referrer).items()
            keys = [_shown_key(key) for key, value in entries if value is target]
            return f"{kind}, {_joined('value of', keys) or 'as a key'}"
        case list() | tuple():
            items = cast("Sequence[object]", referrer)
            places = [index for index, item in enumerate(items) if item is target]
            return f"{kind} of {len(items)}{_joined(', item', places)}"
        case BaseException():
            links = [name for name in _LINKS if getattr(referrer, name) is target]
            return f"exception {kind}{_joined(', attribute', links or _attributes(referrer, target))}"
        case _:
            return f"{kind} object{_named(referrer)}{_joined(', attribute', _attributes(referrer, target))}"


def _describe_suspended(referrer: Any, target: object) -> str:
    prefix = _SUSPENDED[type(referrer)]
    frame: FrameType | None = getattr(referrer, f"{prefix}_frame")
    kind = f"suspended {_type_name(referrer)}"
    if frame is None:
        return f"{kind} {referrer.__qualname__}, finished"
    return f"{kind} {_place(frame)}: {_variables(_names_in(frame.f_locals, target))}"


def _attributes(owner: object, target: object) -> list[str]:
    """Return the names of the attributes that are the target, without running any code of the owner."""
    try:
        own: object = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        own = None
    names = _names_in(own, target) if isinstance(own, dict) else []
    for base in type(owner).__mro__:
        for name, member in vars(base).items():
            if isinstance(member, MemberDescriptorType) and _slot(owner, member) is target:
                names.append(name)
    return names


def _slot(owner: object, member: MemberDescriptorType) -> object:
    try:
        return member.__get__(owner)
    except AttributeError:
        return None


def _named(referrer: object) -> str:
    """Return the name of a task or thread; other names may be content."""
    get_name = getattr(type(referrer), "get_name", None)
    if get_name is not None and isinstance(name := get_name(referrer), str):
        return f" {name!r}"
    return f" {referrer.name!r}" if isinstance(referrer, threading.Thread) else ""


def _names_in(variables: Any, target: object) -> list[str]:
    if isinstance(target, CellType):
        target = _content(target)  # variables show what is in the cell
    return [name for name, value in variables.items() if value is target and isinstance(name, str)]


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return cell


def _variables(names: list[str]) -> str:
    return _joined("variable", names) if names else "a temporary value"


def _joined(word: str, names: Sequence[object]) -> str:
    if not names:
        return ""
    return f"{word} {', '.join(map(str, names[:_MOST_NAMES]))}{' …' if len(names) > _MOST_NAMES else ''}"


def _shown_key(key: object) -> str:
    return repr(key) if _is_name(key) else f"a key of type {_type_name(key)}"


def _is_name(key: object) -> TypeGuard[str]:
    return isinstance(key, str) and key.isidentifier()


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_qualname} ({PurePath(frame.f_code.co_filename).name}:{frame.f_lineno})"


def _type_name(obj: object) -> str:
    kind = type(obj)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
