"""Markdown as a page shows it: HTML in it is text, and nothing is fetched from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markdown_it.common.utils import escapeHtml
from markupsafe import Markup

from .bounded import bounded_parser

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token
    from markdown_it.utils import OptionsDict

__all__ = ["rendered"]


def _image(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: MutableMapping[str, Any]
) -> str:
    """Show the description of an image in its place: the picture itself is on some other server."""
    description = renderer.renderInlineAsText(tokens[index].children, options, env) or "image"
    return f'<span class="picture" role="img" aria-label="{escapeHtml(description)}">{escapeHtml(description)}</span>'


_parser = bounded_parser({"html": False})
_parser.add_render_rule("image", _image)


def _aligned(tokens: Sequence[Token]) -> None:
    """Say the alignment of a column by a class: the page's policy allows no styles in attributes."""
    for token in tokens:
        style = token.attrs.pop("style", None)
        if style is not None:
            token.attrSet("class", str(style).replace("text-align:", "align-"))
        if token.type == "link_open":
            token.attrSet("rel", "noopener noreferrer nofollow")
            token.attrSet("target", "_blank")
        _aligned(token.children or [])


def rendered(markdown: str) -> Markup:
    """Return a document as HTML."""
    tokens = _parser.parse(markdown)
    _aligned(tokens)
    return Markup(_parser.renderer.render(tokens, _parser.options, {}))
