"""What a virtual loop raises instead of hanging, and how it describes what waits where."""

from __future__ import annotations

import asyncio
from pathlib import PurePath
from typing import TYPE_CHECKING

from ephemerals.errors import EphemeralsError

if TYPE_CHECKING:
    from types import CodeType, FrameType

__all__ = ["WaitsForever", "describe_tasks"]


class WaitsForever(AssertionError):
    """Report that the test waits for something that never happens.

    `tasks` names the pending tasks, and where each of them waits.
    """

    def __init__(self, reason: str, tasks: tuple[str, ...]) -> None:
        listing = "\n".join(f"  {task}" for task in tasks) or "  none"
        super().__init__(f"the test waits for something that never happens: {reason}\npending tasks:\n{listing}")
        self.tasks = tasks

    __reduce__ = EphemeralsError.__reduce__
    __copy__ = EphemeralsError.__copy__


def describe_tasks(loop: asyncio.AbstractEventLoop) -> tuple[str, ...]:
    """Return a line for every pending task of `loop`: its name, its coroutine, its line, what it awaits."""
    return tuple(sorted(_describe(task) for task in asyncio.all_tasks(loop)))


def _describe(task: asyncio.Task[object]) -> str:
    chain = list(_await_chain(task.get_coro()))
    if not chain:
        return repr(task.get_name())
    (outer, frame), (inner, _) = chain[0], chain[-1]
    place = f" at {PurePath(outer.co_filename).name}:{frame.f_lineno}" if frame else ""
    where = f", in {inner.co_qualname}" if inner is not outer else ""
    return f"{task.get_name()!r}: {outer.co_qualname}{place}{where}"


def _await_chain(awaited: object) -> list[tuple[CodeType, FrameType | None]]:
    """Follow a suspended coroutine down to the innermost one, whatever mixture of kinds lies between."""
    chain: list[tuple[CodeType, FrameType | None]] = []
    while awaited is not None and len(chain) < 1000:  # noqa: PLR2004 - a guard, as deep as Python's own stack
        for kind, inner in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
            code = getattr(awaited, f"{kind}_code", None)
            if code is not None:
                chain.append((code, getattr(awaited, f"{kind}_frame", None)))
                awaited = getattr(awaited, inner, None)
                break
        else:
            break
    return chain
