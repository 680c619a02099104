"""One batch: its items, in order, and what becomes of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ephemerals.errors import EphemeralsError

from .promise import Promise

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Batch", "BatcherStatistics", "ItemDiscarded"]

T = TypeVar("T")
R = TypeVar("R")


class ItemDiscarded(EphemeralsError):
    """Tell who waits for an item that the batcher was cancelled before its batch began."""

    def __init__(self) -> None:
        super().__init__("the batcher was cancelled before this item's batch began")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherStatistics:
    """Count items: accepted, waiting for their batch to begin, and what came of the others; and batches begun."""

    accepted: int
    waiting: int
    completed: int
    failed: int
    cancelled: int
    discarded: int
    batches: int


class Batch(Generic[T, R]):
    """Hold the items of one batch, and what was promised for each."""

    __slots__ = ("has_begun", "items", "promises")

    def __init__(self) -> None:
        self.items: list[T] = []
        self.promises: list[Promise[R]] = []
        self.has_begun = False

    def add(self, item: T) -> Promise[R]:
        """Take an item in."""
        promise: Promise[R] = Promise()
        self.items.append(item)
        self.promises.append(promise)
        return promise

    def keep(self, results: Sequence[R] | None) -> None:
        """Give each item its result; raise `ValueError` if there are too few or too many."""
        given: Sequence[Any] = [None] * len(self.items) if results is None else results
        if len(given) != len(self.items):
            raise ValueError(f"a batch gave {len(given)} results for {len(self.items)} items")
        for promise, result in zip(self.promises, given, strict=True):
            promise.keep(result)

    def break_off(self, error: BaseException) -> None:
        """Give each item a copy of the exception."""
        for promise in self.promises:
            promise.break_off(error)
