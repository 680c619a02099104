"""The answers of runs, one file for each Python and loop; a run of some questions replaces theirs only."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .questions import QUESTIONS
from .rows import Curve, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FOLDER", "Results", "stored"]

FOLDER = Path(__file__).parent / "results"

PACKAGES = (
    *("aiojobs", "aiolimiter", "aiometer", "aiostream", "anyio", "async-lru", "backoff", "blinker", "cachetools"),
    *("psygnal", "pyee", "taskiq", "tenacity", "uvloop"),
)


@dataclass(slots=True, kw_only=True)
class Results:
    """Hold the answers of one Python on one loop, by question."""

    python: str
    """Such as "3.12"."""
    loop: str
    answers: dict[str, list[Row | Curve]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return what tells it from others."""
        return f"{self.python}-{self.loop}"

    @property
    def version(self) -> tuple[int, ...]:
        """Return the version of Python as numbers."""
        return tuple(map(int, self.python.split(".")))

    def rows(self, question: str) -> Iterator[Row]:
        """Return the rows among the answers to a question."""
        return (each for each in self.answers.get(question, ()) if isinstance(each, Row))

    def curves(self) -> Iterator[Curve]:
        """Return all curves."""
        return (each for answer in self.answers.values() for each in answer if isinstance(each, Curve))

    def broken(self, *, gross: bool = False) -> list[Row]:
        """Return the rows whose bound is not kept."""
        rows = (row for question in self.answers for row in self.rows(question))
        return [row for row in rows if not row.holds(self.version, gross=gross)]

    def save(self, folder: Path, suffix: str = "") -> Path:
        """Write it into a folder, over what was there for the same questions."""
        path = folder / f"{self.name}{suffix}.json"
        earlier = Results.load(path).answers if path.exists() else {}
        answers = {name: each for name in QUESTIONS if (each := self.answers.get(name, earlier.get(name)))}
        text = {
            "python": self.python,
            "loop": self.loop,
            "about": self.about,
            "answers": {
                name: {
                    "rows": [each.to_dict() for each in answer if isinstance(each, Row)],
                    "curves": [each.to_dict() for each in answer if isinstance(each, Curve)],
                }
                for name, answer in answers.items()
            },
        }
        folder.mkdir(exist_ok=True)
        path.write_text(json.dumps(text, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what `save` has written."""
        text = json.loads(path.read_text(encoding="utf-8"))
        answers = {
            name: [*map(Row.from_dict, answer["rows"]), *map(Curve.from_dict, answer["curves"])]
            for name, answer in text["answers"].items()
        }
        return cls(python=text["python"], loop=text["loop"], about=text["about"], answers=answers)

    @classmethod
    def here(cls, loop: str) -> Results:
        """Return empty ones for this Python, with all that one needs to know of it, and no date."""
        about = {
            "python": platform.python_version(),
            "implementation": platform.python_implementation(),
            "machine": platform.machine(),
            "packages": dict(_installed()),
        }
        return cls(python="{}.{}".format(*sys.version_info), loop=loop, about=about)


def _installed() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue


def stored(folder: Path = FOLDER) -> list[Results]:
    """Return the results of full runs in a folder, the oldest Python first, uvloop after asyncio's own loop."""
    paths = (path for path in folder.glob("*.json") if path.stem.count("-") == 1)
    return sorted(map(Results.load, paths), key=lambda each: (each.version, each.loop))
