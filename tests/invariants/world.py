"""A coordinator on a stepped loop, and everything an outsider can know of it: what was offered, run, ended, forgotten.

The world never looks into the engine to learn what happened; it is told by its own bodies, hooks and callers, and
compares that with what the coordinator says.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.invariants.scripts import CHILDREN, Broken, Script, Worse
from tests.invariants.stepping import SteppedLoop

from ephemerals.errors import CoordinatorClosed, CoordinatorFull, DeadlockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemerals.coordination.coordinator import Coordinator
    from ephemerals.operation import Operation

KEY_FAILS = "a key that cannot be selected"


class KeyFailed(Exception):
    """Be what a key function raises."""


@dataclass(eq=False)
class Ticket:
    """Follow one item from the moment somebody began to offer it."""

    script: Script
    key: Any
    lane: str | None
    number: int = -1
    operation: Operation[Any] | None = None
    offer: asyncio.Task[None] | None = None
    refusal: BaseException | None = None
    is_started: bool = False
    left_by: str | None = None

    def __repr__(self) -> str:
        return f"#{self.number}"


@dataclass
class Facts:
    """Collect what bodies, hooks and callers report; what they find must not vanish in an engine that isolates."""

    problems: list[str] = field(default_factory=list)
    tickets: list[Ticket] = field(default_factory=list)
    started: list[Ticket] = field(default_factory=list)
    inside: dict[int, Ticket] = field(default_factory=dict)
    finalized: Counter[int] = field(default_factory=Counter)
    hook_calls: int = 0
    deadlocks: list[DeadlockError] = field(default_factory=list)


def select_key(ticket: Ticket) -> Any:
    """Be the key function of every coordinator that has one."""
    if ticket.key == KEY_FAILS:
        raise KeyFailed
    return ticket.key


class World:
    """Own one coordinator, made by `make(body, **hooks)`; act on it, and keep the facts."""

    def __init__(self, make: Callable[..., Coordinator[Any, Any]], *, mischief: str = "none") -> None:
        logging.disable(logging.CRITICAL)
        self.stepped = SteppedLoop()
        self.facts = Facts()
        self.mischief = mischief
        self.joins: list[asyncio.Task[None]] = []
        self.handle_waits: list[tuple[Ticket, asyncio.Task[None]]] = []
        self.endings: list[asyncio.Task[None]] = []
        self.gates: list[asyncio.Future[None]] = []
        self.gates_are_open = False
        self.was_resumed = False
        self.offers: list[Ticket] = []
        self.coordinator = make(
            self._body, clock=self.stepped.clock, on_finalized=self._on_finalized, on_sample=self._on_sample
        )
        self.widest_limit = self.coordinator.max_concurrency

    def expect(self, condition: object, message: str) -> None:
        """Note a problem, from wherever it is seen."""
        if not condition:
            self.facts.problems.append(message)

    # What may be done to it.

    def offer(self, script: Script, key: Any = None, lane: str | None = None) -> Ticket:
        """Enqueue in a task of its own, which waits for room."""
        ticket = Ticket(script, key, lane)
        ticket.offer = self.stepped.spawn(self._enqueue(ticket))
        self.offers.append(ticket)
        return ticket

    def offer_now(self, script: Script, key: Any = None, lane: str | None = None) -> Ticket:
        """Enqueue if there is room at once."""
        ticket = Ticket(script, key, lane)
        self.stepped.call(self._try, ticket)
        return ticket

    def await_handle(self, ticket: Ticket) -> None:
        """Wait for an operation in a task of its own."""
        self.handle_waits.append((ticket, self.stepped.spawn(self._await(ticket))))

    def join(self) -> None:
        self.joins.append(self.stepped.spawn(self._join()))

    def end(self, how: str, grace: float = 0, cancel_grace: float = 0) -> None:
        """Complete, drain, cancel or close; what waits does so in a task of its own."""
        if how == "complete":
            self.stepped.call(self.coordinator.complete)
        elif how == "cancel":
            self.stepped.call(self.coordinator.cancel)
        elif how == "cancel and wait":
            self.endings.append(self.stepped.spawn(self._cancel()))
        elif how == "drain":
            self.endings.append(self.stepped.spawn(self._drain(None)))
        elif how == "drain for a while":
            self.endings.append(self.stepped.spawn(self._drain(grace)))
        else:
            self.endings.append(self.stepped.spawn(self._aclose(grace, cancel_grace)))

    def set_limit(self, limit: int) -> None:
        self.widest_limit = max(self.widest_limit, limit)
        self.coordinator.set_max_concurrency(limit)

    def resume(self) -> None:
        self.was_resumed = True
        self.coordinator.resume()

    def open_gate(self) -> None:
        """Let those through who stand at the oldest gate."""
        while self.gates:
            gate = self.gates.pop(0)
            if not gate.done():
                gate.set_result(None)
                return

    def open_all_gates(self) -> None:
        self.gates_are_open = True
        while self.gates:
            self.open_gate()

    # Callers.

    def _arrive(self, ticket: Ticket) -> dict[str, str]:
        """Number a ticket: from here to the wait for room nothing is awaited, so the number tells who came first."""
        ticket.number = len(self.facts.tickets)
        self.facts.tickets.append(ticket)
        return {} if ticket.lane is None else {"lane": ticket.lane}

    async def _enqueue(self, ticket: Ticket) -> None:
        try:
            ticket.operation = await self.coordinator.enqueue(ticket, **self._arrive(ticket))
        except (CoordinatorClosed, CoordinatorFull, KeyFailed) as error:
            ticket.refusal = error
        except (asyncio.CancelledError, DeadlockError) as error:
            ticket.refusal = error
            raise

    def _try(self, ticket: Ticket) -> None:
        try:
            ticket.operation = self.coordinator.try_enqueue(ticket, **self._arrive(ticket))
        except (CoordinatorClosed, KeyFailed) as error:
            ticket.refusal = error

    async def _await(self, ticket: Ticket) -> None:
        operation = ticket.operation
        assert operation is not None
        try:
            result = await operation
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if isinstance(error, DeadlockError) and not operation.has_ended:
                self.facts.deadlocks.append(error)
                raise
            self.expect(operation.status in {"failed", "cancelled"}, f"{ticket} raised but is {operation.status}")
        else:
            self.expect(operation.status == "completed", f"{ticket} returned but is {operation.status}")
            self.expect(result is ticket.script, f"{ticket} returned {result!r}")

    async def _join(self) -> None:
        before = [each for each in self.facts.tickets if each.operation is not None]
        await self.coordinator.join()
        self.expect(all(each.operation.has_ended for each in before), "join() returned with work left")

    async def _drain(self, timeout: float | None) -> None:
        report = await self.coordinator.drain(timeout)
        self.check_counts()
        left = self.coordinator.pending_count + self.coordinator.active_count
        self.expect(report.remaining == left, f"drain() reports {report.remaining} remaining, there are {left}")
        if timeout is None:
            self._assert_idle("drain()")

    async def _cancel(self) -> None:
        await self.coordinator.cancel()
        self._assert_idle("cancel()")

    async def _aclose(self, grace: float, cancel_grace: float) -> None:
        report = await self.coordinator.aclose(grace=grace, cancel_grace=cancel_grace)
        running = {each.id for each in self.coordinator.running()}
        self.expect(set(report.stragglers) == running, f"aclose() names {report.stragglers}, {running} run")
        self.expect(self.coordinator.pending_count == 0, "aclose() left something waiting")

    def _assert_idle(self, how: str) -> None:
        left = self.coordinator.pending_count + self.coordinator.active_count
        self.expect(not left, f"{how} returned with work left")
        self.expect(not self.facts.inside, f"{how} left a body running")

    # Bodies.

    async def _body(self, ticket: Ticket, operation: Operation[Any]) -> Script:
        self.expect(not ticket.is_started, f"the body of {ticket} ran twice")
        ticket.is_started = True
        self.facts.started.append(ticket)
        self.facts.inside[operation.id] = ticket
        self.check_counts()
        self.expect(operation.status == "running", f"{ticket} is in its body and {operation.status}")
        try:
            await self._play(ticket, operation)
        except asyncio.CancelledError:
            ticket.left_by = "cancellation"
            raise
        except BaseException:
            ticket.left_by = "exception"
            raise
        else:
            ticket.left_by = "return"
        finally:
            del self.facts.inside[operation.id]
            self.check_counts()
        return ticket.script

    async def _play(self, ticket: Ticket, operation: Operation[Any]) -> None:
        script = ticket.script
        for act in script.acts:
            await self._act(act, operation)
        for kind, amount in script.waits:
            try:
                await self._wait(kind, amount)
            except asyncio.CancelledError:
                match script.reaction:
                    case "obey":
                        raise
                    case "linger":
                        await self._wait("turns", 2)
                        raise
                    case "return":
                        return
                    case "raise":
                        raise Broken from None
        match script.ending:
            case "raise":
                raise Broken
            case "raise cancelled":
                raise asyncio.CancelledError
            case "raise stop":
                raise StopAsyncIteration
            case "raise base":
                raise Worse

    async def _wait(self, kind: str, amount: float) -> None:
        if kind == "turns":
            for _ in range(int(amount)):
                await asyncio.sleep(0)
        elif kind == "seconds":
            await asyncio.sleep(amount)
        elif not self.gates_are_open:
            gate = self.stepped.loop.create_future()
            self.gates.append(gate)
            await gate

    async def _act(self, act: str, operation: Operation[Any]) -> None:
        coordinator = self.coordinator
        others = [each for each in self.facts.tickets if each.operation is not None and not each.operation.has_ended]
        match act:
            case "enqueue":
                await self._enqueue(self._child(operation))
            case "try":
                self._try(self._child(operation))
            case "enqueue and await":
                await self._run_child(operation)
            case "gather children":
                await asyncio.gather(self._run_child(operation), self._run_child(operation))
            case "await another":
                if others:
                    await self._await(others[-1])
            case "cancel itself":
                operation.cancel()
            case "cancel another":
                if others:
                    coordinator.cancel_operation(others[-1].operation.id)
            case "pause":
                coordinator.pause()
            case "resume":
                self.resume()
            case "narrow":
                self.set_limit(1)
            case "widen":
                self.set_limit(4)
            case "complete":
                coordinator.complete()
            case "cancel all":
                coordinator.cancel()

    def _child(self, operation: Operation[Any]) -> Ticket:
        parent = self.facts.inside[operation.id]
        number = len(self.facts.tickets)
        key = parent.key if number % 2 else self._other_key(parent.key)
        return Ticket(CHILDREN[number % len(CHILDREN)], key, parent.lane)

    def _other_key(self, key: Any) -> Any:
        return next((each.key for each in self.facts.tickets if each.key not in {key, KEY_FAILS}), key)

    async def _run_child(self, operation: Operation[Any]) -> None:
        child = self._child(operation)
        await self._enqueue(child)
        if child.operation is not None:
            await self._await(child)

    # Hooks.

    def _on_finalized(self, snapshot: Any, reason: Any) -> None:
        self.facts.finalized[snapshot.id] += 1
        self.check_counts()
        self._make_mischief()

    def _on_sample(self, view: Any) -> None:
        self.check_counts()
        self.expect(len(view) == len(list(view)), "a view does not know its own length")
        self._make_mischief()

    def _make_mischief(self) -> None:
        self.facts.hook_calls += 1
        match self.mischief:
            case "raise":
                raise Broken
            case "raise cancelled":
                raise asyncio.CancelledError
            case "raise base":
                raise Worse
            case "look":
                self.coordinator.snapshot()
                self.coordinator.statistics()
            case "cancel":
                for ticket in self.facts.tickets:
                    if ticket.operation is not None and ticket.operation.cancel():
                        return
            case "cancel all":
                self.coordinator.cancel()
            case "evict":
                for snapshot in self.coordinator.snapshot():
                    self.coordinator.unpin(snapshot.id)
                    if self.coordinator.evict(snapshot.id):
                        return
            case "enqueue" if len(self.facts.tickets) < 40:
                self._try(Ticket(CHILDREN[0], None, None))

    # What must hold.

    def check_counts(self) -> None:
        """Invariant 1, from anywhere: also in the middle of a body or a hook."""
        engine = self.coordinator.engine
        counts = (
            self.coordinator.pending_count,
            self.coordinator.active_count,
            engine.counts.completed,
            engine.counts.failed,
            engine.counts.cancelled,
            engine.counts.skipped,
        )
        self.expect(
            min(counts) >= 0 and sum(counts) == engine.counts.enqueued,
            f"{engine.counts.enqueued} accepted, but pending, active, completed, failed, cancelled, skipped {counts}",
        )

    def collect(self) -> None:
        """Retrieve what every task of a caller ended with: only a cancellation is in order."""
        offers = [each.offer for each in self.offers if each.offer is not None]
        for task in [*offers, *self.joins, *self.endings, *(wait for _, wait in self.handle_waits)]:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    def close(self, *, in_order: bool = True) -> None:
        """Let go of the loop; if all is in order the coordinator has been closed and no task is left."""
        try:
            if in_order:
                self.stepped.close()
            else:
                self.stepped.abandon(self.coordinator.engine.release)
        finally:
            logging.disable(logging.NOTSET)
