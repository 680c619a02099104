"""The parser, made to remember where the text is: of each piece, its place in the content of its block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .bounded import bounded_parser

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

__all__ = ["locating_parser"]


def _extend(state: StateInline, end: int) -> None:
    """Note that the text from the current position to `end` is text, in one token with what stands before it.

    Where it is matters here, and not what it says.
    """
    last = state.tokens[-1] if state.tokens else None
    if last is not None and last.type == "text" and last.meta.get("span", (0, -1))[1] == state.pos:
        last.meta["span"] = (last.meta["span"][0], end)
        return
    token = state.push("text", "", 0)
    token.meta = {"span": (state.pos, end)}


def _text(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - the parser's own signature
    mark = state.md.inline.terminator_re.search(state.src, state.pos)
    end = min(mark.start() if mark else state.posMax, state.posMax)
    if end == state.pos:
        return False
    if not silent:
        _extend(state, end)
    state.pos = end
    return True


def _any_character(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - the parser's own signature
    """Take one character that has turned out to mean nothing special."""
    if not silent:
        _extend(state, state.pos + 1)
    state.pos += 1
    return True


def _keeping_labels(rule: Any, mark: int) -> Any:
    """Wrap the rule of links or images: what is text and label in one, `[text]` or `[text][]`, is not text."""

    def wrapped(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - the parser's own signature
        start, count = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        if silent:
            return True
        end = state.md.helpers.parseLinkLabel(state, start + mark, not mark)
        is_label = state.src[end + 1 : state.pos] in {"", "[]"}
        for token in _with_spans(state.tokens[count:]):
            if is_label:
                del token.meta["span"]
            elif mark:  # the description was parsed by itself
                token.meta["span"] = tuple(start + 2 + each for each in token.meta["span"])
        return True

    return wrapped


def _with_spans(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        if "span" in token.meta:
            yield token
        yield from _with_spans(token.children or [])


def locating_parser() -> MarkdownIt:
    """Return a parser whose tokens of text say in `meta["span"]` where they stand in their block's content."""
    parser = bounded_parser()
    parser.disable(["fragments_join", "text_join"])
    rules = {each.name: each.fn for each in parser.inline.ruler.__rules__}
    parser.inline.ruler.at("text", _text)
    parser.inline.ruler.at("link", _keeping_labels(rules["link"], 0))
    parser.inline.ruler.at("image", _keeping_labels(rules["image"], 1))
    parser.inline.ruler.push("any_character", _any_character)
    return parser
