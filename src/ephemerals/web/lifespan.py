"""The registry lives as long as the application: opened with nothing in it, closed within a budget.

Only two things are asked of a framework: that its lifespan is a function from the application to an async context
manager, and that the application has a `state` that takes attributes.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from ephemerals.errors import EphemeralsError, InvalidOptionType
from ephemerals.ids import format_id
from ephemerals.options import as_seconds
from ephemerals.registry import CoordinatorRegistry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ephemerals.options import Seconds

__all__ = ["EphemeralsLifespan", "get_registry"]

_KEY: Final = "_ephemerals_registry"
_BUDGET: Final = 5.0
_SHARE_FOR_CANCELLING: Final = 0.2

_logger = logging.getLogger("ephemerals")
_in_use: Final = weakref.WeakSet[CoordinatorRegistry]()

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""What frameworks call a lifespan: a function from the application to an async context manager."""


class EphemeralsLifespan:
    """Open a registry with an application and close it with the application, within a budget.

    `own` is the application's own lifespan: it is entered before the registry and left after it, so bodies may use
    what it opens until they have ended, and what it yields is passed on. At shutdown work may go on for `budget`
    (seconds), of which the last fifth is for what is cancelled then; the log names who is late. No coordinator is
    created before it is asked for, no signal handler is installed, and a mounted application finds the registry of the
    one that it is mounted in. A registry that is in use by another application at the same time raises
    `EphemeralsError`.

    >>> from fastapi import FastAPI
    >>> registry = CoordinatorRegistry()
    >>> app = FastAPI(lifespan=EphemeralsLifespan(registry))
    """

    __slots__ = ("_budget", "_own", "registry")

    def __init__(
        self, registry: CoordinatorRegistry, own: Lifespan | None = None, *, budget: Seconds = _BUDGET
    ) -> None:
        if not isinstance(registry, CoordinatorRegistry):
            raise InvalidOptionType("registry", registry, "a CoordinatorRegistry")
        if own is not None and not callable(own):
            raise InvalidOptionType("own", own, "a function from the application to an async context manager, or None")
        self.registry: Final = registry
        self._own = own
        self._budget = as_seconds("budget", budget, zero=True)

    def __call__(self, app: Any) -> AbstractAsyncContextManager[Any]:
        """Return the context of one run of the application; a framework calls this."""
        return self._run(app)

    @asynccontextmanager
    async def _run(self, app: Any) -> AsyncGenerator[Any]:
        if self._own is None:
            async with self._open(app):
                yield None
        else:
            async with self._own(app) as state, self._open(app):
                yield state

    @asynccontextmanager
    async def _open(self, app: Any) -> AsyncGenerator[None]:
        registry = self.registry
        if registry in _in_use:
            message = "the registry is in use by another application: give each application a registry of its own"
            raise EphemeralsError(message)
        _in_use.add(registry)
        states = [each.state for each in _with_mounted(app, set())]
        try:
            await registry.__aenter__()
            for state in states:
                setattr(state, _KEY, registry)
            yield
        finally:
            try:
                await self._close()
            finally:
                for state in states:
                    if getattr(state, _KEY, None) is registry:
                        delattr(state, _KEY)
                _in_use.discard(registry)

    async def _close(self) -> None:
        cancelling = self._budget * _SHARE_FOR_CANCELLING
        grace = self._budget - cancelling
        announcement = asyncio.get_running_loop().call_later(grace, self._name_the_late, grace)
        try:
            await self.registry.aclose(grace=grace, cancel_grace=cancelling)
        finally:
            announcement.cancel()

    def _name_the_late(self, grace: float) -> None:
        """Say who is cancelled; the coordinators themselves say who then still does not end."""
        for name, coordinator in self.registry.created().items():
            late = [f"{format_id(each.id)} ({each.name})" for each in coordinator.running()]
            waiting = coordinator.pending_count
            if late or waiting:
                _logger.warning(
                    "coordinator %s cancels at shutdown, after %.1f s: %s, and %d that have not started",
                    name,
                    grace,
                    ", ".join(late) or "nothing that runs",
                    waiting,
                )


def _with_mounted(app: Any, seen: set[int]) -> Iterator[Any]:
    """Yield an application and those mounted in it that have a `state`."""
    if id(app) in seen or not hasattr(app, "state"):
        return
    seen.add(id(app))
    yield app
    for route in getattr(app, "routes", ()):
        yield from _with_mounted(getattr(route, "app", None), seen)


def get_registry(app: Any) -> CoordinatorRegistry:
    """Return the registry of a running application; raise `EphemeralsError` if none is open."""
    registry = getattr(getattr(app, "state", None), _KEY, None)
    if isinstance(registry, CoordinatorRegistry):
        return registry
    message = (
        f"no registry is open in {type(app).__name__}: give it lifespan=EphemeralsLifespan(registry), and in a test "
        "run the lifespan, as `with TestClient(app)` does"
    )
    raise EphemeralsError(message)
