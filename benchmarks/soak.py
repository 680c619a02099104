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
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ephemerals import KeyedWorkCoordinator, Lane, PriorityWorkCoordinator, ResultCoordinator
from ephemerals.atoms import RetryPolicy
from ephemerals.signals import SignalSink
from ephemerals.testing import assert_quiet
from ephemerals.testing import run as run_virtually

from .memory import Level

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ephemerals import Operation

__all__ = ["Traffic", "main", "soak"]

VIRTUAL, REAL = 600.0, 120.0
"""Seconds."""
_TICK: Final = 0.1
_EACH_TICK: Final = 20
_KEYS: Final = 500
_WIDEST: Final = 16
_TRACKED: Final = 100
_LIFETIME: Final = 10.0
_LEVEL: Final = 1.05
_LANES: Final = ("hot", "normal", "cold")
_FATES: Final = {"fine": 80, "flaky": 7, "fails": 6, "slow": 3, "cancelled": 4}
_ERRORS: Final = {"ValueError", "ephemerals.errors.OperationTimeout"}
_ENDED: Final = {"completed", "failed", "cancelled", "skipped"}


@dataclass(frozen=True, slots=True)
class Item:
    """Say what is to happen to an item, and its place in the order of its key in its lane."""

    key: int
    lane: str
    fate: str
    number: int


class Line:
    """Hold one coordinator, feed it, and watch it."""

    def __init__(self, make: Callable[..., Any], sink: SignalSink, seed: int) -> None:
        self.coordinator = make(
            self.body,
            signals=sink,
            max_concurrency=_WIDEST,
            max_pending=200,
            max_tracked_operations=_TRACKED,
            max_operation_lifetime=_LIFETIME,
            echo_retention=5.0,
            operation_timeout=0.5,
            retry=RetryPolicy(attempts=3, initial=0.05, retry_on=OSError),
            cancel_on_signals="work.off",
            defer_on_signals="load.*",
        )
        self.has_lanes = isinstance(self.coordinator, PriorityWorkCoordinator)
        self.chance = random.Random(seed)
        self.running = 0
        self.wrong: list[str] = []
        """What bodies have found; what they raise would be a failure among others."""
        self._numbers: Counter[tuple[int, str]] = Counter()
        self._started: defaultdict[tuple[int, str], int] = defaultdict(int)

    async def body(self, item: Item, operation: Operation[Any]) -> int:
        """Do what the item's fate says, and check on the way in that it is its turn, and that there is room."""
        place = item.key, item.lane
        if operation.attempt == 1:
            if item.number <= self._started[place]:
                self.wrong.append("an item out of order within its key")
            self._started[place] = item.number
        self.running += 1
        if self.running > _WIDEST:
            self.wrong.append(f"{self.running} at once")
        try:
            operation.emit("item.started", item.number)
            await asyncio.sleep(60.0 if item.fate == "slow" else self.chance.uniform(0.0, 0.02))
            if item.fate == "fails":
                raise ValueError(item.fate)
            if item.fate == "flaky" and operation.attempt == 1:
                raise OSError(item.fate)
            return item.number
        finally:
            self.running -= 1

    async def feed(self, seconds: float) -> None:
        """Enqueue at an even rate for so long, checking at every tick."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            for _ in range(_EACH_TICK):
                await self._enqueue()
            self.check()
            await asyncio.sleep(_TICK)

    async def _enqueue(self) -> None:
        key = int(_KEYS * self.chance.random() ** 2)
        lane = self.chance.choice(_LANES) if self.has_lanes else ""
        (fate,) = self.chance.choices([*_FATES], [*_FATES.values()])
        self._numbers[key, lane] += 1
        item = Item(key, lane, fate, self._numbers[key, lane])
        operation = await self.coordinator.enqueue(item, **({"lane": lane} if lane else {}))
        if fate == "cancelled":
            asyncio.get_running_loop().call_later(self.chance.uniform(0.0, 0.02), operation.cancel)

    def check(self) -> None:
        """Check that the counts add up, that what runs is visible, and that the window keeps its bounds."""
        assert not self.wrong, self.wrong
        counts = self.coordinator.statistics()
        parts = (counts.pending, counts.active, counts.completed, counts.failed, counts.cancelled, counts.skipped)
        assert min(parts) >= 0, counts
        assert counts.enqueued == sum(parts), counts
        assert counts.active >= self.running, counts
        assert counts.pending <= counts.max_pending, counts
        snapshots = self.coordinator.snapshot()
        ended = [each for each in snapshots if each.status in _ENDED]
        assert len(snapshots) - len(ended) == counts.pending + counts.active, counts
        assert len(ended) <= _TRACKED, f"{len(ended)} are remembered"
        errors = {each.error.type for each in ended if each.error is not None}
        assert errors <= _ERRORS, errors

    def results(self) -> dict[str, int]:
        """Return what has become of the items."""
        counts = self.coordinator.statistics()
        names = ("enqueued", "completed", "failed", "cancelled", "skipped", "retries")
        return {name: getattr(counts, name) for name in names}


class Traffic:
    """Hold the lines, and what disturbs all of them."""

    def __init__(self, seed: int = 1) -> None:
        self.sink = SignalSink(max_age=10.0)
        by_key = partial(KeyedWorkCoordinator, "key")
        lanes = partial(PriorityWorkCoordinator, lanes=[Lane(name) for name in _LANES], key="key", starvation_limit=20)
        with_results = partial(ResultCoordinator, key="key", results_ttl=5.0)
        makers = (by_key, lanes, with_results)
        self.lines = [Line(make, self.sink, seed + number) for number, make in enumerate(makers)]
        self.chance = random.Random(seed)
        self.growth = 0.0
        self.streamed = 0

    async def run(self, seconds: float) -> None:
        """Let traffic pass for so many seconds of the loop's time; raise an `AssertionError` if something is wrong."""
        async with AsyncExitStack() as stack:
            for line in self.lines:
                await stack.enter_async_context(line.coordinator)  # what is wrong must not leave it running
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
            line.coordinator.set_max_concurrency(_WIDEST)
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
                        await asyncio.sleep(0.05)
                case 2:
                    coordinator.pause()
                    await asyncio.sleep(0.2)
                    coordinator.resume()
                case _:
                    coordinator.set_max_concurrency(self.chance.randint(4, _WIDEST))

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
    grown = False
    for kind, seconds in (("virtual", chosen.virtual), ("real", chosen.real)):
        print(f"{seconds:g} {kind} seconds", flush=True)
        traffic = soak(seconds, real=kind == "real", seed=chosen.seed)
        for line in traffic.lines:
            print(f"  {line.coordinator.name}: {', '.join(f'{n:,} {what}' for what, n in line.results().items())}")
        print(f"  quiet; memory is {traffic.growth:.3f} × what it was after a fifth of the time")
        grown = grown or traffic.growth > _LEVEL
    if grown:
        print(f"MEMORY HAS GROWN: more than {_LEVEL} ×")
    return int(grown)


if __name__ == "__main__":
    sys.exit(main())
