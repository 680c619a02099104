"""The desk: starts translations in the background, keeps each owner's newest, and knows nothing about HTTP."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ephemerals import CoordinatorRegistry, Operation, OwnerWindow, WorkCoordinator

from .prose import fragments_of, with_translations
from .translators import TranslatorError

if TYPE_CHECKING:
    from .translators import Translator

__all__ = ["Desk", "TextNotAccepted", "Translation", "TranslationFailed", "TranslatorDown"]

LARGEST_TEXT: Final = 200_000
"""Bytes of UTF-8 that a document may have."""

_TRIES: Final = 3
_PAUSE: Final = 0.2
_BATCH: Final = 20


class TextNotAccepted(ValueError):
    """Refuse an order that could never be fulfilled; the message says why."""


class TranslatorDown(Exception):
    """Refuse an order because the translator is down; nothing was queued."""


class TranslationFailed(Exception):
    """Report that the translator did not do its work, three times in a row."""


@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class Order:
    """Be what a translation needs; the library forgets it when the work has ended."""

    language: str
    markdown: str


@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class Translation:
    """Be a finished translation: it lives as long as the handle in its owner's window."""

    language: str
    original: str
    translated: str


class Desk:
    """Take orders, and hand each owner their own translations."""

    def __init__(self, translator: Translator, window: OwnerWindow | None = None) -> None:
        self.translator = translator
        self.window = OwnerWindow() if window is None else window
        self.registry = CoordinatorRegistry()
        self.registry.register(
            "translations",
            self._translate,
            max_concurrency=translator.processes,
            max_pending=100,
            overflow="reject",
            error_detail="message",
        )

    @property
    def translations(self) -> WorkCoordinator[Order, Translation]:
        """Return the coordinator that runs the translations."""
        return self.registry.get("translations", WorkCoordinator[Order, Translation])

    async def start(self, owner: str, language: str, markdown: str) -> Operation[Translation]:
        """Accept an order and return its operation at once.

        Raise `TextNotAccepted`, `TranslatorDown`, or `CoordinatorFull` when too much is waiting.
        """
        if not markdown.strip():
            raise TextNotAccepted("There is no text to translate.")
        if len(markdown.encode(errors="replace")) > LARGEST_TEXT:
            message = f"The text is too large: the limit is {LARGEST_TEXT // 1000} kB."
            raise TextNotAccepted(message)
        if not await self.translator.is_up():
            raise TranslatorDown("The translator is down. Nothing was started; please try again later.")
        if language not in self.translator.languages():
            raise TextNotAccepted("The translator does not know this language.")
        operation = await self.translations.enqueue(Order(language, markdown), metadata={"language": language})
        self.window.add(owner, operation)
        return operation

    async def _translate(self, order: Order, operation: Operation[Translation]) -> Translation:
        """Be the body: translate the text of a document in batches, and say how far it is."""
        fragments = await asyncio.to_thread(fragments_of, order.markdown)
        operation.emit("translation.parsed", data={"texts": len(fragments)})
        done: list[str] = []
        for first in range(0, len(fragments), _BATCH):
            texts = [order.markdown[each.start : each.end] for each in fragments[first : first + _BATCH]]
            done += await self._with_retries(texts, order.language, operation)
            operation.emit("translation.progressed", data={"done": len(done), "texts": len(fragments)})
        translated = with_translations(order.markdown, fragments, done)
        return Translation(order.language, order.markdown, translated)

    async def _with_retries(self, texts: list[str], language: str, operation: Operation[Translation]) -> list[str]:
        """Try three times what may go right the next time; what nobody expected goes out as it is."""
        for attempt in range(1, _TRIES + 1):
            try:
                return await self.translator.translate(texts, language)
            except TranslatorError:
                operation.emit("translation.stumbled", data={"attempt": attempt})
                if attempt < _TRIES:
                    await asyncio.sleep(_PAUSE * 2 ** (attempt - 1))
        message = f"The translator failed {_TRIES} times in a row."
        raise TranslationFailed(message)
