"""A markdown parser whose time has a bound, whatever people send.

Parsing the text of one block takes time with the square of its marks, and 200 kB of brackets take minutes. A block with
more marks than anybody writes is taken as plain text instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

if TYPE_CHECKING:
    from markdown_it.rules_core import StateCore

__all__ = ["bounded_parser"]

_MARKS = re.compile(r"[\[\]<*_`!~&]")
_MOST_MARKS = 3000


def bounded_parser(options: dict[str, Any] | None = None) -> MarkdownIt:
    """Return a parser of CommonMark with tables and strikethrough."""
    parser = MarkdownIt("commonmark", options or {}).enable(["table", "strikethrough"])
    parser.core.ruler.at("inline", _inline)
    return parser


def _inline(state: StateCore) -> None:
    for token in state.tokens:
        if token.type != "inline":
            continue
        token.children = []
        if sum(1 for _ in _MARKS.finditer(token.content)) > _MOST_MARKS:
            token.children.append(Token("text", "", 0, content=token.content))
        else:
            state.md.inline.parse(token.content, state.md, state.env, token.children)
