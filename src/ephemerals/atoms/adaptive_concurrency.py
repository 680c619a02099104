"""As many at once as the upstream can take."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ephemerals.errors import InvalidOption
from ephemerals.functions import as_callback
from ephemerals.options import as_count, as_seconds

from .gradient import Gradient, Round
from .throttling import is_throttled

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemerals.coordination.coordinator import Coordinator
    from ephemerals.operation import Operation
    from ephemerals.options import Seconds
    from ephemerals.signals import PatternLike, SignalEvent

__all__ = ["AdaptiveConcurrency", "ConcurrencyStatistics", "is_overload"]


def is_overload(error: BaseException) -> bool:
    """Tell whether an exception says that there was too much: a timeout, or what `is_throttled` knows."""
    return isinstance(error, TimeoutError) or is_throttled(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyStatistics:
    """Hold the limit, how often it was raised and cut, and why.

    `latency` is the mean of the last round in seconds; `None` before its end.
    `ignored` counts load signals that came too soon after a change.
    """

    limit: int
    raised: int
    cut: int
    complaints: int
    ignored: int
    rounds: int
    latency: float | None


class AdaptiveConcurrency:
    """Let a coordinator run as many at once, from `minimum` (1) to `maximum` (256), as its upstream can take.

    It looks at how long attempts take. In rounds, each of at least 20 successes, it raises the limit while that makes
    calls no slower, the quicker the longer this goes well; cuts it by the factor by which they have become slower; and
    then tries now and then whether a few more, or a few less, would be better. A complaint, by default `is_overload`
    (a timeout, a `retry_after`, status 429), cuts it to `cut` (0.9) of what it was, once for all that began before.
    Other failures and cancellation teach nothing, and while the coordinator has less to do than the limit allows,
    nothing is changed.

    With `high` or `low`, patterns of signals of the coordinator's sink, it looks at those instead: one that says there
    is much to do doubles the limit, one that says there is little halves it; after a change others are ignored for
    `cooldown` (1) seconds.

    It works until `close()`, or as long as the coordinator lives. Signals: `concurrency.changed` with
    `{"limit": …, "was": …}`, in the coordinator's name.

    >>> import asyncio
    >>> from ephemerals import WorkCoordinator
    >>> async def main() -> None:
    ...     async with WorkCoordinator(asyncio.sleep, max_concurrency=1) as coordinator:
    ...         adaptive = AdaptiveConcurrency(coordinator, maximum=4, high="load.high", low="load.low", cooldown=0)
    ...         for name in ("load.high", "load.high", "load.high", "load.low"):
    ...             coordinator.signals.emit(name)
    ...             print(coordinator.max_concurrency, end=" ")
    >>> asyncio.run(main())
    2 4 4 2
    """

    def __init__(  # noqa: PLR0913 - its options
        self,
        coordinator: Coordinator[Any, Any],
        *,
        minimum: int = 1,
        maximum: int = 256,
        complains: Callable[[BaseException], bool] = is_overload,
        cut: float = 0.9,
        high: PatternLike | None = None,
        low: PatternLike | None = None,
        cooldown: Seconds = 1.0,
    ) -> None:
        self._minimum, self._maximum = as_count("minimum", minimum), as_count("maximum", maximum)
        if minimum > maximum:
            raise InvalidOption("minimum", minimum, f"at most maximum={maximum}")
        if not 0 < cut < 1:
            raise InvalidOption("cut", cut, "a factor between 0 and 1")
        as_callback("complains", complains, "error", optional=False)
        self._complains, self._cut = complains, cut
        self._cooldown = as_seconds("cooldown", cooldown, zero=True)
        engine = coordinator.engine
        self._engine = weakref.ref(engine)
        self._gradient, self._round = Gradient(), Round()
        self._changed_at = float("-inf")
        self._latency: float | None = None
        self._raised = self._cuts = self._complaints = self._ignored = self._rounds = 0
        self._stops: list[Callable[[], object]] = []
        if high is None and low is None:
            self._stops.append(engine.listen(on_attempt=self._learn))
        for pattern, factor in ((high, 2.0), (low, 0.5)):
            if pattern is not None:
                self._follow(coordinator, pattern, factor)
        self._set(engine.limit)

    def statistics(self) -> ConcurrencyStatistics:
        """Return what it has found out and done; a `limit` of 0 if the coordinator is gone."""
        engine = self._engine()
        return ConcurrencyStatistics(
            limit=0 if engine is None else engine.limit,
            raised=self._raised,
            cut=self._cuts,
            complaints=self._complaints,
            ignored=self._ignored,
            rounds=self._rounds,
            latency=self._latency,
        )

    def close(self) -> None:
        """Leave the limit as it is; twice is the same as once."""
        stops, self._stops = self._stops, []
        for stop in stops:
            stop()

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when it is closed, for tests."""
        return {"listeners": len(self._stops)}

    # Latency.

    def _learn(self, operation: Operation[Any], error: BaseException | None) -> None:
        engine = self._engine()
        started = operation._draft._started
        if engine is None or started is None or started <= self._changed_at:
            return  # it began under another limit, or with others that did
        if error is not None:
            if self._complains(error):
                self._complaints += 1
                self._gradient.complain(engine.limit)
                self._set(min(engine.limit - 1, engine.limit * self._cut))
            return
        limit, active = engine.limit, len(engine.window.running) + 1
        is_held_back = active >= limit or bool(engine.window.pending)
        self._round.add(engine.now() - started, active, is_held_back=is_held_back)
        if self._round.is_over(limit, self._gradient.precision(limit)):
            ended, self._round = self._round, Round()
            self._latency = ended.latency
            self._rounds += 1
            self._set(self._gradient.next(limit, ended))

    # Signals.

    def _follow(self, coordinator: Coordinator[Any, Any], pattern: PatternLike, factor: float) -> None:
        def heard(_: SignalEvent[Any]) -> None:
            if (engine := self._engine()) is None:
                return
            if engine.now() - self._changed_at < self._cooldown:
                self._ignored += 1
            else:
                self._set(engine.limit * factor)

        subscription = coordinator.signals.sink.subscribe(pattern, heard)
        finalizer = weakref.finalize(coordinator.engine, subscription.cancel)
        finalizer.atexit = False
        self._stops += [subscription.cancel, finalizer.detach]

    # Both.

    def _set(self, wanted: float) -> None:
        engine = self._engine()
        if engine is None:
            return
        was, limit = engine.limit, max(self._minimum, min(self._maximum, round(wanted)))
        if limit == was:
            return
        self._raised += limit > was
        self._cuts += limit < was
        self._changed_at = engine.now()
        self._round = Round()
        engine.set_limit(limit)
        engine.sink.emit("concurrency.changed", {"limit": limit, "was": was}, source=engine.signalling.source)
