"""Plain functions in other processes that belong to one coordinator.

A module of its own, because it brings in `multiprocessing`, which most programs do without.
"""

from __future__ import annotations

import multiprocessing
import pickle
import traceback
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ephemerals.errors import EphemeralsError, OperationFailed
from ephemerals.failure import message_of, qualified_name

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
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[..., Any],
        box: list[Any],
        settle: Any,
        operation_id: int,
    ) -> None:
        assert self._executor is not None
        arguments, keywords = box
        box.clear()
        packed = pickle.dumps((function, arguments, keywords))
        del arguments, keywords

        def done(future: Future[Any]) -> None:
            error = future.exception()
            result = None
            if error is None:
                result, error = _opened(future.result(), operation_id)
            with suppress(RuntimeError):  # the loop has gone, and with it everybody who could have been told
                loop.call_soon_threadsafe(settle, result, error)

        try:
            future = self._executor.submit(_call_packed, packed)
        except BrokenExecutor:  # a worker died while it had nothing to do
            self.shutdown()
            self._executor = self._make(self._size)
            future = self._executor.submit(_call_packed, packed)
        future.add_done_callback(done)


_Parcel = tuple[bool, bytes, str, str, str]
"""Whether it is a result; the result or exception, pickled; of an exception the type, text and places."""


def _call_packed(packed: bytes) -> _Parcel:
    """Run in another process: unpack a function and its arguments, call it, and pack what comes of it.

    It is packed here, not by the executor, which breaks down with all its work if something cannot be unpacked.
    """
    try:
        function, arguments, keywords = pickle.loads(packed)  # noqa: S301 - packed by the parent process just now
        return True, pickle.dumps(call_emptying(function, [arguments, keywords])), "", "", ""
    except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the operation
        kind, text = qualified_name(type(error)), message_of(error)
        places = "".join(traceback.format_tb(error.__traceback__))
        try:
            return False, pickle.dumps(error), kind, text, places
        except Exception:  # noqa: BLE001 - pickling runs code of anybody, which may raise anything
            return False, b"", kind, text, places


def _opened(parcel: _Parcel, operation_id: int) -> tuple[Any, BaseException | None]:
    """Unpack what came of a call: a result and no error, or an error."""
    is_result, packed, kind, text, places = parcel
    try:
        content = pickle.loads(packed) if packed else None  # noqa: S301 - packed by our own process just now
    except BaseException as error:  # noqa: BLE001 - unpickling runs code of anybody, which may raise anything
        if is_result:
            return None, error
        content = None
    if is_result:
        return content, None
    if not isinstance(content, BaseException):
        content = OperationFailed(f"{kind}: {text}" if text else kind, operation_id, kind)
        content.add_note("the exception itself could not travel from the other process")
    content.__cause__ = _InOtherProcess(f"\n{places}")
    return None, content


class _InOtherProcess(EphemeralsError):
    """Show where in the other process an exception was raised."""
