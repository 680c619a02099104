"""The check that a coordinator has left nothing behind: no task, timer, waiter, key or thread.

What is left the coordinator's engine says itself (`leftovers()`), and so do the other things that hold something; the
tasks of the running loop are looked at here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from ephemerals.errors import InvalidOption, InvalidOptionType
from ephemerals.options import as_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["HasEngine", "HasLeftovers", "HidesLeftovers", "assert_becomes_quiet", "assert_quiet"]

_STEP = 0.01


@runtime_checkable
class HasLeftovers(Protocol):
    """Anything that can count what it still holds."""

    def leftovers(self) -> Mapping[str, int]:
        """Return a count for every kind of thing that could be left, 0 for what is not."""
        ...


@runtime_checkable
class HidesLeftovers(Protocol):
    """The same for a class whose users have no business with it."""

    def _leftovers(self) -> Mapping[str, int]: ...


class HasEngine(Protocol):
    """A coordinator: its engine counts for it."""

    @property
    def engine(self) -> HasLeftovers:
        """The engine that drives it."""
        ...


Coordinator: TypeAlias = HasLeftovers | HidesLeftovers | HasEngine


def assert_quiet(*coordinators: Coordinator) -> None:
    """Assert that nothing is left of the coordinators' work, and no task of the library runs on this loop.

    A task counts as the library's if its name begins with "ephemerals"; the current task is left out. The
    message lists everything that is left, with its count. Without a running loop, and in a thread, only the
    coordinators are asked, and there must be one.
    """
    left = list(_left(coordinators))
    if left:
        raise AssertionError("not quiet:\n" + "\n".join(f"  {line}" for line in left))


async def assert_becomes_quiet(*coordinators: Coordinator, within: float = 1.0) -> None:
    """Assert that the coordinators are quiet within so many seconds of the loop's time (virtual or real)."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + as_seconds("within", within, zero=True)
    while list(_left(coordinators)) and loop.time() < deadline:  # noqa: ASYNC110 - no event says it
        await asyncio.sleep(_STEP)
    assert_quiet(*coordinators)


def _left(coordinators: tuple[Coordinator, ...]) -> Iterator[str]:
    for coordinator in coordinators:
        name = getattr(coordinator, "name", None) or type(coordinator).__name__
        for kind, count in _counts(coordinator).items():
            if count:
                yield f"{name}: {count} {kind}"
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        if not coordinators:
            raise InvalidOption("coordinators", (), "at least one where no loop runs, or nothing is asserted") from None
        return
    current = asyncio.current_task(loop)
    names = (task.get_name() for task in asyncio.all_tasks(loop) if task is not current)
    for name in sorted(filter(lambda name: name.startswith("ephemerals"), names)):
        yield f"running loop: task {name!r}"


def _counts(coordinator: Coordinator) -> Mapping[str, int]:
    if isinstance(coordinator, HidesLeftovers):
        return coordinator._leftovers()
    asked = coordinator if isinstance(coordinator, HasLeftovers) else getattr(coordinator, "engine", None)
    if not isinstance(asked, HasLeftovers):
        raise InvalidOptionType("coordinators", coordinator, "coordinators, or others that count their leftovers()")
    return asked.leftovers()
