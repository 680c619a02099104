"""What the application does in the background: two translators, commands in order, and a sign of overload."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ephemerals import CoordinatorRegistry

if TYPE_CHECKING:
    from ephemerals import Operation
    from ephemerals.signals import SignalSink

__all__ = ["OVERLOAD", "Command", "Overload", "Pace", "registered"]

OVERLOAD: Final = "system-overload"
_MOST_WAITING: Final = 20


@dataclass(frozen=True, slots=True)
class Pace:
    """Say how long things take, in seconds; they stand in for real translators and real commands."""

    fast: float = 0.1
    accurate: float = 1.0
    command: float = 0.2


@dataclass(frozen=True, slots=True)
class Command:
    """Be something to do for a user; commands of one user run one after another."""

    user: str
    action: str


class Overload:
    """Hold the signal from when too many translations wait until half of them have gone."""

    def __init__(self, sink: SignalSink) -> None:
        self.sink = sink
        self._held = ExitStack()

    def update(self, waiting: int) -> None:
        """Take note of how many translations wait."""
        if waiting >= _MOST_WAITING and not self.sink.has(OVERLOAD):
            self._held.enter_context(self.sink.hold(OVERLOAD))
        elif waiting <= _MOST_WAITING // 2:
            self._held.close()


def registered(overload: Overload, pace: Pace) -> CoordinatorRegistry:
    """Return a registry with the three coordinators, none of which exists before it is asked for."""
    registry = CoordinatorRegistry()

    @registry.result_coordinator("fast", max_concurrency=8, max_pending=200, overflow="reject")
    async def translate_fast(text: str) -> str:
        await asyncio.sleep(pace.fast)
        return text.upper()

    @registry.result_coordinator("accurate", max_concurrency=2, max_pending=50, overflow="reject")
    async def translate_accurately(text: str) -> str:
        overload.update(registry["accurate"].pending_count)
        await asyncio.sleep(pace.accurate)
        return text.title()

    # While there is too much to do, a command that is about to start is skipped, and its user is told so.
    @registry.keyed_coordinator(
        "commands",
        "user",
        max_concurrency=4,
        fair_scheduling=True,
        fair_scheduling_threshold=5,
        overflow="reject",
        cancel_on_signals={OVERLOAD},
        signals=overload.sink,
    )
    async def execute(command: Command, operation: Operation[None]) -> None:
        await asyncio.sleep(pace.command)
        operation.emit("command.executed", data={"length": len(command.action)})

    return registry
