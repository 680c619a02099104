"""Named coordinators as dependencies of FastAPI handlers, and `Background` in the place of `BackgroundTasks`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import pytest
from fastapi import APIRouter, FastAPI, HTTPException
from starlette.middleware.base import BaseHTTPMiddleware
from tests.web.serving import serving

from ephemerals import (
    Background,
    CoordinatorRegistry,
    KeyedWorkCoordinator,
    PriorityWorkCoordinator,
    ResultCoordinator,
    UnknownCoordinator,
    WorkCoordinator,
    format_id,
)
from ephemerals.web import EphemeralsLifespan, FromRegistry, install_refusals

registry = CoordinatorRegistry()
done: list[object] = []


async def note(item):
    await asyncio.sleep(1)
    done.append(item)


async def note_two(item, *, more):
    await note((item, more))


registry.register("fast", note)
registry.register_keyed("commands", len, note)
registry.register_result("prices", note)
registry.register_priority("lanes", note)
registry.register_background("background")
router = APIRouter()


@router.get("/kinds")
async def kinds(
    fast: Annotated[WorkCoordinator[str, None], FromRegistry("fast")],
    again: Annotated[WorkCoordinator[str, None], FromRegistry("fast")],
    commands: Annotated[KeyedWorkCoordinator[str, None], FromRegistry("commands")],
    prices: Annotated[ResultCoordinator[str, None], FromRegistry("prices")],
    lanes: Annotated[PriorityWorkCoordinator[str, None], FromRegistry("lanes")],
) -> list[str]:
    assert fast is again
    return [type(each).__name__ for each in (fast, commands, prices, lanes)]


@router.post("/raise")
async def enqueue_and_raise(fast: Annotated[WorkCoordinator[str, None], FromRegistry("fast")]) -> None:
    await fast.enqueue("accepted")
    raise HTTPException(418)


@router.post("/background")
async def in_background(background: Annotated[Background, FromRegistry("background")]) -> list[str]:
    first = background.add_task(note_two, 1, more=2)
    background.add_task(note_two, 3, more=4)
    return [first.name, format_id(first.id)]


@router.post("/plain")
def plain(background: Annotated[Background, FromRegistry("background")]) -> str:
    return background.add_task(note, "from a plain endpoint").name


@router.get("/unknown")
async def unknown(fast: Annotated[WorkCoordinator[str, None], FromRegistry("fats")]) -> None:
    pytest.fail("it was found")


@pytest.fixture
def app():
    done.clear()
    app = FastAPI(lifespan=EphemeralsLifespan(registry))
    app.include_router(router)
    install_refusals(app)
    return app


async def test_every_kind_of_coordinator_is_injected_and_the_same_one_each_time(app):
    async with serving(app) as client:
        answer = await client.get("/kinds")
        assert answer.json() == [
            "WorkCoordinator",
            "KeyedWorkCoordinator",
            "ResultCoordinator",
            "PriorityWorkCoordinator",
        ]
        assert set(registry.created()) == {"fast", "commands", "prices", "lanes"}


async def test_a_name_that_nobody_registered_is_named_with_the_one_that_comes_closest(app):
    async with serving(app) as client:
        with pytest.raises(UnknownCoordinator, match="did you mean 'fast'"):
            await client.get("/unknown")


async def test_an_enqueue_counts_although_the_handler_then_raises(app):
    async with serving(app) as client:
        assert (await client.post("/raise")).status_code == 418
        assert (registry["fast"].total_enqueued, done) == (1, [])
        await registry["fast"].join()
    assert done == ["accepted"]


async def test_a_middleware_that_only_passes_through_changes_nothing(app):
    async def pass_through(request, call_next):
        return await call_next(request)

    app.add_middleware(BaseHTTPMiddleware, dispatch=pass_through)
    async with serving(app) as client:
        assert (await client.post("/raise")).status_code == 418
        await client.post("/background")
        assert done == []
    assert sorted(map(str, done)) == ["(1, 2)", "(3, 4)", "accepted"]


async def test_background_answers_before_its_tasks_end_and_runs_them_side_by_side(app):
    loop = asyncio.get_running_loop()
    async with serving(app) as client:
        before = loop.time()
        name, _ = (await client.post("/background")).json()
        assert (name, done, loop.time()) == ("note_two", [], before)
        await registry["background"].join()
        assert loop.time() - before == pytest.approx(1)
    assert done == [(1, 2), (3, 4)]


@pytest.mark.real_loop
async def test_background_takes_tasks_of_an_endpoint_that_runs_in_a_thread(app, monkeypatch):
    monkeypatch.setattr(asyncio, "sleep", lambda _, real=asyncio.sleep: real(0))
    async with serving(app) as client:
        assert (await client.post("/plain")).json() == "note"
    assert done == ["from a plain endpoint"]


def test_the_openapi_page_shows_nothing_of_coordinators(app):
    operations = app.openapi()["paths"]["/background"]["post"]
    assert "parameters" not in operations
    assert "requestBody" not in operations
