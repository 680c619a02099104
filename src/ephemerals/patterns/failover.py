"""A primary and its backups: who is healthy is asked first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar, cast

from ephemerals.atoms import CircuitBreaker, CircuitOpen, CircuitState
from ephemerals.atoms.error_match import as_error_match, matches
from ephemerals.clock import system_clock
from ephemerals.errors import EphemeralsError, InvalidBody, InvalidOption, InvalidOptionType
from ephemerals.failure import kept_form, qualified_name
from ephemerals.functions import is_coroutine_function
from ephemerals.options import as_seconds

if TYPE_CHECKING:
    from ephemerals.atoms import CircuitStatistics
    from ephemerals.atoms.error_match import ErrorMatch
    from ephemerals.clock import Clock
    from ephemerals.options import Seconds
    from ephemerals.signals import SignalSink

__all__ = ["FailoverExhausted", "FailoverStatistics", "PriorityFailover"]

P = ParamSpec("P")
R = TypeVar("R")


class FailoverExhausted(EphemeralsError):
    """Tell that no leg could do it: `errors` says why, by leg; `retry_after` is in seconds, if a leg is not asked.

    The errors have no traceback, but a note of the places.
    """

    def __init__(self, name: str | None, errors: Mapping[str, Exception], retry_after: float | None) -> None:
        shown = "" if name is None else f" of failover {name!r}"
        said = ", ".join(f"{leg}: {qualified_name(type(error))}" for leg, error in errors.items())
        super().__init__(f"every leg{shown} has failed ({said})")
        self.errors = errors
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverStatistics:
    """Count calls, those that another leg than the first one served, and those that none did; and each leg's calls."""

    calls: int
    failed_over: int
    exhausted: int
    legs: Mapping[str, CircuitStatistics]


class PriorityFailover(Generic[P, R]):
    """Call the first leg that is healthy; if it fails, the next one, in the same call.

    A leg is an `async def`; the mapping is in the order of priority. After `threshold` (3) failures within `window`
    (10) seconds a leg is not healthy: it is not asked any more. Every `probe_every` (5) seconds one call is let
    through to find out, and falls over to the next leg like any other if it fails; when it succeeds the leg is healthy
    again. A leg that takes longer than `timeout` seconds (`None`: no limit) fails with a `TimeoutError`.

    An error that `failures` (classes, or a predicate; by default every `Exception`) leaves out is raised as it is, and
    says nothing about health; so does cancellation. When every leg has failed `FailoverExhausted` is raised.

    Signals, if `signals` is given, with `name` as key: `failover.switched` with `{"leg": …, "was": …}` when another leg
    serves than the last time, `failover.exhausted` with `{"errors": …}`; and the breakers', with the leg as key.

    >>> import asyncio
    >>> async def primary(city: str) -> str:
    ...     raise ConnectionError
    >>> async def backup(city: str) -> str:
    ...     return f"sunny in {city}"
    >>> weather = PriorityFailover({"primary": primary, "backup": backup}, threshold=1)
    >>> async def main() -> None:
    ...     print(await weather("Ghent"), {leg: str(state) for leg, state in weather.health().items()})
    >>> asyncio.run(main())
    sunny in Ghent {'primary': 'open', 'backup': 'closed'}
    """

    def __init__(  # noqa: PLR0913 - its options
        self,
        legs: Mapping[str, Callable[P, Awaitable[R]]],
        *,
        name: str | None = None,
        threshold: int = 3,
        window: Seconds = 10.0,
        probe_every: Seconds = 5.0,
        timeout: Seconds | None = None,
        failures: ErrorMatch = Exception,
        signals: SignalSink | None = None,
        clock: Clock = system_clock,
    ) -> None:
        if not isinstance(legs, Mapping):
            raise InvalidOptionType("legs", legs, "a mapping of names to async functions")
        if not legs:
            raise InvalidOption("legs", legs, "one leg at least")
        for leg, function in legs.items():
            if not is_coroutine_function(function):
                raise InvalidBody(f"leg {leg!r} is no async function: use an async def")
        as_error_match("failures", failures)
        self.name = name
        self._legs = dict(legs)
        self._timeout = None if timeout is None else as_seconds("timeout", timeout)
        self._failures = failures
        self._signals = signals
        self._breakers = {
            leg: CircuitBreaker(
                leg,
                threshold=threshold,
                window=window,
                recovery=as_seconds("probe_every", probe_every),
                failures=failures,
                signals=signals,
                clock=clock,
            )
            for leg in legs
        }
        self._first = self._served_by = next(iter(self._legs))
        self._calls = self._failed_over = self._exhausted = 0

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Await the first healthy leg that does it, and return its result."""
        self._calls += 1
        errors: dict[str, Exception] = {}
        refused: list[float] = []
        for leg, function in self._legs.items():
            has_begun = False
            try:
                async with self._breakers[leg]:
                    has_begun = True
                    async with asyncio.timeout(self._timeout):
                        result = await function(*args, **kwargs)
            except Exception as error:
                if isinstance(error, CircuitOpen) and not has_begun:
                    refused.append(error.retry_after)
                elif not matches(self._failures, error):
                    raise
                errors[leg] = cast("Exception", kept_form(error, is_shared=False))
            else:
                self._serve(leg)
                return result
        self._exhausted += 1
        self._emit("failover.exhausted", errors={leg: qualified_name(type(error)) for leg, error in errors.items()})
        raise FailoverExhausted(self.name, errors, min(refused, default=None))

    def health(self) -> dict[str, CircuitState]:
        """Return the state of each leg: closed is healthy, open is not asked, half open is about to be found out."""
        return {leg: breaker.state for leg, breaker in self._breakers.items()}

    def statistics(self) -> FailoverStatistics:
        """Return the counts as they are now."""
        return FailoverStatistics(
            calls=self._calls,
            failed_over=self._failed_over,
            exhausted=self._exhausted,
            legs={leg: breaker.statistics() for leg, breaker in self._breakers.items()},
        )

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when no call is under way, for tests."""
        return {f"{what} of {leg}": n for leg, each in self._breakers.items() for what, n in each.leftovers().items()}

    def _serve(self, leg: str) -> None:
        self._failed_over += leg != self._first
        was, self._served_by = self._served_by, leg
        if was != leg:
            self._emit("failover.switched", leg=leg, was=was)

    def _emit(self, signal: str, **data: object) -> None:
        if self._signals is not None:
            self._signals.emit(signal, data, key=self.name)
