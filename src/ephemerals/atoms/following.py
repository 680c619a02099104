"""Hearing a sink without being kept by it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ephemerals.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemerals.signals import PatternLike, SignalEvent, SignalSink, Subscription

__all__ = ["follow"]


def follow(
    sink: SignalSink | None,
    pattern: PatternLike | None,
    method: Callable[[SignalEvent[Any]], object],
    option: str = "pattern",
) -> Subscription | None:
    """Call a bound method with each matching event, for as long as its object lives; return the subscription.

    Without a pattern there is none. Raise `InvalidOption`, with the name of the option, for one without a sink.
    """
    if pattern is None:
        return None
    if sink is None:
        raise InvalidOption(option, pattern, "a sink as signals=, to hear it on")
    heard = weakref.WeakMethod(method)
    subscription = sink.subscribe(pattern, lambda event: (call := heard()) and call(event))
    weakref.finalize(heard().__self__, subscription.cancel).atexit = False  # type: ignore[union-attr]
    return subscription
