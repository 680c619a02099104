"""The report: one line of JSON for each item, written as it leaves, so that a million of them cost no memory."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ephemerals.snapshot import OperationSnapshot

__all__ = ["Report"]

_ENOUGH: Final = 1000


class Report:
    """Turn snapshots into lines and hand them to `write`, one batch after the other."""

    __slots__ = ("_has_room", "_lines", "_lock", "_wake", "_write")

    def __init__(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._write = write
        self._lines: deque[str] = deque()
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def add(self, snapshot: OperationSnapshot[Any], item: str, exit_code: int | None) -> None:
        """Add what happened to one item; bytes that are no text are spelt as Python does (PEP 383)."""
        entry: dict[str, Any] = {"line": snapshot.metadata["line"], "item": item, "exit_code": exit_code}
        entry |= snapshot.to_dict()
        for name in ("lane", "is_pinned", "metadata", "signals", "name"):
            del entry[name]
        entry["error"] = None if snapshot.error is None else snapshot.error.message
        self._lines.append(json.dumps(entry))
        self._wake.set()
        if len(self._lines) >= _ENOUGH:
            self._has_room.clear()

    async def room(self) -> None:
        """Wait until not too much is waiting to be written."""
        await self._has_room.wait()

    async def keep_writing(self) -> None:
        """Write what comes, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.flush()

    async def flush(self) -> None:
        """Write what has come, and return when all of it is written."""
        async with self._lock:
            while self._lines:
                batch = "\n".join([*self._lines, ""])
                self._lines.clear()
                self._has_room.set()
                await self._write(batch.encode("ascii"))
