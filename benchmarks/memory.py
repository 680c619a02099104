"""How much memory something holds, and whether a long life ends where it began."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Allocated", "Level", "allocated", "processes"]

_STATM = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class Level:
    """Hold what this process has at one moment: memory blocks of Python, and resident bytes (0: not known)."""

    blocks: int
    resident: int

    @classmethod
    def now(cls) -> Level:
        """Collect, and look."""
        gc.collect()
        resident = int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if _STATM.exists() else 0
        return cls(sys.getallocatedblocks(), resident)

    def since(self, before: Level) -> float:
        """Return how many times as much this is as before, in blocks or in bytes, whichever is worse."""
        resident = self.resident / before.resident if before.resident else 0.0
        return max(self.blocks / before.blocks, resident)


@dataclass(slots=True)
class Allocated:
    """Take the bytes that were allocated in a block and are still there at its end."""

    size: int = 0


@contextmanager
def allocated() -> Iterator[Allocated]:
    """Measure what a block leaves allocated; set on leaving it."""
    gc.collect()
    tracemalloc.start()
    found = Allocated()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield found
        gc.collect()
        found.size = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def processes(count: int) -> ProcessPoolExecutor:
    """Return fresh processes, so that nothing else has filled or freed their memory."""
    return ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), max_tasks_per_child=1)
