"""What is installed: a typed package that needs nothing, and whose core needs nothing even when it runs."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

import ephemerals

INSTALLED = Path(next(iter(ephemerals.__path__)))
# These may use packages that an extra brings; everything else is core.
OUTER = ("bridges", "cli", "testing", "web")


def modules() -> list[str]:
    """Return the names of all modules that are core."""
    found = pkgutil.walk_packages(ephemerals.__path__, "ephemerals.")
    return ["ephemerals", *(module.name for module in found if module.name.split(".")[1] not in OUTER)]


def test_the_tests_run_against_the_installed_wheel() -> None:
    assert "site-packages" in INSTALLED.parts


def test_it_requires_no_other_package() -> None:
    unconditional = [each for each in distribution("ephemerals").requires or () if "extra ==" not in each]
    assert unconditional == []


def test_it_ships_its_types() -> None:
    assert (INSTALLED / "py.typed").is_file()


def test_the_core_imports_with_nothing_else_installed(tmp_path: Path) -> None:
    (tmp_path / "ephemerals").symlink_to(INSTALLED, target_is_directory=True)
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {', '.join(modules())}"
    bare = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert bare.returncode == 0, bare.stderr


def test_the_import_brings_nothing_along_that_most_programs_do_without() -> None:
    script = f"import asyncio, sys; before = set(sys.modules); sys.path.insert(0, {str(INSTALLED.parent)!r})\n"
    script += "import ephemerals; print(*sys.modules.keys() - before)"
    fresh = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in fresh.stdout.split()}
    assert "ephemerals" in loaded
    assert not loaded & {"multiprocessing", "subprocess", "difflib"}
    strangers = {name for name in loaded - sys.stdlib_module_names if not name.startswith("_sysconfigdata")}
    assert strangers == {"ephemerals"}


@pytest.mark.parametrize("name", modules())
def test_what_a_module_offers_exists_and_is_described(name: str) -> None:
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", ()):
        offered = getattr(module, public)
        if isinstance(offered, type) or inspect.isroutine(offered):
            described = (offered.__doc__ or "").strip()
            assert described, f"{name}.{public} has no docstring"
            assert not re.match(rf"{public}\(", described), f"{name}.{public} has a generated docstring"
