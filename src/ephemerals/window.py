"""What a coordinator remembers, for how long, and how it is forgotten.

The window holds every operation that has not ended, and snapshots of those that have: the newest ones, for a while.
Everything that leaves goes through one place, with one reason, once. An age is exact: a read drops what has expired,
and one timer, armed for the earliest expiry, empties an idle window on time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final

from .echoes import EchoStore, FinalizationReason
from .errors import PinLimitReached
from .ids import as_id
from .snapshot import OperationSnapshot, OperationStatus, with_pin, without_result

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator
    from contextvars import Context

    from .operation import Operation
    from .options import EphemeralOptions

__all__ = ["FinalizationReason", "OperationWindow", "WindowView"]

_MAX_FAILURES: Final = 100


class WindowView:
    """Look at a window without copying it: nothing is computed until it is asked for."""

    __slots__ = ("_window",)

    def __init__(self, window: OperationWindow) -> None:
        self._window = window

    def __len__(self) -> int:
        """Return how many operations the window holds, ended or not."""
        return len(self._window)

    def __iter__(self) -> Iterator[OperationSnapshot[Any]]:
        """Yield a snapshot of each operation: ended ones as they ended, then running, then pending."""
        return iter(self._window.snapshot())

    def get(self, operation_id: int) -> OperationSnapshot[Any] | None:
        """Return one operation's snapshot; `None` if the window does not hold it."""
        return self._window.get(as_id(operation_id))


class _Hold:
    """Be the pin of those who need an operation for a while; `is_pinned` says that it is pinned by hand as well."""

    __slots__ = ("holders", "is_pinned")

    def __init__(self, *, is_pinned: bool) -> None:
        self.is_pinned = is_pinned
        self.holders: list[Callable[[], object]] = []


class OperationWindow:
    """Hold pending and running operations, and snapshots of ended ones within their bounds.

    It belongs to one engine. `call_hook` calls a hook of the user, isolated from the engine.
    """

    __slots__ = (
        "_armed_for",
        "_aside",
        "_call_hook",
        "_clock",
        "_closed",
        "_context",
        "_doomed",
        "_ended",
        "_holds",
        "_lifetime",
        "_longest",
        "_loop",
        "_most",
        "_next_sample",
        "_on_finalized",
        "_options",
        "_results",
        "_results_ttl",
        "_timer",
        "_unpinned",
        "echoes",
        "failures",
        "pending",
        "pinned",
        "running",
    )

    def __init__(
        self,
        options: EphemeralOptions,
        call_hook: Callable[..., None],
        *,
        results_ttl: float | None = None,
    ) -> None:
        # Popping the first again and again is constant only with an OrderedDict.
        self.pending: dict[int, Operation[Any]] = OrderedDict() if options.overflow == "drop_oldest" else {}
        self.running: dict[int, Operation[Any]] = {}
        self.failures: deque[OperationSnapshot[Any]] = deque(maxlen=_MAX_FAILURES)
        self.echoes = EchoStore(capacity=options.echo_capacity, retention=options.echo_retention)
        self._ended: OrderedDict[int, OperationSnapshot[Any]] = OrderedDict()
        self._aside: OrderedDict[int, OperationSnapshot[Any]] = OrderedDict()
        self.pinned: set[int] = set()
        self._doomed: set[int] = set()
        self._holds: dict[int, _Hold] = {}
        self._unpinned = 0
        self._closed = False
        self._results: OrderedDict[int, float] = OrderedDict()
        self._options = options
        limit, self._lifetime = options.max_tracked_operations, options.max_operation_lifetime
        self._most = float("inf") if limit is None else limit
        self._longest = float("inf") if self._lifetime is None else self._lifetime
        self._on_finalized = options.on_finalized
        self._results_ttl = results_ttl
        self._clock = options.clock
        self._call_hook = call_hook
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: Context | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = float("inf")
        self._next_sample = float("-inf")

    def bind(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        """Take the loop, and the context, in which the timer runs."""
        self._loop = loop
        self._context = context
        self._arm(self._clock.monotonic())

    def unbind(self) -> None:
        """Forget a loop that was closed; what is held stays."""
        self._loop = None
        self._timer = None
        self._armed_for = float("inf")

    # What enters, what is asked, what is pinned.

    def add(self, snapshot: OperationSnapshot[Any], now: float) -> None:
        """Remember an operation that has just ended; what it pushes out is finalized."""
        self._ended[snapshot.id] = snapshot
        if not snapshot.is_pinned:
            self._unpinned += 1
        if self._closed:
            self.close()
            return
        if self._doomed and snapshot.id in self._doomed:
            self.kill(snapshot.id)
            return
        while self._unpinned > self._most:
            self._drop_oldest(now)
        if now + self._longest < self._armed_for and (self._ended or self.failures):
            self._arm_for(now + self._longest, now)
        if self._results_ttl is not None and snapshot.has_result and snapshot.id in self._ended:
            self._results[snapshot.id] = now + self._results_ttl
            self._arm_for(next(iter(self._results.values())), now)

    def sample(self, now: float) -> None:
        """Call `on_sample` if its interval is over."""
        hook = self._options.on_sample
        if hook is not None and now >= self._next_sample:
            self._next_sample = now + self._options.sample_interval
            self._call_hook("on_sample", hook, WindowView(self))

    def __len__(self) -> int:
        """Return how many operations it holds."""
        self.expire()
        return len(self.pending) + len(self.running) + len(self._ended) + len(self._aside)

    def get(self, operation_id: int) -> OperationSnapshot[Any] | None:
        """Return an operation's snapshot; `None` if it is not, or no longer, held."""
        self.expire()
        if (operation := self.live(operation_id)) is not None:
            return operation.snapshot()
        return self._ended.get(operation_id) or self._aside.get(operation_id)

    def live(self, operation_id: int) -> Operation[Any] | None:
        """Return an operation that has not ended; `None` if there is none of that id."""
        return self.running.get(operation_id) or self.pending.get(operation_id)

    def ended(self, *statuses: OperationStatus) -> list[OperationSnapshot[Any]]:
        """Return the snapshots of ended operations as they ended, of all or of the given statuses."""
        self.expire()
        held = [*self._aside.values(), *self._ended.values()]
        return [each for each in held if each.status in statuses] if statuses else held

    def snapshot(self) -> list[OperationSnapshot[Any]]:
        """Return a snapshot of each operation: ended ones as they ended, then running, then pending."""
        ended = self.ended()  # first, because what expires calls a hook, which may end some of the others
        return ended + [each.snapshot() for each in (*self.running.values(), *self.pending.values())]

    def is_pinned(self, operation_id: int) -> bool:
        """Tell whether an operation is pinned."""
        return operation_id in self.pinned

    @property
    def pinned_count(self) -> int:
        """Return how many are pinned."""
        return len(self.pinned)

    def pin(self, operation_id: int) -> bool:
        """Exempt an operation from size and age; False if it is not held."""
        if operation_id in self.pinned:
            if operation_id in self._holds:
                self._holds[operation_id].is_pinned = True
            return True
        self.expire()
        held = self._ended.get(operation_id)
        if held is None and self.live(operation_id) is None:
            return False
        limit = self._options.max_pinned
        if limit is not None and len(self.pinned) >= limit:
            raise PinLimitReached(limit)
        self.pinned.add(operation_id)
        if held is not None:
            self._ended[operation_id] = with_pin(held, is_pinned=True)
            self._unpinned -= 1
        return True

    def unpin(self, operation_id: int) -> bool:
        """Apply the bounds again, at once; False if the operation was not pinned."""
        if operation_id not in self.pinned:
            return False
        self.pinned.discard(operation_id)
        self._lose(operation_id)
        if operation_id in self._aside:
            self._step_back()
        if operation_id in self._ended:
            self._ended[operation_id] = with_pin(self._ended[operation_id], is_pinned=False)
            self._unpinned += 1
            now = self._clock.monotonic()
            self.expire()
            while self._unpinned > self._most:
                self._drop_oldest(now)
            self._arm(now)
        return True

    def hold(self, operation_id: int, on_lost: Callable[[], object]) -> bool:
        """Pin an operation until `release`; False if it is not held. If it is lost before, `on_lost()` is called."""
        hold = self._holds.get(operation_id)
        if hold is None:
            is_pinned = operation_id in self.pinned
            if not self.pin(operation_id):
                return False
            hold = self._holds[operation_id] = _Hold(is_pinned=is_pinned)
        hold.holders.append(on_lost)
        return True

    def release(self, operation_id: int, on_lost: Callable[[], object]) -> None:
        """Hold an operation no more; the last to do so unpins it, unless it is pinned by hand."""
        hold = self._holds.get(operation_id)
        if hold is None or on_lost not in hold.holders:
            return
        hold.holders.remove(on_lost)
        if not hold.holders:
            del self._holds[operation_id]
            if not hold.is_pinned:
                self.unpin(operation_id)

    def _lose(self, operation_id: int) -> None:
        """Tell those who hold an operation that it is no longer pinned."""
        if operation_id in self._holds:
            for on_lost in self._holds.pop(operation_id).holders:
                on_lost()

    def evict(self, operation_id: int, reason: FinalizationReason = FinalizationReason.EVICTED) -> bool:
        """Forget an ended operation now, pinned or not; False if no ended one of that id is held."""
        self.expire()
        held = self._ended if operation_id in self._ended else self._aside
        if operation_id not in held:
            return False
        self._left(held.pop(operation_id), reason, self._clock.monotonic())
        return True

    def kill(self, operation_id: int) -> bool:
        """Forget an operation, pinned or not: now if it has ended, else in the moment it ends; False if not held."""
        if self.live(operation_id) is not None:
            self._doomed.add(operation_id)
            return True
        self._doomed.discard(operation_id)
        for failure in self.failures:
            if failure.id == operation_id:
                self.failures.remove(failure)
                break
        return self.evict(operation_id, FinalizationReason.KILLED)

    # Its bounds.

    @property
    def limit(self) -> int | None:
        """Return how many ended operations are remembered; `None` is no limit."""
        return None if self._most == float("inf") else int(self._most)

    @property
    def lifetime(self) -> float | None:
        """Return for how many seconds an ended operation is remembered; `None` is no limit."""
        return self._lifetime

    def resize(self, limit: int | None, lifetime: float | None) -> None:
        """Change the bounds, and forget at once what is outside."""
        self._lifetime = lifetime
        self._most = float("inf") if limit is None else limit
        self._longest = float("inf") if lifetime is None else lifetime
        now = self._clock.monotonic()
        self.expire()
        while self._unpinned > self._most:
            self._drop_oldest(now)
        self._arm(now)

    # What leaves.

    def expire(self) -> None:
        """Drop everything that is too old by now."""
        now = self._clock.monotonic()
        self.echoes.expire(now)
        while self._results and next(iter(self._results.values())) <= now:
            operation_id, _ = self._results.popitem(last=False)
            for held in (self._ended, self._aside):
                if operation_id in held:
                    held[operation_id] = without_result(held[operation_id])
        if self._lifetime is None:
            return
        while self.failures and self._expiry(self.failures[0]) <= now:
            self.failures.popleft()
        while (oldest := self._oldest()) is not None and self._expiry(oldest) <= now:
            self._left(self._ended.pop(oldest.id), FinalizationReason.AGE, now)

    def close(self) -> None:
        """Finalize everything that has ended, whatever its pins, and stop the timer; later ones leave at once."""
        self._closed = True
        now = self._clock.monotonic()
        while held := self._aside or self._ended:  # a hook that reads may move some from one to the other
            self._left(held.popitem(last=False)[1], FinalizationReason.SHUTDOWN, now)
        self._forget()

    def _forget(self) -> None:
        self.echoes.clear()
        self._doomed.clear()
        self._results.clear()
        self.failures.clear()
        self.disarm()

    @property
    def has_timer(self) -> bool:
        """Tell whether the timer is armed."""
        return self._timer is not None

    def _drop_oldest(self, now: float) -> None:
        """Drop the oldest; if it is pinned it steps aside instead, and the next has to be asked for."""
        operation_id, snapshot = self._ended.popitem(last=False)
        if snapshot.is_pinned:
            self._aside[operation_id] = snapshot
        else:
            self._left(snapshot, FinalizationReason.SIZE, now)

    def _oldest(self) -> OperationSnapshot[Any] | None:
        """Find the oldest ended operation that is not pinned.

        Pinned ones met on the way are older than all the rest; they step aside, so that each is met once.
        """
        while self._ended:
            snapshot = next(iter(self._ended.values()))
            if not snapshot.is_pinned:
                return snapshot
            self._aside[snapshot.id] = self._ended.pop(snapshot.id)
        return None

    def _step_back(self) -> None:
        """Let those who stepped aside take their place in the order again."""
        while self._aside:
            operation_id, snapshot = self._aside.popitem()
            self._ended[operation_id] = snapshot
            self._ended.move_to_end(operation_id, last=False)

    def _left(self, snapshot: OperationSnapshot[Any], reason: FinalizationReason, now: float) -> None:
        """Be the one place where an operation is forgotten; it has just been taken out of its table."""
        if self._results:
            self._results.pop(snapshot.id, None)
        if snapshot.is_pinned:
            self.pinned.discard(snapshot.id)
            self._lose(snapshot.id)
        else:
            self._unpinned -= 1
        if self.echoes.retention:
            expiry = self.echoes.add(snapshot, reason, now)
            if expiry < self._armed_for:
                self._arm_for(expiry, now)
        if self._on_finalized is not None:
            self._call_hook("on_finalized", self._on_finalized, snapshot, reason)

    # The timer.

    def _arm(self, now: float) -> None:
        """Arm the timer for the earliest of all expiries."""
        if self._lifetime is not None:
            if (oldest := self._oldest()) is not None:
                self._arm_for(self._expiry(oldest), now)
            if self.failures:
                self._arm_for(self._expiry(self.failures[0]), now)
        if self._results:
            self._arm_for(next(iter(self._results.values())), now)
        if (expiry := self.echoes.next_expiry) is not None:
            self._arm_for(expiry, now)

    def _arm_for(self, when: float, now: float) -> None:
        if when >= self._armed_for:
            return
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        self.disarm()
        self._armed_for = when
        self._timer = loop.call_at(loop.time() + max(0.0, when - now), self._on_timer, context=self._context)

    def disarm(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._armed_for = float("inf")

    def _on_timer(self) -> None:
        self._timer = None
        self._armed_for = float("inf")
        self.expire()
        self._arm(self._clock.monotonic())

    def _expiry(self, snapshot: OperationSnapshot[Any]) -> float:
        return (snapshot._finished or 0.0) + (self._lifetime or 0.0)
