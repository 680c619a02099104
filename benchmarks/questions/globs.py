"""Is a glob that has seen the name as cheap as a regular expression?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from benchmarks.rows import Bound, against
from ephemerals.signals import Pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Row

TITLE = "Globs"


def ask(plan: Plan) -> Iterator[Row]:
    """Match a glob with a star in its middle, which no fast path knows."""
    name = "order.4711.failed"
    pattern = Pattern("order.*.failed")
    compiled = re.compile(r"order\..*\.failed\Z", re.DOTALL)

    def ours() -> None:
        matches = pattern.matches
        for _ in range(plan.items):
            matches(name)

    def peer() -> None:
        match = compiled.match
        for _ in range(plan.items):
            match(name)

    yield against(plan, "glob match, cached", ours, ("compiled re match", peer), Bound(1.0))
