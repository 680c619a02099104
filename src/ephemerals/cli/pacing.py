"""Starts in a steady rhythm: never two within an interval, also after a time without any."""

from __future__ import annotations

import asyncio

__all__ = ["Pacer"]


class Pacer:
    """Let callers go on one by one, `interval` seconds apart; `None`: at once."""

    __slots__ = ("_interval", "_next")

    def __init__(self, interval: float | None) -> None:
        self._interval = interval
        self._next = float("-inf")

    async def turn(self) -> None:
        """Wait for the caller's turn; turns are given in the order of the calls."""
        if self._interval is None:
            return
        loop = asyncio.get_running_loop()
        mine = max(loop.time(), self._next)
        self._next = mine + self._interval
        while (early := mine - loop.time()) > 0:  # noqa: ASYNC110 - a timer may fire a little before its time
            await asyncio.sleep(early)
