"""Does it matter for `has(name)` how much has happened?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.rows import Bound, against
from ephemerals.signals import SignalSink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Row
    from benchmarks.timing import Side

TITLE = "Asking for a signal"


def ask(plan: Plan) -> Iterator[Row]:
    """Ask for a signal that is present, among a hundred names."""
    large = min(100_000, plan.many)
    many, few = asking(plan.items, large), asking(plan.items, large // 100)
    yield against(plan, "has(name) at 100,000 events", many, ("has(name) at 1,000 events", few), Bound(1.2))


def asking(count: int, events: int) -> Side:
    """Ask a sink that holds so many events."""
    sink = SignalSink(max_capacity=events, max_age=3600)
    for number in range(events):
        sink.emit(f"order.{number % 100}")

    def run() -> None:
        has = sink.has
        for _ in range(count):
            has("order.0")

    return run
