"""What the documentation shows, runs: the code of every page, in order, and the doctests of every module.

A block fenced as `python` runs, with `await` allowed at the top; one fenced as `pycon` is compared with its
output. The blocks of one page share their names, as a reader would expect. Other languages are not run.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import ephemerals

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
FENCED = re.compile(
    r"^(?P<indent> *)```(?P<language>python|pycon)\b[^\n]*\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
SHOWN = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)  # by mkdocstrings, on a page of the reference
NOT_IMPORTED_FROM = {"cli", "coordination"}


def run_page(page: Path) -> int:
    """Run the blocks of one page and return how many there were."""
    text = page.read_text(encoding="utf-8")
    module = ModuleType("__main__")  # dataclasses, pickle and typing look their module up by its name
    blocks = list(FENCED.finditer(text))
    before = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        for block in blocks:
            line = text.count("\n", 0, block.start("code"))
            code = inspect.cleandoc("\n" + block["code"]) + "\n"
            if block["language"] == "pycon":
                example = doctest.DocTestParser().get_doctest(code, vars(module), page.name, str(page), line)
                run_doctest(example)
            else:
                run_code("\n" * line + code, page, vars(module))
    finally:
        sys.modules["__main__"] = before
    return len(blocks)


def run_code(code: str, page: Path, names: dict[str, object]) -> None:
    """Run one block, on an event loop if it awaits at the top."""
    compiled = compile(code, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    outcome = eval(compiled, names)
    if inspect.iscoroutine(outcome):
        asyncio.run(outcome)


def run_doctest(example: doctest.DocTest) -> None:
    report: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.DocTestRunner(optionflags=flags).run(example, out=report.append, clear_globs=False)
    assert not result.failed, "".join(report)


def modules() -> list[str]:
    """Return the names of all modules of the installed package."""
    found = pkgutil.walk_packages(ephemerals.__path__, "ephemerals.", onerror=pytest.fail)
    return ["ephemerals", *(module.name for module in found if not module.name.endswith(".__main__"))]


def public_packages() -> list[str]:
    """Return the names of the packages that users import from."""
    found = (each.name for each in pkgutil.iter_modules(ephemerals.__path__) if each.ispkg)
    return ["ephemerals", *(f"ephemerals.{name}" for name in found if name not in NOT_IMPORTED_FROM)]


def not_shown(package: ModuleType, shown: set[str]) -> set[str]:
    """Return the public names that no page shows; a package as a whole shows all but those that are modules, too."""
    names = set(package.__all__)
    for path in shown:
        if path.startswith(f"{package.__name__}."):
            names.discard(path.rpartition(".")[2])
    if package.__name__ in shown:
        names &= {each.name for each in pkgutil.iter_modules(package.__path__)}
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_on_a_page_runs(page: Path) -> None:
    run_page(page)


@pytest.mark.parametrize("name", modules())
def test_the_examples_in_docstrings_are_right(name: str) -> None:
    for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name)):
        run_doctest(example)


@pytest.mark.parametrize("name", public_packages())
def test_the_reference_shows_every_public_name(name: str) -> None:
    shown = {path for page in PAGES for path in SHOWN.findall(page.read_text(encoding="utf-8"))}
    assert not_shown(importlib.import_module(name), shown) == set()


def test_a_name_that_the_reference_does_not_show_is_noticed() -> None:
    package = importlib.import_module("ephemerals.signals")
    every = {f"ephemerals.signals.{name}" for name in package.__all__}
    assert not_shown(package, every - {"ephemerals.signals.SignalSink"}) == {"SignalSink"}
    assert not_shown(package, {"ephemerals.signals"}) == {"early_exit", "quorum"}  # shown as modules


def test_a_wrong_example_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nanswer = 42\n```\n\n```pycon\n>>> answer\n41\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"Expected:\s+41\s+Got:\s+42"):
        run_page(page)


def test_a_failing_example_names_its_line_on_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("\n```python\nfrom asyncio import sleep\nawait sleep(0)\n1 / 0\n```\n", encoding="utf-8")
    with pytest.raises(ZeroDivisionError) as failure:
        run_page(page)
    assert failure.traceback[-1].lineno == 5 - 1  # pytest counts from 0
