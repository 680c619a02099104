"""Hear what bodies say, while they run and afterwards: `python -m examples.signal_reactions`.

Each body says when it begins and ends. A dispatcher hears that as it happens; the same is asked of the window later;
and a second coordinator holds back as long as the first has said that something is wrong.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ephemerals import WorkCoordinator
from ephemerals.signals import SignalDispatcher, SignalSink

if TYPE_CHECKING:
    from ephemerals import Operation


async def showcase(count: int, sink: SignalSink) -> dict[str, int]:
    """Run `count` bodies; return how many beginnings and ends were heard, and how many are found afterwards."""
    heard = {"heard started": 0, "heard done": 0}

    async def stage(number: int, operation: Operation) -> None:
        operation.emit("stage.started", {"number": number})
        await asyncio.sleep(0.01)
        operation.emit("stage.done", {"number": number})

    async with SignalDispatcher(sink) as dispatcher, WorkCoordinator(stage, max_concurrency=4, signals=sink) as stages:
        dispatcher.on("stage.started")(lambda _: heard.update({"heard started": heard["heard started"] + 1}))
        dispatcher.on("stage.done")(lambda _: heard.update({"heard done": heard["heard done"] + 1}))
        await stages.enqueue_many(range(count))
        await stages.join()
        await dispatcher.join()
        found = {
            "found started": stages.signals.count("stage.started"),
            "found done": stages.signals.count("stage.done"),
        }
    return heard | found


async def hold_back(sink: SignalSink, log: list[str]) -> None:
    """Let deliveries wait while the database says that it is overloaded."""

    async def deliver(parcel: str) -> None:
        log.append(f"delivered {parcel}")

    async with WorkCoordinator(
        deliver, signals=sink, defer_on_signals="backpressure.*", max_defer_time=None
    ) as deliveries:
        with sink.hold("backpressure.db"):
            await deliveries.enqueue("a parcel")
            await asyncio.sleep(0.01)
            log.append("the database is busy")
        await deliveries.join()


async def main() -> None:
    """Show both."""
    sink, log = SignalSink(), list[str]()
    print(await showcase(12, sink))
    await hold_back(sink, log)
    print(*log, sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
