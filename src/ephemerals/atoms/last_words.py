"""What operations leave behind when they are forgotten, handed to somebody who keeps it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from ephemerals.coordination import WorkCoordinator
from ephemerals.echoes import Echo, EchoStore
from ephemerals.errors import CoordinatorError
from ephemerals.functions import as_callback, function_name
from ephemerals.options import EphemeralOptions, as_count, as_seconds
from ephemerals.signals import Pattern

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType
    from typing import Unpack

    from ephemerals.coordination import DrainReport
    from ephemerals.echoes import FinalizationReason
    from ephemerals.options import OptionKeywords, Seconds
    from ephemerals.signals import PatternLike, SignalEvent
    from ephemerals.snapshot import OperationSnapshot

__all__ = ["LastWords", "LastWordsStatistics"]

_logger: Final = logging.getLogger("ephemerals")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWordsStatistics:
    """Count operations that were forgotten: heard of, ignored (nothing to keep), and what became of the others.

    `waiting` are yet to be persisted, or being so; `dropped` found no room, or came after the end; `lost` were
    cancelled when the time for closing was over.
    """

    heard: int
    ignored: int
    waiting: int
    persisted: int
    failed: int
    dropped: int
    lost: int


class LastWords:
    """Call `persist(echo)` for each operation that leaves a coordinator's window, in order, out of the way of work.

    Give it to any number of coordinators as `on_finalized=`, and close it after them. An `Echo` has metadata and the
    signals that the operation emitted, never its item or result. With `capture`, an echo has only the signals that
    match, and an operation without any is ignored. With `activate`, an operation is ignored unless it emitted a
    matching signal, which is kept along with those after it that `capture` wants. `only(echo)`, if given, has the last
    word about what is kept.

    At most `max_waiting` (1000; `None`: no limit) echoes wait; further ones are dropped, or with
    `overflow="drop_oldest"` push out the oldest. One is persisted at a time, unless `max_concurrency` says otherwise.
    The other options are those of a coordinator: `retry=`, `operation_timeout=`, …

    Leaving `async with`, also after an exception, waits at most `grace` (10) seconds for what is still to be persisted.

    >>> import asyncio
    >>> from ephemerals import Operation, WorkCoordinator
    >>> async def work(item: str, operation: Operation) -> None:
    ...     operation.emit("score", 0.9)
    >>> async def save(echo: Echo) -> None:
    ...     print(echo.status, echo.reason, [event.data for event in echo.signals])
    >>> async def main() -> None:
    ...     async with LastWords(save) as words, WorkCoordinator(work, on_finalized=words) as coordinator:
    ...         await coordinator.enqueue("secret")
    >>> asyncio.run(main())
    completed shutdown [0.9]
    """

    def __init__(  # noqa: PLR0913 - its options
        self,
        persist: Callable[[Echo], Awaitable[object]],
        *,
        capture: PatternLike | None = None,
        activate: PatternLike | None = None,
        only: Callable[[Echo], bool] | None = None,
        max_waiting: int | None = 1000,
        grace: Seconds | None = 10.0,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        self._capture = None if capture is None else Pattern.of(capture)
        self._activate = None if activate is None else Pattern.of(activate)
        if only is not None:
            as_callback("only", only, "echo")
        self._only = only
        self._grace = None if grace is None else as_seconds("grace", grace, zero=True)
        chosen = EphemeralOptions.of(options, keywords)
        self._clock = chosen.clock
        chosen = chosen.replace(
            name=chosen.name or f"last words for {function_name(persist)}",
            max_concurrency=keywords.get("max_concurrency", 1),
            max_pending=None if max_waiting is None else as_count("max_waiting", max_waiting),
            context="fresh",
        )
        self.coordinator: WorkCoordinator[Echo, object] = WorkCoordinator(persist, options=chosen)
        self._heard = self._ignored = self._refused = 0

    def __call__(self, snapshot: OperationSnapshot[Any], reason: FinalizationReason) -> None:
        """Take note of an operation that has left a window; what `on_finalized` calls."""
        self._heard += 1
        store = EchoStore(capacity=1, retention=1.0)
        now = self._clock.monotonic()
        store.add(snapshot, reason, now)
        (echo,) = store.read(now)
        signals = self._kept(echo.signals)
        if signals is None:
            self._ignored += 1
            return
        echo = replace(echo, signals=signals)
        if self._only is not None and not self._only(echo):
            self._ignored += 1
            return
        try:
            if self.coordinator.try_enqueue(echo) is None:
                self._refused += 1
        except (CoordinatorError, RuntimeError) as error:  # it is closed, or no loop runs
            self._refused += 1
            _logger.warning("%s: dropped an echo: %s", self.coordinator.name, type(error).__name__)

    def _kept(self, signals: tuple[SignalEvent, ...]) -> tuple[SignalEvent, ...] | None:
        """Return the signals to keep; `None` if the operation is to be ignored."""
        head: tuple[SignalEvent, ...] = ()
        if (activate := self._activate) is not None:
            first = next((number for number, event in enumerate(signals) if activate.matches(event.name)), None)
            if first is None:
                return None
            head, signals = signals[first : first + 1], signals[first + 1 :]
        if (capture := self._capture) is not None:
            signals = tuple(event for event in signals if capture.matches(event.name))
            if not head and not signals:
                return None
        return head + signals

    async def join(self) -> None:
        """Wait until everything heard of so far has been dealt with."""
        await self.coordinator.join()

    async def aclose(self, *, grace: Seconds | None = None, cancel_grace: Seconds | None = 5.0) -> DrainReport:
        """Take no more, persist what waits for `grace` seconds (`None`: those chosen at first), then give it up."""
        within = self._grace if grace is None else as_seconds("grace", grace, zero=True)
        return await self.coordinator.aclose(grace=within, cancel_grace=cancel_grace)

    def statistics(self) -> LastWordsStatistics:
        """Return the counts as they are now."""
        counts = self.coordinator.statistics()
        return LastWordsStatistics(
            heard=self._heard,
            ignored=self._ignored,
            waiting=counts.pending + counts.active,
            persisted=counts.completed,
            failed=counts.failed,
            dropped=self._refused + counts.dropped,
            lost=counts.cancelled + counts.skipped - counts.dropped,
        )

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when it is closed, for tests."""
        return self.coordinator.engine.leftovers()

    async def __aenter__(self) -> Self:
        self.coordinator.engine.check_open()
        await self.coordinator.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
