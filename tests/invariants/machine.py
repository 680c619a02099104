"""The state machine: hypothesis acts on a coordinator between the turns of its loop, and every look must hold.

What it does between two turns happens in one tick, so "woken and cancelled", "completed and cancelled", "closed while
somebody is about to come in" are all among its schedules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from tests.invariants.checks import Watch, check_fates, check_finalized, check_orders
from tests.invariants.scripts import Script, quiet_scripts, scripts
from tests.invariants.world import KEY_FAILS, Ticket, World

from ephemerals.errors import PinLimitReached

if TYPE_CHECKING:
    from tests.invariants.plans import Plan

ENDINGS = ("drain", "aclose", "cancel", "complete", "cancel and wait", "drain for a while")
LONG = 100.0

numbers = st.integers(0, 30)
keys = st.sampled_from(("a", "b", "c", "a", "b", None, KEY_FAILS))
lanes = st.sampled_from(("hot", "normal", "cold"))
Offer = tuple[Script, Any, str]
backlogs = st.lists(st.tuples(quiet_scripts, keys, lanes), max_size=6)
graces = st.sampled_from((0.0, 0.5, 5.0))


class CoordinatorMachine(RuleBasedStateMachine):
    """Act on one coordinator at random; a subclass has a rule that makes the world."""

    world: World
    watch: Watch
    plan: Plan
    ends_after: int
    steps: int
    is_sound: bool

    def begin(self, plan: Plan, backlog: list[Offer], ends_after: int) -> None:
        self.plan = plan
        self.world = plan.world()
        self.watch = Watch(self.world, plan)
        self.ends_after = ends_after
        self.steps = 0
        self.is_sound = True
        for script, key, lane in backlog:
            self.world.offer(script, key, self._lane(lane))

    def _look(self, *, at_rest: bool = False) -> None:
        self.steps += 1
        self.is_sound = False
        self.watch.after_every_step()
        if at_rest:
            self.watch.at_rest()
        self.is_sound = True

    def _accepted(self, number: int) -> Ticket | None:
        accepted = [each for each in self.world.facts.tickets if each.operation is not None]
        return accepted[-1 - number % len(accepted)] if accepted else None

    def _lane(self, lane: str) -> str | None:
        return lane if self.plan.lanes else None

    @rule(script=scripts, key=keys, lane=lanes, now=st.booleans())
    def offer(self, script: Script, key: str, lane: str, now: bool) -> None:
        offer = self.world.offer_now if now else self.world.offer
        offer(script, key, self._lane(lane))
        self._look()

    @rule(script=quiet_scripts, count=st.integers(2, 6), key=keys, lane=lanes)
    def offer_several(self, script: Script, count: int, key: str, lane: str) -> None:
        for _ in range(count):
            self.world.offer(script, key, self._lane(lane))
        self._look()

    @rule(count=st.integers(1, 3))
    def take_turns(self, count: int) -> None:
        for _ in range(count):
            self.world.stepped.turn()
            self._look()

    @rule()
    def settle(self) -> None:
        self.world.stepped.settle()
        self._look(at_rest=True)

    @rule()
    def open_a_gate(self) -> None:
        self.world.open_gate()

    @rule(seconds=st.sampled_from((0.5, 1.0, 2.0, 10.0)), at_once=st.booleans())
    def pass_time(self, seconds: float, at_once: bool) -> None:
        if at_once:
            self.world.stepped.leap(seconds)
        else:
            self.world.stepped.pass_time(seconds)
        self._look(at_rest=not at_once)

    @rule(number=numbers)
    def cancel_an_operation(self, number: int) -> None:
        if (ticket := self._accepted(number)) is None:
            return
        operation = ticket.operation
        ended = operation.has_ended
        if number % 2:
            had_effect = operation.cancel()
        else:
            had_effect = self.world.stepped.call(self.world.coordinator.cancel_operation, operation.id)
        assert had_effect is not ended
        self._look()

    @rule(number=numbers, joins=st.booleans())
    def wait(self, number: int, joins: bool) -> None:
        if joins:
            self.world.join()
        elif (ticket := self._accepted(number)) is not None:
            self.world.await_handle(ticket)

    @rule(number=numbers, what=st.sampled_from(("an offer", "an offer", "an offer", "a handle", "a join or an ending")))
    def give_up_waiting_for(self, number: int, what: str) -> None:
        world = self.world
        match what:
            case "an offer":
                tasks = [each.offer for each in world.offers if each.offer is not None]
            case "a handle":
                tasks = [wait for _, wait in world.handle_waits]
            case _:
                tasks = [*world.joins, *world.endings]
        waiting = [each for each in tasks if not each.done()]
        if waiting:
            waiting[number % len(waiting)].cancel()

    @rule(number=numbers, what=st.sampled_from(("pin", "unpin", "evict")))
    def change_the_window(self, number: int, what: str) -> None:
        if (ticket := self._accepted(number)) is None:
            return
        try:
            self.world.stepped.call(getattr(self.world.coordinator, what), ticket.operation.id)
        except PinLimitReached:
            assert what == "pin"
        self._look()

    @rule(limit=st.integers(1, 5), pause=st.sampled_from((None, None, True, False)))
    def change_what_may_run(self, limit: int, pause: bool | None) -> None:
        if pause is None:
            self.world.stepped.call(self.world.set_limit, limit)
        else:
            self.world.stepped.call(self.world.coordinator.pause if pause else self.world.resume)
        self._look()

    @precondition(lambda self: self.steps >= self.ends_after)
    @rule(how=st.sampled_from(ENDINGS), grace=graces, cancel_grace=graces)
    def end(self, how: str, grace: float, cancel_grace: float) -> None:
        self.world.end(how, grace, cancel_grace)
        self._look()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            if self.is_sound:
                self._see_it_out()
        except BaseException:
            self.is_sound = False
            raise
        finally:
            self.world.close(in_order=self.is_sound)

    def _see_it_out(self) -> None:
        """Open every gate and let time pass: now everything must end by itself, and nothing may be left."""
        world, stepped, coordinator = self.world, self.world.stepped, self.world.coordinator
        world.open_all_gates()
        stepped.call(world.resume)
        for _ in range(3 + len(world.offers)):
            stepped.pass_time(LONG)
            stepped.call(world.resume)  # a body may have paused it again
            if coordinator.is_idle:
                break
        self._look()
        assert coordinator.is_idle, f"something hangs: {coordinator!r}"
        check_fates(world)
        if self.plan.mischief != "enqueue":  # who comes in from a hook may come in the middle of another's coming
            check_orders(world, self.plan)
        assert all(each.done() for each in world.joins), "join() hangs"
        assert all(each.done() for each in world.endings), "an ending hangs"
        if not coordinator.is_closed and self.plan.mischief != "cancel all":
            fresh = world.offer(Script(), "fresh", self._lane("normal"))
            stepped.settle()
            assert fresh.operation is not None, "a fresh item is not let in"
            assert fresh.left_by == "return", "a fresh item does not run"
        stepped.complete(coordinator.aclose())
        self._look()
        check_finalized(world)
        left = {kind: count for kind, count in coordinator.engine.leftovers().items() if count}
        assert not left, f"left behind: {left}"
        world.collect()
