"""The tables and plots of the page on performance, written between its markers by a run, never by hand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .questions import QUESTIONS, question

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from .results import Results
    from .rows import Bound, Row

__all__ = ["cell", "comparison", "limits", "put_between", "tables"]

_NOTHING = "No results are stored yet: `make bench` writes them here."


def put_between(page: Path, name: str, text: str) -> None:
    """Replace what is between the two markers of a name; raise a `ValueError` if the page does not have them."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    before = page.read_text(encoding="utf-8")
    if len(pattern.findall(before)) != 1:
        message = f"{page.name} must have exactly one {begin} … {end}"
        raise ValueError(message)
    page.write_text(pattern.sub(lambda _: f"{begin}\n\n{text}\n\n{end}", before), encoding="utf-8")


def number(value: float, unit: str) -> str:
    """Return a value with as many digits as mean something."""
    if unit == "bytes":
        return f"{value:,.0f} bytes"
    return f"{value:.1f} ×" if value >= 10 else f"{value:.2f} ×"  # noqa: PLR2004 - two digits are enough


def cell(row: Row | None, version: tuple[int, ...]) -> str:
    """Return what was measured, and that it is not met if it is not."""
    if row is None:
        return "–"
    text = number(row.measured, row.unit)
    return text if row.holds(version) else f"**{text}, not met**"


def bound_of(bound: Bound | None, unit: str) -> str:
    """Return the bound, both if there are two."""
    if bound is None:
        return "–"
    newer = number(bound.newer, unit)
    return newer if bound.older is None else f"{newer} (3.11: {number(bound.older, unit)})"


def tables(results: Sequence[Results]) -> str:
    """Return one table for each question: every row, with its bound, on every Python and loop."""
    return "\n\n".join(_tables(results)) or _NOTHING


def _tables(results: Sequence[Results]) -> Iterator[str]:
    for name in QUESTIONS:
        found = [{(row.work, row.against): row for row in each.rows(name)} for each in results]
        every = {key: row for rows in found for key, row in rows.items()}
        if not every:
            continue
        yield f"### {question(name).TITLE}"
        lines = [["what", "against", "at most", *(heading(each) for each in results)]]
        for key, row in every.items():
            cells = (cell(rows.get(key), each.version) for rows, each in zip(found, results, strict=True))
            lines.append([row.work, row.against, bound_of(row.bound, row.unit), *cells])
        yield table(lines)


def heading(results: Results) -> str:
    """Return how a column is called."""
    return results.python if results.loop == "asyncio" else f"{results.python}, {results.loop}"


def table(lines: Iterable[Sequence[str]]) -> str:
    """Return lines, the first being the head, as a table in Markdown."""
    head, *body = ("| " + " | ".join(cells) + " |" for cells in lines)
    return "\n".join([head, "|" + "---|" * (head.count(" | ") + 1), *body])


def comparison(results: Sequence[Results]) -> str:
    """Return what an item costs with each peer and with ours, in nanoseconds, as a user would ask."""
    blocks = []
    for each in results:
        rows = [row for row in each.rows("overhead") if row.work.endswith("8 at once") and row.ours and row.peer]
        if not rows:
            continue
        costs = sorted((row.peer * 1e9, row.against, row.measured) for row in rows if row.peer)
        lines = [["with", "ns for an item", "ours takes"]]
        lines += [[name, f"{cost:,.0f}", number(ratio, "×")] for cost, name, ratio in costs]
        blocks.append(f"Python {heading(each)}:\n\n{table(lines)}")
    return "\n\n".join(blocks) or _NOTHING


def limits(results: Sequence[Results]) -> str:
    """Return how many bounds are kept, and which are not."""
    if not results:
        return _NOTHING
    lines = []
    for each in results:
        bound = sum(row.bound is not None for name in QUESTIONS for row in each.rows(name))
        broken = each.broken()
        lines.append(f"- Python {heading(each)}: {bound - len(broken)} of {bound} bounds are met.")
        lines += [f"    - not met: {row.work}, against {row.against}: {cell(row, each.version)}" for row in broken]
    return "\n".join(lines)
