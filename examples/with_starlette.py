"""The library in a plain Starlette application: `uvicorn examples.with_starlette:app`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from ephemerals import CoordinatorRegistry, format_id
from ephemerals.web import EphemeralsLifespan, get_registry, install_refusals

if TYPE_CHECKING:
    from starlette.requests import Request

registry = CoordinatorRegistry()


@registry.coordinator("mail", max_concurrency=4, max_pending=100, overflow="reject")
async def send(address: str) -> None:
    """Send a mail."""
    await asyncio.sleep(0.1)
    if "@" not in address:
        raise ValueError("this is no address")


async def welcome(request: Request) -> JSONResponse:
    """Accept the mail, and answer at once."""
    operation = await get_registry(request.app)["mail"].enqueue((await request.body()).decode())
    return JSONResponse({"id": format_id(operation.id)}, 202)


async def failures(request: Request) -> JSONResponse:
    """Say what failed, and when, without whom it was for."""
    failed = get_registry(request.app)["mail"].failed()
    return JSONResponse([{"id": format_id(each.id), "error": each.error.type if each.error else ""} for each in failed])


app = Starlette(
    routes=[Route("/welcome", welcome, methods=["POST"]), Route("/failures", failures)],
    lifespan=EphemeralsLifespan(registry),
)
install_refusals(app)
