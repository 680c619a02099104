"""The proof that an item is forgotten: a weak reference to it is dead, with the garbage collector off.

With the collector off, an item that is part of a reference cycle, or held by a traceback, stays alive and is
found. What this cannot see are copies: text taken from an item, or what was written somewhere.
"""

from __future__ import annotations

import asyncio
import gc
import secrets
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ephemerals.options import as_seconds

from .referrers import referrers_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

__all__ = ["Payload", "assert_forgotten", "assert_forgotten_sync"]

T = TypeVar("T")


class Payload:
    """Be an item that can be traced: weakly referenceable, with a `secret` that its text shows.

    The secret is different for every payload; search for it wherever content must not turn up.

    >>> payload = Payload()
    >>> payload.secret in repr(payload)
    True
    """

    __slots__ = ("__weakref__", "secret")

    def __init__(self) -> None:
        self.secret = f"secret-{secrets.token_hex(8)}"

    def __repr__(self) -> str:
        return f"<Payload {self.secret}>"


async def assert_forgotten(
    use: Callable[[Any], Awaitable[object]],
    *,
    factory: Callable[[], object] = Payload,
    collector: bool = False,
    within: float = 0.0,
) -> None:
    """Assert that nothing refers to a new item any more once `await use(item)` is over.

    `factory` makes the item; it must be weakly referenceable. What `use` returns is kept alive until the
    check, so returning a handle or snapshots proves that they do not hold the item. The garbage collector
    is off meanwhile; `collector=True` lets it run once before the check, a weaker promise. `within` is how
    many *real* seconds threads get to let go (0: none, the item must be dead at once). The `AssertionError`
    shows who still refers to it. What `use` raises is raised.
    """
    patience = as_seconds("within", within, zero=True)
    with _collector_off():
        holder = [factory()]
        reference = weakref.ref(holder[0])
        kept = await use(holder.pop())
        deadline = time.monotonic() + patience
        while reference() is not None and time.monotonic() < deadline:
            await asyncio.sleep(0)
            time.sleep(0.001)  # noqa: ASYNC251 - threads need real time, which a virtual loop does not spend
        _check(reference, collector=collector)
        del kept


def assert_forgotten_sync(
    use: Callable[[Any], object],
    *,
    factory: Callable[[], object] = Payload,
    collector: bool = False,
    within: float = 0.0,
) -> None:
    """Do the same as `assert_forgotten` for a plain function, without a loop."""
    patience = as_seconds("within", within, zero=True)
    with _collector_off():
        holder = [factory()]
        reference = weakref.ref(holder[0])
        kept = use(holder.pop())
        deadline = time.monotonic() + patience
        while reference() is not None and time.monotonic() < deadline:
            time.sleep(0.001)
        _check(reference, collector=collector)
        del kept


def _check(reference: weakref.ref[Any], *, collector: bool) -> None:
    if collector:
        gc.collect()
    if reference() is None:
        return
    report = referrers_of(reference())
    raise AssertionError(f"the item is not forgotten: after its use these still refer to it\n{report}")


@contextmanager
def _collector_off() -> Generator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
