"""A circuit breaker: do not call what fails, and find out carefully whether it works again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from ephemerals.clock import system_clock
from ephemerals.errors import InvalidOption
from ephemerals.options import as_count, as_seconds

from .circuit import CircuitOpen, CircuitState, CircuitStatistics, Outcomes, Pass
from .decorating import decorated
from .error_match import as_error_match, matches
from .following import follow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from ephemerals.clock import Clock
    from ephemerals.options import Seconds
    from ephemerals.signals import PatternLike, SignalEvent, SignalSink

    from .error_match import ErrorMatch

__all__ = ["CircuitBreaker"]

P = ParamSpec("P")
R = TypeVar("R")


class CircuitBreaker:
    """Refuse calls with `CircuitOpen` while what they call is broken: `async with`, `call(…)`, or as a decorator.

    It opens after `threshold` (5) failures within `window` (30) seconds; with `ratio`, when that share of the newest
    outcomes within the window are failures, of at least `threshold` outcomes. After `recovery` (30) seconds it is
    half open: exactly `probes` (1) calls go through. When that many have succeeded it closes; one failure, or a probe
    that takes longer than `probe_timeout` (30; `None`: no limit), opens it again. Cancellation, and any error that
    `failures` (classes, or a predicate; by default every `Exception`) leaves out, says nothing: the probe's place goes
    to the next caller. What began in an earlier state changes nothing when it ends.

    With `failure_signals` failures are the events of `signals` that match; calls count as probes only. Time passes
    without a timer: a change that time brings is made, and emitted, when somebody next calls or looks.

    Signals, if `signals` is given: `circuit.opened`, `circuit.half_opened`, `circuit.closed`; the key is `name`.

    >>> import asyncio
    >>> breaker = CircuitBreaker("prices", threshold=1)
    >>> async def main() -> None:
    ...     try:
    ...         async with breaker:
    ...             raise ConnectionError
    ...     except ConnectionError:
    ...         print(breaker.state)
    ...     try:
    ...         await breaker.call(asyncio.sleep, 0)
    ...     except CircuitOpen as refusal:
    ...         print(refusal)
    >>> asyncio.run(main())
    open
    circuit 'prices' is open: try again in 30 seconds
    """

    def __init__(  # noqa: PLR0913 - its options
        self,
        name: str | None = None,
        *,
        threshold: int = 5,
        ratio: float | None = None,
        window: Seconds = 30.0,
        recovery: Seconds = 30.0,
        probes: int = 1,
        probe_timeout: Seconds | None = 30.0,
        failures: ErrorMatch = Exception,
        signals: SignalSink | None = None,
        failure_signals: PatternLike | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.name = name
        as_count("threshold", threshold)
        as_error_match("failures", failures)
        if ratio is not None and not 0 < ratio <= 1:
            raise InvalidOption("ratio", ratio, "a share above 0 and up to 1, or None")
        self._outcomes = Outcomes(threshold, ratio, as_seconds("window", window))
        self._recovery, self._allowed = as_seconds("recovery", recovery), as_count("probes", probes)
        self._probe_timeout = None if probe_timeout is None else as_seconds("probe_timeout", probe_timeout)
        self._failures = failures
        self._signals = signals
        self._clock, self._hears = clock, failure_signals is not None
        follow(signals, failure_signals, self._on_failure_signal, "failure_signals")
        self._state, self._generation, self._reopens_at = CircuitState.CLOSED, 0, 0.0
        self._probes: dict[Pass, None] = {}
        self._proven = 0
        self._entered: dict[asyncio.Task[object] | None, list[Pass]] = {}
        self._succeeded = self._failed = self._neutral = self._late = self._rejected = self._opened = 0

    # Calling.

    async def call(self, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Await `function(*args, **kwargs)`, or raise `CircuitOpen` without calling it."""
        async with self:
            return await function(*args, **kwargs)

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        """Decorate a coroutine function; raise `InvalidBody` for anything else."""
        return decorated(function, self.call, "use an async def")

    async def __aenter__(self) -> Self:
        admitted = self._admit()
        self._entered.setdefault(asyncio.current_task(), []).append(admitted)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entered = self._entered[task := asyncio.current_task()]
        admitted = entered.pop()
        if not entered:
            del self._entered[task]
        self._settle(admitted, error)

    # Looking, and by hand.

    @property
    def state(self) -> CircuitState:
        """Return the state it is in now."""
        self._let_time_pass()
        return self._state

    @property
    def retry_after(self) -> float:
        """Return the seconds until a call may go through; 0.0: at once."""
        now = self._let_time_pass()
        if self._state is CircuitState.OPEN:
            return self._reopens_at - now
        if self._state is CircuitState.CLOSED or self._has_room:
            return 0.0
        overdue = self._overdue_at
        return self._recovery if overdue is None else min(self._recovery, overdue - now)

    def trip(self) -> None:
        """Open it by hand, for `recovery` seconds from now."""
        self._open(self._clock.monotonic())

    def reset(self) -> None:
        """Close it by hand, and forget the failures."""
        self._become(CircuitState.CLOSED)

    def statistics(self) -> CircuitStatistics:
        """Return the counts as they are now."""
        return CircuitStatistics(
            state=self.state,
            succeeded=self._succeeded,
            failed=self._failed,
            neutral=self._neutral,
            late=self._late,
            rejected=self._rejected,
            opened=self._opened,
            probing=len(self._probes),
        )

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when no call is under way, for tests."""
        return {"calls": len(self._entered), "probes": len(self._probes)}

    # What changes the state.

    @property
    def _overdue_at(self) -> float | None:
        if not self._probes or self._probe_timeout is None:
            return None
        return next(iter(self._probes)).started + self._probe_timeout

    @property
    def _has_room(self) -> bool:
        return len(self._probes) + self._proven < self._allowed

    def _admit(self) -> Pass:
        now = self._let_time_pass()
        if self._state is CircuitState.OPEN or (self._state is CircuitState.HALF_OPEN and not self._has_room):
            self._rejected += 1
            raise CircuitOpen(self.name, self.retry_after)
        admitted = Pass(self._generation, now)
        if self._state is CircuitState.HALF_OPEN:
            self._probes[admitted] = None
        return admitted

    def _settle(self, admitted: Pass, error: BaseException | None) -> None:
        now = self._let_time_pass()
        if admitted.generation != self._generation:
            self._late += 1
            return
        self._probes.pop(admitted, None)
        if error is not None and not self._is_failure(error):
            self._neutral += 1
            return
        self._succeeded += error is None
        self._failed += error is not None
        if self._state is CircuitState.CLOSED:
            if not self._hears and self._outcomes.note(now, is_failure=error is not None):
                self._open(now)
        elif error is not None:
            self._open(now)
        else:
            self._proven += 1
            if self._proven >= self._allowed:
                self._become(CircuitState.CLOSED)

    def _on_failure_signal(self, _: SignalEvent[object]) -> None:
        now = self._let_time_pass()
        self._failed += 1
        if self._state is CircuitState.HALF_OPEN or (
            self._state is CircuitState.CLOSED and self._outcomes.note(now, is_failure=True)
        ):
            self._open(now)

    def _is_failure(self, error: BaseException) -> bool:
        try:
            return matches(self._failures, error)
        except Exception:  # noqa: BLE001 - a predicate that cannot tell must not leave a probe's place taken
            return True

    def _let_time_pass(self) -> float:
        now = self._clock.monotonic()
        overdue = self._overdue_at
        if overdue is not None and overdue <= now:
            self._open(overdue)
        if self._state is CircuitState.OPEN and self._reopens_at <= now:
            self._become(CircuitState.HALF_OPEN)
        return now

    def _open(self, since: float) -> None:
        self._reopens_at = since + self._recovery
        self._opened += 1
        self._become(CircuitState.OPEN)

    def _become(self, state: CircuitState) -> None:
        self._state = state
        self._generation += 1
        self._probes.clear()
        self._outcomes.clear()
        self._proven = 0
        if self._signals is not None:
            self._signals.emit(state.signal, key=self.name)
