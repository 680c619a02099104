"""The sessions behind `make`: build the wheel, test it on every Python, check the source, build the site.

Environments live in `.nox/` and are kept until their pinned requirements change. What is tested is the built
wheel, installed; `src` is never on the path of a test.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).parent
CI = bool(os.environ.get("CI"))
PROFILE = os.environ.get("HYPOTHESIS_PROFILE")
SUPPORTED = ("3.11", "3.12", "3.13")
PYTHONS = tuple(os.environ.get("PYTHONS", "").replace(",", " ").split()) or SUPPORTED

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = CI
nox.options.sessions = ["test"]


def runs(interpreter: str | Path, version: str) -> bool:
    """Tell whether the interpreter really starts and is that version; a pyenv shim may be neither."""
    probe = [str(interpreter), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        answer = subprocess.run(probe, capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return False
    return answer.stdout.strip() == version


def locate(version: str) -> Path | None:
    """Return the folder of an interpreter that works: this one, one on the path, or any of pyenv's."""
    name = f"python{version}"
    if version == "{}.{}".format(*sys.version_info) and runs(Path(sys.base_prefix, "bin", name), version):
        return Path(sys.base_prefix, "bin")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    on_path = (Path(folder) for folder in os.get_exec_path())
    by_pyenv = (folder / "bin" for folder in sorted(pyenv.glob(f"{version}.*"), reverse=True))
    return next((folder for folder in (*on_path, *by_pyenv) if runs(folder / name, version)), None)


FOUND = {version: folder for version in PYTHONS if (folder := locate(version))}
MISSING = [version for version in PYTHONS if version not in FOUND]
PRIMARY = max(FOUND, key=lambda version: [int(part) for part in version.split(".")], default=None)
# What is measured is measured on the newest, unless Pythons were asked for.
BENCHED = list(PYTHONS) if os.environ.get("PYTHONS", "").strip() else [PRIMARY or SUPPORTED[-1]]
# Behind everything else nox would find a shim first, and a shim may not run.
os.environ["PATH"] = os.pathsep.join([*map(str, FOUND.values()), os.environ["PATH"]])
os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"


def requirements(*names: str) -> list[Path]:
    """Return the paths of the pinned requirements of these names."""
    return [ROOT / "requirements" / f"{name}.txt" for name in names]


def provide(session: nox.Session, *names: str) -> None:
    """Install the pinned requirements, from nothing if they have changed, and not at all if they have not."""
    files = requirements(*names)
    fingerprint = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    home = Path(session.virtualenv.location)
    stamp = home / "requirements.sha256"
    if stamp.exists() and stamp.read_text() == fingerprint:
        return
    if stamp.exists():
        session.run("python", "-m", "venv", "--clear", str(home), silent=True)
    session.install("--quiet", *(part for path in files for part in ("-r", str(path))))
    stamp.write_text(fingerprint)


def install_wheel(session: nox.Session) -> None:
    """Install the wheel that the session `wheel` has built."""
    (wheel,) = (ROOT / "dist").glob("ephemerals-*.whl")
    session.install("--quiet", "--no-deps", "--force-reinstall", str(wheel))
    session.run("python", "-m", "pip", "check", silent=True)


@nox.session(python=False)
def wheel(session: nox.Session) -> None:
    """Build the source distribution, and the wheel from it."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    session.run(sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", silent=True)


@nox.session(python=False)
def clean_coverage(session: nox.Session) -> None:
    """Forget what earlier runs measured."""
    for path in ROOT.glob(".coverage*"):
        session.log(f"remove {path.name}")
        path.unlink()


@nox.session(python=list(PYTHONS), requires=["wheel", "clean_coverage"])
def test(session: nox.Session) -> None:
    """Run the tests against the wheel; arguments go to pytest, and the part they choose is not measured.

    The newest Python runs as many hypothesis examples as the profile says, the others fewer; and only the newest
    runs what is marked `heavy`: real servers, real browsers, real translators.
    """
    provide(session, "test")
    install_wheel(session)
    environment = {"COVERAGE_FILE": str(ROOT / f".coverage.{session.python}")}
    if session.python != PRIMARY and PROFILE is None:
        environment["HYPOTHESIS_PROFILE"] = "brief"
    pytest = ["-m", "pytest", *(["--timeout=3600"] if PROFILE == "long" else [])]
    everything = ["-q", "-n2", "--dist=worksteal"]
    if session.python != PRIMARY:
        session.warn(f"real servers, browsers and translators are tested on Python {PRIMARY} only")
        everything += ["-m", "not heavy"]
    if session.posargs:
        session.run("python", *pytest, *session.posargs, env=environment)
    elif session.python in {PYTHONS[0], PRIMARY}:  # the oldest and the newest take every branch there is
        session.run("coverage", "run", *pytest, *everything, env=environment)
    else:
        session.run("python", *pytest, *everything, env=environment)


@nox.session(python=False)
def coverage(session: nox.Session) -> None:
    """Report what all Pythons together have covered, branches included, and fail below the limit."""
    session.run(sys.executable, "-m", "coverage", "combine", silent=True)
    session.run(sys.executable, "-m", "coverage", "report")
    if MISSING:
        session.warn(f"NOT TESTED, no working interpreter found: Python {', '.join(MISSING)}")


@nox.session
def check(session: nox.Session) -> None:
    """Check format, lint, types twice, layers, and the changelog; with `fix`, mend first what can be."""
    provide(session, "check")
    if "fix" in session.posargs:
        session.run("ruff", "check", "--fix", success_codes=[0, 1])
        session.run("ruff", "format")
    session.run("ruff", "format", "--check")
    session.run("ruff", "check")
    session.run("mypy")
    session.run("pyright", "--warnings", env={"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"})
    session.run("lint-imports", env={"PYTHONPATH": str(ROOT / "src")})
    session.run("towncrier", "build", "--draft", "--version", "check", silent=True)
    base = next((ref for ref in ("origin/main", "main") if shares_history(ref)), None)
    if base is None:
        session.log("no main branch to compare with: the changelog fragments are not checked")
    else:
        session.run("towncrier", "check", "--compare-with", base)


def shares_history(ref: str) -> bool:
    """Tell whether the branch exists here and the current commit has grown from it."""
    git = subprocess.run(["git", "merge-base", ref, "HEAD"], cwd=ROOT, capture_output=True, check=False)
    return git.returncode == 0


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into `site/`; a warning is an error."""
    provide(session, "docs")
    session.run("mkdocs", "build", "--strict", *session.posargs, env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session(python=BENCHED, requires=["wheel"])
def bench(session: nox.Session) -> None:
    """Run the benchmarks against the wheel; arguments go to them."""
    provide(session, "bench")
    install_wheel(session)
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session(python=BENCHED, requires=["wheel"])
def instructions(session: nox.Session) -> None:
    """Count instructions, if valgrind is there."""
    provide(session, "bench")
    install_wheel(session)
    session.run("python", "-m", "benchmarks.instructions", *session.posargs)


@nox.session(python=BENCHED, requires=["wheel"])
def soak(session: nox.Session) -> None:
    """Let traffic run for ten virtual minutes and two real ones."""
    provide(session, "bench")
    install_wheel(session)
    session.run("python", "-m", "benchmarks.soak", *session.posargs)


@nox.session
def lock(session: nox.Session) -> None:
    """Pin the requirements anew, once for all Pythons; `--upgrade` takes the newest versions."""
    session.install("--quiet", "uv")
    options = ("--universal", "--python-version", SUPPORTED[0], "--no-annotate", "--no-header", "--quiet")
    for name in ("test", "make", "check", "docs", "bench"):  # make, check and bench repeat pins of test
        source, target = f"requirements/{name}.in", f"requirements/{name}.txt"
        session.run("uv", "pip", "compile", *options, *session.posargs, source, "--output-file", target)
