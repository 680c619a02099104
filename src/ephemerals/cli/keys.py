"""The key of a line: a field, as awk counts them, or what a regular expression finds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["key_selector"]


def key_selector(text: str) -> Callable[[str], str]:
    r"""Return the function that finds a line's key; a `ValueError` if `text` is no regular expression.

    A number is the number of a field: 1 is the first word, -1 the last, 0 the whole line. Anything else is a regular
    expression, and the key its first group, or all that it matches. Where there is nothing of it the key is empty.

    >>> key_selector("2")("GET /index.html 200")
    '/index.html'
    >>> key_selector(r"\.\w+$")("src/main.py"), key_selector(r"user=(\w+)")("id=7 user=ada"), key_selector("9")("a b")
    ('.py', 'ada', '')
    """
    if re.fullmatch("-?[0-9]+", text):
        return _field(int(text))
    try:
        expression = re.compile(text)
    except re.error as error:
        message = f"{text!r} is neither the number of a field nor a regular expression ({error})"
        raise ValueError(message) from None

    def found(line: str) -> str:
        match = expression.search(line)
        return (match[1 if expression.groups else 0] or "") if match else ""

    return found


def _field(number: int) -> Callable[[str], str]:
    def field(line: str) -> str:
        if number == 0:
            return line
        if number < 0:
            words = line.rsplit(None, -number)
            return words[number] if len(words) >= -number else ""
        words = line.split(None, number)
        return words[number - 1] if len(words) >= number else ""

    return field
