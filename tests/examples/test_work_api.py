"""The work API: named translators, keyed commands that are refused one user at a time, and its status."""

from __future__ import annotations

import asyncio

import pytest
from examples.work_api.app import create_app
from tests.web.serving import serving

from ephemerals.web import get_registry


@pytest.fixture
def app():
    return create_app()


async def translate(client, text="good morning", quality="fast"):
    return await client.post("/api/translate", json={"text": text, "quality": quality})


async def command(client, user="ada", action="tidy up"):
    return await client.post("/api/command", json={"user": user, "action": action})


async def seen(client, name):
    return (await client.get("/api/status")).json()["coordinators"][name]


@pytest.mark.parametrize(
    ("quality", "seconds", "expected"), [("fast", 0.1, "GOOD MORNING"), ("accurate", 1, "Good Morning")]
)
async def test_a_named_translator_accepts_at_once_and_has_the_result_later(app, quality, seconds, expected):
    async with serving(app) as client:
        answer = await translate(client, quality=quality)
        assert answer.status_code == 202
        path = f"/api/translate/{answer.json()['id']}"
        assert (await client.get(path)).status_code == 409
        await asyncio.sleep(seconds + 0.1)
        assert (await client.get(path)).json()["translated"] == expected
        assert (await seen(client, quality))["completed"] == 1


@pytest.mark.parametrize("wrong", ["0000000000001", "no-id!"])
async def test_an_id_that_nobody_has_is_not_found(app, wrong):
    async with serving(app) as client:
        assert (await client.get(f"/api/translate/{wrong}")).status_code == 404


async def test_coordinators_are_there_when_they_are_first_used(app):
    async with serving(app) as client:
        assert (await client.get("/api/status")).json() == {"overload": False, "coordinators": {}}
        await command(client)
        assert list((await client.get("/api/status")).json()["coordinators"]) == ["commands"]


async def test_commands_of_one_user_run_in_order_and_of_several_side_by_side(app):
    async with serving(app) as client:
        for user in ("ada", "ada", "bob", "cleo"):
            await command(client, user)
        await asyncio.sleep(0)
        assert (await seen(client, "commands"))["active"] == 3
        await asyncio.sleep(0.21)
        assert (await seen(client, "commands"))["completed"] == 3
        await asyncio.sleep(0.21)
        assert (await seen(client, "commands"))["completed"] == 4


async def test_a_user_with_too_many_commands_is_refused_and_the_others_are_not(app):
    async with serving(app) as client:
        answers = [await command(client, "ada") for _ in range(10)]
        assert {answer.status_code for answer in answers} == {202, 429}
        assert answers[-1].headers["retry-after"] == "1"
        assert "tidy up" not in answers[-1].text
        assert (await command(client, "bob")).status_code == 202
        accepted = sum(answer.status_code == 202 for answer in answers)
        await asyncio.sleep(10)
        commands = await seen(client, "commands")
        assert commands["completed"] == accepted + 1
        assert commands["rejected"] == len(answers) - accepted
        assert (await command(client, "ada")).status_code == 202, "and the time has come back"


async def test_while_too_many_translations_wait_commands_are_skipped(app):
    async with serving(app) as client:
        for _ in range(30):
            await translate(client, quality="accurate")
        assert (await client.get("/api/status")).json()["overload"] is True
        await command(client)
        await asyncio.sleep(0.5)
        assert (await seen(client, "commands"))["skipped"] == 1
        assert (await seen(client, "commands"))["newest"][0]["status"] == "skipped"
        await asyncio.sleep(60)
        assert (await client.get("/api/status")).json()["overload"] is False
        await command(client)
        await asyncio.sleep(0.5)
        assert (await seen(client, "commands"))["completed"] == 1


async def test_too_many_translations_are_refused(app):
    async with serving(app) as client:
        answers = [(await translate(client, quality="accurate")).status_code for _ in range(60)]
        assert answers[0] == 202
        assert answers[-1] == 429
        assert (await translate(client)).status_code == 202


@pytest.mark.parametrize(
    "body", [{"text": ""}, {"text": "x" * 10_001}, {"text": "x", "quality": "perfect"}, {"quality": "fast"}]
)
async def test_what_cannot_be_translated_is_a_422(app, body):
    async with serving(app) as client:
        assert (await client.post("/api/translate", json=body)).status_code == 422


async def test_the_status_repeats_nothing_that_anybody_wrote(app):
    async with serving(app) as client:
        await translate(client, "secret text")
        await command(client, "secret user", "secret action")
        await asyncio.sleep(1)
        assert "secret" not in (await client.get("/api/status")).text.lower()


async def test_two_applications_share_nothing(app):
    async with serving(app) as client, serving(create_app()) as other:
        await translate(client)
        assert (await other.get("/api/status")).json()["coordinators"] == {}
    with pytest.raises(Exception, match="no registry is open"):
        get_registry(app)
