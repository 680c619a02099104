"""How large a run is, how often it is repeated, and on which loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["FULL", "LOOPS", "QUICK", "TINY", "Plan"]

T = TypeVar("T")

LOOPS = ("asyncio", "uvloop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Say what a question is asked with."""

    items: int
    """Items in one run of one side."""
    pairs: int
    """The fewest pairs of runs."""
    seconds: float
    """Seconds to go on making pairs for."""
    most: int
    """Where the curves of growth end."""
    many: int
    """Items that go through while memory is watched."""
    loop: str = "asyncio"
    """One of `LOOPS`."""

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on a fresh loop of the chosen kind."""
        factory = asyncio.new_event_loop
        if self.loop == "uvloop":
            from uvloop import new_event_loop as factory
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(main)


FULL = Plan(items=20_000, pairs=5, seconds=3.0, most=1_000_000, many=10_000_000)
QUICK = Plan(items=4_000, pairs=3, seconds=0.3, most=10_000, many=100_000)
TINY = Plan(items=20, pairs=1, seconds=0.0, most=100, many=200)
"""For tests: everything runs, and nothing is learnt."""
