"""One question a file: `TITLE`, and `ask(plan)`, which yields the rows and curves that are its answer."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Curve, Row

__all__ = ["QUESTIONS", "Question", "question"]

QUESTIONS = (
    "overhead",
    "yielding",
    "results",
    "keyed",
    "lanes",
    "options",
    "millisecond",
    "emit",
    "has",
    "globs",
    "ids",
    "cache",
    "limiter",
    "retry",
    "threads",
    "latency",
    "growth",
    "memory",
)
"""In the order in which they are asked and shown."""


class Question(Protocol):
    """A module of this package."""

    TITLE: str

    def ask(self, plan: Plan) -> Iterator[Row | Curve]:
        """Measure, and yield the answer piece by piece."""
        ...


def question(name: str) -> Question:
    """Import a question."""
    return cast("Question", importlib.import_module(f"{__name__}.{name}"))
