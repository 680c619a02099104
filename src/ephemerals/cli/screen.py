"""Everything that people see: outputs, each in one piece, and below them, on a terminal, a table that is redrawn.

The table is erased before anything is written to the terminal, and drawn again behind it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from .child import Capture
    from .streams import Outlet

__all__ = ["Screen"]

_INTERVAL: Final = 0.1
_HIDE_CURSOR: Final = "\x1b[?25l"
_SHOW_CURSOR: Final = "\x1b[?25h"
_ERASE_BELOW: Final = "\x1b[J"


class Screen:
    """Write to standard output and standard error, one piece after the other.

    If both lead to the same place, neither interrupts the other. With `quiet` nothing is said but errors.
    """

    def __init__(self, out: Outlet, err: Outlet, *, quiet: bool) -> None:
        self._out = out
        self._err = err
        self._quiet = quiet
        self._draw: Callable[[], str] | None = None
        self._err_lock = asyncio.Lock()
        self._out_lock = self._err_lock if _lead_to_the_same(out, err) else asyncio.Lock()
        self._table = ""
        self._height = 0
        self._is_mid_line = False
        self._encoding = getattr(sys.stderr, "encoding", None) or "utf-8"

    async def show(self, out: Capture | None, err: Capture | None, *, swap: bool = False) -> None:
        """Write what a command wrote, in one piece; with `swap` all of it to standard error."""
        if swap or self._out_lock is self._err_lock:
            await self._write(self._err_lock, (self._err if swap else self._out, out), (self._err, err))
        else:
            await self._write(self._out_lock, (self._out, out))
            await self._write(self._err_lock, (self._err, err))

    async def emit(self, data: bytes) -> None:
        """Write data to standard output."""
        await self._write(self._out_lock, (self._out, data))

    async def say(self, text: str, *, is_error: bool = False) -> None:
        """Write a line about the run to standard error."""
        if is_error or not self._quiet:
            await self._write(self._err_lock, (self._err, self._encoded(f"ephemerals: {text}\n")), starts_line=True)

    async def keep_drawing(self, draw: Callable[[], str]) -> None:
        """Show a table and draw it anew, in a steady rhythm, until cancelled; then it is gone."""
        self._draw = draw
        try:
            while True:
                table = draw()
                async with self._err_lock:
                    if table != self._table or not self._height:
                        await self._erase()
                        self._table = table
                        await self._restore()
                await asyncio.sleep(_INTERVAL)
        finally:
            self._draw = None
            async with self._err_lock:
                await self._erase()
                await self._err.write(self._encoded(_SHOW_CURSOR))

    async def _write(
        self, lock: asyncio.Lock, *pieces: tuple[Outlet, Capture | bytes | None], starts_line: bool = False
    ) -> None:
        full = [(outlet, piece) for outlet, piece in pieces if piece]
        if not full:
            return
        async with lock:
            on_table = lock is self._err_lock and any(outlet.is_terminal for outlet, _ in full)
            if on_table:
                await self._erase()
            if starts_line and on_table and self._is_mid_line:
                await self._put(self._err, b"\n")
            for outlet, piece in full:
                for chunk in (piece,) if isinstance(piece, bytes) else piece.chunks():
                    await self._put(outlet, chunk)
            if on_table:
                await self._restore()

    async def _put(self, outlet: Outlet, data: bytes) -> None:
        await outlet.write(data)
        if outlet.is_terminal:
            self._is_mid_line = not data.endswith(b"\n")

    async def _erase(self) -> None:
        if self._height:
            height, self._height = self._height, 0
            await self._err.write(self._encoded(f"\r\x1b[{height}A{_ERASE_BELOW}"))

    async def _restore(self) -> None:
        if self._draw is None or not self._table:
            return
        await self._err.write(self._encoded("\n" * self._is_mid_line + _HIDE_CURSOR + self._table))
        self._is_mid_line = False
        self._height = self._table.count("\n")

    def _encoded(self, text: str) -> bytes:
        return text.encode(self._encoding, "backslashreplace")


def _lead_to_the_same(one: Outlet, other: Outlet) -> bool:
    """Tell whether what is written to one may end up amid what is written to the other."""
    if one.is_terminal and other.is_terminal:
        return True
    places = [os.fstat(each.descriptor) for each in (one, other)]
    return len({(each.st_dev, each.st_ino) for each in places}) == 1
