"""Which coordinator a random schedule drives, and with which options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from tests.invariants.world import World, select_key

from ephemerals import KeyedWorkCoordinator, Lane, PriorityWorkCoordinator, ResultCoordinator, WorkCoordinator

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.invariants.world import Ticket

    from ephemerals.coordination.coordinator import Coordinator

MISCHIEF = ("none", "look", "raise", "raise cancelled", "raise base", "cancel", "evict", "enqueue", "cancel all")


@dataclass(frozen=True)
class Plan:
    """Choose a coordinator; `keywords` go to it as they are."""

    make: Callable[..., Coordinator[Any, Any]]
    keywords: dict[str, Any]
    shape: dict[str, Any] = field(default_factory=dict)
    mischief: str = "none"

    @property
    def is_keyed(self) -> bool:
        return self.make is KeyedWorkCoordinator or "key" in self.shape

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return self.shape.get("lanes", ())

    def accepted_in_order_within(self, ticket: Ticket) -> Any:
        """Name the group of tickets that must be accepted as they came."""
        if self.is_keyed and self.keywords.get("fair_scheduling"):
            return ticket.lane, ticket.key
        return ticket.lane if any(each.max_pending is not None for each in self.lanes) else None

    def started_in_order_within(self, ticket: Ticket) -> Any:
        """Name the group of tickets that must be started as they were accepted."""
        return ticket.lane, ticket.key if self.is_keyed else None

    def world(self) -> World:
        """Make the coordinator, in a world of its own."""

        def make(body: Any, **hooks: Any) -> Coordinator[Any, Any]:
            chosen = {**self.shape, **self.keywords, **hooks}
            return (
                self.make(select_key, body, **chosen)
                if self.make is KeyedWorkCoordinator
                else self.make(body, **chosen)
            )

        return World(make, mischief=self.mischief)


common_options = {
    "max_concurrency": st.integers(1, 4),
    "max_pending": st.integers(1, 5),
    "overflow": st.sampled_from(("wait", "wait", "reject", "drop_oldest")),
    "operation_timeout": st.sampled_from((None, 2.0)),
    "max_tracked_operations": st.sampled_from((200, 3, 0)),
    "max_operation_lifetime": st.sampled_from((300.0, 3.0)),
    "max_pinned": st.sampled_from((100, 1)),
    "sample_interval": st.sampled_from((0.0, 1.0)),
}
keyed_options = {
    "max_concurrency_per_key": st.integers(1, 3),
    "fair_scheduling": st.booleans(),
    "fair_scheduling_threshold": st.integers(1, 3),
}
mischief = st.sampled_from(MISCHIEF)


def _plans(make: Any, shapes: st.SearchStrategy[dict[str, Any]], **options: Any) -> st.SearchStrategy[Plan]:
    keywords = st.fixed_dictionaries({**common_options, **options})
    return st.builds(Plan, st.just(make), keywords, shapes, mischief)


def _lane(name: str) -> st.SearchStrategy[Lane]:
    bound = st.sampled_from((None, 1, 2))
    return st.builds(Lane, st.just(name), max_pending=bound, max_concurrency=bound)


def _weigh(lanes: tuple[Lane, ...], weights: tuple[int, ...] | None) -> dict[str, Any]:
    if weights is None:
        return {"lanes": lanes}
    return {
        "lanes": tuple(
            Lane(each.name, weight, each.max_pending, each.max_concurrency)
            for each, weight in zip(lanes, weights, strict=True)
        )
    }


_lane_shapes = st.builds(
    _weigh, st.tuples(_lane("hot"), _lane("normal"), _lane("cold")), st.sampled_from((None, (3, 2, 1), (1, 1, 1)))
)
_keys_or_none = st.sampled_from(({}, {"key": select_key}))

work_plans = _plans(WorkCoordinator, st.just({}))
keyed_plans = _plans(KeyedWorkCoordinator, st.just({}), **keyed_options)
result_plans = _plans(ResultCoordinator, _keys_or_none, **keyed_options)
priority_plans = _plans(
    PriorityWorkCoordinator,
    st.builds(lambda lanes, key: {**lanes, **key}, _lane_shapes, _keys_or_none),
    starvation_limit=st.sampled_from((None, 1, 3)),
    **keyed_options,
)
