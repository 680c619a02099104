"""The run: lines come in as there is room, commands are run, what comes of them is shown, and the exit code is found.

The coordinator does the work; this only says what its body is, and turns the signals of the system into its drain and
cancel.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ephemerals.coordination import KeyedWorkCoordinator, WorkCoordinator
from ephemerals.options import EphemeralOptions
from ephemerals.owner_window import duration_text
from ephemerals.snapshot import OperationSnapshot, OperationStatus

from .child import Capture, CommandFailed, Ended, Launcher
from .job import Job, Phase, State
from .pacing import Pacer
from .report import Report
from .screen import Screen
from .streams import Outlet, count_left, lines
from .text import printable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from ephemerals.operation import Operation

    from .template import Template

__all__ = ["Plan", "Run"]

FAILED: Final = 1
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
_BAD_COMMAND: Final = 2

_AHEAD_KEYED: Final = 1000
"""Lines read ahead with `--key`, to find some whose key is free."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_REPORT_GRACE: Final = 1.0
_NAMED: Final = 10
"""Failed lines that the summary names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Hold what the command line says. Descriptors are open files; times are in seconds; `None` means without."""

    template: Template
    source: int
    separator: bytes
    jobs: int
    select_key: Callable[[str], str] | None
    timeout: float | None
    retries: int
    interval: float | None
    fail_fast: bool
    report: int | None
    quiet: bool
    live: bool


class Run:
    """Carry out one plan, in one event loop."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._out = Outlet(1, self._out_broke)
        self._err = Outlet(2, lambda _: None)
        self._screen = Screen(self._out, self._err, quiet=plan.quiet)
        self._report = self._make_report()
        self._launcher = Launcher()
        self._pacer = Pacer(plan.interval)
        self._coordinator = self._make_coordinator()
        self._jobs: dict[int, Job] = {}
        self._feeding: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._cancelled = asyncio.Event()
        self._saying: set[asyncio.Future[None]] = set()
        self._interrupts = 0
        self._code: int | None = None
        self._note = ""
        self._trouble: list[str] = []
        self._failed_lines: list[int] = []
        self._read = 0
        self._total: int | None = None
        self._started_at = 0.0

    def _make_report(self) -> Report | None:
        if self._plan.report is None:
            return None
        if self._plan.report == self._out.descriptor:
            return Report(self._screen.emit)
        return Report(Outlet(self._plan.report, lambda error: self._broke(f"the report: {error.strerror}")).write)

    def _make_coordinator(self) -> WorkCoordinator[Job, None] | KeyedWorkCoordinator[Job, None]:
        plan = self._plan
        options = EphemeralOptions(
            name="run",
            max_concurrency=plan.jobs,
            max_pending=plan.jobs if plan.select_key is None else max(_AHEAD_KEYED, 10 * plan.jobs),
            max_tracked_operations=0,
            echo_capacity=0,
            on_finalized=self._left,
        )
        if plan.select_key is None:
            return WorkCoordinator(self._work, options=options)
        return KeyedWorkCoordinator("key", self._work, options=options)

    async def main(self) -> int:
        """Do it all and return the exit code."""
        plan = self._plan
        self._started_at = self._loop.time()
        if plan.live:
            self._total = count_left(plan.source, plan.separator)
        async with AsyncExitStack() as stack:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._handle(number, stack)
            if plan.live:
                from .table import LiveTable

                table = LiveTable(keyed=plan.select_key is not None)
                await stack.enter_async_context(
                    _background(self._screen.keep_drawing(lambda: table.draw(self._state())))
                )
            if self._report is not None:
                await stack.enter_async_context(_background(self._report.keep_writing()))
            async with self._coordinator:
                self._feeding = asyncio.create_task(self._feed())
                await asyncio.wait((self._feeding,))
                self._total = self._read
                await self._coordinator.drain()
            if self._report is not None:
                await self._finish(self._report)
        if (error := _error_of(self._feeding)) is not None:
            self._trouble.append(f"cannot read the input: {error.strerror}")
        await self._sum_up()
        if self._code is not None:
            return self._code
        return FAILED if self._coordinator.total_failed or self._coordinator.total_cancelled or self._trouble else 0

    async def _finish(self, report: Report) -> None:
        """Write the rest of the report; who was told to end does not wait long for somebody who does not read it."""
        flushing = asyncio.ensure_future(report.flush())
        cancelled = asyncio.ensure_future(self._cancelled.wait())
        await asyncio.wait((flushing, cancelled), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((flushing,), timeout=_REPORT_GRACE)
        flushing.cancel()
        cancelled.cancel()

    # Lines come in.

    async def _feed(self) -> None:
        plan = self._plan
        async for raw in lines(plan.source, plan.separator):
            self._read += 1
            text = os.fsdecode(raw)
            if not plan.template.words and not text.strip():
                continue  # nothing is not a command
            job = Job(self._read, text, "" if plan.select_key is None else plan.select_key(text))
            self._jobs[job.line] = job
            try:
                job.operation_id = (await self._coordinator.enqueue(job, metadata={"line": job.line})).id
            except BaseException:
                self._jobs.pop(job.line, None)  # it was not accepted
                raise

    # Commands run.

    async def _work(self, job: Job, operation: Operation[None]) -> None:
        """Be the body: try the command of one line until it succeeds or nothing is left to try."""
        if self._report is not None:
            await self._report.room()
        tries = self._plan.retries + 1
        while True:
            self._enter(job, Phase.TURN)
            await self._pacer.turn()
            is_last = job.attempt >= tries
            ended = await self._attempt(job, is_last=is_last)
            if ended.exit_code == 0:
                return
            if is_last or self._stopping.is_set() or not await self._pause(job, ended, tries):
                break
            job.attempt += 1
            operation.attempt = job.attempt
        self._enter(job, Phase.ENDED)
        after = f" after {job.attempt} attempts" if job.attempt > 1 else ""
        await self._screen.say(
            f"line {job.line} failed{after} ({printable(ended.reason)}): {printable(job.text)}", is_error=True
        )
        raise CommandFailed(ended.reason)

    async def _attempt(self, job: Job, *, is_last: bool) -> Ended:
        self._enter(job, Phase.RUNNING)
        try:
            command = self._plan.template.command(job.text, job.line)
        except ValueError as error:
            job.exit_code = _BAD_COMMAND
            return Ended(_BAD_COMMAND, f"not a command: {error}")
        with Capture() as out, Capture() as err:
            ended = await self._launcher.run(command, out, err, self._plan.timeout)
            job.exit_code = ended.exit_code
            swap = self._plan.report == self._out.descriptor
            await self._screen.show(out if is_last or ended.exit_code == 0 else None, err, swap=swap)
        return ended

    async def _pause(self, job: Job, ended: Ended, tries: int) -> bool:
        """Wait before the next attempt; False if there should be none any more."""
        seconds = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (job.attempt - 1))
        self._enter(job, Phase.PAUSE)
        await self._screen.say(
            f"line {job.line}, attempt {job.attempt} of {tries} failed ({printable(ended.reason)}), "
            f"again in {seconds:g} s: {printable(job.text)}"
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return not self._stopping.is_set()

    def _enter(self, job: Job, phase: Phase) -> None:
        job.phase = phase
        job.since = self._loop.time()

    def _left(self, snapshot: OperationSnapshot[Any], _: object) -> None:
        """Take leave of an item that has ended, whether it has ever started or not."""
        job = self._jobs.pop(snapshot.metadata["line"])
        if self._report is not None:
            self._report.add(snapshot, job.text, job.exit_code)
        if snapshot.status is OperationStatus.FAILED:
            if len(self._failed_lines) <= _NAMED:
                self._failed_lines.append(job.line)
            if self._plan.fail_fast:
                self._loop.call_soon(self._cancel, "stopped at the first failure")

    # Somebody wants it to end.

    def _handle(self, number: signal.Signals, stack: AsyncExitStack) -> None:
        if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            return  # nohup
        if number is signal.SIGINT:
            self._loop.add_signal_handler(number, self._interrupt)
        else:
            self._loop.add_signal_handler(number, self._terminate, number)
        stack.callback(self._loop.remove_signal_handler, number)

    def _interrupt(self) -> None:
        self._interrupts += 1
        self._code = INTERRUPTED if self._code is None else self._code
        if self._interrupts == 1:
            self._drain()
        else:
            self._cancel("cancelling")
            if self._interrupts > 2:  # noqa: PLR2004 - once drains, twice cancels, more often there is no patience left
                self._launcher.hurry()

    def _terminate(self, number: signal.Signals) -> None:
        self._code = 128 + number
        self._cancel(f"ended by {number.name}")

    def _drain(self) -> None:
        """Let what runs come to its end, and start nothing more."""
        self._stop_reading()
        for snapshot in self._coordinator.pending():
            self._coordinator.cancel_operation(snapshot.id)
        for job in [each for each in self._jobs.values() if each.phase in {Phase.QUEUED, Phase.TURN}]:
            self._coordinator.cancel_operation(job.operation_id)
        if count := sum(job.phase is Phase.RUNNING for job in self._jobs.values()):
            self._note = "finishing (Ctrl-C again cancels)"
            self._say_soon(f"finishing the {count} running; interrupt again to cancel them")

    def _cancel(self, note: str) -> None:
        self._stop_reading()
        self._note = note
        self._cancelled.set()
        self._coordinator.cancel()

    def _stop_reading(self) -> None:
        self._stopping.set()
        if self._feeding is not None:
            self._feeding.cancel()
        self._coordinator.complete()

    def _out_broke(self, error: OSError) -> None:
        if isinstance(error, BrokenPipeError):
            self._code = BROKEN_PIPE
            self._loop.call_soon(self._cancel, "nobody reads the output any more")
        else:
            self._broke(f"standard output: {error.strerror}")

    def _broke(self, what: str) -> None:
        self._trouble.append(f"cannot write {what}")
        self._loop.call_soon(self._cancel, self._trouble[-1])

    def _say_soon(self, text: str) -> None:
        task = asyncio.ensure_future(self._screen.say(text))
        self._saying.add(task)  # a loop holds its tasks weakly
        task.add_done_callback(self._saying.discard)

    # How far it is.

    def _state(self) -> State:
        coordinator, now = self._coordinator, self._loop.time()
        done, failed, cancelled = coordinator.total_completed, coordinator.total_failed, coordinator.total_cancelled
        active = [job for job in self._jobs.values() if job.phase in {Phase.RUNNING, Phase.PAUSE}]
        return State(
            now=now,
            elapsed=now - self._started_at,
            active=tuple(active),
            done=done,
            failed=failed,
            cancelled=cancelled,
            left=None if self._total is None else max(0, self._total - done - failed - cancelled),
            note=self._note,
        )

    async def _sum_up(self) -> None:
        if self._code == BROKEN_PIPE:
            return
        for each in self._trouble:
            await self._screen.say(each, is_error=True)
        state = self._state()
        items = self._coordinator.total_enqueued
        parts = [f"{state.done} done", f"{state.failed} failed"]
        if self._failed_lines:
            named = ", ".join(map(str, self._failed_lines[:_NAMED])) + ", …" * (len(self._failed_lines) > _NAMED)
            parts[-1] += f" (line{'s' * (state.failed != 1)} {named})"
        if state.cancelled:
            parts.append(f"{state.cancelled} cancelled")
        interrupted = "interrupted; " if self._code == INTERRUPTED else ""
        await self._screen.say(
            f"{interrupted}{items} item{'s' * (items != 1)} in {duration_text(state.elapsed)}: {', '.join(parts)}"
        )


@contextlib.asynccontextmanager
async def _background(work: Coroutine[None, None, None]) -> AsyncGenerator[None]:
    """Let work that never ends by itself go on inside the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _error_of(task: asyncio.Task[None] | None) -> OSError | None:
    if task is None or task.cancelled():
        return None
    error = task.exception()
    if error is not None and not isinstance(error, OSError):
        raise error
    return error
