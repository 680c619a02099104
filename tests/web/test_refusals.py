"""A coordinator that takes nothing more is an answer of the application, not an error of it."""

from __future__ import annotations

import asyncio
import sys

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Route
from tests.web.serving import serving

from ephemerals import CoordinatorRegistry, InvalidOption, MissingExtra
from ephemerals.testing import VirtualClock
from ephemerals.web import EphemeralsLifespan, FromRegistry, get_registry, install_refusals


async def enqueue(request):
    await get_registry(request.app)["secret-name"].enqueue(1)


@pytest.fixture(params=[FastAPI, Starlette])
def app(request):
    registry = CoordinatorRegistry()
    registry.register("secret-name", sleep_long, max_concurrency=1, max_pending=1, overflow="reject")
    app = request.param(lifespan=EphemeralsLifespan(registry, budget=0))
    app.router.routes.append(Route("/", enqueue, methods=["POST"]))
    return app


async def sleep_long(item):
    await asyncio.sleep(3600)


async def test_a_full_coordinator_is_a_429_that_says_when_to_come_back(app):
    install_refusals(app, retry_after=1.2)
    async with serving(app) as client:
        coordinator = get_registry(app)["secret-name"]
        while coordinator.try_enqueue(1) is not None:
            await VirtualClock.current().settle()
        answer = await client.post("/")
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "2"
    assert "secret-name" not in answer.text
    assert set(answer.json()) == {"detail"}


async def test_a_closed_coordinator_is_a_503(app):
    install_refusals(app)
    async with serving(app) as client:
        get_registry(app)["secret-name"].complete()
        answer = await client.post("/")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"


async def test_a_closed_registry_is_a_503(app):
    install_refusals(app)
    async with serving(app) as client:
        await get_registry(app).aclose(grace=0)
        assert (await client.post("/")).status_code == 503


def test_a_time_that_is_none_is_refused(app):
    with pytest.raises(InvalidOption, match="retry_after"):
        install_refusals(app, retry_after=-1)


def test_without_the_extra_the_message_names_it(app, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.setitem(sys.modules, "starlette.responses", None)
    with pytest.raises(MissingExtra, match=r"ephemerals\[fastapi\]"):
        FromRegistry("fast")
    with pytest.raises(MissingExtra, match=r"ephemerals\[fastapi\]"):
        install_refusals(app)
