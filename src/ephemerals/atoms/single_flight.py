"""Doing a thing once for all who want it at the same time.

The work belongs to nobody in particular: it runs in a task of its own, goes on while anybody waits for it, and is
cancelled when nobody does.
"""

from __future__ import annotations

import asyncio
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ephemerals.errors import EphemeralsError
from ephemerals.failure import kept_form

from .promise import Promise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

__all__ = ["Flight", "LoadCancelled", "LoadCycle", "SingleFlight"]

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")

_CANCEL_GRACE: Final = 5.0


class LoadCancelled(EphemeralsError):
    """Tell those who wait for a load that it was cancelled; they themselves were not."""

    def __init__(self) -> None:
        super().__init__("the load was cancelled")


class LoadCycle(EphemeralsError):
    """Refuse to wait for a load that waits, itself or through others, for the load that asks."""

    def __init__(self) -> None:
        super().__init__("a loader asks for a key whose load waits for that loader: this would never end")


class Flight(Generic[V]):
    """Be one load under way; `is_current` until something newer than it was written."""

    __slots__ = ("__weakref__", "blocked_on", "is_current", "promise", "task")

    def __init__(self, on_abandoned: Callable[[], object]) -> None:
        self.promise: Promise[V] = Promise(on_abandoned)
        self.is_current = True
        self.blocked_on: set[Flight[Any]] = set()
        self.task: asyncio.Task[None] | None = None

    def waits_for(self, other: Flight[Any]) -> bool:
        """Tell whether this cannot end before the other one."""
        return self is other or any(each.waits_for(other) for each in self.blocked_on)


# A context may outlive the load, and must not keep what was loaded.
_asking: Final[ContextVar[weakref.ref[Flight[Any]] | None]] = ContextVar("ephemerals_load", default=None)


class SingleFlight(Generic[K, V]):
    """Have at most one current load for each key, and any number of waiters."""

    __slots__ = ("_all", "_current", "joined")

    def __init__(self) -> None:
        self._current: dict[K, Flight[V]] = {}
        self._all: set[Flight[V]] = set()
        self.joined = 0

    def __len__(self) -> int:
        """Return how many loads are under way."""
        return len(self._all)

    async def get(self, key: K, load: Callable[[Flight[V]], Awaitable[V]]) -> V:
        """Return what the load of a key gives, joining the one that is under way, if there is one.

        Raise `LoadCycle` if that load waits for the load that this is called from.
        """
        asking = reference() if (reference := _asking.get()) is not None else None
        flight = self._current.get(key)
        if flight is None:
            flight = self._start(key, load)
        else:
            self.joined += 1
            if asking is not None and flight.waits_for(asking):
                raise LoadCycle
        if asking is None:
            return await flight.promise
        asking.blocked_on.add(flight)
        try:
            return await flight.promise
        finally:
            asking.blocked_on.discard(flight)

    def outdate(self, key: K) -> None:
        """Note that something newer was written: a load under way ends for its waiters only."""
        if (flight := self._current.pop(key, None)) is not None:
            flight.is_current = False

    def outdate_all(self) -> None:
        """Note that for all keys."""
        for key in list(self._current):
            self.outdate(key)

    async def aclose(self) -> None:
        """Cancel every load and wait until they have ended, at most 5 seconds; waiters get `LoadCancelled`."""
        tasks = [flight.task for flight in self._all if flight.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCEL_GRACE)

    def _start(self, key: K, load: Callable[[Flight[V]], Awaitable[V]]) -> Flight[V]:
        def abandon() -> None:
            if self._current.get(key) is flight:
                del self._current[key]
            if flight.task is not None:
                flight.task.cancel()

        flight: Flight[V] = Flight(abandon)
        self._current[key] = flight
        self._all.add(flight)
        task = asyncio.get_running_loop().create_task(self._run(key, flight, load), name="ephemerals load")
        task.add_done_callback(lambda _: self._landed(key, flight))
        flight.task = task
        return flight

    async def _run(self, key: K, flight: Flight[V], load: Callable[[Flight[V]], Awaitable[V]]) -> None:
        _asking.set(weakref.ref(flight))
        try:
            flight.promise.keep(await load(flight))
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to those who wait
            flight.promise.break_off(error)
            kept_form(error, is_shared=False)  # they have copies, and a loader may have tied it into a cycle
        finally:
            self._landed(key, flight)

    def _landed(self, key: K, flight: Flight[V]) -> None:
        """Let go of a load that has ended, or was cancelled before it began."""
        flight.promise.break_off(LoadCancelled())  # without effect unless it was cancelled
        if self._current.get(key) is flight:
            del self._current[key]
        self._all.discard(flight)
        flight.task = None
