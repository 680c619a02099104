"""`python -m benchmarks [--quick] [--gross] [--loop uvloop] [question…]`: ask, print, judge, and keep the answers.

A full run keeps its answers in `benchmarks/results/` and brings the page on performance up to date. A quick one is for
looking: its answers go into a file of their own, which neither git nor the page knows. The exit code is 1 if a bound is
broken; with `--gross`, only if one is broken by a factor of two, since machines are noisy.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from . import page
from .plan import FULL, LOOPS, QUICK
from .questions import QUESTIONS, question
from .results import FOLDER, Results
from .rows import Row
from .table import bound_of, number

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments ask for, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("questions", nargs="*", metavar="question", help=f"some of: {', '.join(QUESTIONS)}")
    parser.add_argument("--quick", action="store_true", help="small and short, for looking")
    parser.add_argument("--gross", action="store_true", help="fail only at twice a bound")
    parser.add_argument("--loop", choices=LOOPS, default=LOOPS[0])
    parser.add_argument("--page", action="store_true", help="only write the page anew, from the stored results")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.questions) - set(QUESTIONS):
        parser.error(f"no such question: {', '.join(sorted(unknown))}; there are {', '.join(QUESTIONS)}")
    if chosen.page:
        page.write()
        return 0
    plan = replace(QUICK if chosen.quick else FULL, loop=chosen.loop)
    results = Results.here(plan.loop)
    print(f"Python {results.about['python']}, {plan.loop}")
    for name in chosen.questions or QUESTIONS:
        results.answers[name] = ask(name, results, plan, gross=chosen.gross)
    print(results.save(FOLDER, "-quick" if chosen.quick else ""))
    if not chosen.quick:
        page.write()
    broken = results.broken(gross=chosen.gross)
    for row in broken:
        print(f"NOT MET: {row.work}, against {row.against}")
    return 1 if broken else 0


def ask(name: str, results: Results, plan: object, *, gross: bool) -> list[object]:
    """Ask one question, and print its rows as they come."""
    asked = question(name)
    print(f"\n{asked.TITLE}")
    began = perf_counter()
    answer = []
    for each in asked.ask(plan):
        answer.append(each)
        if isinstance(each, Row):
            print(line(each, results.version, gross=gross), flush=True)
    print(f"  ({perf_counter() - began:.0f} s)")
    return answer


def line(row: Row, version: tuple[int, ...], *, gross: bool = False) -> str:
    """Return a row as it is printed: what, against, measured, bound, verdict, and the costs of both sides."""
    bound = "" if row.bound is None else f"at most {bound_of(row.bound, row.unit)}"
    verdict = "" if row.bound is None else "holds" if row.holds(version) else "NOT MET"
    if verdict == "NOT MET" and gross and row.holds(version, gross=True):
        verdict = "not met, not grossly"
    costs = " / ".join("–" if cost is None else f"{cost * 1e9:,.0f} ns" for cost in (row.ours, row.peer))
    measured = number(row.measured, row.unit)
    return f"  {row.work:<52} {row.against:<32} {measured:>12}  {bound:<30} {verdict:<8} {costs}"


if __name__ == "__main__":
    sys.exit(main())
