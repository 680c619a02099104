"""One coordinator in the traffic of a soak: how it is fed, and what must hold of it at every moment."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ephemerals import PriorityWorkCoordinator
from ephemerals.atoms import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemerals import Operation
    from ephemerals.signals import SignalSink

__all__ = ["LANES", "WIDEST", "Item", "Line"]

_TICK: Final = 0.1
_EACH_TICK: Final = 20
_KEYS: Final = 500
WIDEST: Final = 16
_TRACKED: Final = 100
_LIFETIME: Final = 10.0
LANES: Final = ("hot", "normal", "cold")
_FATES: Final = {"fine": 80, "flaky": 7, "fails": 6, "slow": 3, "cancelled": 4}
_ERRORS: Final = {"ValueError", "ephemerals.errors.OperationTimeout"}
_COUNTED: Final = ("enqueued", "completed", "failed", "cancelled", "skipped", "retries")
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
            max_concurrency=WIDEST,
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
        if self.running > WIDEST:
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
        lane = self.chance.choice(LANES) if self.has_lanes else ""
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
        now = self.coordinator.options.clock.monotonic()
        assert all(each._finished + _LIFETIME > now for each in ended), "one is remembered for too long"
        errors = {each.error.type for each in ended if each.error is not None}
        assert errors <= _ERRORS, errors

    def results(self) -> dict[str, int]:
        """Return what has become of the items."""
        counts = self.coordinator.statistics()
        return {name: getattr(counts, name) for name in _COUNTED}
