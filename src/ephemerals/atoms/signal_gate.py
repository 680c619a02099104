"""A door that signals open and close."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any, Literal

from ephemerals.errors import EphemeralsError
from ephemerals.options import as_choice, as_seconds

from .waiting import WaitingLine

if TYPE_CHECKING:
    from ephemerals.options import Seconds
    from ephemerals.signals import PatternLike, SignalSink, Watch

__all__ = ["GateRejected", "SignalGate"]


class GateRejected(EphemeralsError):
    """Refuse entry because a signal says so; `signal` is its name."""

    def __init__(self, signal: str) -> None:
        super().__init__(f"the gate lets nobody in: {signal} is present")
        self.signal = signal


class SignalGate:
    """Let callers wait while a signal that matches `block` is present; refuse them while one of `reject` is.

    It follows the sink: a signal that is retracted, cleared, or has expired blocks no longer, and those who wait go on
    in the order they came. It is no lock: any number may be inside.

    >>> import asyncio
    >>> from ephemerals.signals import SignalSink
    >>> async def main() -> None:
    ...     sink = SignalSink()
    ...     gate = SignalGate(sink, block="backpressure.*", reject="shutdown")
    ...     with sink.hold("backpressure.db"):
    ...         print(gate.is_open)
    ...     await gate.wait()
    ...     sink.emit("shutdown")
    ...     try:
    ...         await gate.wait()
    ...     except GateRejected as refusal:
    ...         print(refusal)
    >>> asyncio.run(main())
    False
    the gate lets nobody in: shutdown is present
    """

    def __init__(
        self, sink: SignalSink, *, block: PatternLike | None = None, reject: PatternLike | None = None
    ) -> None:
        self._line: WaitingLine[None] = WaitingLine(_nothing, _nothing)
        changed = weakref.WeakMethod(self._changed)

        def on_change(_: Watch) -> None:
            if (method := changed()) is not None:
                method()

        self._block = None if block is None else sink.watch(block, on_change)
        self._reject = None if reject is None else sink.watch(reject, on_change)
        self._passed = self._rejected = self._timed_out = 0

    @property
    def is_open(self) -> bool:
        """Tell whether a caller could go on at once."""
        return not self._is_blocked and self._rejecting is None

    async def wait(
        self,
        timeout: Seconds | None = None,  # noqa: ASYNC109 - the caller chooses what a timeout means
        *,
        on_timeout: Literal["run", "raise"] = "raise",
    ) -> None:
        """Wait until nothing blocks; raise `GateRejected` at once when something rejects.

        After `timeout` seconds (`None`: no limit) go on all the same with `on_timeout="run"`, else raise
        `TimeoutError`.
        """
        runs = as_choice("on_timeout", on_timeout, ("run", "raise")) == "run"
        limit = None if timeout is None else as_seconds("timeout", timeout, zero=True)
        if (signal := self._rejecting) is not None:
            self._rejected += 1
            raise GateRejected(signal)
        if self._is_blocked:
            budget = asyncio.timeout(limit)
            try:
                async with budget:
                    await self._line.wait(None)
            except TimeoutError:
                if not budget.expired():
                    raise
                self._timed_out += 1
                if not runs:
                    raise
        self._passed += 1

    def statistics(self) -> dict[str, int]:
        """Return how many wait, have passed, were rejected, and have run out of time."""
        return {
            "waiting": len(self._line),
            "passed": self._passed,
            "rejected": self._rejected,
            "timed_out": self._timed_out,
        }

    def leftovers(self) -> dict[str, int]:
        """Count who waits, for tests."""
        return {"waiters": len(self._line)}

    def close(self) -> None:
        """Follow the sink no longer: the gate stays open, and those who wait go on."""
        for watch in (self._block, self._reject):
            if watch is not None:
                watch.cancel()
        self._changed()

    @property
    def _is_blocked(self) -> bool:
        return self._block is not None and self._block.present

    @property
    def _rejecting(self) -> str | None:
        event = None if self._reject is None else self._reject.event
        return None if event is None else event.name

    def _changed(self) -> None:
        if (signal := self._rejecting) is not None:
            self._rejected += len(self._line)
            self._line.dismiss(lambda: GateRejected(signal))
        elif not self._is_blocked:
            while self._line:
                self._line.wake_first()


def _nothing(*_: Any) -> None:
    return None
