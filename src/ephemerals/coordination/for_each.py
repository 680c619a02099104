"""One function that runs a body over a whole collection, and says what came of it."""

from __future__ import annotations

import asyncio
import operator
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from ephemerals.errors import MissingExtra
from ephemerals.options import as_choice, as_flag
from ephemerals.snapshot import OperationStatus

from .oneshot import OneShot
from .report import Report

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable
    from typing import Unpack

    from ephemerals.operation import Operation
    from ephemerals.options import EphemeralOptions, OptionKeywords
    from ephemerals.snapshot import OperationSnapshot

    from .coordinator import KeySelector

__all__ = ["for_each"]

T = TypeVar("T")

_KEPT: Final = 100


async def for_each(  # noqa: PLR0913 - each is a choice of its own, with a default
    items: Iterable[T] | AsyncIterable[T],
    body: Callable[[T], object] | Callable[[T, Operation[Any]], object],
    *,
    key: KeySelector[T] | None = None,
    errors: Literal["raise", "collect", "stop"] = "raise",
    progress: bool = False,
    options: EphemeralOptions | None = None,
    **keywords: Unpack[OptionKeywords],
) -> Report:
    """Run a body over all items, so many at once, and report what came of it.

    Items are pulled as there is room: about `max_pending` ahead, by default twice the concurrency and at least 64.
    With `key` the order within each key is kept. Every option of a coordinator is understood, except an `overflow`
    other than `"wait"`. `progress=True` shows a bar (extra `progress`; raise `MissingExtra` without it).

    With `errors="raise"` everything runs, then the failures are raised in one `ExceptionGroup`: the original
    exceptions without their tracebacks, which a note on each replaces; the newest 100, and the count of all. With
    `"collect"` they are only reported. With `"stop"` the first failure cancels the rest, and is raised alone in an
    `ExceptionGroup`. A cancelled or skipped operation is counted, but is not a failure.

    If the source (or `key`) raises, no more is pulled, the accepted items end normally, then its error is raised,
    with a note on how many items had failed. If the caller is cancelled, the bodies are cancelled and awaited, for 5
    seconds at most, and nothing but `CancelledError` is raised.

    >>> import asyncio
    >>> async def convert(name: str) -> None:
    ...     await asyncio.sleep(0)
    >>> report = asyncio.run(for_each(["a.png", "b.png"], convert, max_concurrency=8))
    >>> report.completed, report.failed
    (2, 0)
    """
    as_flag("progress", progress)
    run = _Run(items, body, key=key, options=options, keywords=keywords, errors=as_choice("errors", errors, _CHOICES))
    bar = _Bar(items, run) if progress else None
    del items, body  # a traceback that goes through here must not hold them
    try:
        return await run.outcome()
    finally:
        if bar is not None:
            bar.close()


_CHOICES: Final = ("raise", "collect", "stop")


class _Run(OneShot[Any, Any]):
    """Collect failures, as snapshots to report or as exceptions to raise."""

    _example = "for_each(items, {})"

    def __init__(self, *arguments: Any, errors: str, **rest: Any) -> None:
        super().__init__(*arguments, **rest)
        self.errors = errors
        self.on_end: Callable[[], None] | None = None
        self._failures: deque[OperationSnapshot[Any]] = deque(maxlen=_KEPT)
        self._exceptions: deque[BaseException] = deque(maxlen=_KEPT)
        self._is_stopped = False

    async def outcome(self) -> Report:
        """Wait for the end; return the report, or raise the one exception that is the outcome."""
        self.start()
        try:
            try:
                await self.settled
            except asyncio.CancelledError:
                if (error := self.feeder.take_error()) is not None:
                    self._on_late_error(error)
                del error
                await self.abort()
                raise
            if not self.is_over:
                await self.abort()
        finally:
            await self.leave()
        report = self.engine.report()
        failed = f"{report.failed} of {report.enqueued} operations failed"
        if (error := self.feeder.take_error()) is not None:
            if report.failed:
                error.add_note(f"before, {failed}")
            try:
                raise error
            finally:
                del error
        if self._exceptions:
            if self._is_stopped:
                failed = "an operation failed, and the rest was cancelled"
            elif report.failed > _KEPT:
                failed += f", the last {_KEPT} of them with"
            exceptions, self._exceptions = self._exceptions, deque()
            raise BaseExceptionGroup(failed, exceptions)
        return Report(
            enqueued=report.enqueued,
            completed=report.completed,
            failed=report.failed,
            cancelled=report.cancelled,
            skipped=report.skipped,
            failures=tuple(self._failures),
            duration=report.duration,
        )

    def _ended(self, operation: Operation[Any]) -> None:
        if self.on_end is not None:
            self.engine.call_hook("progress", self.on_end)
        if operation.status is not OperationStatus.FAILED or self._is_stopped:
            return
        if self.errors == "collect":
            self._failures.append(operation.snapshot())
            return
        self._exceptions.append(operation._outcome)
        if self.errors == "stop":
            self._is_stopped = True
            self.engine.pause()
            self.engine.complete()
            self.settle()


class _Bar:
    """Show a run on a bar in the terminal."""

    def __init__(self, items: object, run: _Run) -> None:
        try:
            from tqdm import tqdm
        except ImportError:
            raise MissingExtra("progress=True", "progress") from None

        class Bar(tqdm):  # type: ignore[type-arg]  # generic in its stubs only
            monitor_interval = 0  # no thread that would outlive the run

        self._bar: Any = Bar(desc=run.name, total=operator.length_hint(items) or None, unit="")
        self._run = run
        run.on_end = self._step

    def _step(self) -> None:
        if failed := self._run.total_failed:
            self._bar.set_postfix(failed=failed, refresh=False)
        self._bar.update()

    def close(self) -> None:
        """Leave the bar as it is."""
        self._run.on_end = None
        self._bar.close()
