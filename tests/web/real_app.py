"""The application of the tests with a real server: it enqueues work in every way that a request can end."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from starlette.middleware.base import BaseHTTPMiddleware

from ephemerals import Background, CoordinatorRegistry, ResultCoordinator
from ephemerals.web import EphemeralsLifespan, FromRegistry, install_refusals

registry = CoordinatorRegistry()
app = FastAPI(lifespan=EphemeralsLifespan(registry, budget=2))
install_refusals(app)


@app.middleware("http")
async def pass_through(request, call_next):
    return await call_next(request)


assert app.user_middleware[0].cls is BaseHTTPMiddleware


@registry.result_coordinator("fast", max_concurrency=4)
async def work(item: str) -> str:
    await asyncio.sleep(float(item.partition(":")[2] or 0.2))
    return item


registry.register_background("background", max_concurrency=4)
registry.register("small", asyncio.sleep, max_concurrency=1, max_pending=1, overflow="reject")

Fast = Annotated[ResultCoordinator[str, str], FromRegistry("fast")]
Work = Annotated[Background, FromRegistry("background")]


@app.post("/stream")
async def stream(fast: Fast, background: Work):
    """Enqueue in the task that the server cancels when the client goes."""

    async def endless():
        await fast.enqueue("from a stream")
        background.add_task(work, "from a stream, in the background")
        while True:
            yield b"."
            await asyncio.sleep(0.01)

    return StreamingResponse(endless())


@app.post("/hang")
async def hang(fast: Fast) -> None:
    await fast.enqueue("from a request that hangs")
    await asyncio.sleep(0.5)


@app.post("/raise")
async def fail(fast: Fast) -> None:
    await fast.enqueue("from a handler that raises")
    raise RuntimeError("the handler fails")


@app.post("/load")
async def load(fast: Fast) -> None:
    """Enqueue more than can end in time: short work, and some that would take a minute."""
    for number in range(40):
        await fast.enqueue(f"short {number}:0.02")
    await fast.enqueue("long:60")
    await fast.enqueue("long:60")
    for number in range(4):
        await fast.enqueue(f"waits {number}:60")


@app.get("/completed")
async def completed(fast: Fast, background: Work) -> list[str]:
    return sorted([*fast.results(), *(each.name for each in background.completed())])


@app.get("/counts")
async def counts(fast: Fast) -> list[int]:
    return [fast.pending_count, fast.active_count, fast.total_completed]


@app.post("/small")
async def small() -> None:
    await registry["small"].enqueue(30)
