"""Which names: patterns with two wildcards, compiled once.

`*` stands for any run of characters, dots and line breaks included; `?` for exactly one; everything else for
itself, case-sensitive, `[` too. A comma separates alternatives; blanks around them are trimmed and empty ones
ignored.

    >>> Pattern("error.*, warning.*").matches("error.db.timeout")
    True
    >>> Pattern("request.gateway.*").matches("request.gateway.*.done")
    True

Exact names, prefixes and `*` are decided without a regular expression. The rest becomes one, without the
backtracking that makes a pattern of many stars slow on a name that does not match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias, Union

from ephemerals.errors import InvalidOption, InvalidOptionType

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Pattern", "PatternLike"]

PatternLike: TypeAlias = Union[str, "Pattern", Iterable[Union[str, "Pattern"]]]
"""A pattern, or several of which one is enough."""

_ALLOWED: Final = "a pattern such as 'load.*, error.?', or several"
_MAX_VERDICTS: Final = 1024


class Pattern:
    """Match names against one or more alternatives; frozen, compared by what it matches.

    `text` is its normal form; `names` are the alternatives without a wildcard, and `is_exact` tells that
    there are no others. A pattern with no alternative at all is an `InvalidOption`.
    """

    __slots__ = ("_regex", "_test", "_verdicts", "is_exact", "names", "text")

    text: str
    names: frozenset[str]
    is_exact: bool
    _test: Callable[[str], bool] | None
    _regex: re.Pattern[str] | None
    _verdicts: dict[str, bool]

    def __init__(self, text: str) -> None:
        alternatives = _split(text)
        globs = [each for each in alternatives if "*" in each or "?" in each]
        names = frozenset(alternatives).difference(globs)
        put = super().__setattr__
        put("text", ", ".join(alternatives))
        put("names", names)
        put("is_exact", not globs)
        put("_test", None if globs else names.__contains__)
        put("_regex", None)
        put("_verdicts", {})
        if globs:
            self._compile(globs)

    def _compile(self, globs: list[str]) -> None:
        """Choose the cheapest test that is right for the alternatives with wildcards."""
        put = super().__setattr__
        starts = tuple(each[:-1] for each in globs if each.find("*") == len(each) - 1 and "?" not in each)
        if len(starts) == len(globs) and not self.names:
            put("_test", _everything if "" in starts else _starting_with(starts))
        else:
            every = [*map(re.escape, self.names), *map(_translate, globs)]
            put("_regex", re.compile("|".join(f"(?:{each})" for each in every), re.DOTALL))

    @staticmethod
    def of(value: PatternLike) -> Pattern:
        """Return the pattern for a text, a pattern, or several; the same text gives the same object."""
        if isinstance(value, Pattern):
            return value
        if isinstance(value, str):
            return _cached(value)
        given: object = value
        if not isinstance(given, Iterable):
            raise InvalidOptionType("pattern", given, _ALLOWED)
        parts: list[str | Pattern] = list(given)
        if not all(isinstance(each, str | Pattern) for each in parts):
            raise InvalidOptionType("pattern", parts, _ALLOWED)
        return _cached(",".join(each if isinstance(each, str) else each.text for each in parts))

    @staticmethod
    def of_optional(value: PatternLike | None) -> Pattern | None:
        """Return `None` for `None` and for an empty iterable, which match nothing; else what `of` returns."""
        if value is None or isinstance(value, Pattern):
            return value
        if not isinstance(value, str) and isinstance(value, Iterable):
            value = tuple(value)
            if not value:
                return None
        return Pattern.of(value)

    def matches(self, name: str) -> bool:
        """Tell whether a name matches."""
        test = self._test
        if test is not None:
            return test(name)
        verdict = self._verdicts.get(name)
        return self._decide(name) if verdict is None else verdict

    def _decide(self, name: str) -> bool:
        """Match by regular expression, and remember the verdict for a bounded number of names."""
        assert self._regex is not None
        verdict = self._regex.fullmatch(name) is not None
        if len(self._verdicts) >= _MAX_VERDICTS:
            self._verdicts.clear()
        self._verdicts[name] = verdict
        return verdict

    def select(self, names: Iterable[str]) -> list[str]:
        """Return the names that match, in their order."""
        matches = self.matches
        return [name for name in names if matches(name)]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: a pattern is frozen."""
        raise AttributeError(f"cannot set {name!r}: a Pattern is frozen")

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse: a pattern is frozen."""
        raise AttributeError(f"cannot delete {name!r}: a Pattern is frozen")

    def __reduce__(self) -> tuple[type[Pattern], tuple[str]]:
        return Pattern, (self.text,)

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Pattern) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


@lru_cache(maxsize=512)
def _cached(text: str) -> Pattern:
    return Pattern(text)


def _split(text: str) -> list[str]:
    """Return the alternatives, each once, in order."""
    if not isinstance(text, str):
        raise InvalidOptionType("pattern", text, _ALLOWED)
    parts = [part.strip() for part in text.split(",")]
    alternatives = list(dict.fromkeys(part for part in parts if part))
    if not alternatives:
        raise InvalidOption("pattern", text, "a pattern that is not empty")
    return alternatives


def _everything(_name: str) -> bool:
    return True


def _starting_with(prefixes: tuple[str, ...]) -> Callable[[str], bool]:
    return lambda name: name.startswith(prefixes)


def _translate(glob: str) -> str:
    """Return a regular expression for one alternative.

    Between two stars the first place where the text fits is as good as any later one. So each such part is an
    atomic group, which is never reconsidered: the match takes linear time for each star (CPython's `fnmatch`
    does the same).
    """
    first, *rest = re.split(r"\*+", glob)
    parts = [_literal(first)]
    if rest:
        *middle, last = rest
        parts.extend(f"(?>.*?{_literal(each)})" for each in middle)
        parts.append(f".*{_literal(last)}")
    return "".join(parts)


def _literal(text: str) -> str:
    return "".join("." if character == "?" else re.escape(character) for character in text)
