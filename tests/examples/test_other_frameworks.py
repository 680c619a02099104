"""The library in plain Starlette and in Litestar."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from examples import with_litestar, with_starlette
from tests.web.serving import lifespan, serving

from ephemerals import CoordinatorClosed, parse_id
from ephemerals.web import get_registry

APPLICATIONS = pytest.mark.parametrize("app", [with_starlette.app, with_litestar.app], ids=["starlette", "litestar"])


@APPLICATIONS
async def test_work_is_accepted_at_once_and_what_fails_is_known(app):
    async with serving(app) as client:
        right = await client.post("/welcome", content="ada@example.org")
        wrong = await client.post("/welcome", content="secret")
        assert (right.status_code, wrong.status_code) == (202, 202)
        assert (await client.get("/failures")).json() == []
        await asyncio.sleep(0.2)
        assert (await client.get("/failures")).json() == [{"id": wrong.json()["id"], "error": "ValueError"}]
        mail = get_registry(app)["mail"]
        assert [each.id for each in mail.completed()] == [parse_id(right.json()["id"])]


@APPLICATIONS
async def test_too_much_is_a_429_and_the_end_waits_for_what_was_accepted(app):
    async with serving(app) as client:
        answers = [await client.post("/welcome", content="ada@example.org") for _ in range(120)]
        assert answers[0].status_code == 202
        assert answers[-1].status_code == 429
        assert answers[-1].headers["retry-after"] == "1"
        accepted = sum(answer.status_code == 202 for answer in answers)
        mail = get_registry(app)["mail"]
    assert mail.total_completed == accepted


@APPLICATIONS
async def test_a_closed_coordinator_is_a_503(app):
    async with lifespan(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            mail = get_registry(app)["mail"]
            mail.complete()
            with pytest.raises(CoordinatorClosed):
                await mail.enqueue("x")
            answer = await client.post("/welcome", content="ada@example.org")
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "1"
