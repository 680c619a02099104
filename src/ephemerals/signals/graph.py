"""Tasks that wait for one another.

    graph = DependencyGraph()

    @graph.task()
    async def load(): ...

    @graph.task(after=["load"])
    async def clean(results):
        return results["load"]

    report = await graph.run(max_concurrency=4)

Each starts when all that it comes after have completed. If one of those failed, it is skipped, and so is what comes
after it; everything else goes on.
"""

from __future__ import annotations

import asyncio
import graphlib
import inspect
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from ephemerals.errors import DuplicateName, InvalidOption, InvalidOptionType

from .validation import as_count, as_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from .sink import SignalSink

__all__ = ["DependencyGraph", "GraphReport", "TaskStatus"]

F = TypeVar("F", bound="Callable[..., Awaitable[Any]]")


class TaskStatus(StrEnum):
    """Say how a task of a graph, or a stage, ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphReport:
    """Tell how each task ended, by name, in the order in which they did; true if all completed."""

    statuses: Mapping[str, TaskStatus]
    results: Mapping[str, Any]
    errors: Mapping[str, Exception]

    def __bool__(self) -> bool:
        return all(status is TaskStatus.COMPLETED for status in self.statuses.values())

    def raise_for_failures(self) -> None:
        """Raise an `ExceptionGroup` of the errors, if there are any."""
        if self.errors:
            raise ExceptionGroup(f"{len(self.errors)} of {len(self.statuses)} tasks failed", [*self.errors.values()])


@dataclass(frozen=True, slots=True)
class _Task:
    function: Callable[..., Awaitable[Any]]
    after: tuple[str, ...]
    takes_results: bool


class DependencyGraph:
    """Run coroutine functions in the order of their dependencies, as many at once as may be.

    With a sink, it emits `graph.task.started`, `graph.task.completed`, `graph.task.failed`, `graph.task.cancelled` and
    `graph.task.skipped`, with the name of the task as key. A graph may be run again, and at the same time.
    """

    __slots__ = ("_sink", "_tasks")

    def __init__(self, *, sink: SignalSink | None = None) -> None:
        self._sink = sink
        self._tasks: dict[str, _Task] = {}

    def add(self, name: str, function: Callable[..., Awaitable[Any]], *, after: Iterable[str] = ()) -> None:
        """Add a task that starts when those in `after` have completed; they may be added later.

        A function that needs an argument gets the results of those, by name. A name that is taken is a
        `DuplicateName`; what is no coroutine function, or needs more, is an `InvalidOptionType`.
        """
        if as_name(name) in self._tasks:
            raise DuplicateName("task", name)
        if not inspect.iscoroutinefunction(function):
            raise InvalidOptionType("function", function, "a coroutine function")
        if isinstance(after, str):
            raise InvalidOptionType("after", after, "several names")
        self._tasks[name] = _Task(function, tuple(map(as_name, after)), needs(function, "results"))

    def task(self, name: str | None = None, *, after: Iterable[str] = ()) -> Callable[[F], F]:
        """Add the function below, under its own name unless another one is given; it stays what it is."""

        def decorate(function: F) -> F:
            self.add(getattr(function, "__name__", "") if name is None else name, function, after=after)
            return function

        return decorate

    def order(self) -> tuple[str, ...]:
        """Return the names in an order in which the tasks could run one by one.

        A name in `after` that no task has is an `InvalidOption`, and so is a circle, which it names.
        """
        return tuple(self._sorter().static_order())

    async def run(
        self, *, max_concurrency: int | None = None, errors: Literal["raise", "collect"] = "raise"
    ) -> GraphReport:
        """Run every task once, at most `max_concurrency` at the same time (`None`: no limit), and report.

        Failures are raised as an `ExceptionGroup` when everything has ended, unless `errors` is "collect". Being
        cancelled cancels what runs, and waits for it.
        """
        if max_concurrency is not None:
            as_count("max_concurrency", max_concurrency)
        if errors not in ("raise", "collect"):
            raise InvalidOption("errors", errors, "'raise' or 'collect'")
        sorter = self._sorter()
        sorter.prepare()
        run = _Run(self._tasks, sorter, max_concurrency, self._sink)
        async with asyncio.TaskGroup() as group:
            run.start(group)
        report = run.report()
        if errors == "raise":
            report.raise_for_failures()
        return report

    def _sorter(self) -> graphlib.TopologicalSorter[str]:
        for name, task in self._tasks.items():
            for each in task.after:
                if each not in self._tasks:
                    raise InvalidOption("after", each, f"a task of the graph, as {name!r} comes after it")
        graph = {name: task.after for name, task in self._tasks.items()}
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as error:
            circle = " -> ".join(reversed(error.args[1]))
            raise InvalidOption("after", circle, "no circle") from None
        return graphlib.TopologicalSorter(graph)


def needs(function: Callable[..., Any], argument: str) -> bool:
    """Tell whether a function needs an argument; needing more than one is refused."""
    parameters = inspect.signature(function).parameters.values()
    collecting = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    needed = [each for each in parameters if each.default is each.empty and each.kind not in collecting]
    if len(needed) > 1 or any(each.kind is each.KEYWORD_ONLY for each in needed):
        raise InvalidOptionType("function", function, f"a function without arguments, or with one, the {argument}")
    return bool(needed)


class _Run:
    """Be one run of a graph."""

    def __init__(
        self,
        tasks: Mapping[str, _Task],
        sorter: graphlib.TopologicalSorter[str],
        limit: int | None,
        sink: SignalSink | None,
    ) -> None:
        self._tasks: Final = dict(tasks)
        self._sorter: Final = sorter
        self._limit: Final = limit
        self._sink: Final = sink
        self._ready: Final[deque[str]] = deque()
        self._running = 0
        self._statuses: Final[dict[str, TaskStatus]] = {}
        self._results: Final[dict[str, Any]] = {}
        self._errors: Final[dict[str, Exception]] = {}

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start what may start."""
        self._ready.extend(self._sorter.get_ready())
        while self._ready and (self._limit is None or self._running < self._limit):
            name = self._ready.popleft()
            if any(self._statuses[each] is not TaskStatus.COMPLETED for each in self._tasks[name].after):
                self._end(name, TaskStatus.SKIPPED)
                self._ready.extend(self._sorter.get_ready())
            else:
                self._running += 1
                group.create_task(self._work(name, group), name=name)

    def report(self) -> GraphReport:
        """Return what came of it."""
        return GraphReport(
            statuses=MappingProxyType(self._statuses),
            results=MappingProxyType(self._results),
            errors=MappingProxyType(self._errors),
        )

    async def _work(self, name: str, group: asyncio.TaskGroup) -> None:
        task = self._tasks[name]
        self._emit("started", name)
        try:
            if task.takes_results:
                self._results[name] = await task.function({each: self._results[each] for each in task.after})
            else:
                self._results[name] = await task.function()
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            status = TaskStatus.CANCELLED  # it gave up by itself
        except Exception as error:  # noqa: BLE001 - it is in the report
            self._errors[name] = error
            status = TaskStatus.FAILED
        else:
            status = TaskStatus.COMPLETED
        self._running -= 1
        self._end(name, status)
        self.start(group)

    def _end(self, name: str, status: TaskStatus) -> None:
        self._statuses[name] = status
        self._sorter.done(name)
        self._emit(status, name)

    def _emit(self, what: str, name: str) -> None:
        if self._sink is not None:
            self._sink.emit(f"graph.task.{what}", key=name)
