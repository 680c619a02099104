"""Lines of anybody's input, and how they are shown: bytes that are no text, and text that would act on a terminal."""

from __future__ import annotations

__all__ = ["printable"]

_WIDTH = 120


def printable(text: str, width: int = _WIDTH) -> str:
    r"""Return text on one line, with everything else than plain characters escaped, and cut to a width.

    >>> printable("a\tb\x1b[31m\udcff")
    'a\\tb\\x1b[31m\\xff'
    >>> printable("abcdef", 4)
    'abc…'
    """
    shown = "".join(each if each.isprintable() else _escaped(each) for each in text[: width + 1])
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004 - how Python spells a byte that is no text (PEP 383)
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")
