"""Coordinators as FastAPI dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ephemerals.errors import MissingExtra

from .lifespan import get_registry

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

__all__ = ["FromRegistry"]


def FromRegistry(name: str) -> Any:  # noqa: N802 - it is read as FastAPI's own `Depends` is
    """Give a handler the coordinator of that name, from its application's registry.

    Write `Annotated[WorkCoordinator[str, int], FromRegistry("fast")]`, and the same for every other coordinator; a
    `Background` takes the place of `BackgroundTasks`. It is created when the first request asks for it. An unknown name
    raises `UnknownCoordinator` in the request. Raise `MissingExtra` if FastAPI is not installed.

    >>> from typing import Annotated
    >>> from ephemerals import WorkCoordinator
    >>> Fast = Annotated[WorkCoordinator[str, None], FromRegistry("fast")]
    """
    try:
        from fastapi import Depends
        from starlette.requests import HTTPConnection
    except ImportError:
        raise MissingExtra("FromRegistry", "fastapi") from None

    async def coordinator(connection: HTTPConnection) -> Any:
        found = get_registry(connection.app)[name]
        # A plain endpoint runs in a thread and enqueues from there, which needs the loop to be known.
        found.engine.bind()
        return found

    coordinator.__annotations__["connection"] = HTTPConnection  # not a text, whose name FastAPI would not find
    return Depends(coordinator)
