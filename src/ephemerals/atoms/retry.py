"""Trying again: how often, after which pause, and for which errors."""

from __future__ import annotations

import asyncio
import logging
import random
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeVar

from ephemerals.clock import system_clock
from ephemerals.coordination.retrying import delay_after, is_retried_already, retried
from ephemerals.errors import InvalidOption
from ephemerals.failure import qualified_name
from ephemerals.functions import as_callback, function_name
from ephemerals.operation import current_operation
from ephemerals.options import as_choice, as_count, as_factor, as_flag, as_seconds

from .decorating import decorated
from .error_match import ErrorMatch, as_error_match, matches
from .throttling import retry_after_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ephemerals.clock import Clock
    from ephemerals.options import Seconds

__all__ = ["Retry", "RetryPolicy", "RetryStatistics"]

P = ParamSpec("P")
R = TypeVar("R")

_logger: Final = logging.getLogger("ephemerals")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Say whether and when what failed is tried again; give it to a coordinator as `retry=`, or to `Retry`.

    At most `attempts` (3; `None`: no limit) in all. The pause after attempt n is at most
    `initial · factor^(n-1)` seconds (0.1, doubling), never above `max_delay` (30); with `jitter` it is a random time
    from 0 up to that ("full jitter", Brooker, "Exponential Backoff And Jitter", AWS 2015), so that those who failed
    together do not come back together. An exception that says `retry_after` is waited for at least that long.

    `retry_on` is an exception class, several, or a predicate; cancellation, `KeyboardInterrupt`, `SystemExit` and
    `GeneratorExit` are no errors, and never retried whatever it says. After `deadline` seconds (`None`: no limit) from
    the first attempt none begins.

    >>> policy = RetryPolicy(attempts=4, initial=1, jitter=False)
    >>> print(*(policy.delay_after(OSError(), attempt, elapsed=0.0) for attempt in (1, 2, 3, 4)))
    1.0 2.0 4.0 None
    """

    attempts: int | None = 3
    initial: Seconds = 0.1
    factor: float = 2.0
    max_delay: Seconds = 30.0
    jitter: bool = True
    retry_on: ErrorMatch = Exception
    deadline: Seconds | None = None
    random: Callable[[], float] = field(default=random.random, repr=False)
    """Gives numbers from 0 up to 1, for the jitter."""

    def __post_init__(self) -> None:
        """Validate."""
        if self.attempts is not None:
            as_count("attempts", self.attempts)
        object.__setattr__(self, "initial", as_seconds("initial", self.initial, zero=True))
        object.__setattr__(self, "max_delay", as_seconds("max_delay", self.max_delay, zero=True))
        if self.deadline is not None:
            object.__setattr__(self, "deadline", as_seconds("deadline", self.deadline))
        if as_factor("factor", self.factor, "a number of at least 1") < 1:
            raise InvalidOption("factor", self.factor, "a number of at least 1")
        as_flag("jitter", self.jitter)
        as_error_match("retry_on", self.retry_on)
        as_callback("random", self.random, optional=False)

    def delay_after(self, error: BaseException, attempt: int, elapsed: float) -> float | None:
        """Return the seconds to wait after the failure of attempt `attempt` (from 1); `None`: give up.

        `elapsed` is the time in seconds since the first attempt began.
        """
        if (self.attempts is not None and attempt >= self.attempts) or not matches(self.retry_on, error):
            return None
        delay = self._backoff(attempt)
        wanted = retry_after_of(error)
        if wanted is not None:
            delay = max(delay, wanted)
        if self.deadline is not None and elapsed + delay > as_seconds("deadline", self.deadline):
            return None
        return delay

    def _backoff(self, attempt: int) -> float:
        longest = as_seconds("max_delay", self.max_delay, zero=True)
        try:
            delay = min(longest, as_seconds("initial", self.initial, zero=True) * float(self.factor) ** (attempt - 1))
        except OverflowError:
            delay = longest
        return delay * self.random() if self.jitter else delay


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryStatistics:
    """Count calls, the attempts after each first one, and the calls that failed in the end."""

    calls: int
    retries: int
    failed: int


class Retry:
    """Call coroutine functions again when they fail, as a policy says: `retry.call(...)`, or as a decorator.

    It sleeps where it is called. A coordinator with `retry=policy` does not: there an operation that waits for its
    next attempt holds no slot. Inside something that is retried already, attempts multiply (three times three are
    nine); what to do then says `nested`: `"warn"` with a `RuntimeWarning`, `"allow"` it, or try `"once"` and leave it
    to the outer one.

    The operation it runs in, if there is one, shows the `attempt` and emits two signals: `retry.scheduled` with
    `{"attempt": …, "error": …, "delay": …}`, `retry.exhausted` with `{"attempt": …, "error": …}`.

    >>> import asyncio
    >>> answers = [OSError("busy"), OSError("busy"), "at last"]
    >>> @Retry(RetryPolicy(attempts=3, initial=0))
    ... async def ask() -> str:
    ...     answer = answers.pop(0)
    ...     if isinstance(answer, Exception):
    ...         raise answer
    ...     return answer
    >>> asyncio.run(ask())
    'at last'
    """

    def __init__(
        self,
        policy: RetryPolicy | None = None,
        *,
        nested: Literal["warn", "allow", "once"] = "warn",
        clock: Clock = system_clock,
    ) -> None:
        self.policy = RetryPolicy() if policy is None else policy
        self._nested = as_choice("nested", nested, ("warn", "allow", "once"))
        self._clock = clock
        self._calls = 0
        self._retries = 0
        self._failed = 0

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        """Decorate a coroutine function; raise `InvalidBody` for anything else."""
        return decorated(
            function, self.call, "sleeping between attempts would block, so give it to a coordinator with retry=policy"
        )

    async def call(self, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Await `function(*args, **kwargs)`, again and again while it fails and the policy allows it."""
        is_nested = is_retried_already()
        if is_nested and self._nested == "warn":
            message = f"{function_name(function)} is retried inside something that is retried: attempts multiply"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        self._calls += 1
        started = self._clock.monotonic()
        attempt = 1
        with retried():
            while True:
                try:
                    return await function(*args, **kwargs)
                except Exception as error:
                    delay = None if is_nested and self._nested == "once" else self._delay(error, attempt, started)
                    if delay is None:
                        self._failed += 1
                        raise
                attempt += 1
                self._retries += 1
                if not is_nested and (operation := current_operation()) is not None:
                    operation.attempt = attempt
                await asyncio.sleep(delay)

    def statistics(self) -> RetryStatistics:
        """Return the counts as they are now."""
        return RetryStatistics(calls=self._calls, retries=self._retries, failed=self._failed)

    def _delay(self, error: Exception, attempt: int, started: float) -> float | None:
        delay = delay_after(self.policy, error, attempt, self._clock.monotonic() - started)
        said: dict[str, Any] = {"attempt": attempt, "error": qualified_name(type(error))}
        operation = current_operation()
        if operation is not None and delay is not None:
            operation.emit("retry.scheduled", data={**said, "delay": delay})
        elif operation is not None and attempt > 1:
            operation.emit("retry.exhausted", data=said)
        return delay
