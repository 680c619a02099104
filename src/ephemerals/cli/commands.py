"""The commands and their options, and what a user is told about them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import re
import stat
from typing import Any, Final

import click

from ephemerals.options import default_concurrency

from .keys import key_selector
from .run import INTERRUPTED, Plan, Run
from .template import Template

__all__ = ["invoke"]

_PER: Final = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_FILES_PER_JOB: Final = 8
_OTHER_FILES: Final = 64

_EPILOG: Final = """
\b
Examples:
  Compress all logs, one job for each processor:
    ls *.log | ephemerals run gzip
  Checksums, four at a time, one at a time for each file type:
    git ls-files | ephemerals run -j 4 --key '\\.[A-Za-z0-9]+$' -- sha256sum {}
  A pipeline for each line needs a shell:
    ephemerals run --from urls.txt --shell 'curl -s {} | wc -c'
  Five starts a second at most, three more tries, a report as JSON lines:
    ephemerals run --from urls.txt --rate 5/s --retries 3 --report out.jsonl -- curl -fsO {}
  Every line is a command:
    ephemerals run -j 8 < commands.txt

\b
{} is the line; {.} without extension, {/} without folder, {//} its folder, {/.} without
either, {#} its number. Without any of them the line becomes the last argument.

\b
Ctrl-C lets what runs come to its end and starts nothing more; again, it cancels.
Exit code: 0 all done, 1 something failed, 2 wrong usage, 130 interrupted.
"""


def invoke() -> int:
    """Run the program with the arguments of this process and return its exit code."""
    try:
        code = _group.main(prog_name="ephemerals", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0


@click.group(name="ephemerals", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="ephemerals", prog_name="ephemerals", message="%(prog)s %(version)s")
def _group() -> None:
    """Background work: bounded, tracked, and then gone."""


def _seconds(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (0 < value < math.inf):
        raise click.BadParameter(f"{value:g} is not a number of seconds above 0")
    return value


def _interval(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Turn a rate into the seconds between two starts."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:/(s|sec|m|min|h))?", value)
    if match is None or not float(match[1]):
        raise click.BadParameter(f"{value!r} is not a rate such as 10/s, 30/m or 100/h")
    return _PER[match[2] or "s"] / float(match[1])


def _selector(_: click.Context, __: click.Parameter, value: str | None) -> Any:
    try:
        return None if value is None else key_selector(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@_group.command(
    "run",
    epilog=_EPILOG,
    short_help="Run a command for each line of the input, so many at once.",
    context_settings={"allow_interspersed_args": False, "max_content_width": 100},
)
@click.option(
    "-j",
    "-P",
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Commands at once; by default one for each processor.",
)
@click.option(
    "--key",
    "select_key",
    callback=_selector,
    metavar="FIELD|REGEX",
    help="Run lines with the same key one after the other, in their order. A number is a field, as in awk, "
    "-1 the last; else the key is the first group of the expression, or all that it matches.",
)
@click.option("--timeout", type=float, callback=_seconds, metavar="S", help="End a command after so many seconds.")
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Try a failing command up to N more times, after 0.5, 1, 2, … seconds.",
)
@click.option("--rate", "interval", callback=_interval, metavar="N/s", help="At most N starts a second (/m, /h).")
@click.option("--fail-fast", is_flag=True, help="Cancel everything at the first failure.")
@click.option(
    "--report",
    metavar="FILE",
    help="Write a line of JSON for each item ('-': to standard output, and all other output to standard error).",
)
@click.option("-a", "--from", "source", metavar="FILE", help="Read the lines from a file instead of standard input.")
@click.option("-0", "--null", is_flag=True, help="Items end with a NUL character, as of find -print0.")
@click.option("--shell", is_flag=True, help="The command is a text for /bin/sh, where each {} is quoted.")
@click.option("-q", "--quiet", is_flag=True, help="No table and no summary, only what fails.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND [ARG]...]")
def _run(  # noqa: PLR0913 - one for each option
    *,
    jobs: int | None,
    select_key: Any,
    timeout: float | None,
    retries: int,
    interval: float | None,
    fail_fast: bool,
    report: str | None,
    source: str | None,
    null: bool,
    shell: bool,
    quiet: bool,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND for each line of the input, with the line in the place of {}, so many at once.

    Without COMMAND each line is a command itself. The output of each command stays in one piece.
    """
    if os.name != "posix":
        raise click.UsageError("ephemerals run needs a POSIX system")
    jobs = default_concurrency() if jobs is None else jobs
    with contextlib.ExitStack() as stack:
        reading = _open(source, os.O_RDONLY, "--from", stack)
        writing = None if report is None else _open(report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "--report", stack)
        typed = os.isatty(reading)
        plan = Plan(
            template=Template(command, shell),
            source=reading,
            separator=b"\0" if null else b"\n",
            jobs=jobs,
            select_key=select_key,
            timeout=timeout,
            retries=retries,
            interval=interval,
            fail_fast=fail_fast,
            report=writing,
            quiet=quiet,
            live=not quiet and not typed and os.isatty(2) and os.environ.get("TERM", "dumb") != "dumb",
        )
        if typed and not quiet:
            click.echo("ephemerals: reading lines from the terminal; Ctrl-D ends them", err=True)
        logging.getLogger("ephemerals").addHandler(logging.NullHandler())  # failures are told in other words
        _allow_files(_FILES_PER_JOB * jobs + _OTHER_FILES)
        return asyncio.run(_main(plan))


async def _main(plan: Plan) -> int:
    return await Run(plan).main()


def _open(name: str | None, flags: int, option: str, stack: contextlib.ExitStack) -> int:
    """Open a file; without a name, and for "-", it is a standard stream."""
    if name in {None, "-"}:
        return 0 if flags == os.O_RDONLY else 1
    assert name is not None
    try:
        descriptor = os.open(name, flags | os.O_CLOEXEC, 0o666)
        stack.callback(os.close, descriptor)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(None, "Is a directory")
    except OSError as error:
        raise click.UsageError(f"{option} {name}: {error.strerror}") from None
    return descriptor


def _allow_files(count: int) -> None:
    """Raise the soft limit on open files if so many commands at once need more, as far as the system allows."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
