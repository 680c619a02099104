"""How quickly `AdaptiveConcurrency` and `AdaptiveRate` find what an upstream can take, also when that changes.

    python benchmarks/adaptive.py adaptive.svg

The upstream is simulated, on the virtual clock: ten minutes take seconds, and every run is the same.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ephemerals import WorkCoordinator
from ephemerals.atoms import GCRA, AdaptiveConcurrency, AdaptiveRate, RetryAfter
from ephemerals.testing import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Phase", "Trace", "concurrency", "rate"]


_REFUSAL = 0.01
"""Seconds that a refusal takes."""


@dataclass(frozen=True)
class Phase:
    """Let an upstream be so for some seconds: `capacity` calls at once, or a second; each takes `service` seconds."""

    capacity: float
    seconds: float = 120.0
    service: float = 0.1


@dataclass
class Trace:
    """Hold what was measured every second: what the upstream could take, and what it was given."""

    capacity: list[float] = field(default_factory=list)
    chosen: list[float] = field(default_factory=list)

    async def measure(self, phase: Phase, look: Callable[[], float]) -> None:
        """Look every second for the length of a phase."""
        for _ in range(round(phase.seconds)):
            await asyncio.sleep(1)
            self.capacity.append(phase.capacity)
            self.chosen.append(look())


async def concurrency(phases: Sequence[Phase], *, jitter: float = 0.0, refuses: bool = False, start: int = 1) -> Trace:
    """Let `AdaptiveConcurrency` find how many at once; more than that wait, or with `refuses` are refused.

    `jitter` is by which share service times vary, both ways.
    """
    chance, service = random.Random(1), 0.0

    async def serve(_: int) -> None:
        await asyncio.sleep(service * (1 + jitter * chance.uniform(-1, 1)))

    async with WorkCoordinator(serve, max_concurrency=1, max_pending=None) as upstream:

        async def call(item: int) -> None:
            if refuses and upstream.active_count + upstream.pending_count >= upstream.max_concurrency:
                await asyncio.sleep(_REFUSAL)
                raise RetryAfter(0)
            await upstream.run(item)

        async with WorkCoordinator(call, max_concurrency=start) as coordinator:
            adaptive = AdaptiveConcurrency(coordinator)

            async def feed() -> None:
                while True:
                    await coordinator.enqueue(0)

            feeding, trace = asyncio.create_task(feed()), Trace()
            for phase in phases:
                service = phase.service
                upstream.set_max_concurrency(round(phase.capacity))
                await trace.measure(phase, lambda: coordinator.max_concurrency)
            feeding.cancel()
            adaptive.close()
            await coordinator.cancel()
    return trace


async def rate(phases: Sequence[Phase], *, start: float = 50.0) -> Trace:
    """Let `AdaptiveRate` find how many a second; what is too much is refused."""
    limiter, upstream, trace = AdaptiveRate(start), GCRA(1, burst=20), Trace()

    async def call() -> None:
        while True:
            with suppress(RetryAfter):
                async with limiter:
                    if not upstream.try_acquire():
                        raise RetryAfter(0.1)

    calling = asyncio.create_task(call())
    for phase in phases:
        upstream.set_rate(phase.capacity)
        await trace.measure(phase, lambda: limiter.rate)
    calling.cancel()
    return trace


CONCURRENCY = (Phase(40), Phase(15), Phase(80), Phase(80, service=0.25), Phase(30, service=0.25))
RATE = (Phase(200), Phase(40), Phase(120))


def main() -> None:
    """Draw all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?", default="adaptive.svg", help="where the plot goes (adaptive.svg)")
    path = parser.parse_args().path
    from matplotlib.figure import Figure

    traces = {
        "AdaptiveConcurrency, a queue builds up": run(concurrency(CONCURRENCY)),
        "the same, service times vary by half": run(concurrency(CONCURRENCY, jitter=0.5)),
        "AdaptiveConcurrency, too many are refused": run(concurrency(CONCURRENCY, refuses=True)),
        "AdaptiveRate, too many a second are refused": run(rate(RATE)),
    }
    figure = Figure(figsize=(9, 3 * len(traces)), layout="constrained")
    for axes, (title, trace) in zip(figure.subplots(len(traces)), traces.items(), strict=True):
        axes.step(
            range(len(trace.capacity)), trace.capacity, where="post", label="what the upstream can take", color="0.6"
        )
        axes.plot(trace.chosen, label="what it is given")
        axes.set(title=title, xlabel="seconds", ylim=(0, None))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(path)
    print(f"drawn to {path}")


if __name__ == "__main__":
    main()
