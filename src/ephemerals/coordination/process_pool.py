"""Plain functions in other processes that belong to one coordinator.

A module of its own, because it brings in `multiprocessing`, which most programs do without.
"""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .pools import Pool, call_emptying

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["ProcessPool"]


class ProcessPool(Pool):
    """Run functions in other processes, started with the `spawn` method."""

    __slots__ = ()

    def _make(self, size: int) -> Executor:
        return ProcessPoolExecutor(max_workers=size, mp_context=multiprocessing.get_context("spawn"))

    def _submit(
        self, loop: asyncio.AbstractEventLoop, function: Callable[..., Any], box: list[Any], settle: Any
    ) -> None:
        assert self._executor is not None
        arguments, keywords = box
        box.clear()
        packed = pickle.dumps((function, arguments, keywords))
        del arguments, keywords

        def done(future: Future[Any]) -> None:
            error = future.exception()
            result = None if error is not None else future.result()
            with suppress(RuntimeError):  # the loop has gone, and with it everybody who could have been told
                loop.call_soon_threadsafe(settle, result, error)

        try:
            future = self._executor.submit(_call_packed, packed)
        except BrokenExecutor:  # a worker died while it had nothing to do
            self.shutdown()
            self._executor = self._make(self._size)
            future = self._executor.submit(_call_packed, packed)
        future.add_done_callback(done)


def _call_packed(packed: bytes) -> Any:
    """Run in another process: unpack a function and its arguments, and call it."""
    function, arguments, keywords = pickle.loads(packed)  # noqa: S301 - packed by the parent process just now
    return call_emptying(function, [arguments, keywords])
