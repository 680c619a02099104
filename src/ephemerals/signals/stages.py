"""Stages: work that a signal sets going, wave after wave, until all is done or a signal decides the rest.

stages = Stages(sink, exit_on="verdict.*")

@stages.when("request.received")
async def address(event): ...

@stages.when("request.received", wave=1)
async def headers(event):
    if suspicious(event.data):
        sink.emit("verdict.bot", key=event.key)  # what else runs or waits for this key is cancelled

async with stages: ...

The stages of one wave run side by side; the next wave begins when all of them have ended, also if some have failed.
What must not run after a failure belongs into a `DependencyGraph`.
"""

from __future__ import annotations

import asyncio
import inspect
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from ephemerals.errors import DuplicateName, InvalidOptionType
from ephemerals.functions import as_callback
from ephemerals.options import as_count as as_number

from .delivery import running_loop
from .graph import TaskStatus, needs
from .isolation import Isolation, logger
from .pattern import Pattern
from .propagation import cause
from .stage_run import Run, Stage, StageOutcome, StagesReport
from .stream import resolve
from .validation import as_count, as_name, as_pattern

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextvars import Context
    from types import TracebackType

    from .event import SignalEvent
    from .pattern import PatternLike
    from .sink import SignalSink
    from .subscription import Subscription
    from .typed import SignalKey

__all__ = ["Stages"]

F = TypeVar("F", bound="Callable[..., Awaitable[Any]]")

_UNWIND: Final = 1.0
"""Seconds that stages get to unwind after they were cancelled."""


class Stages:
    """Run the stages whose trigger an event matches, in waves: at most `max_concurrency` stages at once, in all.

    Every event that matches starts a run of its own; the oldest run goes first. An event that matches `exit_on` ends
    them: what runs is cancelled, except for the stage that emitted it, and what waits is skipped. One with a key ends
    only the runs whose trigger has that key. If `max_queued` runs wait for their first stage, the oldest is dropped,
    and counted by `dropped`. `on_finished(report)` is called for each run that has ended.

    With the key and the operation of the trigger it emits `stage.NAME.started`, and `completed`, `failed`, `cancelled`
    or `skipped`. What a stage emits was caused by its trigger, so stages that set each other going in a circle come to
    an end. It listens to the sink until it is closed. Use it on the thread of one loop.
    """

    __slots__ = (
        "_exit_on",
        "_is_closed",
        "_isolation",
        "_loop",
        "_max_concurrency",
        "_max_queued",
        "_on_finished",
        "_running",
        "_runs",
        "_sink",
        "_stages",
        "_subscription",
        "_unstarted",
        "_waiters",
        "dropped",
    )

    def __init__(
        self,
        sink: SignalSink,
        *,
        exit_on: PatternLike | None = None,
        max_concurrency: int = 4,
        max_queued: int = 1000,
        on_finished: Callable[[StagesReport], object] | None = None,
    ) -> None:
        self.dropped = 0
        self._sink = sink
        self._exit_on = Pattern.of_optional(exit_on)
        self._max_concurrency = as_count("max_concurrency", max_concurrency)
        self._max_queued = as_count("max_queued", max_queued)
        self._on_finished = on_finished
        if on_finished is not None:
            as_callback("on_finished", on_finished, "report")
        self._isolation = Isolation(None)
        self._stages: dict[str, Stage] = {}
        self._runs: dict[Run, None] = {}  # all that have not ended, oldest first
        self._unstarted: dict[Run, None] = {}
        self._running = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._subscription: Subscription | None = None
        self._is_closed = False

    def add(
        self,
        name: str,
        trigger: PatternLike | SignalKey[Any],
        function: Callable[..., Awaitable[Any]],
        *,
        wave: int = 0,
    ) -> None:
        """Add a stage that runs when an event matches `trigger`, after those of lower waves (0 is the first).

        A function that needs an argument gets the event. A name that is taken is a `DuplicateName`; what is no
        coroutine function, or needs more, is an `InvalidOptionType`.
        """
        if as_name(name) in self._stages:
            raise DuplicateName("stage", name)
        if not inspect.iscoroutinefunction(function):
            raise InvalidOptionType("function", function, "a coroutine function")
        as_number("wave", wave, least=0)
        stage = Stage(name, as_pattern(trigger), function, wave, needs(function, "event"))
        self._stages[name] = stage
        if not self._is_closed:
            self._listen()

    def when(
        self, trigger: PatternLike | SignalKey[Any], *, wave: int = 0, name: str | None = None
    ) -> Callable[[F], F]:
        """Add the function below, under its own name unless another one is given; it stays what it is."""

        def decorate(function: F) -> F:
            self.add(getattr(function, "__name__", "") if name is None else name, trigger, function, wave=wave)
            return function

        return decorate

    async def run(self, event: SignalEvent[Any]) -> StagesReport:
        """Run the stages for an event, whether or not it was emitted, and report when all have ended.

        Failures are in the report. Being cancelled cancels what runs, waits for it, and skips the rest.
        """
        context = copy_context()
        parent = event._cause
        context.run(cause.set, (1 if parent is None else parent[0] + 1, self._sink._number, event.name, parent))
        run = self._begin(event, context)
        try:
            while run in self._runs:
                await _next_of(run.waiters)
        finally:
            self._stop(run, None)
            while run.tasks:
                await asyncio.wait(run.tasks)
        return run.report()

    @property
    def running(self) -> int:
        """Return how many stages run now."""
        return self._running

    @property
    def queued(self) -> int:
        """Return how many events wait for their first stage to start."""
        return len(self._unstarted)

    async def join(self) -> None:
        """Wait until every run has ended, except for that of a stage that asks; more may be triggered afterwards."""
        me = cast("asyncio.Task[None]", asyncio.current_task())
        self._pump()
        while any(me not in run.tasks for run in self._runs):
            await _next_of(self._waiters)

    async def aclose(self, timeout: float | None = 5.0) -> None:  # noqa: ASYNC109 - a budget; it never raises
        """Start no more runs, wait `timeout` seconds for those there are, then end them; repeating is harmless.

        `None` waits as long as it takes.
        """
        self._is_closed = True
        try:
            async with asyncio.timeout(timeout):
                await self.join()
        except TimeoutError:
            pass
        finally:
            if self._subscription is not None:
                self._subscription.cancel()
            left = [task for run in self._runs for task in run.tasks if task is not asyncio.current_task()]
            for run in list(self._runs):
                self._stop(run, None)
        if left:
            await asyncio.wait(left, timeout=_UNWIND)

    async def __aenter__(self) -> Self:
        self._pump()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # What comes in.

    def _listen(self) -> None:
        """Hear of all triggers, and of what decides."""
        if self._subscription is not None:
            self._subscription.cancel()
        patterns = [each.trigger for each in self._stages.values()]
        if self._exit_on is not None:
            patterns.append(self._exit_on)
        self._subscription = self._sink.subscribe(Pattern.of(patterns), self._hear)

    def _hear(self, event: SignalEvent[Any]) -> None:
        if self._exit_on is not None and self._exit_on.matches(event.name):
            for run in list(self._runs):
                if event.key is None or event.key == run.trigger.key:
                    self._stop(run, event)
        if not self._is_closed and any(each.trigger.matches(event.name) for each in self._stages.values()):
            self._begin(event, copy_context())

    def _begin(self, event: SignalEvent[Any], context: Context) -> Run:
        run = Run(event, [each for each in self._stages.values() if each.trigger.matches(event.name)], context)
        if not run.later:
            return run
        if len(self._unstarted) >= self._max_queued:
            self.dropped += 1
            logger.warning("too many events wait for their stages: the oldest was dropped")
            self._stop(next(iter(self._unstarted)), None)
        self._runs[run] = self._unstarted[run] = None
        run.ready.extend(run.later.popleft())
        self._pump()
        return run

    # What goes on.

    def _pump(self) -> None:
        """Start what may start, if a loop is running here; what comes before that waits for it."""
        loop = running_loop()
        if loop is None:
            return
        if loop is not self._loop:
            self._start_on(loop)
        for run in list(self._runs):
            while run.ready and self._running < self._max_concurrency:
                stage = run.ready.popleft()
                self._unstarted.pop(run, None)
                self._running += 1
                run.active += 1
                task = loop.create_task(
                    self._work(run, stage), name=f"ephemerals stage {stage.name}", context=run.context.copy()
                )
                run.tasks[task] = stage
                task.add_done_callback(partial(self._on_done, run))
            if self._running >= self._max_concurrency:
                break

    def _start_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Go on with what waits; what ran on an earlier loop has ended with it."""
        self._loop = loop
        self._running, self._waiters = 0, []
        self._runs = dict.fromkeys(self._unstarted)

    async def _work(self, run: Run, stage: Stage) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        run.tasks[task] = stage  # a loop may run a task while it is made
        self._tell(run, stage, "started")
        try:
            value = await (stage.function(run.trigger) if stage.takes_event else stage.function())
        except Exception as error:  # noqa: BLE001 - it is in the report
            self._end(run, stage, TaskStatus.FAILED, error=error)
        except BaseException as error:
            self._end(run, stage, TaskStatus.CANCELLED)
            if not isinstance(error, asyncio.CancelledError) or task.cancelling():
                raise  # else it gave up by itself
        else:
            self._end(run, stage, TaskStatus.COMPLETED, value=value)

    def _on_done(self, run: Run, task: asyncio.Task[None]) -> None:
        stage = run.tasks.pop(task)
        if run not in self._runs:
            return  # it ran on an earlier loop
        self._running -= 1
        run.active -= 1
        is_interrupted = task.cancelled() or task.exception() is not None  # asking keeps asyncio from telling of it
        if stage.name not in run.outcomes:
            self._skip(run, stage)  # it was cancelled before its first step
        self._go_on(run)
        if run.is_stopped or not is_interrupted:  # else the loop may be coming to its end
            self._pump()

    def _go_on(self, run: Run) -> None:
        """Begin the next wave of a run if one is over; end the run after the last."""
        if run.active or run.ready or run not in self._runs:
            return
        if run.later:
            run.ready.extend(run.later.popleft())
            return
        del self._runs[run]
        self._unstarted.pop(run, None)
        for waiter in run.waiters + self._waiters:
            resolve(waiter)
        if self._on_finished is not None:
            try:
                self._on_finished(run.report())
            except Exception as error:  # noqa: BLE001 - a hook must not break what it watches
                self._isolation.report(error, run.trigger, self._on_finished)

    def _stop(self, run: Run, event: SignalEvent[Any] | None) -> None:
        """Skip what a run has not started, and cancel what runs, except for whoever asks for it."""
        if run.is_stopped or run not in self._runs:
            return
        run.is_stopped, run.exit = True, event
        skipped = [*run.ready, *(stage for wave in run.later for stage in wave)]
        run.ready.clear()
        run.later.clear()
        for stage in skipped:
            self._skip(run, stage)
        me = asyncio.current_task() if running_loop() is not None else None
        for task in list(run.tasks):
            if task is not me:
                task.cancel()
        self._go_on(run)

    # What is told.

    def _skip(self, run: Run, stage: Stage) -> None:
        run.context.copy().run(self._end, run, stage, TaskStatus.SKIPPED)

    def _end(
        self, run: Run, stage: Stage, status: TaskStatus, value: Any = None, error: Exception | None = None
    ) -> None:
        run.outcomes[stage.name] = StageOutcome(
            name=stage.name, wave=stage.wave, status=status, value=value, error=error
        )
        self._tell(run, stage, status)

    def _tell(self, run: Run, stage: Stage, what: str) -> None:
        trigger = run.trigger
        self._sink.emit(f"stage.{stage.name}.{what}", key=trigger.key, operation_id=trigger.operation_id)


async def _next_of(waiters: list[asyncio.Future[None]]) -> None:
    """Wait until those who wait are woken."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiters.append(waiter)
    try:
        await waiter
    finally:
        waiters.remove(waiter)
