"""What is to be run on a schedule: declared in code, or read from a file."""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ephemerals.coordination.call import checked
from ephemerals.errors import DuplicateName, InvalidOption, InvalidOptionType
from ephemerals.options import Seconds, as_choice, as_count, as_seconds, as_text

from .cron import Cron

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

__all__ = ["Occurrence", "ScheduledJob", "load_jobs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """Be one time at which a job is due, as its function gets it.

    `scheduled_at` is the time on the schedule, in the job's time zone, whatever the jitter or a delay; `missed` is how
    many occurrences before it were left out in its favour.
    """

    job: str
    scheduled_at: datetime
    missed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledJob:
    """Say what is due when: a `function`, or a `signal` to be emitted with `key` and `payload`.

    `cron` and `tz` are as in `Cron`. The function is plain or async; if it takes an argument, it gets the
    `Occurrence`. `timeout` is in seconds (`None`: that of the coordinator).

    `misfire` says what becomes of occurrences that were noticed late, several at a time: `"coalesce"` (the default)
    runs the newest once, `"skip"` does so only if it is at most `grace` (60) seconds old, `"all"` runs each. While
    `max_instances` (1) of a job run, an occurrence is left out; with `"all"` up to `max_backlog` (100) wait for their
    turn instead. `jitter` seconds at most, at random, are added to each start. `run_on_startup` adds an occurrence at
    the start.
    """

    name: str
    cron: str
    function: Callable[..., Any] | None = None
    signal: str | None = None
    key: Any = None
    payload: Any = field(default=None, repr=False)
    description: str | None = None
    tz: str | tzinfo = "UTC"
    misfire: Literal["skip", "coalesce", "all"] = "coalesce"
    grace: Seconds = 60.0
    max_instances: int = 1
    max_backlog: int = 100
    jitter: Seconds = 0.0
    run_on_startup: bool = False
    timeout: Seconds | None = None
    times: Cron = field(init=False, repr=False, compare=False)
    takes_occurrence: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Validate."""
        as_text("name", self.name)
        if (self.function is None) == (self.signal is None):
            raise InvalidOption("function", self.function, "a function or a signal, and not both")
        as_choice("misfire", self.misfire, ("skip", "coalesce", "all"))
        as_count("max_instances", self.max_instances)
        as_count("max_backlog", self.max_backlog, least=0)
        if not isinstance(self.run_on_startup, bool):
            raise InvalidOptionType("run_on_startup", self.run_on_startup, "True or False")
        object.__setattr__(self, "grace", as_seconds("grace", self.grace, zero=True))
        object.__setattr__(self, "jitter", as_seconds("jitter", self.jitter, zero=True))
        if self.timeout is not None:
            object.__setattr__(self, "timeout", as_seconds("timeout", self.timeout))
        object.__setattr__(self, "times", Cron(self.cron, self.tz))
        object.__setattr__(self, "takes_occurrence", self.function is not None and _takes_one(self.function))


_IN_FILES = {each.name for each in fields(ScheduledJob) if each.init} - {"function"}


def load_jobs(source: str | Path | Iterable[Mapping[str, Any]]) -> list[ScheduledJob]:
    """Read jobs that emit signals from a TOML or JSON file, or take them from what another parser gave.

    A file has a list of jobs, or one named `jobs`; each is a table with the fields of a `ScheduledJob`. An entry that
    is wrong raises `InvalidOption` with a note that says which; a name given twice is a `DuplicateName`.

    >>> [job] = load_jobs([{"name": "daily", "cron": "0 0 * * *", "signal": "schedule.daily"}])
    >>> job.signal, job.misfire
    ('schedule.daily', 'coalesce')
    """
    entries: Any = _parsed(Path(source)) if isinstance(source, str | Path) else source
    if isinstance(entries, Mapping):
        entries = entries.get("jobs")
    if not isinstance(entries, Iterable) or isinstance(entries, str | bytes):
        raise InvalidOptionType(
            "jobs", f"<{type(entries).__qualname__}>", "a list of jobs, or a table with one: 'jobs'"
        )
    jobs: dict[str, ScheduledJob] = {}
    for number, entry in enumerate(entries, start=1):
        try:
            job = _job(entry)
        except InvalidOption as error:
            error.add_note(f"in job number {number}")
            raise
        if job.name in jobs:
            raise DuplicateName("job", job.name)
        jobs[job.name] = job
    return list(jobs.values())


def _parsed(path: Path) -> Any:
    match path.suffix.lower():
        case ".toml":
            return tomllib.loads(path.read_text(encoding="utf-8"))
        case ".json":
            return json.loads(path.read_text(encoding="utf-8"))
        case suffix:
            raise InvalidOption("source", suffix, "a .toml or .json file, or the jobs as another parser gives them")


def _job(entry: object) -> ScheduledJob:
    if not isinstance(entry, Mapping):
        raise InvalidOptionType("job", f"<{type(entry).__qualname__}>", "a table with the fields of a job")
    given: dict[str, Any] = dict(entry)
    for name in given:
        if name not in _IN_FILES:
            raise InvalidOption("field", name, "one of " + ", ".join(sorted(_IN_FILES)))
    for name in ("name", "cron", "signal"):
        if name not in given:
            raise InvalidOption(name, None, "to be given")
    return ScheduledJob(**given)


def _takes_one(function: Callable[..., Any]) -> bool:
    """Tell whether a function needs an argument; raise `InvalidBody` if it can be no job at all."""
    checked(function, "job")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return False  # some built-in functions do not tell their signature
    return any(
        each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        for each in parameters
    )
