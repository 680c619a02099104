"""Many readers, or one writer: pause all that reads while something is replaced."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from .waiting import WaitingLine

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ephemerals.signals import SignalSink

__all__ = ["ReadersWriter"]

_Mode = Literal["read", "write"]


class ReadersWriter:
    """Let any number read at once, or one have it alone, in the order they came.

    Who wants it alone waits until those who read have finished; who wants to read after that waits behind. So neither
    starves. A task that reads may read again within. Asking to have it alone while reading, or for anything while
    having it alone, would wait for itself, and is a `RuntimeError`.

    Signals, if `signals` is given: `exclusive.active`, held from the moment it is asked for until it is over; its key
    is the reason. Coordinators pause with `defer_on_signals="exclusive.active"`.

    >>> import asyncio
    >>> async def main() -> None:
    ...     gate = ReadersWriter()
    ...     async with gate.read():
    ...         update = asyncio.create_task(replace(gate))
    ...         await asyncio.sleep(0)
    ...         print("reading")
    ...     await update
    >>> async def replace(gate: ReadersWriter) -> None:
    ...     async with gate.exclusive("migration"):
    ...         print("replacing")
    >>> asyncio.run(main())
    reading
    replacing
    """

    def __init__(self, *, signals: SignalSink | None = None) -> None:
        self._signals = signals
        self._line: WaitingLine[_Mode] = WaitingLine(self._returned, self._admit)
        self._reading = 0
        self._readers: Counter[asyncio.Task[Any] | None] = Counter()
        self._writer: asyncio.Task[Any] | None = None
        self._is_written = False

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[None]:
        """Read, together with others, for a block."""
        task = asyncio.current_task()
        self._refuse_writer(task)
        if task in self._readers:
            self._reading += 1  # waiting in line could mean waiting for itself
        else:
            await self._enter("read")
        self._readers[task] += 1
        try:
            yield
        finally:
            self._readers[task] -= 1
            if not self._readers[task]:
                del self._readers[task]
            self._returned("read")

    @asynccontextmanager
    async def exclusive(self, reason: str | None = None) -> AsyncGenerator[None]:
        """Have it alone for a block."""
        task = asyncio.current_task()
        self._refuse_writer(task)
        if task in self._readers:
            raise RuntimeError("this task reads, and would wait for itself: leave read() before exclusive()")
        with ExitStack() as held:
            if self._signals is not None:
                held.enter_context(self._signals.hold("exclusive.active", key=reason))
            await self._enter("write")
            self._writer = task
            try:
                yield
            finally:
                self._writer = None
                self._returned("write")

    def statistics(self) -> dict[str, int]:
        """Return how many read, write and wait."""
        return {"reading": self._reading, "writing": int(self._is_written), "waiting": len(self._line)}

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when nobody is inside, for tests."""
        return {**self.statistics(), "readers": len(self._readers)}

    async def _enter(self, mode: _Mode) -> None:
        if not self._line and self._may(mode):
            self._let_in(mode)
        else:
            await self._line.wait(mode)

    def _may(self, mode: _Mode) -> bool:
        return not self._is_written and (mode == "read" or not self._reading)

    def _let_in(self, mode: _Mode) -> None:
        if mode == "read":
            self._reading += 1
        else:
            self._is_written = True

    def _admit(self) -> None:
        while self._line and self._may(mode := self._line.first):
            self._let_in(mode)
            self._line.wake_first()

    def _returned(self, mode: _Mode) -> None:
        if mode == "read":
            self._reading -= 1
        else:
            self._is_written = False
        self._admit()

    def _refuse_writer(self, task: asyncio.Task[Any] | None) -> None:
        if self._writer is not None and self._writer is task:
            raise RuntimeError("this task has it alone already, and would wait for itself")
