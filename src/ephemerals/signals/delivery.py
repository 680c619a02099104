"""Who is called, in which order, and where.

Events wait in one queue, in the order in which they were emitted, and one thread at a time empties it. So
every listener sees every event in the same order, a signal emitted by a handler comes after the one being
handled (breadth first), and no stack grows.

A sink that was used inside an event loop delivers on the thread of that loop, always: what another thread
emits is handed over. Without a loop, whoever emits delivers, and takes along what others have queued
meanwhile.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final

from .isolation import logger
from .propagation import cause

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from .async_handlers import AsyncHandlers
    from .event import SignalEvent
    from .isolation import Isolation
    from .subscription import Subscription
    from .watch import Watch

__all__ = ["Delivery"]

_AT_ONCE: Final = 256
"""Deliveries for other threads in one turn of the loop."""

running_loop: Final = asyncio._get_running_loop
get_ident: Final = threading.get_ident
set_cause: Final = cause.set
reset_cause: Final = cause.reset


class Delivery:
    """Empty a queue of events into their listeners.

    `queue` holds `(event, listeners, context)`, and `(None, (watch,), None)` for a watch to be told of a
    change. Append to it under `lock`, the sink's, and call `flush` outside of it. `loop` is the loop it is
    bound to, `thread` the thread of that loop; without one, `thread` means nothing. A new loop calls `on_bind` soon.
    """

    __slots__ = ("_handlers", "_isolation", "_lock", "_number", "_on_bind", "_woken", "busy", "loop", "queue", "thread")

    def __init__(
        self,
        number: int,
        lock: AbstractContextManager[object],
        isolation: Isolation,
        handlers: AsyncHandlers,
        on_bind: Callable[[], None],
    ) -> None:
        self.queue: deque[Any] = deque()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._isolation = isolation
        self._handlers = handlers
        self.thread = 0
        self.busy = False
        self._lock = lock
        self._number = number
        self._on_bind = on_bind
        self._woken = False

    # Where.

    def flush(self) -> None:
        """Deliver what is queued: here, or on the thread of the loop."""
        if self._is_here(running_loop()):
            self.drain()

    def flush_some(self) -> None:
        """Do the same, but leave others a turn of the loop if there is much."""
        if self._is_here(running_loop()):
            self._on_wake()

    def bind(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Deliver on the thread of this loop, which is the current thread, from now on."""
        self.loop = loop
        self.thread = get_ident()
        self._woken = False
        self._handlers.bind(loop)
        if loop is not None:
            loop.call_soon(self._on_bind, context=Context())

    def adopt(self, running: asyncio.AbstractEventLoop) -> None:
        """Bind to the running loop, unless the one that is bound is open in another thread."""
        if self.loop is None or self.loop.is_closed() or self.thread == get_ident():
            self.bind(running)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Have a function called on the thread of the loop, if that is still open."""
        if self.loop is not None:
            with suppress(RuntimeError):  # closed this very moment
                self.loop.call_soon_threadsafe(function, *arguments, context=Context())

    def start_anew(self, lock: AbstractContextManager[object]) -> None:
        """Forget loop and thread: they stayed behind in the parent process."""
        self._lock = lock
        self.busy = False
        self.queue.clear()
        self.bind(None)

    def _is_here(self, running: asyncio.AbstractEventLoop | None) -> bool:
        """Tell whether this is the thread to deliver on; if not, wake the one that is."""
        loop = self.loop
        if loop is None and running is None:
            return True
        if loop is None or loop.is_closed():
            self.bind(running)
            return True
        if self.thread == get_ident():
            if running is not None and running is not loop:
                self.bind(running)  # a thread runs one loop, so ours has stopped
            return True
        return not self._wake(loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Have the loop's thread deliver; False if it was closed this very moment."""
        if not self._woken:
            self._woken = True
            try:
                loop.call_soon_threadsafe(self._on_wake, context=Context())
            except RuntimeError:
                self.bind(None)
                return False
        return True

    def _on_wake(self) -> None:
        self._woken = False
        for _ in range(_AT_ONCE):
            if not self.queue:
                return
            self.drain(once=True)
        if self.queue and self.loop is not None:
            self._wake(self.loop)

    # In which order.

    def drain(self, *, once: bool = False) -> None:
        """Deliver until the queue is empty, unless somebody does already; with `once` one event only."""
        while self.queue:
            with self._lock:
                if self.busy:
                    return  # whoever delivers looks at the queue again after unsetting `busy`
                self.busy = True
            try:
                while self.queue:
                    event, listeners, context = self.queue.popleft()
                    if event is None:
                        self._tell(*listeners)
                    else:
                        self.deliver(event, listeners, context)
                    if once:
                        return
            finally:
                self.busy = False

    def deliver(self, event: SignalEvent[Any], listeners: tuple[Subscription, ...], context: Context | None) -> None:
        """Call each listener; what it raises stays with it. Only whoever has set `busy` may do this."""
        parent = event._cause
        token = set_cause((1 if parent is None else parent[0] + 1, self._number, event.name, parent))
        try:
            for subscription in listeners:
                call = subscription.call
                if call is None:
                    self._hand_over(subscription, event, context)
                    continue
                try:
                    result = call(event)
                except (KeyboardInterrupt, SystemExit):
                    rest = listeners[listeners.index(subscription) + 1 :]
                    self.queue.appendleft((event, rest, context))
                    raise
                except BaseException as error:  # noqa: BLE001 - a handler must not break what it listens to
                    self._isolation.report(error, event, subscription.handler)
                else:
                    if result is not None and inspect.iscoroutine(result):
                        self._handlers.put(subscription, event, copy_context(), result)
        finally:
            reset_cause(token)

    def _hand_over(self, subscription: Subscription, event: SignalEvent[Any], context: Context | None) -> None:
        """Queue a call of an asynchronous handler, in the emitter's context, as part of the chain."""
        if not subscription.is_active:
            return
        context = copy_context() if context is None else context.copy()
        context.run(set_cause, cause.get())
        self._handlers.put(subscription, event, context)

    def _tell(self, watch: Watch) -> None:
        watch.is_due = False
        if watch.on_change is None or not watch.is_active:
            return
        try:
            watch.on_change(watch)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - as above
            self._isolation.failed += 1
            logger.warning("on_change of %r failed: %s", watch, type(error).__qualname__)
