"""Several who each contribute something, and whoever waits until enough have.

async def detect(sink):
    contributors = Contributors(["agent", "address", "headers"], sink=sink)
    ...  # each calls contributors.complete("agent", 0.5), or contributors.fail("agent", error)
    result = await contributors.wait(2, timeout=1)
    return result.results if result else None
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar

from ephemerals.errors import InvalidOption

from .stream import resolve
from .validation import as_count, as_name, as_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

    from .sink import SignalSink

__all__ = ["Contributions", "ContributionsOutcome", "Contributors"]

R = TypeVar("R")


class ContributionsOutcome(StrEnum):
    """Say how a wait for contributors ended."""

    REACHED = "reached"
    IMPOSSIBLE = "impossible"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributions(Generic[R]):
    """Tell what there was when a wait ended; true if enough had completed.

    `results` are by name, in the order of completion; `failed` has the error of each that failed; `pending` are the
    names of the rest. The outcome is `IMPOSSIBLE` if so many failed that enough could not complete any more.
    """

    outcome: ContributionsOutcome
    results: Mapping[str, R]
    failed: Mapping[str, BaseException]
    pending: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.outcome is ContributionsOutcome.REACHED


class Contributors(Generic[R]):
    """Collect one result from each of some names. Use it on the thread of one loop.

    Each name has its say once: it completes with a result, `None` included, or it fails. With a sink, it emits
    `contributor.completed` and `contributor.failed` with the name as key.
    """

    __slots__ = ("_errors", "_names", "_results", "_sink", "_waiters")

    def __init__(self, names: Iterable[str], *, sink: SignalSink | None = None) -> None:
        self._names = tuple(dict.fromkeys(as_name(name) for name in names))
        if not self._names:
            raise InvalidOption("names", names, "at least one name")
        self._results: dict[str, R] = {}
        self._errors: dict[str, BaseException] = {}
        self._sink = sink
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names."""
        return self._names

    @property
    def results(self) -> Mapping[str, R]:
        """Return the results so far, by name, in the order of completion; a view."""
        return MappingProxyType(self._results)

    @property
    def failed(self) -> Mapping[str, BaseException]:
        """Return the errors so far, by name; a view."""
        return MappingProxyType(self._errors)

    @property
    def pending(self) -> tuple[str, ...]:
        """Return the names that have neither completed nor failed."""
        return tuple(name for name in self._names if self._is_pending(name))

    def complete(self, name: str, result: R) -> bool:
        """Take a result; False if that name has had its say."""
        if not self._is_pending(name):
            return False
        self._results[name] = result
        self._tell("contributor.completed", name)
        return True

    def fail(self, name: str, error: BaseException) -> bool:
        """Take a failure; False if that name has had its say."""
        if not self._is_pending(name):
            return False
        self._errors[name] = error
        self._tell("contributor.failed", name)
        return True

    async def wait(
        self,
        minimum: int | None = None,
        *,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - running out of time is a result
    ) -> Contributions[R]:
        """Wait until so many have completed, all of them if `minimum` is `None`, or cannot any more.

        `timeout` is in seconds (`None`: wait for ever). Any number of tasks may wait, each for its own minimum; being
        cancelled raises `CancelledError`. What comes later is still taken.
        """
        minimum = len(self._names) if minimum is None else as_count("minimum", minimum)
        if minimum > len(self._names):
            raise InvalidOption("minimum", minimum, f"at most {len(self._names)}, as many as there are")
        seconds = None if timeout is None else as_seconds("timeout", timeout)
        try:
            async with asyncio.timeout(seconds):
                while not self._is_decided(minimum):
                    await self._change()
        except TimeoutError:
            return self._as_they_are(ContributionsOutcome.TIMED_OUT)
        is_reached = len(self._results) >= minimum
        return self._as_they_are(ContributionsOutcome.REACHED if is_reached else ContributionsOutcome.IMPOSSIBLE)

    def _is_pending(self, name: str) -> bool:
        if name not in self._names:
            raise InvalidOption("name", name, f"one of {', '.join(map(repr, self._names))}")
        return name not in self._results and name not in self._errors

    def _is_decided(self, minimum: int) -> bool:
        return len(self._results) >= minimum or len(self._names) - len(self._errors) < minimum

    def _as_they_are(self, outcome: ContributionsOutcome) -> Contributions[R]:
        return Contributions(
            outcome=outcome,
            results=MappingProxyType(dict(self._results)),
            failed=MappingProxyType(dict(self._errors)),
            pending=self.pending,
        )

    async def _change(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _tell(self, signal: str, name: str) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            resolve(waiter)
        if self._sink is not None:
            self._sink.emit(signal, key=name)
