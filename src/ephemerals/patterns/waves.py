"""Workers in waves: the quick and cheap ones first, the others only if that has not decided it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ephemerals.atoms import CircuitBreaker, CircuitOpen
from ephemerals.clock import system_clock
from ephemerals.coordination import map_each
from ephemerals.errors import DuplicateName, InvalidBody
from ephemerals.failure import kept_form, qualified_name
from ephemerals.functions import as_callback, function_name, is_coroutine_function
from ephemerals.options import as_count, as_seconds

from .wave_report import WaveReport, WorkerOutcome, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ephemerals.clock import Clock
    from ephemerals.options import Seconds
    from ephemerals.signals import SignalSink

__all__ = ["Waves"]

T = TypeVar("T")
R = TypeVar("R")
F = TypeVar("F", bound="Callable[[Any], Awaitable[Any]]")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    name: str
    wave: int
    priority: int
    timeout: float | None
    function: Callable[[Any], Awaitable[Any]]
    breaker: CircuitBreaker


class Waves(Generic[T, R]):
    """Ask several workers about an item, wave after wave, until one gives a decisive result.

    Workers of a wave run side by side, at most `max_concurrency` (4) at once, those of lower `priority` first; the
    next wave begins when they have ended, `delay` (0) seconds later. As soon as `decisive(value)` is true the others
    are cancelled, and no wave follows. A worker has `worker_timeout` (2) seconds, a run `timeout` (5; `None`: no
    limit). A worker that fails, or is too slow, `threshold` (3) times within 30 seconds is skipped for `recovery`
    (30), by a `CircuitBreaker` of its own that all runs share; being cancelled does not count.

    `run(item)` returns a `WaveReport` with an outcome for each worker; only the caller's own cancellation, and an
    error of `decisive`, are raised.

    Signals, if `signals` is given, with `name` as key: `wave.started` with `{"wave": …, "workers": …}`,
    `wave.worker.completed|failed|timed_out|skipped` with `{"worker": …, "wave": …, "elapsed": …, "error": …}`,
    `wave.decided` with `{"wave": …, "worker": …}`, `wave.timed_out` with `{"wave": …}`; and those of the breakers, with
    the worker's name as key.

    >>> import asyncio
    >>> waves: Waves[str, bool] = Waves(decisive=lambda is_bot: is_bot)
    >>> @waves.worker()
    ... async def user_agent(request: str) -> bool:
    ...     return "bot" in request
    >>> @waves.worker(wave=1)
    ... async def reputation(request: str) -> bool:
    ...     raise ConnectionError
    >>> for request in ("a bot", "a person"):
    ...     print({each.name: str(each.status) for each in asyncio.run(waves.run(request))})
    {'user_agent': 'completed', 'reputation': 'not_started'}
    {'user_agent': 'completed', 'reputation': 'failed'}
    """

    def __init__(  # noqa: PLR0913 - its options
        self,
        name: str | None = None,
        *,
        decisive: Callable[[R], bool] | None = None,
        max_concurrency: int = 4,
        timeout: Seconds | None = 5.0,
        worker_timeout: Seconds | None = 2.0,
        delay: Seconds = 0.0,
        threshold: int = 3,
        recovery: Seconds = 30.0,
        signals: SignalSink | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.name = name
        if decisive is not None:
            as_callback("decisive", decisive, "value")
        self._decisive = decisive
        self._max_concurrency = as_count("max_concurrency", max_concurrency)
        self._timeout = None if timeout is None else as_seconds("timeout", timeout)
        self._worker_timeout = None if worker_timeout is None else as_seconds("worker_timeout", worker_timeout)
        self._delay = as_seconds("delay", delay, zero=True)
        self._threshold, self._recovery = as_count("threshold", threshold), as_seconds("recovery", recovery)
        self._signals = signals
        self._clock = clock
        self._workers: dict[str, _Worker] = {}
        self._counts: Counter[str] = Counter()
        self._running = 0

    def worker(
        self, *, wave: int = 0, priority: int = 0, timeout: Seconds | None = None, name: str | None = None
    ) -> Callable[[F], F]:
        """Make the function below a worker: an `async def` of the item, which stays what it is.

        `timeout` in seconds counts instead of `worker_timeout` (`None`: that one). Raise `DuplicateName` if the name,
        by default the function's, is taken, and `InvalidBody` if it is no `async def`.
        """
        seconds = self._worker_timeout if timeout is None else as_seconds("timeout", timeout)
        as_count("wave", wave, least=0)

        def add(function: F) -> F:
            if not is_coroutine_function(function):
                raise InvalidBody(f"{function_name(function)} is no async function: use an async def")
            chosen = function_name(function) if name is None else name
            if chosen in self._workers:
                raise DuplicateName("worker", chosen)
            self._workers[chosen] = _Worker(
                name=chosen,
                wave=wave,
                priority=priority,
                timeout=seconds,
                function=function,
                breaker=CircuitBreaker(
                    chosen,
                    threshold=self._threshold,
                    recovery=self._recovery,
                    probe_timeout=seconds,
                    signals=self._signals,
                    clock=self._clock,
                ),
            )
            return function

        return add

    async def run(self, item: T) -> WaveReport[R]:
        """Ask the workers about an item; return what became of each."""
        workers = sorted(self._workers.values(), key=lambda worker: (worker.wave, worker.priority))
        outcomes: dict[str, WorkerOutcome[R]] = {
            worker.name: WorkerOutcome(name=worker.name, wave=worker.wave, status=WorkerStatus.NOT_STARTED)
            for worker in workers
        }
        # The engine of a one-shot run is garbage afterwards, and must not keep the item until it is collected.
        box = [item]
        del item
        started, budget, decided = self._clock.monotonic(), asyncio.timeout(self._timeout), None
        self._running += 1
        try:
            async with budget:
                decided = await self._run_waves(box, workers, outcomes)
        except TimeoutError:
            if not budget.expired():
                raise
            self._counts["runs_timed_out"] += 1
            begun = [each.wave for each in outcomes.values() if each.status is not WorkerStatus.NOT_STARTED]
            self._emit("wave.timed_out", wave=max(begun, default=0))
        finally:
            box.clear()
            ended = dict(outcomes)
            outcomes.clear()
            self._running -= 1
            self._counts.update(outcome.status for outcome in ended.values())
        self._counts["runs"] += 1
        return WaveReport(
            outcomes=tuple(ended.values()),
            decisive=None if decided is None else ended[decided],
            timed_out=budget.expired(),
            elapsed=self._clock.monotonic() - started,
        )

    def statistics(self) -> dict[str, int]:
        """Count runs (under way, ended, decided early, timed out), and workers by what became of them."""
        counted = ["runs", "runs_decided", "runs_timed_out", *map(str, WorkerStatus)]
        return {"running": self._running, **{each: self._counts[each] for each in counted}}

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when no run is under way, for tests."""
        probes = sum(sum(worker.breaker.leftovers().values()) for worker in self._workers.values())
        return {"runs": self._running, "calls in breakers": probes}

    async def _run_waves(
        self, box: list[T], workers: list[_Worker], outcomes: dict[str, WorkerOutcome[R]]
    ) -> str | None:
        """Run wave after wave; return the name of the worker whose result was decisive, if one was."""

        async def ask(worker: _Worker) -> str:
            outcomes[worker.name] = WorkerOutcome(name=worker.name, wave=worker.wave, status=WorkerStatus.CANCELLED)
            outcomes[worker.name] = await self._ask(worker, box[0])
            return worker.name

        for place, wave in enumerate(sorted({worker.wave for worker in workers})):
            if place:
                await asyncio.sleep(self._delay)
            members = [worker for worker in workers if worker.wave == wave]
            self._emit("wave.started", wave=wave, workers=len(members))
            width = min(self._max_concurrency, len(members))
            async with map_each(members, ask, max_concurrency=width, max_tracked_operations=0) as ended:
                async for name in ended:
                    outcome = outcomes[name]
                    if self._decisive is None or outcome.status is not WorkerStatus.COMPLETED:
                        continue
                    if self._decisive(outcome.value):
                        self._counts["runs_decided"] += 1
                        self._emit("wave.decided", wave=wave, worker=name)
                        return name
        return None

    async def _ask(self, worker: _Worker, item: T) -> WorkerOutcome[R]:
        started, budget, has_begun = self._clock.monotonic(), asyncio.timeout(worker.timeout), False
        status, value, error = WorkerStatus.COMPLETED, None, None
        try:
            async with worker.breaker:
                has_begun = True
                async with budget:
                    value = await worker.function(item)
        except Exception as failure:  # noqa: BLE001 - it is the worker's outcome
            if isinstance(failure, CircuitOpen) and not has_begun:
                status = WorkerStatus.SKIPPED
            else:
                status = WorkerStatus.TIMED_OUT if budget.expired() else WorkerStatus.FAILED
            kept = kept_form(failure, is_shared=False)
            error = kept if isinstance(kept, Exception) else None
        elapsed = self._clock.monotonic() - started
        shown = None if error is None else qualified_name(type(error))
        self._emit(f"wave.worker.{status}", worker=worker.name, wave=worker.wave, elapsed=elapsed, error=shown)
        return WorkerOutcome(
            name=worker.name, wave=worker.wave, status=status, elapsed=elapsed, error=error, _value=value
        )

    def _emit(self, name: str, **data: Any) -> None:
        if self._signals is not None:
            self._signals.emit(name, data, key=self.name)
