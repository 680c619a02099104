"""The sink: where signals are emitted, remembered for a while, and heard.

    >>> sink = SignalSink()
    >>> heard = sink.subscribe("order.*", lambda event: print("heard", event.name))
    >>> _ = sink.emit("order.placed", key="42")
    heard order.placed
    >>> sink.has("order.placed"), sink.count_matching("order.*")
    (True, 1)

A fact is emitted, and ages. A condition holds: `with sink.hold("backpressure.db")`, or from `emit` to
`retract`. Commands are method calls, or events with typed data; nothing is ever read out of a name.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast, overload

from ephemerals.clock import system_clock
from ephemerals.errors import SinkClosed
from ephemerals.functions import as_callback

from .delivery import get_ident, running_loop
from .event import SignalEvent, _Draft, unstored
from .forgetting import Forgetting
from .isolation import logger
from .propagation import BlockReason, SignalConstraints, cause
from .scopes import SignalScope
from .statistics import SignalStatistics
from .stream import Buffer, SignalStream
from .subscription import Subscription
from .typed import SignalKey
from .validation import as_age, as_count, as_name, as_pattern, as_seconds
from .watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import timedelta
    from types import TracebackType

    from ephemerals.clock import Clock

    from .isolation import OnHandlerError
    from .pattern import PatternLike
    from .validation import Moment

__all__ = ["SignalSink"]

T = TypeVar("T")
H = TypeVar("H", bound="Callable[[SignalEvent[Any]], object]")

get_cause: Final = cause.get

_MAX_REPORTED: Final = 256
"""Names of blocked signals that are remembered, so that each is logged once."""


class SignalSink(Forgetting):
    """Remember the newest `max_capacity` events, each for `max_age` seconds, and deliver them.

    `emit` and every other method that is not a coroutine may be called from any thread. Construction needs no
    loop; the sink binds to the loop in which it is first listened to, and to another one once that is closed.
    Handlers are called on the thread of that loop, in the order in which they subscribed, and every one of
    them sees the events in the same order: what a handler emits comes after the event that it handles.
    `max_age=None` keeps events whatever their age.

    Asynchronous handlers run as tasks, `max_concurrent_handlers` at once, or one call of each if there are more
    handlers, so that one that never returns holds up no other. When `max_queued` calls wait, the oldest is
    dropped and counted. An error of a handler stays with it: it is counted, logged without the
    event's data, and offered to `on_handler_error(error, event, handler)`.

    Left as an `async with` block, the sink waits for its asynchronous handlers and stops delivering. That is
    not needed for its own sake: a sink that is simply forgotten leaves nothing behind.
    """

    __slots__ = ("_blocked", "_is_closed", "_max_queued", "_reported", "_sequence", "name")

    def __init__(  # noqa: PLR0913 - its options
        self,
        max_capacity: int = 1000,
        max_age: float | timedelta | None = 60.0,
        *,
        constraints: SignalConstraints | None = None,
        on_handler_error: OnHandlerError | None = None,
        max_concurrent_handlers: int = 4,
        max_queued: int = 1000,
        clock: Clock = system_clock,
        name: str | None = None,
    ) -> None:
        super().__init__(
            capacity=as_count("max_capacity", max_capacity),
            age=as_age(max_age),
            on_handler_error=on_handler_error,
            max_concurrent=as_count("max_concurrent_handlers", max_concurrent_handlers),
            max_queued=as_count("max_queued", max_queued),
            clock=clock,
        )
        self.name = name
        self.constraints = SignalConstraints() if constraints is None else constraints
        self._max_queued = max_queued
        self._sequence = 0
        self._blocked = 0
        self._reported: set[tuple[str, BlockReason]] = set()
        self._is_closed = False

    # Emitting.

    @overload
    def emit(
        self,
        name: SignalKey[T],
        data: T,
        *,
        key: Any = None,
        operation_id: int | None = None,
        source: str | None = None,
    ) -> SignalEvent[T] | None: ...

    @overload
    def emit(
        self,
        name: str,
        data: Any = None,
        *,
        key: Any = None,
        operation_id: int | None = None,
        source: str | None = None,
    ) -> SignalEvent[Any] | None: ...

    def emit(  # noqa: PLR0912, PLR0915 - every call on this path would cost a tenth of it
        self,
        name: str | SignalKey[Any],
        data: Any = None,
        *,
        key: Any = None,
        operation_id: int | None = None,
        source: str | None = None,
    ) -> SignalEvent[Any] | None:
        """Store an event and deliver it; return it, or `None` if a constraint blocked it.

        It is in the window when `emit` returns. It has been delivered, too, if this is the thread that
        delivers and no handler is running. An error of a handler is never raised here.
        """
        if type(name) is not str or not name:
            name = _checked(name, data)
        caused_by = get_cause()
        draft: _Draft[Any] = _Draft()
        draft.name = name
        draft.data = data
        draft.key = key
        draft.operation_id = operation_id
        draft.source = source
        draft._cause = caused_by
        if caused_by is not None and (reason := self.constraints.check(self._number, name, caused_by)) is not None:
            self._block(draft, reason)
            return None
        clock = self.clock
        index, delivery = self._index, self._delivery
        listeners = context = None
        self._acquire()
        try:
            draft.monotonic = now = clock.monotonic()
            draft._wall = clock.time()
            draft.sequence = self._sequence = self._sequence + 1
            draft.__class__ = SignalEvent  # type: ignore[assignment]
            event: SignalEvent[Any] = draft  # type: ignore[assignment]  # its class has just been changed
            index.fresh.append(event)
            if now >= index.next or index.indexed:
                index.tidy(now)
                if now >= self._due:
                    self._arm(now)
            if self._listeners:
                route = self._routes.get(name) or self._table.find(name)
                for watch in route.watches:
                    self._change(watch, event)
                if self._present:
                    self._settle(now)
                if route.listeners:
                    listeners = route.listeners
                    context = copy_context() if route.has_async else None
                    loop = delivery.loop
                    if (
                        delivery.busy
                        or self._queue
                        # This comes down to `running_loop() is not loop`, a system call in 3.11.
                        or (running_loop() if loop is None else get_ident() != delivery.thread or loop.is_closed())
                    ):
                        self._queue.append((event, listeners, context))
                        listeners = None
                    else:
                        delivery.busy = True
        finally:
            self._release()
        if listeners is not None:
            try:
                delivery.deliver(event, listeners, context)
            finally:
                delivery.busy = False
        if self._queue:
            self._delivery.flush()
        return event

    @contextmanager
    def hold(
        self,
        name: str | SignalKey[Any],
        data: Any = None,
        *,
        key: Any = None,
        operation_id: int | None = None,
        source: str | None = None,
    ) -> Generator[SignalEvent[Any] | None]:
        """Let a condition be present inside a `with` block: emit first, and retract that event at the end.

        While it is held, the event does not age. If a constraint blocks it, the block runs all the same, with
        `None`.
        """
        event = self.emit(cast("str", name), data, key=key, operation_id=operation_id, source=source)
        if event is None:
            yield None
            return
        with self._lock:
            self._refresh()
            self._index.hold(event)
        try:
            yield event
        finally:
            self.retract_event(event)

    def _block(self, draft: _Draft[Any], reason: BlockReason) -> None:
        """Report a signal that a constraint keeps back: to the hook each time, to the log once."""
        event = unstored(draft, self.clock)
        with self._lock:
            self._blocked += 1
            fault = (event.name, reason)
            is_new = reason is not BlockReason.LEAF and fault not in self._reported
            if is_new and len(self._reported) < _MAX_REPORTED:
                self._reported.add(fault)
        if is_new:
            logger.warning("signal %r blocked (%s): %s", event.name, reason, event.propagation)
        if self.constraints.on_blocked is not None:
            try:
                self.constraints.on_blocked(event, reason)
            except Exception as error:  # noqa: BLE001 - a hook must not break what it watches
                logger.warning("on_blocked failed on %r: %s", event.name, type(error).__qualname__)

    def scoped(self, prefix: str, *, source: str | None = None) -> SignalScope:
        """Return the part of this sink whose names begin with a prefix and a dot."""
        return SignalScope(self, prefix, source=source)

    # Listening.

    @overload
    def subscribe(
        self,
        pattern: SignalKey[T],
        handler: Callable[[SignalEvent[T]], object],
        *,
        retractions: bool = False,
    ) -> Subscription: ...

    @overload
    def subscribe(
        self,
        pattern: PatternLike,
        handler: Callable[[SignalEvent[Any]], object],
        *,
        retractions: bool = False,
    ) -> Subscription: ...

    def subscribe(
        self,
        pattern: PatternLike | SignalKey[Any],
        handler: Callable[[SignalEvent[Any]], object],
        *,
        retractions: bool = False,
    ) -> Subscription:
        """Call `handler(event)` for each matching event from now on; it may be a coroutine function.

        With `retractions`, it is called with each matching event that is retracted, instead. The same handler
        may be subscribed again, and is then called again.
        """
        as_callback("handler", handler, "event", takes_async=True, optional=False)
        return self._subscribe(Subscription(self, as_pattern(pattern), handler, retractions=retractions))

    def _subscribe(self, subscription: Subscription) -> Subscription:
        with self._lock:
            if self._is_closed:
                raise SinkClosed(self.name)
            self._table.add(subscription)
        self._attach()
        return subscription

    @overload
    def on(
        self, pattern: SignalKey[T], *, retractions: bool = False
    ) -> Callable[[Callable[[SignalEvent[T]], object]], Callable[[SignalEvent[T]], object]]: ...

    @overload
    def on(self, pattern: PatternLike, *, retractions: bool = False) -> Callable[[H], H]: ...

    def on(self, pattern: PatternLike | SignalKey[Any], *, retractions: bool = False) -> Callable[[H], H]:
        """Subscribe the function below: `@sink.on("order.*")`. The function stays what it is."""

        def decorate(handler: H) -> H:
            self.subscribe(cast("str", pattern), handler, retractions=retractions)
            return handler

        return decorate

    def stream(
        self, pattern: PatternLike | SignalKey[Any], *, since: Moment | None = None, size: int | None = None
    ) -> SignalStream:
        """Return an asynchronous iterator over matching events, from now on.

        With `since`, an aware datetime or wall-clock seconds, it starts with those in the window that are not
        older. `size` bounds how many events wait to be taken (`None`: the sink's `max_queued`).
        """
        compiled = as_pattern(pattern)
        room = self._max_queued if size is None else as_count("size", size)
        with self._lock:
            past = [] if since is None else self.events(pattern=compiled, since=since, limit=room)
            buffer = Buffer(past, room)
            listener = Subscription(self, compiled, buffer.put, retractions=False, on_end=buffer.end)
            self._subscribe(listener)
        return SignalStream(buffer, listener)

    async def wait_for(
        self,
        pattern: PatternLike | SignalKey[Any],
        *,
        key: Any = None,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - waiting for a signal is what it is for
        since: Moment | None = None,
    ) -> SignalEvent[Any]:
        """Wait for the next matching event, with this key if one is given, and return it.

        With `since`, an event in the window that is not older will do: the oldest of them. `timeout` is in
        seconds (`None`: wait for ever) and ends in a `TimeoutError`. If the sink is closed, `SinkClosed` is
        raised.
        """
        seconds = None if timeout is None else as_seconds("timeout", timeout)
        async with self.stream(pattern, since=since) as events, asyncio.timeout(seconds):
            async for event in events:
                if key is None or event.key == key:
                    return event
        raise SinkClosed(self.name)

    def watch(self, pattern: PatternLike | SignalKey[Any], on_change: Callable[[Watch], object] | None = None) -> Watch:
        """Keep track of whether a matching event is present, now and from now on.

        `on_change(watch)` is called after each change of its `present` or `event`, but not for what is
        present now.
        """
        if on_change is not None:
            as_callback("on_change", on_change, "watch")
        watch = Watch(self, as_pattern(pattern), on_change)
        with self._lock:
            if self._is_closed:
                raise SinkClosed(self.name)
            now = self._refresh()
            self._table.add(watch)
            self._set(watch, self._newest(watch.pattern))
        self._attach()
        with self._lock:
            self._arm(now)
        return watch

    def _forget(self, listener: Subscription | Watch) -> None:
        """Let a listener go that was cancelled."""
        with self._lock:
            self._table.remove(listener)
            if isinstance(listener, Subscription):
                self._handlers.forget(listener)
            else:
                self._set(listener, None)

    # How it is doing, and the end.

    @property
    def on_handler_error(self) -> OnHandlerError | None:
        """Return the hook that is offered the errors of handlers, or set another; `None` is none."""
        return self._isolation.hook

    @on_handler_error.setter
    def on_handler_error(self, hook: OnHandlerError | None) -> None:
        self._isolation.hook = hook

    def statistics(self) -> SignalStatistics:
        """Return the counts as they are now."""
        handlers = self._handlers
        with self._lock:
            return SignalStatistics(
                count=self.count(),
                max_capacity=self.max_capacity,
                max_age=self.max_age,
                subscriptions=len(self._table.subscriptions),
                emitted=self._sequence,
                blocked=self._blocked,
                undelivered=len(self._queue),
                handler_errors=self._isolation.failed,
                queued=handlers.queued,
                running=handlers.running,
                processed=handlers.processed,
                dropped=handlers.dropped,
                failed=handlers.failed,
                cancelled=handlers.cancelled,
            )

    @property
    def is_closed(self) -> bool:
        """Tell whether `aclose` was called."""
        return self._is_closed

    async def join(self) -> None:
        """Wait until everything emitted so far is delivered and no asynchronous handler waits or runs."""
        self._attach()
        loop = self._delivery.loop
        if loop is running_loop() or loop is None:
            self._delivery.drain()
            await self._handlers.join()
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.join(), loop))

    async def aclose(self, timeout: float | None = 5.0) -> None:  # noqa: ASYNC109 - a budget; it never raises
        """Stop delivering: wait `timeout` seconds for asynchronous handlers, cancel them, end all listening.

        `None` waits as long as they take. Emitting and asking go on working; listening raises `SinkClosed`.
        Repeating it waits again for what is still running.
        """
        self._attach()
        loop = self._delivery.loop
        if loop is not running_loop() and loop is not None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.aclose(timeout), loop))
            return
        with self._lock:
            self._is_closed = True
        self._delivery.drain()
        try:
            await self._handlers.aclose(timeout)
        finally:
            with self._lock:
                listeners: list[Subscription | Watch] = list(self._listeners)
            for listener in listeners:
                listener.cancel()

    async def __aenter__(self) -> Self:
        self._attach()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        name = "" if self.name is None else f" {self.name!r}"
        return f"<SignalSink{name} {self.count()}/{self.max_capacity}>"


def _checked(name: str | SignalKey[Any], data: object) -> str:
    """Return the plain text of a name; check the data if the key says so."""
    if isinstance(name, SignalKey):
        name.validate(data)
    return as_name(name)
