"""What must hold of a world after every step, when it has come to rest, and at its end."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ephemerals.errors import OperationTimeout
from ephemerals.failure import qualified_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.invariants.plans import Plan
    from tests.invariants.world import Ticket, World

    from ephemerals.snapshot import OperationSnapshot

_MANY = 64
"""So many enqueues in a row, and one lets others run before it takes its place."""

ENDED = {"completed", "failed", "cancelled", "skipped"}


class Watch:
    """Check a world again and again; remember what ran at the last look."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self._running: set[int] = set()
        self._was_paused = False

    def after_every_step(self) -> None:
        world = self.world
        world.check_counts()
        snapshots = world.coordinator.snapshot()
        self._check_visible(snapshots)
        self._check_limits(snapshots)
        assert max(world.facts.finalized.values(), default=0) <= 1, "an operation was finalized twice"
        assert not world.facts.problems, world.facts.problems

    def at_rest(self) -> None:
        """Invariant 5: nothing is ready on the loop, so whatever could start has started."""
        coordinator = self.world.coordinator
        assert self.world.stepped.is_settled
        if coordinator.is_paused or coordinator.active_count >= coordinator.max_concurrency:
            return
        snapshots = coordinator.snapshot()
        waiting = [each for each in snapshots if each.status == "pending" and self._has_place(each, snapshots)]
        assert not waiting, f"a slot is free while {len(waiting)} could start"

    def _check_visible(self, snapshots: list[OperationSnapshot[Any]]) -> None:
        """Invariant 4, and the bounds of what is remembered."""
        coordinator, options = self.world.coordinator, self.world.coordinator.options
        running = {each.id for each in coordinator.running()}
        assert running >= set(self.world.facts.inside), "a body runs unseen"
        shown = Counter(each.id for each in snapshots)
        assert max(shown.values(), default=0) <= 1, "an operation is shown twice"
        assert running <= set(shown)
        live = [each for each in snapshots if each.status not in ENDED]
        assert len(live) == coordinator.pending_count + coordinator.active_count
        ended = [each for each in snapshots if each.status in ENDED]
        assert sum(not each.is_pinned for each in ended) <= options.max_tracked_operations
        assert sum(each.is_pinned for each in snapshots) <= options.max_pinned
        now = self.world.stepped.clock.monotonic()
        assert all(each.is_pinned or each._finished + options.max_operation_lifetime > now for each in ended)

    def _check_limits(self, snapshots: list[OperationSnapshot[Any]]) -> None:
        """Invariant 5: more than the limit may run after it was lowered, and then nothing new has started."""
        world = self.world
        active = [each for each in snapshots if each.status in {"running", "cancelling"}]
        running = {each.id for each in active}
        if len(running) > world.widest_limit:
            assert running <= self._running, "something started beyond the limit"
        paused = world.coordinator.is_paused and not world.coordinator.is_closed
        if paused and self._was_paused and not world.was_resumed:
            assert running <= self._running, "something started while paused"
        self._running = running
        self._was_paused = paused
        world.was_resumed = False
        world.widest_limit = world.coordinator.max_concurrency
        if self.plan.is_keyed:
            per_key = Counter(each.key for each in active if each.key is not None)
            assert max(per_key.values(), default=0) <= world.coordinator.options.max_concurrency_per_key
        for lane in self.plan.lanes:
            if lane.max_concurrency is not None:
                assert sum(each.lane == lane.name for each in active) <= lane.max_concurrency

    def _has_place(self, waiting: OperationSnapshot[Any], snapshots: list[OperationSnapshot[Any]]) -> bool:
        active = [each for each in snapshots if each.status in {"running", "cancelling"}]
        limit = next((each.max_concurrency for each in self.plan.lanes if each.name == waiting.lane), None)
        if limit is not None and sum(each.lane == waiting.lane for each in active) >= limit:
            return False
        if not self.plan.is_keyed or waiting.key is None:
            return True
        busy = sum(each.key == waiting.key for each in active)
        return busy < self.world.coordinator.options.max_concurrency_per_key


def check_orders(world: World, plan: Plan) -> None:
    """First come, first accepted (R47); and in that order started, inside each key of each lane (invariant 6)."""
    if len(world.facts.tickets) >= _MANY:
        return
    accepted = sorted((each for each in world.facts.tickets if each.operation is not None), key=_order)
    for group in _grouped(accepted, plan.accepted_in_order_within):
        assert all(earlier.number < later.number for earlier, later in pairwise(group)), "somebody was overtaken"
    for group in _grouped(world.facts.started, plan.started_in_order_within):
        assert all(_order(earlier) < _order(later) for earlier, later in pairwise(group)), "started out of order"


def check_fates(world: World) -> None:
    """Invariant 2: every accepted operation has ended once, as its body ended; nothing else was ever accepted."""
    accepted = [each for each in world.facts.tickets if each.operation is not None]
    assert len(accepted) == world.coordinator.total_enqueued, "the coordinator counts what nobody was told of"
    for ticket in accepted:
        _check_fate(ticket)
    assert all(ticket.operation is not None for ticket in world.facts.started), "a refused item ran"
    for _, wait in world.handle_waits:
        assert wait.done(), "a handle does not resolve"


def check_finalized(world: World) -> None:
    """Every operation that ended has left the window once."""
    ended = {each.operation.id for each in world.facts.tickets if each.operation is not None}
    assert world.facts.finalized == Counter(ended), "not everything was finalized once"


def _check_fate(ticket: Ticket) -> None:
    operation = ticket.operation
    assert operation is not None
    assert operation.has_ended, f"{ticket} never ended"
    timed_out = operation.error is not None and operation.error.type == qualified_name(OperationTimeout)
    if not ticket.is_started:
        assert operation.status == "cancelled", f"{ticket} never ran and is {operation.status}"
    elif ticket.left_by == "return":
        assert operation.status == "completed"
    elif ticket.left_by == "exception":
        assert operation.status == "failed"
    else:
        assert ticket.left_by == "cancellation"
        assert operation.status == "cancelled" or timed_out


def _grouped(tickets: Iterable[Ticket], name: Callable[[Ticket], Any]) -> Iterable[list[Ticket]]:
    groups: dict[Any, list[Ticket]] = {}
    for ticket in tickets:
        groups.setdefault(name(ticket), []).append(ticket)
    return groups.values()


def _order(ticket: Ticket) -> int:
    assert ticket.operation is not None
    return ticket.operation._order
