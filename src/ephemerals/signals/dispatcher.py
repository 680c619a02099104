"""Work for signals, off the path of whoever emits: in order for each name, side by side for different ones.

    dispatcher = SignalDispatcher(sink)

    @dispatcher.on("order.*")
    async def book(event): ...

    await dispatcher.join()

All handlers whose pattern matches an event are called for it, one after the other, in the order in which they were
added. The next event of the same name waits until they are through; events of other names do not.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar, cast

from ephemerals.functions import as_callback

from .delivery import running_loop
from .isolation import Isolation
from .stream import resolve
from .validation import as_count, as_pattern

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context
    from types import TracebackType

    from .event import SignalEvent
    from .isolation import OnHandlerError
    from .pattern import Pattern, PatternLike
    from .sink import SignalSink
    from .subscription import Handler, Subscription
    from .typed import SignalKey

__all__ = ["DispatcherStatistics", "SignalDispatcher"]

H = TypeVar("H", bound="Callable[[SignalEvent[Any]], object]")

_UNWIND: Final = 1.0
"""Seconds that handlers get to unwind after they were cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherStatistics:
    """Show the counts of a dispatcher: events that wait, are handled now, are through, or were dropped.

    `failed` counts calls of handlers that failed.
    """

    queued: int
    running: int
    processed: int
    dropped: int
    failed: int


class _Waiting(NamedTuple):
    number: int
    event: SignalEvent[Any]
    context: Context


class SignalDispatcher:
    """Call handlers for signals, in tasks: at most `max_concurrency` events at once, at most `max_queued` waiting.

    With a sink it hears of everything that is emitted there; without one, events are given to `dispatch`. When too
    many wait, the oldest is dropped and counted. A handler that fails stops nobody: the error is counted, logged
    without the data, and offered to `on_handler_error(error, event, handler)`. Use it on the thread of one loop.
    """

    __slots__ = (
        "_dropped",
        "_handlers",
        "_is_closed",
        "_isolation",
        "_lanes",
        "_loop",
        "_max_concurrency",
        "_max_queued",
        "_number",
        "_processed",
        "_ready",
        "_subscription",
        "_tasks",
        "_waiters",
        "_waiting",
    )

    def __init__(
        self,
        sink: SignalSink | None = None,
        *,
        max_concurrency: int = 8,
        max_queued: int = 1000,
        on_handler_error: OnHandlerError | None = None,
    ) -> None:
        self._max_concurrency = as_count("max_concurrency", max_concurrency)
        self._max_queued = as_count("max_queued", max_queued)
        self._isolation = Isolation(on_handler_error)
        self._handlers: list[tuple[Pattern, Handler]] = []
        self._lanes: dict[str, deque[_Waiting]] = {}  # for each name that has an event waiting or running
        self._waiting: dict[int, str] = {}  # the names of waiting events, oldest first
        self._ready: dict[str, None] = {}  # names whose next event may start
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self._number = self._processed = self._dropped = 0
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._subscription: Subscription | None = None
        if sink is not None:
            self._subscription = sink.subscribe("*", self.dispatch)

    def on(self, pattern: PatternLike | SignalKey[Any]) -> Callable[[H], H]:
        """Add the function below, plain or async, as a handler; it stays what it is."""

        def decorate(handler: H) -> H:
            self.add(pattern, handler)
            return handler

        return decorate

    def add(self, pattern: PatternLike | SignalKey[Any], handler: Handler) -> None:
        """Add a handler, plain or async, after the ones that are there."""
        as_callback("handler", handler, "event", takes_async=True, optional=False)
        self._handlers.append((as_pattern(pattern), handler))

    def dispatch(self, event: SignalEvent[Any]) -> bool:
        """Have an event handled, in the context of the caller; False if nobody handles it, or after `aclose`."""
        if self._is_closed or not any(pattern.matches(event.name) for pattern, _ in self._handlers):
            return False
        if len(self._waiting) >= self._max_queued:
            self._drop_oldest()
        self._number += 1
        lane = self._lanes.get(event.name)
        if lane is None:
            lane = self._lanes[event.name] = deque()
            self._ready[event.name] = None
        lane.append(_Waiting(self._number, event, copy_context()))
        self._waiting[self._number] = event.name
        self._pump()
        return True

    def statistics(self) -> DispatcherStatistics:
        """Return the counts as they are now."""
        return DispatcherStatistics(
            queued=len(self._waiting),
            running=len(self._tasks),
            processed=self._processed,
            dropped=self._dropped,
            failed=self._isolation.failed,
        )

    async def join(self) -> None:
        """Wait until no event waits or is being handled, except by whoever asks; more may be dispatched afterwards."""
        me = cast("asyncio.Task[None]", asyncio.current_task())
        self._pump()
        while self._waiting or self._tasks - {me}:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    async def aclose(self, timeout: float | None = 5.0) -> None:  # noqa: ASYNC109 - a budget; it never raises
        """Take nothing more, wait `timeout` seconds for what is there, then drop and cancel it; repeating is harmless.

        `None` waits as long as it takes.
        """
        self._is_closed = True
        if self._subscription is not None:
            self._subscription.cancel()
        try:
            async with asyncio.timeout(timeout):
                await self.join()
        except TimeoutError:
            pass
        finally:
            while self._waiting:
                self._drop_oldest()
            left = self._tasks - {cast("asyncio.Task[None]", asyncio.current_task())}
            for task in left:
                task.cancel()
        if left:
            await asyncio.wait(left, timeout=_UNWIND)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _pump(self) -> None:
        """Start what may start, if a loop is running here; what comes before that waits for it."""
        loop = running_loop()
        if loop is not None and loop is not self._loop:
            self._start_on(loop)
        while loop is not None and self._ready and len(self._tasks) < self._max_concurrency:
            name = next(iter(self._ready))
            del self._ready[name]
            waiting = self._lanes[name].popleft()
            del self._waiting[waiting.number]
            task = loop.create_task(self._handle(waiting.event), context=waiting.context)
            self._tasks.add(task)
            task.add_done_callback(partial(self._on_done, name))

    def _start_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Go on with what waits; what ran on an earlier loop has ended with it."""
        self._loop = loop
        self._tasks, self._waiters = set(), []
        self._lanes = {name: lane for name, lane in self._lanes.items() if lane}
        self._ready = dict.fromkeys(self._lanes)

    def _drop_oldest(self) -> None:
        number = next(iter(self._waiting))
        name = self._waiting.pop(number)
        self._lanes[name].popleft()
        self._dropped += 1
        if not self._lanes[name] and name in self._ready:
            del self._ready[name], self._lanes[name]

    async def _handle(self, event: SignalEvent[Any]) -> None:
        for pattern, handler in list(self._handlers):
            if not pattern.matches(event.name):
                continue
            try:
                result = handler(event)
                if inspect.isawaitable(result):
                    await result
            except asyncio.CancelledError:
                if cast("asyncio.Task[None]", asyncio.current_task()).cancelling():
                    raise
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - a handler must not stop the others
                self._isolation.report(error, event, handler)
        self._processed += 1

    def _on_done(self, name: str, task: asyncio.Task[None]) -> None:
        if task not in self._tasks:
            return  # it ran on an earlier loop
        self._tasks.discard(task)
        if self._lanes[name]:
            self._ready[name] = None
        else:
            del self._lanes[name]
        if not task.cancelled():
            task.exception()  # so that asyncio does not tell of it again
            self._pump()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            resolve(waiter)
