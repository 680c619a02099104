"""The library in a Litestar application: `uvicorn examples.with_litestar:app`."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import Litestar, Request, Response, get, post
from litestar.di import NamedDependency  # noqa: TC002 - Litestar reads the annotation

from ephemerals import CoordinatorClosed, CoordinatorFull, CoordinatorRegistry, WorkCoordinator, format_id
from ephemerals.web import EphemeralsLifespan, get_registry

registry = CoordinatorRegistry()


@registry.coordinator("mail", max_concurrency=4, max_pending=100, overflow="reject")
async def send(address: str) -> None:
    """Send a mail."""
    await asyncio.sleep(0.1)
    if "@" not in address:
        raise ValueError("this is no address")


async def mail(request: Request[Any, Any, Any]) -> WorkCoordinator[str, None]:
    """Provide the coordinator of this name; Litestar injects it wherever a handler has a parameter `mail`."""
    return get_registry(request.app).get("mail", WorkCoordinator[str, None])


@post("/welcome", status_code=202)
async def welcome(request: Request[Any, Any, Any], mail: NamedDependency[WorkCoordinator[str, None]]) -> dict[str, str]:
    """Accept the mail, and answer at once."""
    operation = await mail.enqueue((await request.body()).decode())
    return {"id": format_id(operation.id)}


@get("/failures")
async def failures(mail: NamedDependency[WorkCoordinator[str, None]]) -> list[dict[str, str]]:
    """Say what failed, and when, without whom it was for."""
    return [{"id": format_id(each.id), "error": each.error.type if each.error else ""} for each in mail.failed()]


def full(_: Request[Any, Any, Any], __: CoordinatorFull) -> Response[dict[str, str]]:
    """Answer what `install_refusals` answers elsewhere."""
    return Response({"detail": "Too much is waiting. Try again later."}, status_code=429, headers={"Retry-After": "1"})


def closed(_: Request[Any, Any, Any], __: CoordinatorClosed) -> Response[dict[str, str]]:
    """Answer what `install_refusals` answers elsewhere."""
    return Response(
        {"detail": "This is shutting down. Try again later."}, status_code=503, headers={"Retry-After": "1"}
    )


app = Litestar(
    [welcome, failures],
    lifespan=[EphemeralsLifespan(registry)],
    dependencies={"mail": mail},
    exception_handlers={CoordinatorFull: full, CoordinatorClosed: closed},
)
