"""What the desk asks of a translator, and the one that is always there: pseudo-localisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["PseudoTranslator", "Translator", "TranslatorError", "pseudo_localised"]


class TranslatorError(Exception):
    """Report that a translator did not do its work this time; it may the next time."""


class Translator(Protocol):
    """Translate English text."""

    name: str
    is_translation: bool
    """Whether what comes back is a translation, and not only a test of the page."""
    processes: int
    """How many documents it works on at once."""

    async def is_up(self) -> bool:
        """Tell whether it would translate now."""
        ...

    def languages(self) -> Mapping[str, str]:
        """Return the languages it translates into: code and name."""
        ...

    async def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """Translate texts, one by one and in order; raise `TranslatorError` if it cannot."""
        ...

    async def aclose(self) -> None:
        """Let go of everything."""
        ...


_ACCENTED = str.maketrans(
    "ACDEGHIJKLNORSTUWYZacdeghijklnorstuwyz",
    "ÅÇÐÉĜĤÎĴĶĻÑÖŔŠŢÛŴÝŽåçðéĝĥîĵķļñöŕšţûŵýž",
)
_PADDING = 0.3


class PseudoTranslator:
    """Change text as testers of pages do (locale en-XA): accents on it, longer, in brackets, and still readable."""

    name = "Pseudo-localisation"
    is_translation = False
    processes = 2

    async def is_up(self) -> bool:
        """Tell that it would work now: it always does."""
        return True

    def languages(self) -> Mapping[str, str]:
        """Return its only language, called what it is."""
        return {"en-XA": "Pseudo-localised English (a test, not a translation)"}

    async def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """Change each text."""
        if language not in self.languages():
            message = f"{self.name} does not know {language}"
            raise TranslatorError(message)
        return [pseudo_localised(text) for text in texts]

    async def aclose(self) -> None:
        """Do nothing: it holds nothing."""


def pseudo_localised(text: str) -> str:
    """Return the text with accents, a third longer, in brackets.

    >>> pseudo_localised("Good morning")
    '⟦Ĝööð möŕñîñĝ ···⟧'
    """
    return f"⟦{text.translate(_ACCENTED)} {'·' * round(_PADDING * len(text) - 0.5)}⟧"
