"""The desk with Apertium: real translations by real processes, over real HTTP."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from pathlib import Path

import httpx
import pytest
from examples.translation_desk.apertium import ApertiumTranslator
from examples.translation_desk.desk import Desk
from examples.translation_desk.prose import fragments_of
from examples.translation_desk.translators import TranslatorError
from tests.examples.needs import need_apertium
from tests.web.server import Server

pytestmark = pytest.mark.heavy
DOCUMENT = Path(__file__).parents[2].joinpath("examples", "translation_desk", "example.md").read_text("utf-8")
DESK = "examples.translation_desk.app:create_app"


@pytest.fixture(scope="module", autouse=True)
def apertium():
    need_apertium()


@pytest.fixture(scope="module")
def server():
    with Server(DESK, "--factory") as server:
        yield server


def started_by(server):
    """Return the ids of the processes that a server has started, each the leader of its group."""
    return {int(pid) for pid in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()}


def is_gone(group):
    """Tell whether a process group has ended; a zombie that waits for its parent has."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            return False
    return True


def start(client, markdown, language="es"):
    answer = client.post("/api/translate/start-translation", json={"language": language, "markdown": markdown})
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def fetch(client, operation_id, patience=30):
    deadline = time.monotonic() + patience
    while (answer := client.get(f"/api/translate/translation/{operation_id}")).status_code == 409:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.05)
    return answer.json()


def kept(document):
    """Return a pattern of a document in which every text may be another."""
    parts, position = [], 0
    for fragment in fragments_of(document):
        parts += [re.escape(document[position : fragment.start]), "(.+)"]
        position = fragment.end
    return re.compile("".join([*parts, re.escape(document[position:])]))


def test_a_document_comes_back_in_spanish_with_everything_but_its_text_as_it_was(server):
    with httpx.Client(base_url=server.url) as client:
        done = fetch(client, start(client, DOCUMENT))
    assert done["original"] == DOCUMENT
    texts = kept(DOCUMENT).fullmatch(done["translated"])
    assert texts, done["translated"]
    assert "La lonja abre" in done["translated"]
    assert "manzanas verdes y *café bueno*" in done["translated"]
    assert '[diario](https://example.org/news "today")' in done["translated"]
    assert 'return f"Good morning, {name}"' in done["translated"]


def test_ten_documents_at_once_come_back_to_their_owners(server):
    words = {"house": "La casa", "dog": "El perro", "book": "El libro", "sun": "El sol", "moon": "La luna"}
    clients = [httpx.Client(base_url=server.url) for _ in range(10)]
    try:
        orders = list(zip(clients, [*words, *words], strict=True))
        ids = [start(client, f"# The {word}") for client, word in orders]
        for (client, word), operation_id in zip(orders, ids, strict=True):
            assert fetch(client, operation_id)["translated"] == f"# {words[word]}"
        assert clients[0].get(f"/api/translate/translation/{ids[1]}").status_code == 404
    finally:
        for client in clients:
            client.close()


def test_a_signal_under_load_ends_the_desk_and_all_its_processes_within_the_budget():
    text = "\n\n".join(["The house is big and the dog is small."] * 4000)
    with Server(DESK, "--factory") as server:
        with httpx.Client(base_url=server.url) as client:
            for _ in range(4):
                start(client, text)
        deadline = time.monotonic() + 20
        while not (children := started_by(server)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        end = server.stop()
    assert end.seconds < 5 + 2
    assert end.code in {0, -signal.SIGTERM}
    assert "Task was destroyed" not in end.output
    assert "Traceback" not in end.output
    assert all(is_gone(group) for group in children)


@pytest.mark.real_loop(timeout=60)
async def test_as_many_documents_are_translated_at_once_as_there_are_processes():
    desk = Desk(ApertiumTranslator(processes=3))
    text = "\n\n".join(["The house is big."] * 60)
    async with desk.registry:
        operations = [await desk.start("ada", "es", text) for _ in range(10)]
        for operation in operations:
            await operation
        assert len(desk.translator.pids()) == 3
        await desk.translator.aclose()
    moments = sorted(
        moment for each in operations for moment in [(each.snapshot().started_at, 1), (each.snapshot().finished_at, -1)]
    )
    running = [sum(change for _, change in moments[: index + 1]) for index in range(len(moments))]
    assert max(running) == 3


@pytest.mark.real_loop(timeout=60)
async def test_every_language_is_translated_also_by_way_of_another():
    translator = ApertiumTranslator()
    try:
        assert set(translator.languages()) == {"es", "ca", "it"}
        assert await translator.translate(["The house is big"], "es") == ["La casa es grande"]
        assert await translator.translate(["The house is big"], "ca") == ["La casa és gran"]
        assert await translator.translate(["The house is big"], "it") == ["La casa è grande"]
        with pytest.raises(TranslatorError, match="no pair"):
            await translator.translate(["The house is big"], "xx")
    finally:
        await translator.aclose()


@pytest.mark.real_loop(timeout=60)
async def test_characters_that_mean_something_to_apertium_come_through():
    texts = ["[a] ^b$ {c} <d> @e \\ / # *", "NUL\0inside", "", "  ", "日本 😀", "end.", "x" * 200_000]
    translator = ApertiumTranslator()
    try:
        translated = await translator.translate([*texts, "house"], "es")
    finally:
        await translator.aclose()
    assert len(translated) == len(texts) + 1
    assert translated[-1] == "casa"
    assert set("[]^${}<>@\\/#*") <= set(translated[0])
    assert translated[4:6] == ["日本 😀", "fin."]
    assert translated[6] == texts[6]


@pytest.mark.real_loop(timeout=60)
async def test_processes_that_die_are_started_again():
    translator = ApertiumTranslator(processes=1)
    try:
        await translator.translate(["house"], "es")
        (first,) = translator.pids()
        os.killpg(first, signal.SIGKILL)
        while not is_gone(first):  # noqa: ASYNC110 - the system tells nobody
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert await translator.translate(["house"], "es") == ["casa"]
        assert translator.pids() != [first]
    finally:
        await translator.aclose()


@pytest.mark.real_loop(timeout=60)
async def test_a_translation_that_is_cancelled_leaves_no_process_and_no_half_answer():
    translator = ApertiumTranslator(processes=1)
    try:
        await translator.translate(["house"], "es")
        (group,) = translator.pids()
        task = asyncio.create_task(translator.translate(["word " * 2000] * 50, "es"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not is_gone(group):  # noqa: ASYNC110 - the system tells nobody
            await asyncio.sleep(0.01)
        assert await translator.translate(["house"], "es") == ["casa"]
    finally:
        await translator.aclose()


@pytest.mark.real_loop(timeout=60)
async def test_going_down_and_coming_back_is_seen_without_a_restart(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    translator = ApertiumTranslator(path=str(programs))
    assert not await translator.is_up()
    with pytest.raises(TranslatorError):
        await translator.translate(["house"], "es")
    programs.rmdir()
    programs.symlink_to("/usr/bin")
    assert await translator.is_up()
    assert await translator.translate(["house"], "es") == ["casa"]
    await translator.aclose()


@pytest.mark.real_loop(timeout=60)
async def test_a_translator_that_says_nothing_is_given_up(tmp_path):
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\nexec sleep 60\n")
    mute.chmod(0o755)
    (tmp_path / "eng-spa.mode").write_text(str(mute))
    translator = ApertiumTranslator(modes=tmp_path, timeout=0.2)
    with pytest.raises(TranslatorError, match=r"0\.2 s"):
        await translator.translate(["house"], "es")
    assert translator.pids() == []
    await translator.aclose()
