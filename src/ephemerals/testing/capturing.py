"""Signals, collected while a test looks; and errors of handlers, which a sink keeps to itself, made loud.

>>> from ephemerals.signals import SignalSink
>>> sink = SignalSink()
>>> with capture(sink, "order.*") as events:
...     _ = sink.emit("order.placed", key="42")
...     _ = sink.emit("cart.left")
>>> [(event.name, event.key) for event in events]
[('order.placed', '42')]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ephemerals.errors import InvalidOptionType
from ephemerals.signals import SignalSink
from ephemerals.signals.isolation import describe
from ephemerals.signals.validation import as_pattern

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ephemerals.signals import PatternLike, SignalEvent, SignalKey, Subscription

__all__ = ["Capture", "StrictSink", "capture", "strict"]


def capture(sink: SignalSink, pattern: PatternLike | SignalKey[Any] = "*", *, strict: bool = False) -> Capture:
    """Collect the events that match in a list, inside a `with` block; the list stays afterwards.

    An event is in the list once it has been delivered, in the order of all listeners. With `async with` the block ends
    only when asynchronous handlers have ended, too (`sink.join()`). `strict` raises the errors of handlers at the end
    of the block, as `strict(sink)` does.
    """
    return Capture(sink, pattern, is_strict=strict)


def strict(sink: SignalSink) -> StrictSink:
    """Raise what handlers of a sink raise inside a `with` block, as one `ExceptionGroup` at its end.

    Each error has a note that names handler and signal. `on_handler_error` hears of them all the same. With `async
    with`, asynchronous handlers have ended before; with a plain `with`, an error that comes later is not raised. If the
    block itself raises, that travels on, with a note for each error of a handler.
    """
    return StrictSink(sink)


class StrictSink:
    """Stand for a block that `strict` began; `errors` are the errors so far."""

    __slots__ = ("_hook", "_sink", "errors")

    def __init__(self, sink: SignalSink) -> None:
        if not isinstance(sink, SignalSink):
            raise InvalidOptionType("sink", sink, "a SignalSink")
        self.errors: Final[list[BaseException]] = []
        self._sink = sink
        self._hook: Callable[[BaseException, SignalEvent[Any], Callable[..., object]], object] | None = None

    def __enter__(self) -> list[BaseException]:
        self._hook = self._sink.on_handler_error
        self._sink.on_handler_error = self._take
        return self.errors

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sink.on_handler_error = self._hook
        if not self.errors:
            return
        if error is None:
            handlers = "handler" if len(self.errors) == 1 else "handlers"
            raise BaseExceptionGroup(f"{len(self.errors)} {handlers} failed", self.errors)
        for each in self.errors:
            error.add_note(f"besides, {type(each).__qualname__} {each.__notes__[-1]}")

    async def __aenter__(self) -> list[BaseException]:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self._sink.join()
        except BaseException as second:
            self.__exit__(type(second), second, second.__traceback__)
            raise
        self.__exit__(kind, error, trace)

    def _take(self, error: BaseException, event: SignalEvent[Any], handler: Callable[..., object]) -> None:
        error.add_note(f"raised by handler {describe(handler)} on signal {event.name!r}")
        self.errors.append(error)
        if self._hook is not None:
            self._hook(error, event, handler)


class Capture:
    """Stand for a block that `capture` began; `events` are the events so far."""

    __slots__ = ("_pattern", "_sink", "_strict", "_subscription", "events")

    def __init__(self, sink: SignalSink, pattern: PatternLike | SignalKey[Any], *, is_strict: bool) -> None:
        if not isinstance(sink, SignalSink):
            raise InvalidOptionType("sink", sink, "a SignalSink")
        self.events: Final[list[SignalEvent[Any]]] = []
        self._sink = sink
        self._pattern = as_pattern(pattern)
        self._strict = StrictSink(sink) if is_strict else None
        self._subscription: Subscription | None = None

    def __enter__(self) -> list[SignalEvent[Any]]:
        self._subscription = self._sink.subscribe(self._pattern, self.events.append)
        if self._strict is not None:
            self._strict.__enter__()
        return self.events

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        if self._strict is not None:
            self._strict.__exit__(kind, error, trace)

    async def __aenter__(self) -> list[SignalEvent[Any]]:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._strict is not None:
                await self._strict.__aexit__(kind, error, trace)
            elif error is None:
                await self._sink.join()
        finally:
            self._end()

    def _end(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()
