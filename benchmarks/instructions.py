"""Count instructions instead of time: a gate that does not depend on the mood of the machine.

`python -m benchmarks.instructions` runs ours, queue + workers and `TaskGroup` + `Semaphore` under callgrind with few
and with more items; the difference is what the items cost, start and imports left out. What counts is the ratio to
queue + workers in the same Python. It is compared with the ratio recorded in `instructions.json` for the same build of
Python, and may be a tenth above it; `--record` records anew. Without valgrind it says so, and passes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .timing import Side

__all__ = ["build", "exceeded", "main"]

RECORD = Path(__file__).parent / "instructions.json"
SIDES = ("ours", "queue + workers", "TaskGroup + Semaphore")
BODIES = ("none", "once")
FEW, MORE = 2_000, 8_000
_TOLERANCE = 1.1
_COLLECTED = re.compile(r"Collected\s*:\s*(\d+)")

Ratios = dict[str, dict[str, float]]
"""By body, then by side."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, print, and compare with what is recorded; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__.partition("\n")[0])
    parser.add_argument("--record", action="store_true", help="take what is counted as the measure from now on")
    parser.add_argument("--run", nargs=3, metavar=("SIDE", "BODY", "ITEMS"), help="only run this, not counted")
    chosen = parser.parse_args(arguments)
    if chosen.run:
        run(chosen.run[0], chosen.run[1], int(chosen.run[2]))
        return 0
    if shutil.which("valgrind") is None:
        print("*" * 90, "INSTRUCTIONS ARE NOT COUNTED: valgrind is not installed.", "*" * 90, sep="\n")
        return 0
    ratios = count()
    recorded = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if chosen.record:
        RECORD.write_text(json.dumps({**recorded, build(): ratios}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return 0
    if build() not in recorded:
        print(f"nothing is recorded for {build()}: nothing to compare with (--record records)")
    above = exceeded(ratios, recorded.get(build(), {}))
    print(*above, sep="\n", end="\n" if above else "")
    return 1 if above else 0


def build() -> str:
    """Name this build of Python: another one may need other instructions for the same."""
    optimized = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    about = (platform.python_version(), platform.machine(), platform.python_compiler())
    return " ".join((*about, "optimized" if optimized else "not optimized"))


def count() -> Ratios:
    """Return how many times as many instructions an item takes as with queue + workers; print as they come."""
    ratios: Ratios = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for body in BODIES:
            counts = dict(zip(SIDES, pool.map(partial(per_item, body=body), SIDES), strict=True))
            least = counts["queue + workers"]
            ratios[body] = {side: round(each / least, 3) for side, each in counts.items()}
            for side, each in counts.items():
                print(f"{body:<6}{side:<24}{each:>10,.0f} instructions for an item {each / least:>8.2f} ×", flush=True)
    return ratios


def per_item(side: str, body: str) -> float:
    """Return the instructions that one more item takes."""
    return (collected(side, body, MORE) - collected(side, body, FEW)) / (MORE - FEW)


def collected(side: str, body: str, items: int) -> int:
    """Return the instructions of a whole run, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        child = [sys.executable, "-m", "benchmarks.instructions", "--run", side, body, str(items)]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run([*tool, *child], capture_output=True, text=True, check=True, env=environment)
    found = _COLLECTED.search(done.stderr)
    if found is None:
        message = f"callgrind does not say what it has collected: {done.stderr[-500:]}"
        raise RuntimeError(message)
    return int(found[1])


def run(side: str, body: str, items: int) -> None:
    """Run one side, to be counted."""
    from . import bodies
    from .plan import TINY
    from .timing import timed

    timed(_side(side, getattr(bodies, body), items), TINY)


def _side(side: str, body: object, items: int) -> Side:
    if side == "ours":
        from ephemerals import WorkCoordinator

        from .bodies import through

        return through(partial(WorkCoordinator, body, max_concurrency=8), range(items))
    from .handwritten import queue_and_workers, task_group  # and no package: whatever is imported is counted, slowly

    return (queue_and_workers if side == "queue + workers" else task_group)(body, 8, range(items))


def exceeded(ratios: Ratios, recorded: Ratios) -> list[str]:
    """Return a line for each ratio of ours that is more than a tenth above the recorded one."""
    lines = []
    for body, sides in ratios.items():
        allowed = recorded.get(body, {}).get("ours")
        if allowed is not None and sides["ours"] > _TOLERANCE * allowed:
            lines.append(f"MORE INSTRUCTIONS: body {body}: {sides['ours']:.2f} ×, recorded {allowed:.2f} ×")
    return lines


if __name__ == "__main__":
    sys.exit(main())
