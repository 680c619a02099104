"""Translators for tests of the desk: upper case, under the test's control."""

from __future__ import annotations

import asyncio
from pathlib import Path

from examples.translation_desk.translators import TranslatorError


class UpperCase:
    """Translate into upper case, `seconds` a batch; down, failing, or raising what nobody expects, if told so."""

    name = "Upper case"
    is_translation = True

    def __init__(self, seconds=1.0, processes=2):
        self.seconds = seconds
        self.processes = processes
        self.down = False
        self.failures = 0
        self.error = None
        self.calls = 0
        self.active = 0
        self.most_active = 0
        self.closed = False

    async def is_up(self):
        return not self.down

    def languages(self):
        return {"es": "Spanish", "ca": "Catalan"}

    async def translate(self, texts, language):
        self.calls += 1
        self.active += 1
        self.most_active = max(self.active, self.most_active)
        try:
            await asyncio.sleep(self.seconds)
            if self.error is not None:
                raise self.error("from the translator")
            if self.failures:
                self.failures -= 1
                raise TranslatorError("not this time")
            return [text.upper() for text in texts]
        finally:
            self.active -= 1

    async def aclose(self):
        self.closed = True


class Switched(UpperCase):
    """Be up while a file exists, and as slow as it says: another process holds the switch."""

    def __init__(self, switch):
        super().__init__()
        self._switch = Path(switch)

    async def is_up(self):
        return self._switch.exists()

    async def translate(self, texts, language):
        self.seconds = 0
        waited = 0.0
        while waited < (seconds := float(self._switch.read_text())):  # it may change meanwhile
            await asyncio.sleep(min(0.05, seconds - waited))
            waited += 0.05
        if seconds < 0:
            raise ValueError(seconds)
        return await super().translate(texts, language)
