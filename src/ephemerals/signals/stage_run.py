"""One run of stages, and what came of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from .graph import TaskStatus

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping
    from contextvars import Context

    from .event import SignalEvent
    from .pattern import Pattern

__all__ = ["Run", "Stage", "StageOutcome", "StagesReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOutcome:
    """Tell how a stage ended: `value` is what it returned if it completed, `error` why it failed; else `None`.

    It is `SKIPPED` if it had not started when the rest was cancelled.
    """

    name: str
    wave: int
    status: TaskStatus
    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesReport:
    """Tell how the stages that an event set going ended, in the order in which they did.

    `exit` is the event that decided the rest; `None` if none did.
    """

    trigger: SignalEvent[Any]
    outcomes: tuple[StageOutcome, ...]
    exit: SignalEvent[Any] | None

    @property
    def values(self) -> Mapping[str, Any]:
        """Return what the stages that completed returned, by name: a failed one has no value."""
        return MappingProxyType(
            {each.name: each.value for each in self.outcomes if each.status is TaskStatus.COMPLETED}
        )

    @property
    def errors(self) -> Mapping[str, Exception]:
        """Return the errors of those that failed, by name."""
        return MappingProxyType({each.name: each.error for each in self.outcomes if each.error is not None})

    def raise_for_failures(self) -> None:
        """Raise an `ExceptionGroup` of the errors, if there are any."""
        if errors := self.errors:
            raise ExceptionGroup(f"{len(errors)} of {len(self.outcomes)} stages failed", [*errors.values()])


@dataclass(frozen=True, slots=True)
class Stage:
    """Be a function, and when it runs."""

    name: str
    trigger: Pattern
    function: Callable[..., Awaitable[Any]]
    wave: int
    takes_event: bool


class Run:
    """Be what one event has set going: `ready` may start now, `later` are the waves after that."""

    __slots__ = ("active", "context", "exit", "is_stopped", "later", "outcomes", "ready", "tasks", "trigger", "waiters")

    def __init__(self, trigger: SignalEvent[Any], stages: list[Stage], context: Context) -> None:
        self.trigger: Final = trigger
        self.context: Final = context
        self.later: Final = deque(
            [each for each in stages if each.wave == wave] for wave in sorted({each.wave for each in stages})
        )
        self.ready: deque[Stage] = deque()
        self.active = 0  # stages that run, or are about to
        self.tasks: Final[dict[asyncio.Task[None], Stage]] = {}
        self.outcomes: Final[dict[str, StageOutcome]] = {}
        self.exit: SignalEvent[Any] | None = None
        self.is_stopped = False
        self.waiters: Final[list[asyncio.Future[None]]] = []

    def report(self) -> StagesReport:
        """Return what came of it."""
        return StagesReport(trigger=self.trigger, outcomes=tuple(self.outcomes.values()), exit=self.exit)
