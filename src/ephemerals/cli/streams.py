"""Files and pipes of the program itself, used without ever blocking the event loop.

The descriptors are shared with other programs, so they stay in blocking mode: each is asked whether it is ready, and
is then given no more than it takes without waiting.
"""

from __future__ import annotations

import asyncio
import os
import select
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

__all__ = ["Outlet", "count_left", "lines"]

_READ_SIZE: Final = 65_536
_WRITE_SIZE: Final = 4096
"""What a pipe that is ready takes without blocking (PIPE_BUF)."""
_COUNTABLE: Final = 64 << 20


async def lines(descriptor: int, separator: bytes) -> AsyncIterator[bytes]:
    """Yield what lies between separators, read only as far as it is asked for; the last may have none behind it."""
    begun = bytearray()
    while chunk := await _read(descriptor):
        first, *others = chunk.split(separator)
        begun += first
        if not others:
            continue
        yield bytes(begun)
        for each in others[:-1]:
            yield each
        begun = bytearray(others[-1])
    if begun:
        yield bytes(begun)


def count_left(descriptor: int, separator: bytes) -> int | None:
    """Return how many lines are still to be read, without reading them; `None` if only reading could tell."""
    try:
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        size = os.fstat(descriptor).st_size - place
    except OSError:
        return None
    if not 0 < size <= _COUNTABLE:
        return None
    count, last = 0, b""
    while chunk := os.pread(descriptor, 1 << 20, place):
        count += chunk.count(separator)
        place += len(chunk)
        last = chunk
    return count + (not last.endswith(separator))


class Outlet:
    """Write to a descriptor, waiting for as long as the other side is slow.

    The first error is reported to `on_error`, once; from then on everything written is dropped.
    """

    __slots__ = ("_on_error", "descriptor", "is_broken", "is_terminal")

    def __init__(self, descriptor: int, on_error: Callable[[OSError], None]) -> None:
        self.descriptor = descriptor
        self.is_terminal = os.isatty(descriptor)
        self.is_broken = False
        self._on_error = on_error

    async def write(self, data: bytes) -> None:
        """Write all of the data."""
        left = memoryview(data)
        while left and not self.is_broken:
            try:
                await _ready(self.descriptor, select.POLLOUT)
                written = os.write(self.descriptor, left[:_WRITE_SIZE])
            except BlockingIOError:
                continue  # somebody else has put it into non-blocking mode, and was faster
            except OSError as error:
                self.is_broken = True
                self._on_error(error)
                return
            left = left[written:]


async def _read(descriptor: int) -> bytes:
    while True:
        await _ready(descriptor, select.POLLIN)
        try:
            return os.read(descriptor, _READ_SIZE)
        except BlockingIOError:
            continue


async def _ready(descriptor: int, event: int) -> None:
    """Wait until the descriptor is ready; an ordinary file always is. Others get a turn in any case."""
    poll = select.poll()
    poll.register(descriptor, event)
    if poll.poll(0):
        await asyncio.sleep(0)
        return
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    watch, unwatch = (
        (loop.add_reader, loop.remove_reader) if event == select.POLLIN else (loop.add_writer, loop.remove_writer)
    )
    watch(descriptor, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        unwatch(descriptor)
