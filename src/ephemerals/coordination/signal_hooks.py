"""The hooks `on_signal` and `on_signal_retracted`: who is told what, and on which loop.

A hook hears only of what its own coordinator has said, whoever else shares the sink or the name, and runs on the
coordinator's own loop, whichever loop delivers the sink. Asynchronous ones go through a bounded queue of the
coordinator's own, so that closing it can wait for them.
"""

from __future__ import annotations

import inspect
import weakref
from contextvars import copy_context
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from ephemerals.functions import function_name, is_coroutine_function
from ephemerals.signals import Pattern, Subscription
from ephemerals.signals.async_handlers import AsyncHandlers

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ephemerals.options import EphemeralOptions
    from ephemerals.signals import SignalEvent, SignalSink

    from .engine import Engine

__all__ = ["SignalHooks", "has_hooks"]

_MAX_CONCURRENT: Final = 4
_MAX_QUEUED: Final = 1000
_OPTIONS: Final = (("on_signal", False), ("on_signal_retracted", True))


def has_hooks(options: EphemeralOptions) -> bool:
    """Tell whether there is anybody to be told of signals."""
    return any(getattr(options, option) is not None for option, _ in _OPTIONS)


class SignalHook:
    """Be the handlers on behalf of one hook; they hold neither the hook nor the engine, but are named like the hook."""

    def __init__(
        self, engine: Engine, sink: SignalSink, handlers: AsyncHandlers, option: str, *, retractions: bool
    ) -> None:
        hook = getattr(engine.options, option)
        self.__qualname__ = function_name(hook)
        self.__module__ = getattr(hook, "__module__", type(hook).__module__)
        self._engine = weakref.ref(engine)
        self._handlers = handlers
        self._option = option
        self._queued: Subscription | None = None  # an asynchronous hook, as the queue calls it
        if is_coroutine_function(hook):

            async def call(event: SignalEvent[Any]) -> None:
                if (hook := self._hook) is not None:
                    await hook(event)

            call.__qualname__, call.__module__ = self.__qualname__, self.__module__
            self._queued = Subscription(sink, Pattern.of("*"), call, retractions=retractions)
        self.subscription = Subscription(sink, Pattern.of("*"), self, retractions=retractions)
        sink._subscribe(self.subscription)

    def __call__(self, event: SignalEvent[Any]) -> None:
        engine = self._engine()
        if engine is None or event.source is not engine.signalling.source:
            return
        if engine.is_on_own_loop:
            self._call(event)
        else:
            engine.on_own_loop(copy_context().run, self._call_isolated, event)

    def _call_isolated(self, event: SignalEvent[Any]) -> None:
        try:
            self._call(event)
        except Exception as error:  # noqa: BLE001 - a hook may raise anything
            self._handlers._isolation.report(error, event, self)

    @property
    def _hook(self) -> Callable[[SignalEvent[Any]], Any] | None:
        engine = self._engine()
        return None if engine is None else getattr(engine.options, self._option)

    def _call(self, event: SignalEvent[Any]) -> None:
        if (hook := self._hook) is None or not self.subscription.is_active:
            return
        if self._queued is not None:
            self._handlers.put(self._queued, event, copy_context())
        elif inspect.iscoroutine(result := hook(event)):
            self._handlers.put(self.subscription, event, copy_context(), result)


class SignalHooks:
    """Call the hooks of an engine, until `cancel`."""

    __slots__ = ("_handlers", "_hooks")

    def __init__(self, engine: Engine, sink: SignalSink) -> None:
        self._handlers = AsyncHandlers(RLock(), sink._isolation, max_concurrent=_MAX_CONCURRENT, max_queued=_MAX_QUEUED)
        self._hooks = [
            SignalHook(engine, sink, self._handlers, option, retractions=retractions)
            for option, retractions in _OPTIONS
            if getattr(engine.options, option) is not None
        ]

    @property
    def calls(self) -> int:
        """Return how many calls of asynchronous hooks wait or run."""
        return self._handlers.queued + self._handlers.running

    def bind(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Run the asynchronous ones on this loop from now on."""
        self._handlers.bind(loop)

    async def finish(self, budget: float | None) -> None:
        """Wait `budget` seconds for the calls that wait or run (`None`: no limit), then cancel them."""
        if self.calls:
            await self._handlers.aclose(budget)

    def cancel(self) -> None:
        """Listen no more, and drop the calls that wait."""
        for hook in self._hooks:
            hook.subscription.cancel()
        self._handlers.drop_all()
