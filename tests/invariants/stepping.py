"""A virtual loop that is driven from outside, one turn at a time, so that everything inside a tick can be arranged.

What is called between two turns happens as if a callback of the loop had done it, before everything that is ready.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ephemerals.testing import VirtualClock, VirtualEventLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

_MANY_TURNS = 10_000


class SteppedLoop:
    """Own a virtual loop and its clock."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.loop = VirtualEventLoop(self.clock)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Be on the loop, between two turns."""
        asyncio._set_running_loop(self.loop)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)

    def call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Call a function on the loop, between two turns."""
        with self.inside():
            return function(*arguments, **keywords)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task; its first step is part of the next turn."""
        return self.loop.create_task(coroutine)

    def turn(self) -> None:
        """Run what is ready now, and timers that are due; what becomes ready meanwhile waits for the next turn."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    @property
    def is_settled(self) -> bool:
        return not self.loop._ready

    def settle(self) -> None:
        """Take turns until only timers, or nothing, are left; time does not move."""
        for _ in range(_MANY_TURNS):
            if self.is_settled:
                return
            self.turn()
        raise AssertionError("the loop does not come to rest")

    def leap(self, seconds: float) -> None:
        """Let time pass at once, as when something blocks the loop: timers run late, all in the next turn."""
        self.clock.advance(seconds)

    def pass_time(self, seconds: float) -> None:
        """Let time pass from timer to timer, and settle at each."""
        self.loop.run_until_complete(asyncio.sleep(seconds))
        self.settle()

    def complete(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run until a coroutine has ended, however much time that takes."""
        return self.loop.run_until_complete(coroutine)

    def close(self) -> None:
        """Close the loop, on which nothing may be left."""
        left = sorted(task.get_name() for task in asyncio.all_tasks(self.loop))
        self.abandon()
        assert not left, f"tasks were left behind: {left}"

    def abandon(self, last: Callable[[], None] | None = None) -> None:
        """Close the loop without a word about what is left, because something has failed already."""
        for _ in range(10):  # a body may refuse to be cancelled
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.turn()
        if last is not None:
            self.call(last)
        self.loop.close()
