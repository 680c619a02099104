"""Show the README as the first page of the site: its links are relative to the root of the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_README = '--8<-- "README.md"'


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the README in the place where a page asks for it, with its links made to fit there."""
    if _README not in markdown:
        return markdown
    readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    return markdown.replace(_README, readme.replace("](docs/", "]("))
