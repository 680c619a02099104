"""Operation ids: unique in the process, random between processes, not sequential, cheap.

An id is a counter sent through a bijection of the 63-bit numbers: a Weyl sequence whose step is the golden-ratio
constant of Fibonacci hashing (Knuth, TAOCP 3, 6.4). It starts at a random number, so two processes meet with the
probability of two random picks, whatever their pids. The chain consists of C iterators, so the arithmetic costs no
Python frame. A forked child starts from a new random number. Ids are names, not secrets: who knows
one can guess others.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
from typing import TYPE_CHECKING, Final

from .errors import InvalidOption, InvalidOptionType

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["format_id", "next_id", "parse_id"]

_BITS: Final = 63
_MASK: Final = (1 << _BITS) - 1
_STEP: Final = 0x9E3779B97F4A7C15 & _MASK
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_TEXT: Final = re.compile(r"[0-9a-z]{1,13}", re.ASCII)


def _stream() -> Iterator[int]:
    counter = itertools.count(secrets.randbits(_BITS), _STEP)
    return filter(None, map(_MASK.__and__, counter))  # an id is never 0


_ids = _stream()


def next_id() -> int:
    """Return a new id: a positive int below 2**63, never returned before in this process.

    >>> next_id() != next_id()
    True
    """
    return next(_ids)


def as_id(operation_id: object) -> int:
    """Return what may be an id; what cannot, such as its text form, is an `InvalidOptionType`."""
    if not isinstance(operation_id, int) or isinstance(operation_id, bool):
        raise InvalidOptionType("operation_id", operation_id, "an int: turn the text form into one with parse_id()")
    return operation_id


def format_id(operation_id: int) -> str:
    """Return the short lower-case text form of an id, for logs, addresses and pages.

    >>> format_id(123456789)
    '21i3v9'
    """
    if not isinstance(operation_id, int):
        raise InvalidOptionType("operation_id", operation_id, "an int")
    if not 0 <= operation_id <= _MASK:
        raise InvalidOption("operation_id", operation_id, "an id: an int from 0 to 2**63 - 1")
    text = ""
    while True:
        operation_id, digit = divmod(operation_id, 36)
        text = _DIGITS[digit] + text
        if not operation_id:
            return text


def parse_id(text: str) -> int:
    """Return the id that `format_id` turned into `text`; anything else is an `InvalidOption`.

    >>> parse_id("21i3v9")
    123456789
    """
    if not isinstance(text, str):
        raise InvalidOptionType("text", text, "the text form of an id")
    if _TEXT.fullmatch(text) is None or (value := int(text, 36)) > _MASK or format_id(value) != text:
        raise InvalidOption("text", text[:32], "the text form of an id, as format_id() returns it")
    return value


def _reseed() -> None:
    global _ids  # noqa: PLW0603 - the one piece of process-wide state, replaced in a forked child
    _ids = _stream()


os.register_at_fork(after_in_child=_reseed)
