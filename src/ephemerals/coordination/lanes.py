"""Who is next among lanes: strictly the higher one, within a bound on starvation, or each by its weight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ephemerals.errors import DuplicateName, InvalidOption, InvalidOptionType, UnknownLane
from ephemerals.options import as_count, as_patterns, as_text

from .schedule import FifoSchedule, KeyCompartment, KeyedSchedule, KeyTable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ephemerals.operation import Operation

    from .reactions import Deferral

__all__ = ["Lane", "LaneSchedule"]


@dataclass(frozen=True, slots=True)
class Lane:
    """Describe a lane: its name, and what bounds it besides the coordinator's own bounds.

    With a `weight` lanes share the slots in that proportion instead of strictly by rank (all lanes have one, or
    none). `None` means no limit of its own. While a signal of `cancel_on_signals` is present its items are skipped,
    while one of `defer_on_signals` is present they wait.

    >>> Lane("hot", max_concurrency=2).name
    'hot'
    """

    name: str
    weight: int | None = None
    max_pending: int | None = None
    max_concurrency: int | None = None
    cancel_on_signals: tuple[str, ...] | str = ()
    defer_on_signals: tuple[str, ...] | str = ()

    def __post_init__(self) -> None:
        """Validate."""
        as_text("Lane.name", self.name)
        for option in ("weight", "max_pending", "max_concurrency"):
            if getattr(self, option) is not None:
                as_count(f"Lane.{option}", getattr(self, option))
        for option in ("cancel_on_signals", "defer_on_signals"):
            object.__setattr__(self, option, as_patterns(f"Lane.{option}", getattr(self, option)))


def as_lanes(lanes: object) -> tuple[Lane, ...]:
    """Return lanes as a tuple, if they come in an order."""
    allowed = "Lane objects in a list or tuple, the highest first"
    unordered = isinstance(lanes, str | bytes | AbstractSet | Mapping)
    if unordered or not isinstance(lanes, Iterable):
        raise InvalidOptionType("lanes", lanes, allowed)
    return tuple(lanes)


class LaneState:
    """Follow one lane: what waits in it, what runs, how often it was passed."""

    __slots__ = ("active", "credit", "deferral", "lane", "passed", "pending", "schedule")

    def __init__(self, lane: Lane, schedule: FifoSchedule | KeyedSchedule) -> None:
        self.lane = lane
        self.schedule = schedule
        self.pending = 0
        self.active = 0
        self.passed = 0
        self.credit = 0
        self.deferral: Deferral | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether one of its items might start now."""
        limit = self.lane.max_concurrency
        if not self.pending or (limit is not None and self.active >= limit):
            return False
        return self.deferral is None or not self.deferral.holds_back()

    def ready(self, free: int) -> int:
        """Return how many of its items could take `free` slots."""
        limit = self.lane.max_concurrency
        if self.deferral is not None and self.deferral.is_holding:
            return 0
        return self.schedule.ready(free if limit is None else max(0, min(free, limit - self.active)))

    def pop(self) -> Operation[Any] | None:
        """Give out its next item."""
        if not self.is_open or (operation := self.schedule.pop()) is None:
            return None
        self.pending -= 1
        self.active += 1
        self.passed = 0
        return operation


class LaneSchedule:
    """Choose among lanes each time a slot is free.

    Strict: the first lane that has a runnable item; but a lane whose waiting item was passed by `starvation_limit`
    items of higher lanes goes first. Weighted: smooth weighted round robin, as nginx does it: every lane that could
    go gains its weight, the richest goes and pays what all gained.
    """

    __slots__ = ("_by_name", "_lanes", "_starvation_limit", "_table", "_weighted")

    def __init__(
        self,
        lanes: Sequence[Lane],
        make_schedule: Callable[[str], FifoSchedule | KeyedSchedule],
        *,
        table: KeyTable | None = None,
        starvation_limit: int | None = None,
    ) -> None:
        if not lanes:
            raise InvalidOption("lanes", lanes, "at least one Lane")
        self._by_name: dict[str, LaneState] = {}
        for lane in lanes:
            if not isinstance(lane, Lane):
                raise InvalidOptionType("lanes", lane, "Lane objects")
            if lane.name in self._by_name:
                raise DuplicateName("lane", lane.name, "lanes")
            self._by_name[lane.name] = LaneState(lane, make_schedule(lane.name))
        self._lanes = tuple(self._by_name.values())
        weights = {lane.weight is not None for lane in lanes}
        if len(weights) > 1:
            raise InvalidOption("weight", [lane.weight for lane in lanes], "a weight for every lane, or for none")
        self._weighted = weights == {True}
        self._starvation_limit = starvation_limit
        self._table = table

    @property
    def lanes(self) -> tuple[LaneState, ...]:
        """Return the lanes, highest first."""
        return self._lanes

    @property
    def has_compartments(self) -> bool:
        """Tell whether some items have bounds of their own, besides the common one."""
        return any(each.lane.max_pending is not None or each.schedule.has_compartments for each in self._lanes)

    def lane(self, name: str | None) -> LaneState:
        """Return a lane by its name; raise `UnknownLane`, which lists the names, if there is none."""
        try:
            return self._by_name[name]  # type: ignore[index]  # None is a name that no lane has
        except (KeyError, TypeError):
            raise UnknownLane(name, self._by_name) from None

    def push(self, operation: Operation[Any]) -> None:
        """Take in an operation that has just been accepted."""
        state = self.lane(operation.lane)
        state.schedule.push(operation)
        state.pending += 1

    def pop(self) -> Operation[Any] | None:
        """Give out the next operation that may start; `None` if there is none."""
        return self._pop_weighted() if self._weighted else self._pop_strict()

    def ready(self, free: int) -> int:
        """Return how many would be given out, one after the other, while `free` slots are."""
        return min(free, sum(each.ready(free) for each in self._lanes))

    def finished(self, operation: Operation[Any]) -> None:
        """Note that an operation given out has ended."""
        state = self.lane(operation.lane)
        state.active -= 1
        if self._table is None:
            return
        self._table.finish(operation._key)
        self._offer_place(operation._key)

    def held(self, operation: Operation[Any]) -> None:
        """Note that an operation given out is pending again, outside the schedule; its lane's slot is free."""
        self.lane(operation.lane).active -= 1

    def readmit(self, operation: Operation[Any]) -> None:
        """Take an operation that was held back into its lane, at its place in the order."""
        state = self.lane(operation.lane)
        state.pending += 1
        state.schedule.readmit(operation)
        if self._table is not None:
            self._offer_place(operation._key)

    def withdrawn(self, operation: Operation[Any]) -> None:
        """Note that an operation not yet given out is no longer pending."""
        state = self.lane(operation.lane)
        state.pending -= 1
        state.schedule.withdrawn(operation)

    def compartments(self, operation: Operation[Any]) -> Iterable[tuple[Hashable, int]]:
        """Return the compartments an operation waits in, each with the most that may wait there."""
        state = self.lane(operation.lane)
        if state.lane.max_pending is not None:
            yield state, state.lane.max_pending
        yield from state.schedule.compartments(operation)

    def count(self, compartment: Hashable) -> int:
        """Return how many wait in a compartment."""
        if isinstance(compartment, LaneState):
            return compartment.pending
        return self.lane(cast("KeyCompartment", compartment).lane).schedule.count(compartment)

    def pending_for(self, key: Any) -> int:
        """Return how many of a key wait, in all lanes."""
        return sum(each.schedule.pending_for(key) for each in self._lanes if isinstance(each.schedule, KeyedSchedule))

    def saturated_by(self, operation: Operation[Any], stuck: Iterable[Operation[Any]]) -> bool:
        """Tell whether a pending operation can never start while all of `stuck` run."""
        stuck = tuple(stuck)
        state = self.lane(operation.lane)
        limit = state.lane.max_concurrency
        if limit is not None and sum(each.lane == operation.lane for each in stuck) >= limit:
            return True
        return state.schedule.saturated_by(operation, stuck)

    def leftovers(self) -> dict[str, int]:
        """Count what is held: keys with state, withdrawn operations."""
        keys: set[Any] = set() if self._table is None else set(self._table.active)
        counts = {"withdrawn": 0}
        for each in self._lanes:
            left = each.schedule.leftovers()
            counts["withdrawn"] += left["withdrawn"]
            if isinstance(each.schedule, KeyedSchedule):
                keys |= each.schedule.keys()
        return {"keys": len(keys), **counts}

    def clear(self) -> None:
        """Forget all that is pending."""
        for each in self._lanes:
            each.schedule.clear()
            each.pending = 0
            each.passed = 0
            each.credit = 0

    def _offer_place(self, key: Any) -> None:
        """Let the next of a key become ready in every lane; who is given out first takes the place."""
        for each in self._lanes:
            each.schedule.place_freed(key)  # type: ignore[union-attr]  # keyed, because there is a table

    def _pop_strict(self) -> Operation[Any] | None:
        limit = self._starvation_limit
        if limit is not None:
            for state in reversed(self._lanes):
                if state.passed >= limit and (operation := state.pop()) is not None:
                    self._note_passed(state)
                    return operation
        for state in self._lanes:
            if (operation := state.pop()) is not None:
                self._note_passed(state)
                return operation
        return None

    def _note_passed(self, passing: LaneState) -> None:
        if self._starvation_limit is None:
            return
        for state in reversed(self._lanes):
            if state is passing:
                return
            if state.pending:
                state.passed += 1
            else:
                state.passed = 0

    def _pop_weighted(self) -> Operation[Any] | None:
        runnable = []
        total = 0
        for state in self._lanes:
            if state.is_open:
                weight = state.lane.weight or 0
                state.credit += weight
                total += weight
                runnable.append(state)
            else:
                state.credit = 0
        for state in sorted(runnable, key=lambda each: -each.credit):
            if (operation := state.pop()) is not None:
                state.credit -= total
                return operation
            total -= state.lane.weight or 0
            state.credit = 0  # its keys are busy: it saves nothing up for later
        return None
