"""An asyncio event loop whose time is virtual: instead of waiting for a timer it moves the clock to it.

The idea is trio's `MockClock` with `autojump_threshold=0` (also: looptime, async-solipsism). Real I/O and
real threads still work, because the loop polls them first, and does not jump while external work is under
way.

False alarms, knowingly:

- Something real that the loop cannot know of (a thread of your own, a subprocess, another program at the
  end of a socket) loses against every timer: a `wait_for(..., 5)` around it times out at once. Put the wait
  into `clock.external_work()`.
- "Sleep for a very long time" as an idiom for "for ever" is over at once; wait for an `Event`.
- A thread that blocks until the loop reaches a timer: time stands still for both, and `WaitsForever` says
  so after `clock.patience` real seconds. Let the test move time itself (`clock.advance`), or release the
  thread before.
- A thread older than the loop, or named "ephemerals…", is not expected to wake it, unless it said
  `external_work()`.
- While a task polls with `sleep(0)` something is always ready, so time never moves.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

from .clock import VirtualClock
from .stuck import WaitsForever, describe_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from concurrent.futures import Executor

    from _typeshed import FileDescriptorLike

__all__ = ["VirtualEventLoop", "run"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_FIRST_SLICE: Final = 0.001  # real seconds of one wait for external work, doubled up to the last
_LAST_SLICE: Final = 0.05
_COUNTED_THREADS: Final = "ephemerals"  # what threads of this name do is counted: an idle one says nothing
_RESOLUTION: Final = 1e-9


class _Selector(selectors.BaseSelector):
    """Poll the real selector, and ask the loop whenever asyncio means to wait."""

    def __init__(
        self,
        *,
        active: Callable[[], None],
        working: Callable[[], int],
        idle: Callable[[float | None, int], float],
    ) -> None:
        self._real = selectors.DefaultSelector()
        self._active = active
        self._working = working
        self._idle = idle

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = self._real.select(0)
        if not events and (timeout is None or timeout > 0):
            # A thread hands over its result first and stops counting second: so count first, poll second.
            working = self._working()
            events = self._real.select(0) or self._real.select(self._idle(timeout, working))
        if events or timeout == 0:
            self._active()
        return events

    def register(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._real.get_map()


class VirtualEventLoop(asyncio.SelectorEventLoop):
    """Run asyncio on a `VirtualClock`, jumping to the next timer as soon as nothing else is left to do.

    `clock` is the clock to read and to move; `None` makes a new one. When nothing can ever happen any more
    the loop raises `WaitsForever`. While external work is under way (`run_in_executor`, bodies in a
    coordinator's threads or processes, `clock.external_work()`) time stands still, unless somebody advances
    it.
    """

    _scheduled: list[asyncio.TimerHandle]
    _clock_resolution: float

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.clock: Final = VirtualClock() if clock is None else clock
        self._settlers: list[tuple[asyncio.Future[None], bool]] = []
        self._pool: Executor | None = None
        self._idle_since: float | None = None
        self._slice = _FIRST_SLICE
        self._older_threads = weakref.WeakSet(threading.enumerate())  # of pytest-xdist, a debugger, …
        self._selector_map: Mapping[FileDescriptorLike, selectors.SelectorKey] = {}
        selector = _Selector(active=self._on_activity, working=self._count_work, idle=self._on_idle)
        super().__init__(selector)
        self._selector_map = selector.get_map()
        self._own_files = len(self._selector_map)
        self.slow_callback_duration = math.inf  # a leap of the clock is no slow callback

    def time(self) -> float:
        """Return the virtual monotonic time in seconds."""
        return self.clock.monotonic()

    async def settle(self, *, external: bool = True) -> None:
        """Wait until only timers are left (see `VirtualClock.settle`)."""
        settled = self.create_future()
        self._settlers.append((settled, external))
        await settled

    def set_default_executor(self, executor: Executor) -> None:
        """Set the executor that stands for `None`; what it runs is counted as external work."""
        super().set_default_executor(executor)  # type: ignore[arg-type]  # refuses what is no thread pool
        self._pool = executor

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run `func(*args)` in a thread or process; virtual time does not jump before it has really ended."""
        if executor is None:
            if self._pool is None:
                self.set_default_executor(ThreadPoolExecutor(thread_name_prefix=f"{_COUNTED_THREADS}-loop"))
            executor = self._pool
        assert executor is not None
        work = self.clock.external_work()
        try:
            job = executor.submit(func, *args)
        except BaseException:
            work.end()
            raise
        future = asyncio.wrap_future(job, loop=self)
        job.add_done_callback(lambda _: work.end())  # after the callback that hands the result over
        return future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        """Join the default executor's threads, really; the virtual time does not run out meanwhile."""
        with self.clock.external_work():
            await super().shutdown_default_executor(*args, **kwargs)

    def _on_activity(self) -> None:
        self._idle_since = None
        self._slice = _FIRST_SLICE
        # Far from 0 a nanosecond is less than one step of a float, and a timer due now would never run.
        self._clock_resolution = max(_RESOLUTION, math.ulp(self.time()))

    def _count_work(self) -> int:
        return self.clock.working + self._count_bodies()

    def _count_bodies(self) -> int:
        pools = sys.modules.get("ephemerals.coordination.pools")  # not imported: no coordinator exists
        bodies: int = pools.busy_workers(self) if pools is not None else 0
        return bodies

    def _on_idle(self, timeout: float | None, working: int) -> float:
        """Decide what happens when nothing is ready; return how long to wait really (0: time has moved)."""
        if self._wake_settlers(idle=not working):
            return 0
        timer = self._scheduled[0].when() if timeout is not None else math.inf
        if not working and timer < math.inf:
            self.clock.advance_to(timer)
            self._on_activity()
            return 0
        return self._wait_really(working, timer)

    def _wake_settlers(self, *, idle: bool) -> bool:
        ready = [settled for settled, external in self._settlers if idle or not external]
        self._settlers = [entry for entry in self._settlers if not idle and entry[1]]
        waiting = [settled for settled in ready if not settled.done()]
        for settled in waiting:
            settled.set_result(None)
        return bool(waiting)

    def _wait_really(self, working: int, timer: float) -> float:
        reason = self._waited_for(working, timer)
        if reason is None:
            reason = "nothing is ready, no timer is set, and no I/O or known thread could wake the loop"
            raise WaitsForever(reason, describe_tasks(self))
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        patience = self.clock.patience
        if now - self._idle_since > patience:
            self._idle_since = None  # so that the clean-up after this error is given time again
            reason = f"nothing happened for {patience:g} real seconds, while {reason}"
            raise WaitsForever(reason, describe_tasks(self))
        self._slice = min(self._slice * 2, _LAST_SLICE)
        return self._slice

    def _waited_for(self, working: int, timer: float) -> str | None:
        """Say what real thing could still wake the loop; `None` if there is nothing."""
        if working:
            still = f" and virtual time stands still {timer - self.time():g} s before a timer"
            what = f"{self.clock.working} external, {self._count_bodies()} in threads or processes of coordinators"
            return f"real work is under way ({what}){still if timer < math.inf else ''}"
        if len(self._selector_map) > self._own_files:
            return f"I/O is waited for on {len(self._selector_map) - self._own_files} file(s)"
        younger = set(threading.enumerate()) - set(self._older_threads) - {threading.current_thread()}
        names = [thread.name for thread in younger if not thread.name.startswith(_COUNTED_THREADS)]
        return f"these threads are alive: {', '.join(sorted(names))}" if names else None


def run(main: Coroutine[Any, Any, T], *, clock: VirtualClock | None = None, debug: bool | None = None) -> T:
    """Run a coroutine to its end on a new virtual loop with its clock installed; else as `asyncio.run` does.

    `clock` is the clock to use; `None` makes a new one (inside, `VirtualClock.current()` is it). `debug` is
    asyncio's debug mode; `None` leaves it to the environment. Loop, default executor and async generators are
    closed, and the system's clock is back in place, also after an error. Waiting for something that never
    happens is `WaitsForever`; a call inside a running loop is a `RuntimeError`.
    """
    if asyncio._get_running_loop() is not None:
        main.close()
        msg = "run() starts a loop of its own, and one is running already: await the coroutine instead"
        raise RuntimeError(msg)
    used = VirtualClock() if clock is None else clock
    with used.installed(), asyncio.Runner(debug=debug, loop_factory=lambda: VirtualEventLoop(used)) as runner:
        return runner.run(main)
