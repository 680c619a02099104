"""Leave a block of work early, because a signal has decided the matter.

async with early_exit(sink, "verdict.*") as verdict:
    async with asyncio.TaskGroup() as group:
        for check in checks:
            group.create_task(check(request))  # one of them emits "verdict.bot", and the rest is cancelled
if verdict:
    print("decided by", verdict.event.name)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Self, cast

from .delivery import running_loop
from .subscription import Subscription
from .validation import as_pattern, as_wall

if TYPE_CHECKING:
    from types import TracebackType

    from .event import SignalEvent
    from .pattern import PatternLike
    from .sink import SignalSink
    from .typed import SignalKey
    from .validation import Moment

__all__ = ["EarlyExit", "early_exit"]


def early_exit(
    sink: SignalSink, pattern: PatternLike | SignalKey[Any], *, key: Any = None, since: Moment | None = None
) -> EarlyExit:
    """Return an `async with` block that the next matching event ends early, if it has this key or none is given.

    With `since`, an aware datetime or wall-clock seconds, an event in the window that is not older ends it at once.
    """
    return EarlyExit(sink, pattern, key, since)


class EarlyExit:
    """Stand for a block that `early_exit` began; true if an event ended it: `event`, else `None`.

    The block is cancelled as by a timeout: what runs in it sees a `CancelledError`, which ends with the block. Being
    cancelled by somebody else is not mistaken for that, and neither is an error that the block raises while it unwinds.
    """

    __slots__ = ("_cancelling", "_is_over", "_key", "_pattern", "_since", "_sink", "_subscription", "_task", "event")

    def __init__(self, sink: SignalSink, pattern: PatternLike | SignalKey[Any], key: Any, since: Moment | None) -> None:
        as_wall("since", since)
        self.event: SignalEvent[Any] | None = None
        self._sink: Final = sink
        self._pattern: Final = as_pattern(pattern)
        self._key: Final = key
        self._since: Final = since
        self._is_over = False
        self._task: asyncio.Task[Any] | None = None

    def __bool__(self) -> bool:
        return self.event is not None

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise RuntimeError("an early exit can be used once")
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._cancelling = self._task.cancelling()
        self._subscription = self._sink._subscribe(
            Subscription(self._sink, self._pattern, self._hear, retractions=False)
        )
        if self._since is not None:
            for event in self._sink.events(pattern=self._pattern, since=self._since):
                self._hear(event)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._subscription.cancel()
        self._is_over = True
        task = cast("asyncio.Task[Any]", self._task)
        if self.event is None:
            return False
        if kind is None:
            # The block had ended before it could be cancelled: that must not hit what comes after it.
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if task.uncancel() > self._cancelling:
                    raise
            else:
                task.uncancel()
            return False
        return task.uncancel() <= self._cancelling and issubclass(kind, asyncio.CancelledError)

    def _hear(self, event: SignalEvent[Any]) -> None:
        """Take an event, on whatever thread the sink delivers."""
        if self._key is not None and event.key != self._key:
            return
        loop = cast("asyncio.Task[Any]", self._task).get_loop()
        if loop is running_loop():
            self._exit(event)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self._exit, event)

    def _exit(self, event: SignalEvent[Any]) -> None:
        if self.event is None and not self._is_over:
            self.event = event
            cast("asyncio.Task[Any]", self._task).cancel()
