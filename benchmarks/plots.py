"""The plots of the page on performance: SVG, the same text for the same results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from .results import Results
    from .rows import Curve

__all__ = ["draw"]

_STYLE = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "ephemerals",  # or the ids would be random
}
_OURS, _PEER = "#00796b", "#9e9e9e"


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw the costs beside the peers' and every curve into a folder; return the files."""
    import matplotlib as mpl

    mpl.use("svg")
    folder.mkdir(exist_ok=True)
    drawn = []
    with mpl.rc_context(_STYLE):
        rows = [row for row in results.rows("overhead") if row.work.endswith(", 8 at once") and row.peer and row.ours]
        if rows:
            costs = {row.against: row.peer * 1e9 for row in rows if row.peer}
            costs["ephemerals"] = sorted(row.ours * 1e9 for row in rows if row.ours)[len(rows) // 2]
            drawn.append(_save(_bars(costs, results.python), folder / "overhead.svg"))
        drawn += [_save(_lines(curve), folder / f"growth-{_slug(curve.title)}.svg") for curve in results.curves()]
    return drawn


def _slug(title: str) -> str:
    return "-".join(title.replace(",", "").split())


def _bars(costs: dict[str, float], python: str) -> Any:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3))
    names = sorted(costs, key=lambda name: -costs[name])
    bars = axes.barh(
        names, [costs[name] for name in names], color=[_OURS if name == "ephemerals" else _PEER for name in names]
    )
    axes.bar_label(bars, [f"{costs[name]:,.0f}" for name in names], padding=3)
    axes.set_xlabel(f"nanoseconds for an item that does nothing, 8 at once, Python {python}")
    axes.margins(x=0.12)
    return figure


def _lines(curve: Curve) -> Any:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3))
    for name, points in curve.lines.items():
        numbers, costs = zip(*points, strict=True)
        label = "ephemerals" if name == "ours" else name
        axes.plot(numbers, [cost * 1e6 for cost in costs], "o-", label=label, color=_OURS if name == "ours" else _PEER)
    highest = max(cost * 1e6 for points in curve.lines.values() for _, cost in points)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.5 * highest if math.isfinite(highest) else None)
    axes.set_xlabel(curve.axis)
    axes.set_ylabel("microseconds for one")
    axes.set_title(curve.title, loc="left")
    if len(curve.lines) > 1:
        axes.legend(frameon=False, loc="upper left")
    return figure


def _save(figure: Any, path: Path) -> Path:
    from matplotlib import pyplot as plt

    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")
    return path
