"""Runs of molecules: started by signals, step by step, and undone if they do not get to the end."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from ephemerals.coordination import Background, Call
from ephemerals.errors import InvalidOptionType
from ephemerals.failure import qualified_name
from ephemerals.operation import current_operation
from ephemerals.options import EphemeralOptions, as_count, as_seconds
from ephemerals.snapshot import OperationStatus

from .molecule import Molecule, MoleculeRun, Step

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Unpack

    from ephemerals.options import OptionKeywords, Seconds
    from ephemerals.signals import SignalEvent, SignalSink, Subscription

__all__ = ["Molecules", "MoleculesStatistics"]

_logger: Final = logging.getLogger("ephemerals")


@dataclass(frozen=True, slots=True, kw_only=True)
class MoleculesStatistics:
    """Count runs: refused for want of room, waiting, running, and how the others ended; and what was undone.

    `compensated` are steps that were undone, `not_compensated` those for which that failed.
    """

    refused: int
    waiting: int
    running: int
    completed: int
    failed: int
    cancelled: int
    compensated: int
    not_compensated: int


class Molecules:
    """Run molecules: for each event that triggers one, its steps in order, `concurrency` (8) runs at once.

    Each run is an operation of `runs` with the molecule's name, and each step one of `steps` with the step's name; the
    options are those of `steps`: `retry=`, `operation_timeout=`, … With `max_waiting` (1000; `None`: no limit) runs
    waiting, an event that would start another is refused, which is counted.

    If a step fails, those before it are undone, the last one first, by their `compensate`, and the run fails with the
    step's exception. The same happens if the run is cancelled. If undoing a step fails it is logged and counted, and
    the others are undone all the same.

    Signals: `molecule.started`, `molecule.completed` with `{"molecule": …}`; `molecule.failed` also with `"step"` and
    `"error"`; `molecule.compensated` and `molecule.not_compensated` with `"step"`. A molecule whose steps emit its own
    trigger does not run in a circle: the sink's constraints see to that.

    >>> import asyncio
    >>> from ephemerals.signals import SignalSink
    >>> async def reserve(run: MoleculeRun) -> None:
    ...     print("reserve", run.event.data)
    >>> async def release(run: MoleculeRun) -> None:
    ...     print("release", run.event.data)
    >>> async def pay(run: MoleculeRun) -> None:
    ...     raise OSError("no money")
    >>> async def main() -> None:
    ...     sink = SignalSink()
    ...     order = Molecule("order", "order.placed", Step(reserve, compensate=release), pay)
    ...     async with Molecules(sink, order):
    ...         sink.emit("order.placed", "a book")
    >>> asyncio.run(main())
    reserve a book
    release a book
    """

    def __init__(
        self,
        sink: SignalSink,
        *molecules: Molecule,
        concurrency: int = 8,
        max_waiting: int | None = 1000,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        for molecule in molecules:
            if not isinstance(molecule, Molecule):
                raise InvalidOptionType("molecules", f"<{type(molecule).__qualname__}>", "a Molecule")
        chosen = EphemeralOptions.of(options, keywords)
        name = chosen.name or "molecules"
        limit = as_count("concurrency", concurrency)
        waiting = None if max_waiting is None else as_count("max_waiting", max_waiting)
        self._sink = sink
        self._molecules = molecules
        self._subscriptions: list[Subscription] = []
        self.steps = Background(options=chosen.replace(name=f"steps of {name}", signals=sink, max_concurrency=limit))
        self.runs = Background(
            name=name, signals=sink, max_concurrency=limit, max_pending=waiting, clock=chosen.clock, overflow="reject"
        )
        self._compensated = self._not_compensated = 0

    def statistics(self) -> MoleculesStatistics:
        """Return the counts as they are now."""
        runs = self.runs.statistics()
        return MoleculesStatistics(
            refused=runs.rejected,
            waiting=runs.pending,
            running=runs.active,
            completed=runs.completed,
            failed=runs.failed,
            cancelled=runs.cancelled,
            compensated=self._compensated,
            not_compensated=self._not_compensated,
        )

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when it is closed, for tests."""
        runs, steps = self.runs.engine.leftovers(), self.steps.engine.leftovers()
        return {
            "subscriptions": len(self._subscriptions),
            **{f"{kind} (runs)": number for kind, number in runs.items()},
            **{f"{kind} (steps)": number for kind, number in steps.items()},
        }

    async def join(self) -> None:
        """Wait until no run waits or runs; further events start further runs."""
        await self.runs.join()

    async def aclose(self, *, grace: Seconds | None = 10.0, cancel_grace: Seconds | None = 5.0) -> None:
        """Start no more, let runs end for `grace` seconds, then cancel them, and give them `cancel_grace` to undo."""
        self._listen_no_more()
        await self.runs.aclose(grace=grace, cancel_grace=cancel_grace)
        await self.steps.aclose(grace=0, cancel_grace=cancel_grace)

    async def __aenter__(self) -> Self:
        self.runs.engine.check_open()
        await self.steps.__aenter__()
        await self.runs.__aenter__()
        for molecule in self._molecules:
            self._subscriptions.append(self._sink.subscribe(molecule.trigger, self._starter(molecule)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listen_no_more()
        try:
            await self.runs.__aexit__(kind, error, traceback)
        finally:
            await self.steps.__aexit__(kind, error, traceback)

    def _listen_no_more(self) -> None:
        while self._subscriptions:
            self._subscriptions.pop().cancel()

    def _starter(self, molecule: Molecule) -> Callable[[SignalEvent[Any]], None]:
        def start(event: SignalEvent[Any]) -> None:
            if molecule.when is None or molecule.when(event):
                call = Call(self._perform, MoleculeRun(molecule.name, event), molecule.steps)
                call.name = molecule.name
                self.runs.try_enqueue(call)

        return start

    async def _perform(self, run: MoleculeRun, steps: tuple[Step, ...]) -> None:
        """Be one run."""
        self._say("started", run)
        done: list[Step] = []
        try:
            for step in steps:
                await self._do(step, run, done)
        except BaseException as error:
            if isinstance(error, Exception):
                self._say("failed", run, step=steps[len(done)].name, error=qualified_name(type(error)))
            for step in reversed(done):
                await self._undo(step, run)
            raise
        self._say("completed", run)

    async def _do(self, step: Step, run: MoleculeRun, done: list[Step]) -> None:
        operation = await self.steps.enqueue(_call(step, step.action, run))
        try:
            run.results[step.name] = await operation
        except asyncio.CancelledError:
            operation.cancel()
            with suppress(Exception):
                await operation  # it may have completed at this moment, or take no notice
            if operation.status is OperationStatus.COMPLETED:
                done.append(step)
            raise
        done.append(step)

    async def _undo(self, step: Step, run: MoleculeRun) -> None:
        if step.compensate is None:
            return
        try:
            await self.steps.run(_call(step, step.compensate, run))
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are to be undone
            self._not_compensated += 1
            self._say("not_compensated", run, step=step.name)
            _logger.warning(
                "molecule %s: step %s is not undone: %s", run.molecule, step.name, qualified_name(type(error))
            )
        else:
            self._compensated += 1
            self._say("compensated", run, step=step.name)

    def _say(self, what: str, run: MoleculeRun, **more: str) -> None:
        operation = current_operation()
        assert operation is not None, "a run is an operation"
        operation.emit(f"molecule.{what}", data={"molecule": run.molecule, **more})


def _call(step: Step, function: Callable[[MoleculeRun], Any], run: MoleculeRun) -> Call:
    call = Call(function, run)
    call.name = step.name
    call.timeout = None if step.timeout is None else as_seconds("timeout", step.timeout)
    return call
