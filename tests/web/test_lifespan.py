"""The lifespan: a registry lives as long as its application, and composes with the application's own lifespan."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from litestar import Litestar, Request, get
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from tests.web.serving import lifespan, serving

from ephemerals import CoordinatorRegistry, EphemeralsError, InvalidOption, InvalidOptionType, format_id
from ephemerals.testing import VirtualClock, assert_quiet
from ephemerals.web import EphemeralsLifespan, get_registry


async def ignore(item):
    pass


def declared(body=ignore, **options):
    registry = CoordinatorRegistry()
    registry.register("fast", body, **options)
    return registry


async def test_it_starts_with_nothing_created_and_is_closed_with_the_application():
    registry = declared()
    app = FastAPI(lifespan=EphemeralsLifespan(registry))
    async with lifespan(app):
        assert get_registry(app) is registry
        assert registry.created() == {}
        await get_registry(app)["fast"].enqueue(1)
        fast = registry["fast"]
    assert registry.is_closed
    assert fast.total_completed == 1
    assert_quiet(fast)


async def test_accepted_work_ends_before_what_the_application_itself_has_opened_is_closed():
    happened = []

    @asynccontextmanager
    async def database(app):
        happened.append("opened")
        yield {"database": "here"}
        happened.append("closed")

    async def use(item):
        await asyncio.sleep(1)
        happened.append("used")

    registry = declared(use)
    app = Starlette(lifespan=EphemeralsLifespan(registry, database))
    async with lifespan(app) as state:
        assert state == {"database": "here"}
        await registry["fast"].enqueue(1)
    assert happened == ["opened", "used", "closed"]


async def test_an_own_lifespan_that_fails_to_start_leaves_nothing_open():
    @asynccontextmanager
    async def broken(app):
        raise ConnectionError("no database")
        yield

    registry = declared()
    app = Starlette(lifespan=EphemeralsLifespan(registry, broken))
    with pytest.raises(ConnectionError):
        async with lifespan(app):
            pytest.fail("it started")
    async with lifespan(Starlette(lifespan=EphemeralsLifespan(registry))):
        pass


async def test_an_application_can_be_started_again():
    registry = declared()
    app = Starlette(lifespan=EphemeralsLifespan(registry))
    for _ in range(2):
        async with lifespan(app):
            operation = await registry["fast"].enqueue(1)
        assert operation.status == "completed"


async def test_the_budget_bounds_the_shutdown_and_the_log_names_who_is_late(caplog):
    released = asyncio.Event()

    async def stubborn(item):
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if item == "gives in":
                raise
            await released.wait()

    caplog.set_level(logging.WARNING, "ephemerals")
    registry = declared(stubborn, max_concurrency=2)
    clock = VirtualClock.current()
    async with lifespan(Starlette(lifespan=EphemeralsLifespan(registry, budget=5))):
        reasonable = await registry["fast"].enqueue("gives in")
        unreasonable = await registry["fast"].enqueue("does not")
        never_started = await registry["fast"].enqueue("too late")
        await clock.settle()
        before = clock.monotonic()
    assert clock.monotonic() - before == pytest.approx(5)
    cancels, remains = (record.getMessage() for record in caplog.records)
    assert "fast" in cancels
    assert format_id(reasonable.id) in cancels
    assert format_id(unreasonable.id) in cancels
    assert "1 that have not started" in cancels
    assert "fast" in remains
    assert format_id(unreasonable.id) in remains
    assert format_id(reasonable.id) not in remains
    assert (reasonable.status, never_started.status) == ("cancelled", "cancelled")
    released.set()
    await clock.settle()


async def test_a_budget_of_nothing_cancels_at_once():
    clock = VirtualClock.current()
    registry = declared(asyncio.sleep)
    async with lifespan(Starlette(lifespan=EphemeralsLifespan(registry, budget=0))):
        operation = await registry["fast"].enqueue(3600)
        await clock.settle()
        before = clock.monotonic()
    assert clock.monotonic() == before
    assert operation.status == "cancelled"


async def test_an_idle_application_closes_without_waiting_and_without_a_word(caplog):
    clock = VirtualClock.current()
    registry = declared()
    async with lifespan(Starlette(lifespan=EphemeralsLifespan(registry))):
        await (await registry["fast"].enqueue(1))
        before = clock.monotonic()
    assert clock.monotonic() == before
    assert caplog.records == []


async def test_two_applications_in_one_process_share_nothing():
    ours, theirs = declared(), declared()
    one = FastAPI(lifespan=EphemeralsLifespan(ours))
    two = FastAPI(lifespan=EphemeralsLifespan(theirs))
    async with lifespan(one), lifespan(two):
        assert get_registry(one)["fast"] is not get_registry(two)["fast"]
    async with lifespan(one):
        with pytest.raises(EphemeralsError, match="EphemeralsLifespan"):
            get_registry(two)


async def test_one_registry_for_two_running_applications_is_refused():
    registry = declared()
    async with lifespan(FastAPI(lifespan=EphemeralsLifespan(registry))):
        with pytest.raises(EphemeralsError, match="of its own"):
            async with lifespan(FastAPI(lifespan=EphemeralsLifespan(registry))):
                pytest.fail("it started")
        assert not registry.is_closed


async def test_a_mounted_application_finds_the_registry_of_the_outer_one():
    async def name(request):
        return PlainTextResponse(get_registry(request.app)["fast"].name)

    inner = Starlette(routes=[Route("/name", name)])
    registry = declared()
    app = Starlette(routes=[Mount("/inner", inner)], lifespan=EphemeralsLifespan(registry))
    async with serving(app) as client:
        assert (await client.get("/inner/name")).text == "fast"
    with pytest.raises(EphemeralsError):
        get_registry(inner)


async def test_it_is_a_lifespan_of_litestar_as_it_is():
    happened = []

    async def note(item):
        happened.append(item)

    @get("/enqueue")
    async def enqueue(request: Request) -> str:
        operation = await get_registry(request.app)["fast"].enqueue("noted")
        return format_id(operation.id)

    registry = declared(note)
    async with serving(Litestar([enqueue], lifespan=[EphemeralsLifespan(registry)], logging_config=None)) as client:
        assert (await client.get("/enqueue")).status_code == 200
    assert happened == ["noted"]
    assert registry.is_closed


@pytest.mark.parametrize("thing", [FastAPI(), Starlette(), object()], ids=["fastapi", "starlette", "no application"])
def test_without_a_running_lifespan_the_message_says_what_to_do(thing):
    with pytest.raises(EphemeralsError, match="TestClient"):
        get_registry(thing)


def test_what_is_no_registry_no_lifespan_or_no_budget_is_refused():
    with pytest.raises(InvalidOptionType, match="CoordinatorRegistry"):
        EphemeralsLifespan(FastAPI())
    with pytest.raises(InvalidOptionType, match="own"):
        EphemeralsLifespan(CoordinatorRegistry(), 5)
    with pytest.raises(InvalidOption, match="budget"):
        EphemeralsLifespan(CoordinatorRegistry(), budget=-1)
