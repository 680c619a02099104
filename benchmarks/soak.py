"""Let mixed traffic run for long, and hold it against what must always be true.

`python -m benchmarks.soak` takes ten minutes of virtual time, then two of real time: three coordinators on one sink,
with keys, lanes, results, failures, retries, timeouts, cancellations, signals that hold work back or skip it, pauses,
and limits that change. Ten times a second counts, limits and windows are checked, at every start the order within its
key; in the end nothing may be left, and memory must be where it was after the first fifth.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ephemerals import KeyedWorkCoordinator, Lane, PriorityWorkCoordinator, ResultCoordinator
from ephemerals.signals import SignalSink
from ephemerals.testing import assert_quiet
from ephemerals.testing import run as run_virtually

from .line import LANES, WIDEST, Line
from .memory import Level

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


__all__ = ["Traffic", "main", "soak"]

VIRTUAL, REAL = 600.0, 120.0  # seconds
_LEVEL: Final = 1.05


class Traffic:
    """Hold the lines, and what disturbs all of them."""

    def __init__(self, seed: int = 1) -> None:
        self.sink = SignalSink(max_age=10.0)
        makers: tuple[Callable[..., Any], ...] = (
            partial(KeyedWorkCoordinator, "key"),
            partial(PriorityWorkCoordinator, lanes=[*map(Lane, LANES)], key="key", starvation_limit=20),
            partial(ResultCoordinator, key="key", results_ttl=5.0),
        )
        self.lines = [Line(make, self.sink, seed + number) for number, make in enumerate(makers)]
        self.chance = random.Random(seed)
        self.growth = 0.0
        self.streamed = 0

    async def run(self, seconds: float) -> None:
        """Let traffic pass for so many seconds of the loop's time; raise an `AssertionError` if something is wrong."""
        async with AsyncExitStack() as stack:
            for line in self.lines:  # what is wrong must leave none running
                await stack.enter_async_context(line.coordinator)
            streaming = asyncio.create_task(self._stream())
            await self._pass(seconds / 5)
            before = Level.now()
            await self._pass(seconds - seconds / 5)
            self.growth = Level.now().since(before)
            for line in self.lines:
                report = await line.coordinator.drain()
                assert report.is_complete, report
                line.check()
                assert line.running == 0
            await streaming
        assert self.streamed == self.lines[-1].coordinator.total_completed, "a result was lost, or came twice"
        await self.sink.aclose()
        assert_quiet(*(line.coordinator for line in self.lines))

    async def _pass(self, seconds: float) -> None:
        """Feed and disturb for so long, then wait until everything is idle."""
        disturbing = asyncio.create_task(self._disturb())
        try:
            async with asyncio.TaskGroup() as group:
                for line in self.lines:
                    group.create_task(line.feed(seconds))
        finally:
            disturbing.cancel()
            await asyncio.wait([disturbing])
        for line in self.lines:
            line.coordinator.resume()
            line.coordinator.set_max_concurrency(WIDEST)
            await line.coordinator.join()

    async def _disturb(self) -> None:
        """Hold work back, skip it, pause it, and change its limits, one thing a second."""
        while True:
            await asyncio.sleep(1.0)
            coordinator = self.chance.choice(self.lines).coordinator
            match self.chance.randrange(4):
                case 0:
                    with self.sink.hold("load.high"):
                        await asyncio.sleep(0.2)
                case 1:
                    with self.sink.hold("work.off"):
                        await asyncio.sleep(0.15)  # longer than a tick, so that something is skipped
                case 2:
                    coordinator.pause()
                    await asyncio.sleep(0.2)
                    coordinator.resume()
                case _:
                    coordinator.set_max_concurrency(self.chance.randint(4, WIDEST))

    async def _stream(self) -> None:
        async with self.lines[-1].coordinator.as_completed() as results:
            async for _ in results:
                self.streamed += 1


def soak(seconds: float, *, real: bool = False, seed: int = 1) -> Traffic:
    """Run traffic for so many virtual (or real) seconds; return it, for what it has seen."""
    traffic = Traffic(seed)
    (asyncio.run if real else run_virtually)(traffic.run(seconds))
    return traffic


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak virtually, then really; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--virtual", type=float, default=VIRTUAL, metavar="SECONDS")
    parser.add_argument("--real", type=float, default=REAL, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    logging.getLogger("ephemerals").addHandler(logging.NullHandler())  # failures are expected
    grown = 0.0
    for kind, seconds in (("virtual", chosen.virtual), ("real", chosen.real)):
        print(f"{seconds:g} {kind} seconds", flush=True)
        traffic = soak(seconds, real=kind == "real", seed=chosen.seed)
        for line in traffic.lines:
            print(f"  {line.coordinator.name}: {', '.join(f'{n:,} {what}' for what, n in line.results().items())}")
        print(f"  quiet; memory is {traffic.growth:.3f} × what it was after a fifth of the time")
        grown = max(grown, traffic.growth)
    if grown > _LEVEL:
        print(f"MEMORY HAS GROWN: more than {_LEVEL} ×")
    return int(grown > _LEVEL)


if __name__ == "__main__":
    sys.exit(main())
