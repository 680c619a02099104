"""What happens when a handler fails: it is counted, logged, and offered to a hook; nobody else notices.

The log names the signal, the handler and the type of the error. It never shows the event's data, nor the
message of the error, which may quote it.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ephemerals.functions import as_callback

if TYPE_CHECKING:
    from collections.abc import Callable

    from .event import SignalEvent

__all__ = ["Isolation", "OnHandlerError", "describe", "logger"]

OnHandlerError: TypeAlias = "Callable[[BaseException, SignalEvent[Any], Callable[..., object]], object]"

logger: Final = logging.getLogger("ephemerals.signals")


class Isolation:
    """Take the errors of handlers: `failed` counts them, `hook(error, event, handler)` is offered each."""

    __slots__ = ("_hook", "failed")

    def __init__(self, hook: OnHandlerError | None) -> None:
        self.failed = 0
        self.hook = hook

    @property
    def hook(self) -> OnHandlerError | None:
        """Return the hook; `None` if there is none."""
        return self._hook

    @hook.setter
    def hook(self, hook: OnHandlerError | None) -> None:
        if hook is not None:
            as_callback("on_handler_error", hook, "error", "event", "handler")
        self._hook = hook

    def report(self, error: BaseException, event: SignalEvent[Any], handler: Callable[..., object]) -> None:
        """Count, log and pass on an error; what the hook raises is logged and goes no further."""
        self.failed += 1
        logger.warning("handler %s failed on %r: %s", describe(handler), event.name, type(error).__qualname__)
        if self._hook is None:
            return
        try:
            self._hook(error, event, handler)
        except Exception as second:  # noqa: BLE001 - a hook must not break what it watches
            logger.warning("on_handler_error failed on %r: %s", event.name, type(second).__qualname__)


def describe(handler: object) -> str:
    """Return the qualified name of a handler, for logs; never its arguments or its state."""
    while isinstance(handler, partial):
        handler = handler.func
    kind = type(handler)
    module = getattr(handler, "__module__", kind.__module__)
    return f"{module}.{getattr(handler, '__qualname__', kind.__qualname__)}"
