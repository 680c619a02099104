"""Handlers that take their time: a bounded queue in front of a few tasks.

What does not fit pushes out the oldest, because the newest says more about now; it is counted. There are no
workers: a task exists while a handler runs, so a sink that nobody closes leaves nothing behind. When all slots are
taken, a handler that has none still gets one: one that never returns holds up itself and nobody else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextlib import AbstractContextManager
    from contextvars import Context

    from .event import SignalEvent
    from .isolation import Isolation
    from .subscription import Subscription

__all__ = ["AsyncHandlers"]

_UNWIND = 1.0
"""Seconds that handlers get to unwind after they were cancelled."""


class _Call(NamedTuple):
    """One event for one handler; `started` is the coroutine that a plain function turned out to return."""

    subscription: Subscription
    event: SignalEvent[Any]
    context: Context
    started: Coroutine[Any, Any, object] | None


class AsyncHandlers:
    """Run asynchronous handlers: at most `max_concurrent` at once, or one of each, at most `max_queued` calls waiting.

    Calls start in the order of the events, each in a context of its own. They run on the loop given to `bind`; before
    that, they wait. Only `forget` may be called from other threads than that loop's.
    """

    __slots__ = (
        "_busy",
        "_calls",
        "_isolation",
        "_lock",
        "_loop",
        "_max_concurrent",
        "_max_queued",
        "_starting",
        "_tasks",
        "_waiters",
        "_waiting",
        "cancelled",
        "dropped",
        "failed",
        "processed",
    )

    def __init__(
        self, lock: AbstractContextManager[object], isolation: Isolation, *, max_concurrent: int, max_queued: int
    ) -> None:
        self.processed = self.failed = self.cancelled = self.dropped = 0
        self._isolation = isolation
        self._max_concurrent = max_concurrent
        self._max_queued = max_queued
        self.start_anew(lock)

    def start_anew(self, lock: AbstractContextManager[object]) -> None:
        """Have nothing to do, and no loop; what there was stayed behind in the parent process, if any."""
        self._lock = lock
        self._calls: deque[_Call] = deque()
        self._waiting: dict[Subscription, int] = {}  # how many of the calls are whose
        self._starting = 0  # calls on their way to a task; a loop may run a task while it is made
        self.bind(None)

    @property
    def queued(self) -> int:
        """Return how many calls wait."""
        return len(self._calls)

    @property
    def running(self) -> int:
        """Return how many calls run."""
        return len(self._tasks)

    def bind(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Run the calls on this loop from now on; those of another loop ended with it."""
        self._loop = loop
        self._tasks: dict[asyncio.Task[None], Subscription] = {}
        self._busy: dict[Subscription, int] = {}  # how many of the slots are whose
        self._waiters: list[asyncio.Future[None]] = []
        self.pump()

    def put(
        self,
        subscription: Subscription,
        event: SignalEvent[Any],
        context: Context,
        started: Coroutine[Any, Any, object] | None = None,
    ) -> None:
        """Queue a call, pushing out the oldest if there is no room."""
        with self._lock:
            self._calls.append(_Call(subscription, event, context, started))
            _count(self._waiting, subscription, 1)
        self.pump()
        with self._lock:
            if len(self._calls) > self._max_queued:
                self._drop(self._take(0))

    def pump(self) -> None:
        """Start what may start."""
        loop = self._loop
        while loop is not None and (call := self._next()) is not None:
            subscription = call.subscription
            self._starting += 1
            _count(self._busy, subscription, 1)
            task = loop.create_task(self._run(call), context=call.context)
            self._starting -= 1
            self._tasks[task] = subscription
            task.add_done_callback(self._on_done)

    def _next(self) -> _Call | None:
        """Take the call that may start next: the oldest; if no slot is free, the oldest of a handler that has none."""
        with self._lock:
            if not self._calls:
                return None
            if len(self._tasks) + self._starting < self._max_concurrent:
                return self._take(0)
            if self._waiting.keys() <= self._busy.keys():
                return None
            return self._take(next(i for i, call in enumerate(self._calls) if call.subscription not in self._busy))

    def _take(self, position: int) -> _Call:
        """Take a call out of the queue; the caller holds the lock."""
        call = self._calls[position]
        del self._calls[position]
        _count(self._waiting, call.subscription, -1)
        return call

    def forget(self, subscription: Subscription) -> None:
        """Let go of the calls of a subscription that was cancelled."""
        with self._lock:
            kept = [call for call in self._calls if call.subscription is not subscription]
            gone = [call for call in self._calls if call.subscription is subscription]
            self._calls = deque(kept)
            self._waiting.pop(subscription, None)
        for call in gone:
            if call.started is not None:
                call.started.close()

    def drop_all(self) -> None:
        """Let go of everything that waits, and count it as dropped."""
        with self._lock:
            while self._calls:
                self._drop(self._take(0))

    async def join(self) -> None:
        """Wait until nothing waits and nothing runs, except for whoever asks."""
        loop = asyncio.get_running_loop()
        asking = asyncio.current_task()
        self.pump()
        while self._calls or self._tasks.keys() - {cast("asyncio.Task[None]", asking)}:
            waiter = loop.create_future()
            self._waiters.append(waiter)
            await waiter

    async def aclose(self, budget: float | None) -> None:
        """Wait for what waits and runs, for `budget` seconds; then drop and cancel it."""
        try:
            async with asyncio.timeout(budget):
                await self.join()
        except TimeoutError:
            pass
        finally:
            self.drop_all()
            left = self._tasks.keys() - {cast("asyncio.Task[None]", asyncio.current_task())}
            for task in left:
                task.cancel()
        if left:
            await asyncio.wait(left, timeout=_UNWIND)

    async def _run(self, call: _Call) -> None:
        subscription, event, _, started = call
        if started is None and not subscription.is_active:
            return
        del call
        try:
            await cast("Coroutine[Any, Any, object]", started or subscription.handler(event))
        except asyncio.CancelledError:
            self.cancelled += 1
            if cast("asyncio.Task[None]", asyncio.current_task()).cancelling():
                raise
        except (KeyboardInterrupt, SystemExit):
            self.failed += 1
            raise
        except BaseException as error:  # noqa: BLE001 - a handler must not break what it listens to
            self.failed += 1
            self._isolation.report(error, event, subscription.handler)
        else:
            self.processed += 1

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if task not in self._tasks:
            return  # it ran on an earlier loop
        _count(self._busy, self._tasks.pop(task), -1)
        if not task.cancelled():
            task.exception()  # so that asyncio does not tell of it again
            self.pump()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _drop(self, call: _Call) -> None:
        self.dropped += 1
        if call.started is not None:
            call.started.close()


def _count(counts: dict[Subscription, int], subscription: Subscription, change: int) -> None:
    """Change a count; one of 0 is not kept."""
    count = counts.get(subscription, 0) + change
    if count:
        counts[subscription] = count
    else:
        del counts[subscription]
