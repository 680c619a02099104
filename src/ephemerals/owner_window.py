"""The newest operations of each owner, kept as handles for a while, so that an owner can come back for a result.

What leaves drops the handle and with it the result. An owner's entry ends as a whole: a time after the owner's last
access (sliding), and in any case a time after the owner's first entry (absolute). Both are exact: a read drops what has
expired, and one timer, armed for the earliest expiry, empties an idle window on time.
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import TYPE_CHECKING, Any, Final

from .clock import Clock, system_clock
from .errors import InvalidOptionType
from .ids import as_id, format_id
from .operation import Operation
from .options import as_count, as_seconds
from .snapshot import OperationSnapshot, OperationStatus, as_frozen, as_plain

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Hashable, Mapping
    from datetime import datetime

    from .options import Seconds

__all__ = ["OperationView", "OwnerWindow", "duration_text", "status_of"]

_HOUR: Final = 3600.0
_NEVER: Final = float("inf")


class _Entry:
    """Hold one owner's operations, oldest first, and when the owner came first and last."""

    __slots__ = ("accessed", "created", "operations")

    def __init__(self, now: float) -> None:
        self.created = now
        self.accessed = now
        self.operations: OrderedDict[int, Operation[Any]] = OrderedDict()


class OwnerWindow:
    """Keep the newest operations of each owner, for their owner only.

    `max_per_owner` operations are kept for each owner, and at most `max_owners` owners; the oldest operation, and the
    owner not seen for longest, go first. An owner's entry ends `sliding` seconds after the last `add`, `get` or `list`
    of that owner, and `absolute` seconds after its first `add`. `None` means no limit for any of them. An owner is any
    hashable value. Use it on one thread; no loop has to run, but only a running one empties an idle window.

    >>> from ephemerals import WorkCoordinator
    >>> async def double(number: int) -> int:
    ...     return number * 2
    >>> async def main() -> None:
    ...     window = OwnerWindow(max_per_owner=1)
    ...     async with WorkCoordinator(double) as coordinator:
    ...         operation = await coordinator.enqueue(21)
    ...         window.add("ada", operation)
    ...         await operation
    ...         print(window.get("bob", operation.id), await window.get("ada", operation.id))
    >>> asyncio.run(main())
    None 42
    """

    __slots__ = (
        "__weakref__",
        "_absolute",
        "_armed_for",
        "_by_access",
        "_by_age",
        "_clock",
        "_loop",
        "_max_owners",
        "_max_per_owner",
        "_sliding",
        "_timer",
    )

    def __init__(
        self,
        *,
        max_per_owner: int | None = 5,
        absolute: Seconds | None = 6 * _HOUR,
        sliding: Seconds | None = _HOUR,
        max_owners: int | None = 10_000,
        clock: Clock = system_clock,
    ) -> None:
        self._max_per_owner = None if max_per_owner is None else as_count("max_per_owner", max_per_owner)
        self._max_owners = None if max_owners is None else as_count("max_owners", max_owners)
        self._absolute = _NEVER if absolute is None else as_seconds("absolute", absolute)
        self._sliding = _NEVER if sliding is None else as_seconds("sliding", sliding)
        if not isinstance(clock, Clock):
            raise InvalidOptionType("clock", clock, "a Clock")
        self._clock = clock
        # Both spans are the same for all, so who comes first in each order is the next to expire by it.
        self._by_access: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._by_age: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = _NEVER

    def add(self, owner: Hashable, operation: Operation[Any]) -> None:
        """Keep an operation as the owner's newest; adding one again only counts as an access."""
        if not isinstance(operation, Operation):
            raise InvalidOptionType("operation", operation, "an Operation, as enqueue() returns it")
        now = self._clock.monotonic()
        entry = self._accessed(owner, now)
        if entry is None:
            entry = self._by_access[owner] = self._by_age[owner] = _Entry(now)
            if self._max_owners is not None and len(self._by_access) > self._max_owners:
                self.forget(next(iter(self._by_access)))
        entry.operations.setdefault(operation.id, operation)
        if self._max_per_owner is not None and len(entry.operations) > self._max_per_owner:
            entry.operations.popitem(last=False)
        self._arm(now)

    def get(self, owner: Hashable, operation_id: int) -> Operation[Any] | None:
        """Return the owner's operation of that id; `None` if there is none, also if it is somebody else's."""
        as_id(operation_id)
        entry = self._accessed(owner, self._clock.monotonic())
        return None if entry is None else entry.operations.get(operation_id)

    def list(self, owner: Hashable) -> builtins.list[Operation[Any]]:
        """Return the owner's operations, newest first."""
        entry = self._accessed(owner, self._clock.monotonic())
        return [] if entry is None else [*reversed(entry.operations.values())]

    def forget(self, owner: Hashable) -> int:
        """Drop everything of an owner; return how many operations that were."""
        entry = self._by_access.pop(owner, None)
        if entry is None:
            return 0
        del self._by_age[owner]
        if not self._by_access:
            self._disarm()
        return len(entry.operations)

    def clear(self) -> None:
        """Drop everything of everybody, and stop the timer."""
        self._by_access.clear()
        self._by_age.clear()
        self._disarm()

    def __len__(self) -> int:
        """Return how many operations it keeps, of all owners."""
        self._expire(self._clock.monotonic())
        return sum(len(entry.operations) for entry in self._by_access.values())

    @property
    def owner_count(self) -> int:
        """Return of how many owners it keeps something."""
        self._expire(self._clock.monotonic())
        return len(self._by_access)

    def __repr__(self) -> str:
        """Show how much it keeps."""
        return f"<OwnerWindow operations={len(self)} owners={self.owner_count}>"

    def _leftovers(self) -> dict[str, int]:
        """Count everything that it still holds, for tests."""
        return {"owners": len(self._by_access), "timers": int(self._timer is not None)}

    def _accessed(self, owner: Hashable, now: float) -> _Entry | None:
        self._expire(now)
        entry = self._by_access.get(owner)
        if entry is not None:
            entry.accessed = now
            self._by_access.move_to_end(owner)
        return entry

    def _expire(self, now: float) -> None:
        while self._by_access:
            owner, entry = next(iter(self._by_access.items()))
            if entry.accessed + self._sliding > now:
                break
            self.forget(owner)
        while self._by_age:
            owner, entry = next(iter(self._by_age.items()))
            if entry.created + self._absolute > now:
                break
            self.forget(owner)

    def _next_expiry(self) -> float:
        if not self._by_access:
            return _NEVER
        idle, old = next(iter(self._by_access.values())), next(iter(self._by_age.values()))
        return min(idle.accessed + self._sliding, old.created + self._absolute)

    def _arm(self, now: float) -> None:
        """See to it that the timer fires no later than the next expiry; an access only makes it fire too early."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if loop is not self._loop:
            self._disarm()
            self._loop = loop
        when = self._next_expiry()
        if when < self._armed_for:
            self._disarm()
            self._armed_for = when
            # Neither the caller's context nor this window may live on because a timer refers to them.
            self._timer = loop.call_at(
                loop.time() + max(0.0, when - now), _on_timer, weakref.ref(self), context=contextvars.Context()
            )

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._armed_for = _NEVER

    def _fire(self) -> None:
        self._timer = None
        self._armed_for = _NEVER
        now = self._clock.monotonic()
        self._expire(now)
        self._arm(now)


def _on_timer(reference: Callable[[], OwnerWindow | None]) -> None:
    window = reference()
    if window is not None:
        window._fire()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationView:
    """Show one operation to a person: everything that a row of a table needs, and never its result.

    `id` is the text form; `duration` is in seconds, so far if it runs, and `duration_text` says it in words.
    """

    id: str
    name: str
    status: OperationStatus
    is_finished: bool
    is_failed: bool
    is_completed: bool
    duration: float
    duration_text: str
    enqueued_at: datetime
    metadata: Mapping[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel with plain metadata, which is frozen again on arrival."""
        fields = {each.name: getattr(self, each.name) for each in dataclass_fields(self)}
        return _restored, (fields | {"metadata": as_plain(self.metadata)},)


def _restored(fields: dict[str, Any]) -> OperationView:
    return OperationView(**fields | {"metadata": as_frozen(fields["metadata"])})


def status_of(operation: Operation[Any] | OperationSnapshot[Any]) -> OperationView:
    """Return what a view shows of an operation, live or remembered, as it is now."""
    if not isinstance(operation, Operation | OperationSnapshot):
        raise InvalidOptionType("operation", operation, "an Operation or an OperationSnapshot")
    seen = operation.snapshot() if isinstance(operation, Operation) else operation
    return OperationView(
        id=format_id(seen.id),
        name=seen.name,
        status=seen.status,
        is_finished=seen.status.is_final,
        is_failed=seen.is_faulted,
        is_completed=seen.status is OperationStatus.COMPLETED,
        duration=seen.duration,
        duration_text=duration_text(seen.duration),
        enqueued_at=seen.enqueued_at,
        metadata=seen.metadata,
    )


def duration_text(seconds: float) -> str:
    """Return a time span as people say it, in its two largest units.

    >>> print(", ".join(duration_text(each) for each in (0.04, 3.26, 59.96, 75, 3_600, 90_061)))
    0.0 s, 3.3 s, 1 min 0 s, 1 min 15 s, 1 h 0 min, 1 d 1 h
    """
    if round(seconds, 1) < 60:  # noqa: PLR2004 - seconds in a minute
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, small_size, small_unit in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // small_size} {small_unit}"
    return f"{whole // 60} min {whole % 60} s"
