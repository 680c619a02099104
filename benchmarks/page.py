"""The page on performance, brought up to date with the stored results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .plots import draw
from .results import stored
from .table import comparison, limits, put_between, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .results import Results

__all__ = ["write"]

DOCS = Path(__file__).parent.parent / "docs"


def write(results: Sequence[Results] | None = None, docs: Path = DOCS) -> None:
    """Write tables and plots of all results; the plots are of the newest Python on asyncio's own loop."""
    results = stored() if results is None else results
    page = docs / "performance.md"
    plots = draw(newest, docs / "performance") if (newest := _newest(results)) else []
    pictures = {path.stem: f"![{path.stem.replace('-', ' ')}](performance/{path.name})" for path in plots}
    overhead = pictures.pop("overhead", None)
    put_between(page, "comparison", "\n\n".join(filter(None, (overhead, comparison(results)))))
    put_between(page, "limits", limits(results))
    put_between(page, "growth", "\n\n".join(pictures.values()) or "No curves are stored yet.")
    put_between(page, "tables", tables(results))


def _newest(results: Sequence[Results]) -> Results | None:
    plain = [each for each in results if each.loop == "asyncio"]
    return max(plain, key=lambda each: each.version, default=None)
