"""What all coordinators share: the face of an engine."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import warnings
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Hashable,
    Iterable,
    Mapping,
)
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar

from ephemerals.errors import CoordinatorError, InvalidOption, InvalidOptionType
from ephemerals.functions import (
    close_coroutine,
    is_coroutine_function,
    is_generator_function,
    misfit,
    refuse_coroutine,
)
from ephemerals.ids import as_id
from ephemerals.options import EphemeralOptions, as_aware, as_factor, as_seconds
from ephemerals.signals import Pattern
from ephemerals.snapshot import OperationStatus

from .body import examine
from .engine import Engine
from .signals_view import CoordinatorSignals
from .source import Feeder, log_error, pull
from .timeline import TimelineEntry, replay, timeline

if TYPE_CHECKING:
    import concurrent.futures
    from datetime import datetime
    from types import TracebackType

    from ephemerals.echoes import Echo
    from ephemerals.operation import Operation
    from ephemerals.options import OptionKeywords, Seconds
    from ephemerals.signals import PatternLike
    from ephemerals.snapshot import OperationSnapshot

    from .report import CoordinatorStatistics, DrainReport
    from .schedule import Schedule

__all__ = ["Coordinator", "Ending", "KeySelector"]

T = TypeVar("T")
R = TypeVar("R")

KeySelector = Callable[[T], Hashable] | str
"""A function from an item to its key, or the name of the attribute that is the key.

`None` is no key: nothing orders such an item, and no bound of a key applies to it.
"""

_KEY_EXPECTED: Final = "a plain function from an item to its key, or the name of an attribute"
_numbers: Final = itertools.count(1)
_GRACE: Final = 10.0
_CANCEL_GRACE: Final = 5.0


class Ending:
    """Wait, if awaited, until everything that was cancelled has ended; give the report."""

    __slots__ = ("_engine",)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __await__(self) -> Generator[Any, None, DrainReport]:
        """Wait until nothing runs any more."""
        yield from self._engine.wait_idle().__await__()
        return self._engine.report()


class Coordinator(Generic[T, R]):
    """Run a body over items, so many at once, and remember just enough of it.

    This is what every coordinator offers; make a `WorkCoordinator` or one of its siblings. Constructing needs no
    running loop. Nothing here may be called from another thread, except `enqueue_threadsafe`.
    """

    _example: ClassVar[str] = ""
    """How it is made with a body in the place of `{}`; by default the body is all that is needed."""

    def __init__(  # noqa: PLR0913 - the parts a face chooses
        self,
        body: Callable[..., Any],
        make_schedule: Callable[[EphemeralOptions], Schedule],
        *,
        options: EphemeralOptions | None,
        keywords: OptionKeywords,
        key: KeySelector[T] | None = None,
        keeps_results: bool = False,
        results_ttl: Seconds | None = None,
    ) -> None:
        self.options = chosen = EphemeralOptions.of(options, keywords)
        examined = examine(body, chosen.run_in, self._example or f"{type(self).__name__}({{}})")
        self._key = None if key is None else as_selector(key)
        self._feeder: Feeder | None = None
        self.engine = Engine(
            examined,
            lambda: make_schedule(chosen),
            chosen,
            chosen.name or f"{examined.name}-{next(_numbers)}",
            keeps_results=keeps_results,
            results_ttl=None if results_ttl is None else as_seconds("results_ttl", results_ttl),
        )

    def _new(self, item: T, metadata: Mapping[str, Any] | None, lane: str | None = None) -> Operation[R]:
        key = None if self._key is None else hashable_key(self._key(item))
        return self.engine.new_operation(item, key=key, lane=lane, metadata=metadata)

    # Coming in.

    async def enqueue(self, item: T, *, metadata: Mapping[str, Any] | None = None) -> Operation[R]:
        """Accept an item and return its operation at once, or as soon as there is room.

        `metadata` is a small JSON-like mapping that describes the work; it stays in the snapshot. Raise
        `CoordinatorClosed` if the intake is closed, also while waiting; `CoordinatorFull` instead of waiting with
        `overflow="reject"`. If it is cancelled while waiting, the item was not accepted.
        """
        operation = self._new(item, metadata)
        if not self.engine.admit(operation):
            await self.engine.enqueue(operation)
        return operation

    def try_enqueue(self, item: T, *, metadata: Mapping[str, Any] | None = None) -> Operation[R] | None:
        """Accept an item if there is room at once; return its operation, or `None` if it was refused.

        It never overtakes somebody who waits for room. Raise `CoordinatorClosed` if the intake is closed.
        """
        operation = self._new(item, metadata)
        return operation if self.engine.enqueue_nowait(operation) else None

    async def run(self, item: T, *, metadata: Mapping[str, Any] | None = None) -> R:
        """Enqueue an item and await its outcome; cancelling the caller cancels the operation."""
        return await outcome_of(await self.enqueue(item, metadata=metadata))

    async def enqueue_many(self, items: Iterable[T] | AsyncIterable[T]) -> int:
        """Enqueue all items of an iterable, pulled only as there is room; return how many.

        If it fails midway the items accepted so far stay accepted; a note on the exception tells how many.
        """
        return await self._enqueue_each(items, self.enqueue)

    async def _enqueue_each(
        self, items: Iterable[T] | AsyncIterable[T], enqueue: Callable[[T], Awaitable[Operation[R]]]
    ) -> int:
        count = 0

        async def take(item: T) -> bool:
            nonlocal count
            await enqueue(item)
            count += 1
            return True

        try:
            await pull(items, take, partial(log_error, self.name))
        except Exception as error:
            error.add_note(f"{count} items had been accepted by coordinator {self.name!r} before")
            raise
        return count

    def enqueue_threadsafe(
        self, item: T, *, metadata: Mapping[str, Any] | None = None
    ) -> concurrent.futures.Future[Operation[R]]:
        """Enqueue an item from another thread; return a future of its operation.

        Raise `CoordinatorError` at once if called on the loop's own thread, where waiting for the future would block
        the loop, or before the coordinator was used on a loop.
        """
        return self._call_threadsafe(partial(self.enqueue, item, metadata=metadata))

    def _call_threadsafe(
        self, enqueue: Callable[[], Coroutine[Any, Any, Operation[R]]]
    ) -> concurrent.futures.Future[Operation[R]]:
        loop = self._foreign_loop()
        coroutine = enqueue()
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, loop)
        except BaseException:
            coroutine.close()  # the loop was closed just now, and nobody will ever run it
            raise

    def _foreign_loop(self) -> asyncio.AbstractEventLoop:
        loop = self.engine.loop
        if loop is None or loop.is_closed():
            message = f"coordinator {self.name!r} is not bound to an event loop: use it once on its loop first"
            raise CoordinatorError(message, self.name)
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return loop
        if running is loop:
            message = (
                f"enqueue_threadsafe() of coordinator {self.name!r} was called on the loop's own thread, "
                "where waiting for the future would block everything: await enqueue() instead"
            )
            raise CoordinatorError(message, self.name)
        return loop

    # Looking.

    @property
    def name(self) -> str:
        """Return the name."""
        return self.engine.name

    @property
    def pending_count(self) -> int:
        """Return how many items wait for their start."""
        return len(self.engine.window.pending)

    @property
    def active_count(self) -> int:
        """Return how many operations run."""
        return len(self.engine.window.running)

    @property
    def total_enqueued(self) -> int:
        """Return how many items were accepted so far."""
        return self.engine.counts.enqueued

    @property
    def total_completed(self) -> int:
        """Return how many operations have completed so far."""
        return self.engine.counts.completed

    @property
    def total_failed(self) -> int:
        """Return how many operations have failed so far."""
        return self.engine.counts.failed

    @property
    def total_cancelled(self) -> int:
        """Return how many operations were cancelled so far, started or not."""
        return self.engine.counts.cancelled

    @property
    def total_skipped(self) -> int:
        """Return how many operations were skipped because of a signal so far."""
        return self.engine.counts.skipped

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing waits and nothing runs."""
        return self.engine.is_idle

    @property
    def is_closed(self) -> bool:
        """Tell whether the intake is closed."""
        return self.engine.is_closed

    @property
    def signals(self) -> CoordinatorSignals:
        """Return what the operations have said, to be asked; and a way to emit in the coordinator's name."""
        return CoordinatorSignals(self.engine)

    def statistics(self) -> CoordinatorStatistics:
        """Return all counts and limits, and quantiles of waiting and run times, in one frozen object."""
        return self.engine.statistics()

    def get(self, operation_id: int) -> OperationSnapshot[R] | None:
        """Return an operation's snapshot; `None` if the window does not, or no longer, hold it."""
        return self.engine.window.get(as_id(operation_id))

    def snapshot(self) -> list[OperationSnapshot[R]]:
        """Return snapshots of all operations in the window: ended ones as they ended, then running, then pending."""
        return self.engine.window.snapshot()

    def running(self) -> list[OperationSnapshot[R]]:
        """Return snapshots of the running operations, as they started."""
        return [each.snapshot() for each in self.engine.window.running.values()]

    def pending(self) -> list[OperationSnapshot[R]]:
        """Return snapshots of the waiting operations, as they came."""
        return [each.snapshot() for each in self.engine.window.pending.values()]

    def completed(self) -> list[OperationSnapshot[R]]:
        """Return snapshots of the completed operations in the window, as they ended."""
        return self.engine.window.ended(OperationStatus.COMPLETED)

    def failed(self) -> list[OperationSnapshot[R]]:
        """Return snapshots of the failed operations in the window, as they ended."""
        return self.engine.window.ended(OperationStatus.FAILED)

    def cancelled(self) -> list[OperationSnapshot[R]]:
        """Return snapshots of the cancelled operations in the window, as they ended."""
        return self.engine.window.ended(OperationStatus.CANCELLED)

    def skipped(self) -> list[OperationSnapshot[R]]:
        """Return snapshots of the skipped operations in the window, as they ended."""
        return self.engine.window.ended(OperationStatus.SKIPPED)

    def echoes(self, pattern: PatternLike | None = None) -> list[Echo]:
        """Return what is left of operations that have left the window lately, oldest first.

        With a `pattern`, only of those that emitted a matching signal.
        """
        echoes = self.engine.window.echoes.read(self.engine.now())
        if pattern is None:
            return echoes
        compiled = Pattern.of(pattern)
        return [echo for echo in echoes if any(compiled.matches(event.name) for event in echo.signals)]

    def timeline(self, since: datetime | None = None) -> list[TimelineEntry]:
        """Return the window as an event log in true order, from `since` on (an aware datetime; `None`: all)."""
        if since is not None:
            as_aware("since", since)
        return timeline(self.snapshot(), since)

    def replay(self, speed: float | None = 1.0, *, since: datetime | None = None) -> AsyncIterator[TimelineEntry]:
        """Play the timeline again in its original rhythm, `speed` times as fast; `None`: without pauses."""
        if speed is not None:
            as_factor("speed", speed)
        return replay(self.timeline(since), speed)

    # Control.

    @property
    def max_concurrency(self) -> int:
        """Return how many bodies may run at once."""
        return self.engine.limit

    def set_max_concurrency(self, limit: int) -> None:
        """Change how many bodies may run at once; a cut takes hold as running ones end."""
        self.engine.set_limit(limit)

    @property
    def is_paused(self) -> bool:
        """Tell whether it is paused."""
        return self.engine.is_paused

    def pause(self) -> None:
        """Start nothing more until `resume`; what runs goes on. Pausing twice is the same as once."""
        self.engine.pause()

    def resume(self) -> None:
        """Start again. Without a pause this does nothing."""
        self.engine.resume()

    def pin(self, operation_id: int) -> bool:
        """Keep an operation in the window beyond size and age; False if the window does not hold it.

        Raise `PinLimitReached` if `max_pinned` are pinned. It is possible from the moment of `enqueue`.
        """
        return self.engine.pin(as_id(operation_id))

    def unpin(self, operation_id: int) -> bool:
        """Let the bounds apply to an operation again; False if it was not pinned."""
        return self.engine.unpin(as_id(operation_id))

    def evict(self, operation_id: int) -> bool:
        """Forget an ended operation now, pinned or not; False if no ended one of that id is held."""
        return self.engine.window.evict(as_id(operation_id))

    def cancel_operation(self, operation_id: int) -> bool:
        """Cancel an operation that has not ended; False if there is none of that id."""
        operation = self.engine.window.live(as_id(operation_id))
        return operation is not None and operation.cancel()

    # Ending.

    async def join(self) -> None:
        """Wait until nothing waits and nothing runs; the intake stays open."""
        self._start_source()
        await self.engine.wait_idle()

    def complete(self) -> None:
        """Close the intake; what was accepted still runs. Twice is the same as once."""
        self.engine.complete()

    async def drain(self, timeout: Seconds | None = None) -> DrainReport:  # noqa: ASYNC109 - it reports instead of raising
        """Close the intake, resume if paused, and wait until all work has ended; report what came of it.

        With a `timeout` (seconds) that runs out, the report's `remaining` is not 0 and the work goes on. A source is
        read to its end first; if it failed, its error is raised once the accepted items have ended.
        """
        limit = None if timeout is None else as_seconds("timeout", timeout, zero=True)
        engine = self.engine
        engine.bind()
        if self._feeder is not None and not engine.is_closed:
            engine.resume()
            deadline = None if limit is None else engine.now() + limit
            if not await self._feeder.wait(limit):
                return engine.report()
            limit = None if deadline is None else max(0.0, deadline - engine.now())
        engine.begin_drain()
        done = await engine.wait_idle(limit)
        if done and self._feeder is not None and (error := self._feeder.take_error()) is not None:
            try:
                raise error
            finally:
                del error
        return engine.report()

    def cancel(self) -> Ending:
        """Close the intake, cancel what waits without starting it, and cancel what runs.

        It acts at once; awaiting what it returns waits until everything has ended.
        """
        self._cancel_everything()
        return Ending(self.engine)

    def _cancel_everything(self) -> None:
        if self._feeder is not None:
            self._feeder.discard()
        self.engine.cancel_all()

    async def aclose(
        self, *, grace: Seconds | None = _GRACE, cancel_grace: Seconds | None = _CANCEL_GRACE
    ) -> DrainReport:
        """Let work end by itself for `grace` seconds, then cancel it and wait `cancel_grace`; let go of everything.

        `None` waits without limit. Operations that have not ended by then go on, and the report and the log name
        them. What the window still holds is finalized with the reason `shutdown`. Errors of bodies are not raised.
        """
        grace = None if grace is None else as_seconds("grace", grace, zero=True)
        cancel_grace = None if cancel_grace is None else as_seconds("cancel_grace", cancel_grace, zero=True)
        self.engine.bind()
        return await self.engine.close(grace, cancel_grace)

    async def __aenter__(self) -> Self:
        """Use it for a block; a source begins to be read."""
        self.engine.bind()
        self._start_source()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Drain and close; after an exception cancel and close."""
        try:
            if kind is None:
                await self.drain()
        except BaseException:
            self._cancel_everything()
            raise
        finally:
            if kind is not None:
                self._cancel_everything()
            await self.aclose(grace=0)

    def __del__(self) -> None:
        """Warn if it was used and never closed."""
        engine: Engine | None = getattr(self, "engine", None)
        if engine is None or engine.loop is None or engine.is_orphaned or engine.is_released:
            return
        if not (engine.is_closed and engine.is_idle):
            warnings.warn(
                f"coordinator {engine.name!r} was not closed: use 'async with', or await aclose()",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def __repr__(self) -> str:
        """Show name and counts."""
        return (
            f"<{type(self).__name__} {self.name!r} pending={self.pending_count} "
            f"active={self.active_count}/{self.max_concurrency}>"
        )

    def _feed_from(self, source: AsyncIterable[T]) -> Self:
        if not isinstance(source, AsyncIterable):
            raise InvalidOptionType("source", source, "an async iterable, such as an async generator")
        self._feeder = Feeder(self.engine, source, lambda item: contextvars.Context().run(self._new, item, None))
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self  # it starts when the coordinator is first used on a loop
        self._feeder.start()
        return self

    def _start_source(self) -> None:
        if self._feeder is not None:
            self._feeder.start()


async def outcome_of(operation: Operation[R]) -> R:
    """Await an operation on behalf of a caller whose cancellation cancels it."""
    try:
        return await operation
    except asyncio.CancelledError:
        operation.cancel()
        raise


def as_selector(key: KeySelector[T], *, of_item: bool = True) -> Callable[[T], Hashable]:
    """Return a key selector as a function; it takes an item, or with `of_item=False` whatever else."""
    if isinstance(key, str):
        if not all(part.isidentifier() for part in key.split(".")):
            raise InvalidOption("key", key, _KEY_EXPECTED)
        return attrgetter(key)
    refuse_coroutine(key, f"expected {_KEY_EXPECTED}")
    if not callable(key):
        raise InvalidOptionType("key", key, _KEY_EXPECTED)
    if is_coroutine_function(key) or is_generator_function(key):
        allowed = f"{_KEY_EXPECTED}, and no async function or generator: the key comes first, then the body"
        raise InvalidOptionType("key", key, allowed)
    if of_item and misfit(key, None) is not None:
        raise InvalidOptionType("key", key, f"{_KEY_EXPECTED}, that takes the item alone")
    return key


def hashable_key(key: Hashable) -> Hashable:
    """Return a key that was selected, if it can be one."""
    kind = type(key)
    if hasattr(kind, "__await__"):
        close_coroutine(key)
        raise InvalidOptionType("key", f"<{kind.__qualname__}>", "a value, and nothing that is still to be awaited")
    try:
        hash(key)
    except TypeError:
        raise InvalidOptionType("key", f"<{kind.__qualname__}>", "a hashable value") from None
    return key
