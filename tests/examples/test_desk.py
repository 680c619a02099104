"""The desk without HTTP: orders, retries, limits, and that it forgets (rows P1-P11 of the design)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref

import pytest
from examples.translation_desk.desk import LARGEST_TEXT, Desk, TextNotAccepted, TranslationFailed, TranslatorDown
from tests.examples.translators import UpperCase

from ephemerals import CoordinatorFull, OperationCancelled, OwnerWindow
from ephemerals.testing import VirtualClock


@pytest.fixture
def translator():
    return UpperCase()


async def test_an_order_is_accepted_at_once_and_fulfilled_later(translator):
    desk = Desk(translator)
    async with desk.registry:
        operation = await desk.start("ada", "es", "# Good `code`")
        assert operation.status == "pending"
        assert operation.metadata == {"language": "es"}
        done = await operation
        assert (done.language, done.original, done.translated) == ("es", "# Good `code`", "# GOOD `code`")


async def test_as_many_documents_are_translated_at_once_as_there_are_processes(translator):
    desk = Desk(translator)
    loop = asyncio.get_running_loop()
    async with desk.registry:
        before = loop.time()
        operations = [await desk.start(str(number), "es", f"text {number}") for number in range(10)]
        done = [await each for each in operations]
        assert loop.time() - before == pytest.approx(5)
    assert translator.most_active == 2
    assert [each.translated for each in done] == [f"TEXT {number}" for number in range(10)]


async def test_texts_are_sent_in_batches_and_the_signals_tell_how_far_it_is(translator):
    desk = Desk(translator)
    async with desk.registry:
        operation = await desk.start("ada", "es", "\n".join(f"- line {number}" for number in range(45)))
        await operation
    assert translator.calls == 3
    assert [(each.name, dict(each.data)) for each in operation.signals] == [
        ("translation.parsed", {"texts": 45}),
        ("translation.progressed", {"done": 20, "texts": 45}),
        ("translation.progressed", {"done": 40, "texts": 45}),
        ("translation.progressed", {"done": 45, "texts": 45}),
    ]


async def test_two_stumbles_are_forgiven(translator):
    translator.failures = 2
    desk = Desk(translator)
    async with desk.registry:
        operation = await desk.start("ada", "es", "text")
        assert (await operation).translated == "TEXT"
    assert [each.data["attempt"] for each in operation.signals if each.name == "translation.stumbled"] == [1, 2]


async def test_a_third_stumble_is_a_clear_failure(translator):
    translator.failures = 3
    desk = Desk(translator)
    async with desk.registry:
        operation = await desk.start("ada", "es", "text")
        with pytest.raises(TranslationFailed, match="3 times"):
            await operation
    assert (operation.status, translator.calls) == ("failed", 3)


async def test_what_nobody_expected_fails_as_itself_and_is_not_tried_again(translator):
    translator.error = ZeroDivisionError
    desk = Desk(translator)
    async with desk.registry:
        operation = await desk.start("ada", "es", "text")
        with pytest.raises(ZeroDivisionError):
            await operation
    assert translator.calls == 1


async def test_while_the_translator_is_down_nothing_is_queued_and_when_it_is_back_it_is_seen(translator):
    desk = Desk(translator)
    translator.down = True
    async with desk.registry:
        with pytest.raises(TranslatorDown):
            await desk.start("ada", "es", "text")
        assert desk.translations.total_enqueued == 0
        assert desk.window.list("ada") == []
        translator.down = False
        assert (await (await desk.start("ada", "es", "text"))).translated == "TEXT"


@pytest.mark.parametrize(
    ("language", "text", "why"),
    [
        ("xx", "text", "language"),
        ("es", "  \n", "no text"),
        ("es", "x" * (LARGEST_TEXT + 1), "200 kB"),
        ("es", "é" * (LARGEST_TEXT // 2) + "x", "200 kB"),
    ],
    ids=["unknown language", "empty", "too large", "too large in bytes"],
)
async def test_what_could_never_be_fulfilled_is_refused(translator, language, text, why):
    desk = Desk(translator)
    async with desk.registry:
        with pytest.raises(TextNotAccepted, match=why):
            await desk.start("ada", language, text)


async def test_the_largest_text_is_accepted(translator):
    desk = Desk(translator)
    async with desk.registry:
        await (await desk.start("ada", "es", "x" * LARGEST_TEXT))


async def test_too_much_waiting_is_refused(translator):
    desk = Desk(translator)
    async with desk.registry:
        with pytest.raises(CoordinatorFull):
            for _ in range(200):
                await desk.start("ada", "es", "text")
        desk.translations.cancel()


async def test_the_newest_five_of_an_owner_are_kept_and_nobody_else_sees_them(translator):
    desk = Desk(translator)
    async with desk.registry:
        operations = [await desk.start("ada", "es", f"text {number}") for number in range(6)]
        bobs = await desk.start("bob", "es", "text")
        await desk.translations.join()
        assert desk.window.list("ada") == operations[:0:-1]
        assert desk.window.get("ada", operations[0].id) is None
        assert desk.window.get("ada", bobs.id) is None
        assert desk.window.get("bob", bobs.id) is bobs


class Text(str):
    """A text that a weak reference can refer to."""

    __slots__ = ("__weakref__",)


@pytest.mark.parametrize("fate", ["completed", "failed", "cancelled"])
async def test_after_its_entry_has_gone_nothing_holds_the_text(translator, fate):
    clock = VirtualClock.current()
    if fate == "failed":
        translator.error = ConnectionError
    desk = Desk(translator, OwnerWindow(sliding=3600))
    async with desk.registry:
        text = Text("a secret `text`")
        operation = await desk.start("ada", "es", text)
        references = [weakref.ref(text), weakref.ref(operation)]
        del text
        if fate == "cancelled":
            await asyncio.sleep(0.5)
            operation.cancel()
        with contextlib.suppress(ConnectionError, OperationCancelled):
            references.append(weakref.ref(await operation))
        assert operation.status == fate
        del operation
        gc.collect()
        gc.disable()
        try:
            if fate == "completed":
                assert references[0]() is not None, "the result is there for its owner"
            await asyncio.sleep(3601)
            await clock.settle()
            assert [each() for each in references] == [None] * len(references)
        finally:
            gc.enable()
