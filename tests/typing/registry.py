"""Read by mypy and pyright, never run: what a registry and an owner's window give to their users."""

from __future__ import annotations

from typing import Any, assert_type

from ephemerals import (
    CoordinatorRegistry,
    CoordinatorStatistics,
    DrainReport,
    KeyedWorkCoordinator,
    Lane,
    Operation,
    OperationStatus,
    OperationView,
    OwnerWindow,
    WorkCoordinator,
    status_of,
)
from ephemerals.coordination.coordinator import Coordinator

registry = CoordinatorRegistry(grace=5)


@registry.coordinator("fast", max_concurrency=32)
async def translate(text: str) -> int:
    """Do something."""
    return len(text)


@registry.priority_coordinator("mixed", lanes=[Lane("hot"), Lane("normal")], max_pending=10)
def count(text: str) -> int:
    """Do something in a thread."""
    return len(text)


async def use(text: str) -> None:
    """Use everything."""
    assert_type(await translate(text), int)
    assert_type(count(text), int)
    registry.register("slow", translate, operation_timeout=3)
    registry.register_keyed("keyed", "user_id", factory=lambda: translate)
    async with registry as opened:
        assert_type(opened, CoordinatorRegistry)
        assert_type(registry["fast"], Coordinator[Any, Any])
        assert_type(registry.get("fast"), Coordinator[Any, Any])
        work = registry.get("fast", WorkCoordinator[str, int])
        keyed = registry.get("keyed", KeyedWorkCoordinator[str, int])
        assert_type(await work.run(text), int)
        assert_type(keyed.pending_count_for(text), int)
        assert_type(registry.statistics(), dict[str, CoordinatorStatistics])
    assert_type(await registry.aclose(grace=None), dict[str, DrainReport])


def look(window: OwnerWindow, operation: Operation[int]) -> None:
    """Use everything."""
    window.add("owner", operation)
    assert_type(window.get("owner", operation.id), Operation[Any] | None)
    assert_type(window.list("owner"), list[Operation[Any]])
    assert_type(window.forget("owner"), int)
    view = status_of(operation)
    assert_type(view, OperationView)
    assert_type(view.status, OperationStatus)
    assert_type(view.duration_text, str)
