"""Selected events, kept for longer than a window keeps them: each handed to every target, until it has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from ephemerals.coordination import Background, Call
from ephemerals.coordination.call import checked
from ephemerals.errors import InvalidOption
from ephemerals.functions import as_callback
from ephemerals.options import EphemeralOptions, as_count
from ephemerals.signals import Pattern
from ephemerals.snapshot import OperationStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Unpack

    from ephemerals.coordination import DrainReport
    from ephemerals.operation import Operation
    from ephemerals.options import OptionKeywords, Seconds
    from ephemerals.signals import PatternLike, SignalEvent, SignalSink, Subscription

__all__ = ["Escalator", "EscalatorStatistics", "TargetStatistics"]

_OWN: Final = "escalation."


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStatistics:
    """Count one target's events: waiting, or being persisted, and what became of the others."""

    waiting: int
    persisted: int
    failed: int
    cancelled: int
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalatorStatistics:
    """Count the events that were promoted, and by target what became of them."""

    promoted: int
    targets: Mapping[str, TargetStatistics]


class _Target:
    """Hold a target's function and its counts."""

    __slots__ = ("cancelled", "failed", "function", "name", "persisted", "refused", "waiting")

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.function = function
        self.waiting = self.persisted = self.failed = self.cancelled = self.refused = 0

    def statistics(self) -> TargetStatistics:
        return TargetStatistics(
            waiting=self.waiting,
            persisted=self.persisted,
            failed=self.failed,
            cancelled=self.cancelled,
            refused=self.refused,
        )


class Escalator:
    """Hand each event that matches `pattern`, and of which `when(event)` is true, to every one of `targets`.

    A target is a function of the event, plain or async. Each gets the events in order, one at a time, unless
    `max_concurrency_per_key` is raised; they do not wait for each other. With `retry=` a target that fails gets the
    event again, so it may get one twice: `event.sequence` tells them apart. If `max_waiting` (1000; `None`: no limit)
    events wait, counted once for each target, further ones are refused. The other options are those of a coordinator.

    It listens inside `async with`; leaving that waits until all have what they are to get, after an exception it
    cancels.

    Signals, once for each event and target, with the event's key: `escalation.persisted` with
    `{"target": …, "event": name, "sequence": …}`, `escalation.failed` with the type of the `"error"` too, and
    `escalation.refused`. They are never escalated themselves.

    >>> import asyncio
    >>> from ephemerals.signals import SignalSink
    >>> async def save(event) -> None:
    ...     print("save", event.data)
    >>> async def audit(event) -> None:
    ...     raise OSError
    >>> async def main() -> None:
    ...     sink = SignalSink()
    ...     async with Escalator(sink, "escalate.*", targets={"db": save, "audit": audit}):
    ...         sink.emit("escalate.fraud", 0.97)
    ...     print([(event.name, event.data["target"]) for event in sink.events(pattern="escalation.*")])
    >>> asyncio.run(main())
    save 0.97
    [('escalation.persisted', 'db'), ('escalation.failed', 'audit')]
    """

    def __init__(  # noqa: PLR0913 - its options
        self,
        sink: SignalSink,
        pattern: PatternLike = "escalate.*",
        *,
        targets: Mapping[str, Callable[[SignalEvent[Any]], Any]],
        when: Callable[[SignalEvent[Any]], bool] | None = None,
        max_waiting: int | None = 1000,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        if not targets:
            raise InvalidOption("targets", targets, "at least one target, by name")
        self._pattern = Pattern.of(pattern)
        if when is not None:
            as_callback("when", when, "event")
        self._when = when
        self._sink = sink
        self._targets = {name: _Target(name, checked(function, "targets")) for name, function in targets.items()}
        chosen = EphemeralOptions.of(options, keywords)
        waiting = None if max_waiting is None else as_count("max_waiting", max_waiting)
        self.coordinator = Background(
            options=chosen.replace(name=chosen.name or "escalator", signals=sink, max_pending=waiting)
        )
        self.coordinator.engine.listen(on_end=self._ended, on_closed=self._listen_no_more)
        self._subscription: Subscription | None = None
        self._deliveries: dict[int, tuple[_Target, SignalEvent[Any]]] = {}
        self._promoted = 0

    def statistics(self) -> EscalatorStatistics:
        """Return the counts as they are now."""
        targets = {name: target.statistics() for name, target in self._targets.items()}
        return EscalatorStatistics(promoted=self._promoted, targets=targets)

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when it is closed, for tests."""
        own = {"subscriptions": int(self._subscription is not None), "deliveries": len(self._deliveries)}
        return {**own, **self.coordinator.engine.leftovers()}

    async def join(self) -> None:
        """Wait until every target has what it was to get; it goes on listening."""
        await self.coordinator.join()

    async def drain(self, timeout: Seconds | None = None) -> DrainReport:  # noqa: ASYNC109 - as a coordinator's
        """Listen no more, and wait until every target has what it was to get."""
        return await self.coordinator.drain(timeout)

    async def aclose(self, *, grace: Seconds | None = 10.0, cancel_grace: Seconds | None = 5.0) -> DrainReport:
        """Listen no more, drain for `grace` seconds, then cancel and wait `cancel_grace`, as a coordinator does."""
        return await self.coordinator.aclose(grace=grace, cancel_grace=cancel_grace)

    async def __aenter__(self) -> Self:
        self.coordinator.engine.check_open()
        await self.coordinator.__aenter__()
        self._subscription = self._sink.subscribe(self._pattern, self._promote)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.coordinator.__aexit__(kind, error, traceback)

    def _listen_no_more(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None

    def _promote(self, event: SignalEvent[Any]) -> None:
        if event.name.startswith(_OWN) or not (self._when is None or self._when(event)):
            return
        self._promoted += 1
        for target in self._targets.values():
            call = Call(target.function, event)
            call.name = call.key = target.name
            operation = self.coordinator.try_enqueue(call)
            if operation is None:
                target.refused += 1
                self._say("refused", target, event)
            else:
                target.waiting += 1
                self._deliveries[operation.id] = (target, event)

    def _ended(self, operation: Operation[Any]) -> None:
        delivery = self._deliveries.pop(operation.id, None)
        if delivery is None:
            return  # somebody else has enqueued it
        target, event = delivery
        target.waiting -= 1
        match operation.status:
            case OperationStatus.COMPLETED:
                target.persisted += 1
                self._say("persisted", target, event)
            case OperationStatus.FAILED:
                target.failed += 1
                self._say("failed", target, event, error=operation.error.type if operation.error else "")
            case _:
                target.cancelled += 1

    def _say(self, what: str, target: _Target, event: SignalEvent[Any], **more: str) -> None:
        said = {"target": target.name, "event": event.name, "sequence": event.sequence, **more}
        self.coordinator.signals.emit(f"{_OWN}{what}", said, key=event.key)
