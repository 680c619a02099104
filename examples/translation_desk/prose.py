"""Find what is text in a markdown document, and put other text in its place; every other byte stays as it is.

The document is parsed only to learn where its text is: code, links, images' targets, HTML, front matter and the marks
themselves are never written anew. Whatever cannot be located beyond doubt is left untranslated.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from .locating import locating_parser

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.token import Token

__all__ = ["Fragment", "fragments_of", "with_translations"]

_FRONT_MATTER = re.compile(r"\A(?P<fence>---|\+\+\+)[ \t]*\r?\n.*?^(?P=fence)[ \t]*$", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"\r\n?|\n")
_CONTAINER = re.compile(r"(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t])))*[ \t]*")
# Every part is bounded or starts where no other could: people send 200 kB of a single letter.
_ADDRESS = re.compile(
    r"(?:(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,30}://|\bwww\.)[^\s<>|]+|(?<![\w.+-])[\w.+-]{1,64}@[\w.-]{1,255}",
    re.IGNORECASE,
)
_LETTER = re.compile(r"[^\W\d_]")
_VERBATIM = re.compile(r"<(?P<close>/?)(?:code|kbd|pre|samp|script|style|var)\b", re.IGNORECASE)
_ENTITY = re.compile(r"&(?=#?\w+;)")
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~]")
_BLOCK_MARK = re.compile(r"(?:\d{1,9}(?=[.)])|(?=[-+>#=~:]))")

_parser = locating_parser()


class Fragment(NamedTuple):
    """Be a piece of text: where it starts and ends in the document, without white space around it."""

    start: int
    end: int


def fragments_of(document: str) -> list[Fragment]:
    """Return the pieces of text of a document, in order."""
    front_matter = _FRONT_MATTER.match(document)
    begin = front_matter.end() if front_matter else 0
    body = document[begin:]
    found = sorted(_find(body), key=lambda each: each.start)
    # A piece that two blocks claim cannot be located beyond doubt.
    kept = [
        each for each, following in pairwise([*found, Fragment(len(body), len(body))]) if each.end <= following.start
    ]
    return [Fragment(begin + each.start, begin + each.end) for each in kept]


def with_translations(document: str, fragments: Sequence[Fragment], translations: Sequence[str]) -> str:
    """Return the document with each fragment's translation in its place."""
    parts: list[str] = []
    position = 0
    for fragment, translation in zip(fragments, translations, strict=True):
        parts.append(document[position : fragment.start])
        parts.append(_escaped(document, fragment, translation))
        position = fragment.end
    parts.append(document[position:])
    return "".join(parts)


def _escaped(document: str, fragment: Fragment, translation: str) -> str:
    """Keep a translation from meaning more than text: it may not bring marks that the original did not have."""
    original = document[fragment.start : fragment.end]
    text = " ".join(line for each in _LINE.split(translation) if (line := each.strip()))
    if text == original or not text:
        return original
    text = _SPECIAL.sub(lambda mark: mark[0] if mark[0] in original else "\\" + mark[0], text)
    text = _ENTITY.sub(r"\\&", text)
    before = document[document.rfind("\n", 0, fragment.start) + 1 : fragment.start]
    if not before.strip(" \t>") and not _BLOCK_MARK.match(original) and (mark := _BLOCK_MARK.match(text)):
        text = f"{text[: mark.end()]}\\{text[mark.end() :]}"
    if text.endswith("!") and document.startswith("[", fragment.end):
        text = f"{text[:-1]}\\!"
    return text


def _find(document: str) -> Iterator[Fragment]:
    lines = _lines(document)
    row, cell_end = -1, 0
    for token in _parser.parse(document, {}):
        if token.type in {"th_open", "td_open"}:
            in_cell = True
            continue
        if token.type != "inline" or token.map is None:
            in_cell = False
            continue
        first = token.map[0]
        if in_cell:
            start, end = lines[first]
            if row != first:
                row, cell_end = first, _after_container(document, start, end)
            raw = token.content.replace("|", r"\|")
            at = document.find(raw, cell_end, end)
            if at < 0:
                cell_end = end
                continue
            cell_end = at + len(raw)
            pieces = _cell_pieces(token.content, at)
        else:
            pieces = _pieces(document, lines[first : token.map[1]], token.content)
        yield from _in_inline(document, token, pieces)


def _after_container(document: str, start: int, end: int) -> int:
    container = _CONTAINER.match(document, start, end)
    return container.end() if container else start


def _lines(document: str) -> list[tuple[int, int]]:
    """Return where each line starts and ends, as the parser counts lines."""
    ends = [(each.start(), each.end()) for each in _LINE.finditer(document)]
    starts = [0, *(after for _, after in ends)]
    return list(zip(starts, [*(before for before, _ in ends), len(document)], strict=True))


class _Piece(NamedTuple):
    """Say that `length` characters of a block's content, from `content` on, stand in the document from `source` on."""

    content: int
    source: int
    length: int


def _pieces(document: str, lines: Sequence[tuple[int, int]], content: str) -> list[_Piece]:
    """Locate the lines of a block's content: each is the end of its line, behind the marks of what contains it."""
    pieces: list[_Piece] = []
    offset = 0
    for (start, end), text in zip(lines, content.split("\n"), strict=False):
        wanted = text.strip()
        line = document[start:end].rstrip()
        if not line.endswith(wanted):
            line = line.rstrip("#").rstrip()
        if wanted and line.endswith(wanted):
            lead = len(text) - len(text.lstrip())
            pieces.append(_Piece(offset + lead, start + len(line) - len(wanted), len(wanted)))
        offset += len(text) + 1
    return pieces


def _cell_pieces(content: str, at: int) -> list[_Piece]:
    """Locate the parts of a cell's content: each bar in it has a backslash in the document."""
    pieces: list[_Piece] = []
    offset = 0
    for bars, part in enumerate(content.split("|")):
        pieces.append(_Piece(offset, at + offset + bars, len(part)))
        offset += len(part) + 1
    return pieces


def _in_inline(document: str, token: Token, pieces: Sequence[_Piece]) -> Iterator[Fragment]:
    starts = [each.content for each in pieces]
    addresses = [each.span() for each in _ADDRESS.finditer(token.content)]
    for start, end in _text_spans(token.children or []):
        for left, right in _outside(start, end, addresses):
            for piece in pieces[max(0, bisect_right(starts, left) - 1) : bisect_left(starts, right)]:
                begin, stop = max(left, piece.content), min(right, piece.content + piece.length)
                text = token.content[begin:stop]
                if begin >= stop or not _LETTER.search(text):
                    continue
                at = piece.source + begin - piece.content
                if document[at : at + len(text)] == text:
                    lead = len(text) - len(text.lstrip())
                    yield Fragment(at + lead, at + len(text.rstrip()))


def _text_spans(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    verbatim = 0
    for token in tokens:
        if token.type == "html_inline" and (tag := _VERBATIM.match(token.content)):
            verbatim = max(0, verbatim + (-1 if tag["close"] else 1))
        elif token.type == "image":
            yield from _text_spans(token.children or [])
        elif not verbatim and "span" in token.meta:
            yield token.meta["span"]


def _outside(start: int, end: int, gaps: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield what of a span lies in none of the gaps, which are in order."""
    for left, right in gaps[max(0, bisect_right(gaps, (start, end)) - 1) :]:
        if left >= end:
            break
        if start < left:
            yield start, left
        start = max(start, right)
    if start < end:
        yield start, end
