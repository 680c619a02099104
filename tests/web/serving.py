"""Run an ASGI application in the test's own loop: its lifespan as a server speaks it, and a client for it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import httpx


@asynccontextmanager
async def lifespan(app):
    """Start an application, and shut it down when the block is left; what either raises comes out."""
    to_app, from_app = asyncio.Queue(), asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
    task = asyncio.create_task(app(scope, to_app.get, from_app.put))

    async def step(name):
        await to_app.put({"type": f"lifespan.{name}"})
        answer = asyncio.create_task(from_app.get())
        await asyncio.wait([answer, task], return_when=asyncio.FIRST_COMPLETED)
        if answer.done() and not answer.result()["type"].endswith(".failed"):
            return
        answer.cancel()
        await task
        raise RuntimeError(answer)

    await step("startup")
    try:
        yield scope["state"]
    finally:
        await step("shutdown")
        await task


@asynccontextmanager
async def serving(app):
    """Give a client of a running application."""
    async with lifespan(app), httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        yield client
