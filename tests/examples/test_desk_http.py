"""The desk over HTTP: what programs and browsers are answered, and what nobody is told."""

from __future__ import annotations

import asyncio
import gc
import weakref
from html.parser import HTMLParser

import httpx
import pytest
from examples.translation_desk import app as app_module
from examples.translation_desk.apertium import ApertiumTranslator
from examples.translation_desk.app import create_app
from examples.translation_desk.desk import LARGEST_TEXT
from tests.examples.translators import UpperCase
from tests.web.serving import lifespan, serving

START = "/api/translate/start-translation"


@pytest.fixture
def translator():
    return UpperCase()


@pytest.fixture
def app(translator):
    return create_app(translator)


def another(app):
    """Return a client with another jar of cookies."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


async def start(client, markdown="# Good morning", language="es"):
    answer = await client.post(START, json={"language": language, "markdown": markdown})
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def url(operation_id):
    return f"/api/translate/translation/{operation_id}"


async def test_a_translation_is_started_polled_and_fetched_by_its_id(app):
    async with serving(app) as client:
        operation_id = await start(client, "# Good `code`")
        assert (await client.get(url(operation_id))).status_code == 409
        await asyncio.sleep(2)
        answer = await client.get(url(operation_id))
        assert answer.json() == {
            "id": operation_id,
            "language": "es",
            "original": "# Good `code`",
            "translated": "# GOOD `code`",
        }


async def test_a_failed_translation_is_a_conflict_and_the_page_says_why(app, translator):
    translator.failures = 3
    async with serving(app) as client:
        operation_id = await start(client)
        await asyncio.sleep(10)
        answer = await client.get(url(operation_id))
        assert (answer.status_code, answer.json()["detail"]) == (409, "This translation is failed.")
        assert "3 times in a row" in (await client.get(f"/editor/translations/{operation_id}")).text
        history = (await client.get(f"/editor/translations/{operation_id}/history")).text
        assert history.count("translation.stumbled") == 3


async def test_somebody_elses_id_a_wrong_id_and_no_id_are_all_not_found(app):
    async with serving(app) as client, another(app) as other:
        operation_id = await start(client)
        for path in (url(operation_id), f"/editor/translations/{operation_id}"):
            assert (await other.get(path)).status_code == 404
            assert (await other.get(path + "/history")).status_code == 404
        assert (await client.get(url("0000000000001"))).status_code == 404
        assert (await client.get(url("no-id!"))).status_code == 404
        assert (await other.get("/editor/translations")).text.count("<tr id=") == 0


async def test_the_owners_cookie_cannot_be_read_by_scripts_nor_sent_by_other_sites(app):
    async with serving(app) as client:
        cookie = (await client.get("/")).headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert "Secure" not in cookie
        assert "set-cookie" not in (await client.get("/")).headers, "it is kept"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://test") as client:
        async with lifespan(app):
            assert "Secure" in (await client.get("/")).headers["set-cookie"]


@pytest.mark.parametrize("damage", ["forged", "longer", "garbage", "empty", "other key"])
async def test_a_forged_cookie_gives_a_new_identity(app, translator, damage):
    async with serving(app) as client:
        operation_id = await start(client)
        owner, stamp, signature = client.cookies["desk_owner"].split(".")
        value = {
            "forged": f"{'0' * len(owner)}.{stamp}.{signature}",
            "longer": f"{owner}.{stamp}.{signature}x",
            "garbage": "\\\"';,= ;x",
            "empty": "",
            "other key": "",
        }[damage]
        if damage == "other key":
            async with serving(create_app(translator, key="another")) as foreign:
                value = (await foreign.get("/")).headers["set-cookie"].split(";")[0].partition("=")[2]
        async with another(app) as forger:
            answer = await forger.get(url(operation_id), headers={"Cookie": f"desk_owner={value}"})
            assert answer.status_code == 404
            assert answer.headers["set-cookie"].startswith("desk_owner=")
            assert owner not in answer.headers["set-cookie"]


async def test_a_key_of_ones_own_keeps_identities_over_a_restart(translator):
    async with serving(create_app(translator, key="kept")) as client:
        await client.get("/")
        jar = client.cookies
    async with serving(create_app(translator, key="kept")) as client:
        client.cookies = jar
        assert "set-cookie" not in (await client.get("/")).headers


async def test_while_the_translator_is_down_a_start_is_a_503_and_then_is_one_no_more(app, translator):
    translator.down = True
    async with serving(app) as client:
        answer = await client.post(START, json={"language": "es", "markdown": "x"})
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
        assert (await client.get("/editor/translations")).text.count("<tr id=") == 0
        assert "translator is down" in (await client.get("/")).text
        translator.down = False
        await start(client)
        assert "translator is down" not in (await client.get("/")).text


@pytest.mark.parametrize(
    "order",
    [
        {"language": "xx", "markdown": "secret"},
        {"language": "es", "markdown": " "},
        {"language": "es", "markdown": "secret".ljust(LARGEST_TEXT + 1, "x")},
        {"language": "es", "markdown": "secret" + "\u00e9\n" * LARGEST_TEXT * 3},
        {"language": "es"},
        {"language": "es", "markdown": ["secret"]},
    ],
    ids=["language", "empty", "200 kB and 1", "far too large", "no text", "no string"],
)
async def test_an_order_that_cannot_be_fulfilled_is_a_422_that_repeats_nothing_of_the_text(app, order):
    async with serving(app) as client:
        answer = await client.post(START, json=order)
        assert answer.status_code == 422
        assert "secret" not in answer.text


async def test_200_kb_are_accepted_by_both_entrances(app):
    text = "é" * (LARGEST_TEXT // 2)
    async with serving(app) as client:
        await start(client, text)
        answer = await client.post("/editor/translations", data={"language": "es", "markdown": text})
        assert answer.status_code == 303


async def test_a_body_that_grows_too_large_on_the_way_is_not_read_to_its_end(app):
    read = 0

    async def endless():
        nonlocal read
        while read < 100_000_000:
            read += 65536
            yield b"x" * 65536

    async with serving(app) as client:
        answer = await client.post("/editor/preview", content=endless())
        assert answer.status_code == 422
        assert read < 3_000_000


async def test_too_much_waiting_is_a_429_with_a_time_to_come_back(app):
    async with serving(app) as client:
        answers = [await client.post(START, json={"language": "es", "markdown": "x"}) for _ in range(110)]
        assert answers[-1].status_code == 429
        assert answers[-1].headers["retry-after"] == "1"
        page = await client.post("/editor/translations", data={"language": "es", "markdown": "kept text"})
        assert page.status_code == 429
        assert "Too much is waiting" in page.text
        assert "kept text" in page.text
        app.state.desk.translations.cancel()


async def test_the_table_shows_the_newest_five_and_asks_to_be_polled_only_while_something_runs(app):
    async with serving(app) as client:
        assert "hx-trigger" not in (await client.get("/editor/translations")).text
        ids = [await start(client, f"text {number}") for number in range(6)]
        table = (await client.get("/editor/translations")).text
        assert 'hx-trigger="every 5s"' in table
        assert [table.index(f'id="row-{each}"') for each in ids[:0:-1]] == sorted(
            table.index(f'id="row-{each}"') for each in ids[1:]
        )
        assert ids[0] not in table
        await asyncio.sleep(10)
        table = (await client.get("/editor/translations")).text
        assert "hx-trigger" not in table
        assert table.count("✓") == 5
        assert "1.0 s" in table


async def test_everything_works_with_whole_pages_too(app):
    async with serving(app) as client:
        answer = await client.post("/editor/translations", data={"language": "es", "markdown": "good\r\nmorning"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        operation = app.state.desk.window.list(next(iter(app.state.desk.window._by_access)))[0]
        await operation
        page = (await client.get("/")).text
        link = next(part.split('"')[0] for part in page.split('href="') if part.startswith("/editor/translations/"))
        view = (await client.get(link)).text
        assert view.startswith("<!doctype html>")
        assert "GOOD\nMORNING" in view
        part = (await client.get(link, headers={"HX-Request": "true"})).text
        assert not part.startswith("<!doctype")
        refused = await client.post("/editor/translations", data={"language": "xx", "markdown": "kept"})
        assert refused.status_code == 422
        assert "does not know this language" in refused.text


@pytest.mark.parametrize(
    "attack",
    [
        "<script>alert(1)</script>",
        '<img src=x onerror="alert(1)">',
        "[click](javascript:alert(1))",
        '![x" onerror="alert(1)](http://elsewhere.example/x.png)',
        "</textarea><script>alert(1)</script>",
        "</pre><script>alert(1)</script>",
        '<a href="data:text/html,<script>alert(1)</script>">x</a>',
    ],
)
async def test_what_people_write_is_shown_and_never_run(app, attack):
    async with serving(app) as client:
        preview = (await client.post("/editor/preview", data={"markdown": attack})).text
        operation_id = await start(client, attack)
        await asyncio.sleep(5)
        view = (await client.get(f"/editor/translations/{operation_id}")).text
        refused = (await client.post("/editor/translations", data={"language": "xx", "markdown": attack})).text
        for page in (preview, view, refused):
            parsed = Parsed(page)
            assert set(parsed.scripts) <= {"/static/htmx.min.js"}
            assert set(parsed.images) <= {"/static/icon.svg"}
            assert parsed.elements.isdisjoint({"iframe", "object", "embed"})
            assert not [name for name in parsed.attributes if name.startswith("on") or name == "style"]
            assert not [link for link in parsed.links if link.lower().startswith(("javascript:", "data:"))]
            assert page.count("</textarea>") == page.count("<textarea")


class Parsed(HTMLParser):
    """Read a page as a browser does, and note what could do harm."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.attributes, self.scripts, self.images, self.links = set(), set(), [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.elements.add(tag)
        self.attributes.update(values)
        self.links += [values[name] for name in ("href", "action") if name in values]
        if tag == "script":
            self.scripts.append(values.get("src"))
        elif tag == "img":
            self.images.append(values.get("src"))


async def test_every_answer_carries_the_policy_and_is_kept_nowhere(app):
    async with serving(app) as client:
        for answer in [
            await client.get("/"),
            await client.get("/nothing-here"),
            await client.post(START, json={}),
            await client.post("/editor/preview", data={"markdown": "x"}),
        ]:
            assert (
                "default-src 'none'; script-src 'self'; style-src 'self'" in answer.headers["content-security-policy"]
            )
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
        assert (await client.get("/static/desk.css")).headers.get("cache-control") != "no-store"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://elsewhere.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://test"}, 202),
        ({"Origin": "http://test"}, 202),
        ({}, 202),
    ],
)
async def test_other_sites_cannot_start_anything(app, headers, status):
    async with serving(app) as client:
        answer = await client.post(START, json={"language": "es", "markdown": "x"}, headers=headers)
        assert answer.status_code == status


async def test_the_page_names_what_it_does_and_fetches_nothing_from_elsewhere(app):
    async with serving(app) as client:
        page = (await client.get("/")).text
        sources = [part.split('"')[0] for name in ("src", "href") for part in page.split(f' {name}="')[1:]]
        own = [each for each in sources if not each.startswith("https://example.org")]
        assert own
        assert all(each.startswith(("/", "#")) for each in own)
        assert "Machine translation from English by Upper case" in page


async def test_without_a_language_pair_there_is_pseudo_localisation(monkeypatch, tmp_path):
    monkeypatch.setattr(app_module, "ApertiumTranslator", lambda: ApertiumTranslator(modes=tmp_path))
    assert create_app().state.desk.translator.languages().keys() == {"en-XA"}
    for mode in ("eng-spa", "spa-ita"):
        (tmp_path / f"{mode}.mode").touch()
    assert create_app().state.desk.translator.languages().keys() == {"es", "it"}


async def test_pseudo_localisation_is_called_what_it_is():
    from examples.translation_desk.translators import PseudoTranslator

    async with serving(create_app(PseudoTranslator())) as client:
        page = (await client.get("/")).text
        assert "not a translation" in page
        assert "Machine translation" not in page
        operation_id = await start(client, "Good *morning*", "en-XA")
        await asyncio.sleep(1)
        assert (await client.get(url(operation_id))).json()["translated"] == "⟦Ĝööð ·⟧ *⟦möŕñîñĝ ··⟧*"


async def test_an_hour_later_nothing_holds_what_was_written(app):
    async with serving(app) as client:
        operation_id = await start(client, "A secret `garden`")
        await asyncio.sleep(2)
        assert "SECRET" in (await client.get(f"/editor/translations/{operation_id}")).text
        (owner,) = app.state.desk.window._by_access
        (operation,) = app.state.desk.window.list(owner)
        references = [weakref.ref(operation), weakref.ref(await operation)]
        del operation
        gc.collect()
        assert None not in [each() for each in references], "its owner may still fetch it"
        await asyncio.sleep(3601)
        assert [each() for each in references] == [None, None]
        assert (await client.get(url(operation_id))).status_code == 404


async def test_the_end_of_the_application_lets_go_of_everything(app, translator):
    async with serving(app) as client:
        await start(client)
        desk = app.state.desk
        assert len(desk.window) == 1
    assert translator.closed
    assert len(desk.window) == 0
    assert desk.registry.is_closed
