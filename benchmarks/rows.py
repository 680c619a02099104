"""An answer: what was measured, what it may be at most, and whether it holds."""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from time import process_time
from typing import TYPE_CHECKING, Any

from .timing import compare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .plan import Plan
    from .timing import Now, Side

__all__ = ["Bound", "Curve", "Row", "against", "climb"]

_NEWER = (3, 12)
_GROSS = 2.0


@dataclass(frozen=True, slots=True)
class Bound:
    """Say what may be measured at most: from Python 3.12 on, and before it (`None`: the same)."""

    newer: float
    older: float | None = None

    def on(self, version: tuple[int, ...]) -> float:
        """Return the bound on a version of Python."""
        return self.newer if self.older is None or version >= _NEWER else self.older


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Hold one answer. Without a bound it is there to be looked at, and always holds."""

    work: str
    against: str
    measured: float
    bound: Bound | None = None
    unit: str = "×"
    ours: float | None = None
    """Seconds for one item."""
    peer: float | None = None
    """Seconds for one item."""

    def holds(self, version: tuple[int, ...] = sys.version_info[:2], *, gross: bool = False) -> bool:
        """Tell whether the bound is kept; `gross`: whether it is broken by less than a factor of two."""
        if self.bound is None:
            return True
        return self.measured <= self.bound.on(version) * (_GROSS if gross else 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        bound = None if self.bound is None else [self.bound.newer, self.bound.older]
        fields = {name: getattr(self, name) for name in ("work", "against", "measured", "unit", "ours", "peer")}
        return {**fields, "bound": bound}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Row:
        """Make it from what JSON has."""
        bound = fields["bound"]
        return cls(**{**fields, "bound": None if bound is None else Bound(*bound)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Hold the cost of one item as numbers grow; seconds for one item, by number."""

    title: str
    axis: str
    lines: dict[str, list[tuple[int, float]]]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"title": self.title, "axis": self.axis, "lines": self.lines}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Curve:
        """Make it from what JSON has."""
        return cls(**fields)


def against(  # noqa: PLR0913 - what a row says, and how it is found out
    plan: Plan,
    work: str,
    ours: Side,
    peer: tuple[str, Side],
    bound: Bound | None,
    *,
    items: int | None = None,
    now: Now = process_time,
) -> Row:
    """Time both sides in turns; each run is of `items` (`None`: as many as the plan says)."""
    name, other = peer
    items = plan.items if items is None else items
    taken = compare(ours, other, plan, now)
    return Row(
        work=work,
        against=name,
        measured=taken.ratio,
        bound=bound,
        ours=statistics.median(taken.ours) / items,
        peer=statistics.median(taken.peer) / items,
    )


def climb(points: Sequence[tuple[int, float]]) -> float:
    """Return how much dearer an item ever gets as numbers grow: 1 is a straight line, or better."""
    worst = 1.0
    cheapest = points[0][1]
    for _, cost in points[1:]:
        worst = max(worst, cost / cheapest)
        cheapest = min(cheapest, cost)
    return worst
