"""Operations that are forgotten the moment they say so."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Self

from ephemerals.coordination.coordinator import Coordinator
from ephemerals.errors import InvalidOptionType
from ephemerals.functions import as_callback

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ephemerals.signals import PatternLike, SignalEvent

__all__ = ["Volatile"]


class Volatile:
    """Forget an operation of `coordinator` when it emits a signal that matches `pattern` ("kill.*").

    An operation that has ended leaves the window at once, pinned or not; one that is still running, which is not
    cancelled, leaves it in the moment it ends, and is never seen as ended. Its echo stays for a while, and
    `on_finalized` hears of it, with the reason `killed`. With `when(event)`, only events of which that is true count.
    An event may also be emitted by somebody else, with the id: `sink.emit("kill.now", operation_id=…)`.

    It listens until `close()`, or the end of a `with` block, for as long as the coordinator exists.

    >>> import asyncio
    >>> from ephemerals import Operation, WorkCoordinator
    >>> async def login(password: str, operation: Operation) -> bool:
    ...     operation.emit("kill.sensitive")
    ...     return password == "swordfish"
    >>> async def main() -> None:
    ...     async with WorkCoordinator(login) as coordinator:
    ...         with Volatile(coordinator):
    ...             print(await coordinator.run("swordfish"), coordinator.snapshot())
    >>> asyncio.run(main())
    True []
    """

    def __init__(
        self,
        coordinator: Coordinator[Any, Any],
        pattern: PatternLike = "kill.*",
        *,
        when: Callable[[SignalEvent[Any]], bool] | None = None,
    ) -> None:
        if not isinstance(coordinator, Coordinator):
            raise InvalidOptionType("coordinator", f"<{type(coordinator).__qualname__}>", "a coordinator")
        if when is not None:
            as_callback("when", when, "event")
        self._when = when
        self._engine = weakref.ref(coordinator.engine)
        self._killed = 0
        self._subscription = coordinator.signals.sink.subscribe(pattern, self._on_event)
        weakref.finalize(coordinator.engine, self._subscription.cancel).atexit = False

    def close(self) -> None:
        """Listen no more; twice is the same as once."""
        self._subscription.cancel()

    def statistics(self) -> dict[str, int]:
        """Return how many operations were told to be forgotten."""
        return {"killed": self._killed}

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when it is closed, for tests."""
        return {"subscriptions": int(self._subscription.is_active)}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _on_event(self, event: SignalEvent[Any]) -> None:
        engine = self._engine()
        if engine is None or event.operation_id is None or not (self._when is None or self._when(event)):
            return
        if engine.window.kill(event.operation_id):
            self._killed += 1
