"""Conditions that come and go at random, against a model of what has to start, to wait and to be skipped.

Nothing starts while it is held back; a free slot never waits while something may start; an item is skipped if and only
if the signal is present when it would start. The model says for each operation which state it is in after each step.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.invariants.stepping import SteppedLoop

from ephemerals import Lane, PriorityWorkCoordinator, WorkCoordinator
from ephemerals.signals import SignalSink

AGE = 8.0
STEP = 0.5
NAMES = ("defer.a", "defer.b", "resume", "cancel", "hot.defer", "hot.cancel")

names = st.sampled_from(("defer.a", "defer.a", "hot.defer", "hot.defer", *NAMES))


@dataclass
class Said:
    name: str
    sequence: int
    at: float
    is_held: bool = False


@dataclass
class Episode:
    """Model a deferral: its causes, and whether the time for it runs or is over."""

    prefix: str
    limit: float | None
    until: float | None = None
    is_over: bool = False
    is_lifted: bool = False


@dataclass
class Model:
    limit: float | None
    skips: bool
    lanes: tuple[str, ...]
    now: float
    concurrency: int
    said: list[Said] = field(default_factory=list)
    resumed: int = 0
    is_paused: bool = False
    pending: dict[str, list[int]] = field(default_factory=dict)
    running: list[int] = field(default_factory=list)
    states: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.whole = Episode("defer.", self.limit)
        self.hot = Episode("hot.defer", self.limit)
        self.pending = {lane: [] for lane in self.lanes}

    # The sink.

    def present(self, prefix: str) -> Said | None:
        found = [each for each in self.said if each.name.startswith(prefix)]
        return max(found, key=lambda each: each.sequence, default=None)

    def age(self) -> None:
        self.said = [each for each in self.said if each.is_held or each.at + AGE > self.now]

    # What may start.

    def cause(self, episode: Episode) -> bool:
        event = self.present(episode.prefix)
        return event is not None and event.sequence > self.resumed

    def look(self) -> None:
        """Follow what has just changed, and start what may start."""
        self.age()
        for episode in (self.whole, self.hot):
            if not self.cause(episode):
                episode.is_over = False
        self._start()
        for episode in (self.whole, self.hot):
            if not self.cause(episode):
                episode.until = None

    def _holds(self, episode: Episode) -> bool:
        if episode.is_over or episode.is_lifted or not self.cause(episode):
            return False
        if episode.until is None and episode.limit is not None:
            episode.until = self.now + episode.limit
        return True

    def _start(self) -> None:
        while not self.is_paused and len(self.running) < self.concurrency and any(self.pending.values()):
            if self._holds(self.whole):
                return
            lane = next(
                (
                    lane
                    for lane, waiting in self.pending.items()
                    if waiting and not (lane == "hot" and self._holds(self.hot))
                ),
                None,
            )
            if lane is None:
                return
            number = self.pending[lane].pop(0)
            if self._is_skipped(lane):
                self.states[number] = "skipped"
            else:
                self.states[number] = "running"
                self.running.append(number)

    def _is_skipped(self, lane: str) -> bool:
        if self.present("cancel") or (lane == "hot" and self.present("hot.cancel")):
            return True
        episodes = (self.whole, self.hot) if lane == "hot" else (self.whole,)
        return self.skips and any(each.is_over and self.cause(each) for each in episodes)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            self.age()
            for episode in (self.whole, self.hot):
                if episode.until is not None and self.now >= episode.until:
                    episode.until = None
                    episode.is_over = self.cause(episode)
            self.look()


class ReactionsMachine(RuleBasedStateMachine):
    @initialize(
        limit=st.sampled_from((None, 3.0)),
        skips=st.booleans(),
        has_lanes=st.booleans(),
        concurrency=st.integers(1, 3),
        begins_with=st.sampled_from(("", "defer.a", "hot.defer")),
        waits=st.sampled_from((0.0, 2.0, 3.0)),
    )
    def make(  # noqa: PLR0917 - hypothesis draws each
        self,
        limit: float | None,
        skips: bool,
        has_lanes: bool,
        concurrency: int,
        begins_with: str,
        waits: float,
    ) -> None:
        self.stepped = SteppedLoop()
        self.lanes = ("hot", "normal") if has_lanes else ("normal",)
        skips = skips and limit is not None
        self.gates: dict[int, asyncio.Future[None]] = {}
        self.operations: dict[int, Any] = {}
        self.holds: list[tuple[Any, Said]] = []
        self.next = 0
        options = {
            "max_concurrency": concurrency,
            "cancel_on_signals": "cancel",
            "defer_on_signals": "defer.*",
            "resume_on_signals": "resume",
            "max_defer_time": limit,
            "on_defer_timeout": "skip" if skips else "run",
            "clear_on_signals": "forget",
            "clock": self.stepped.clock,
        }

        async def body(number: int) -> None:
            gate = self.gates[number] = asyncio.get_running_loop().create_future()
            await gate

        def build() -> None:
            self.sink = SignalSink(max_age=AGE, clock=self.stepped.clock)
            if has_lanes:
                lanes = [Lane("hot", cancel_on_signals="hot.cancel", defer_on_signals="hot.defer"), Lane("normal")]
                self.coordinator: Any = PriorityWorkCoordinator(body, lanes=lanes, signals=self.sink, **options)
            else:
                self.coordinator = WorkCoordinator(body, signals=self.sink, **options)
            self.coordinator.engine.bind()

        self.stepped.call(build)
        self.model = Model(limit, skips, self.lanes, self.stepped.clock.monotonic(), concurrency)
        if begins_with:  # most of what can go wrong does so while something is held back, or no longer
            self.emit(begins_with)
            self.enqueue("hot", 1)
            self.pass_time(waits)

    def _compare(self) -> None:
        self.model.look()
        self.stepped.settle()
        states = {number: str(operation.status) for number, operation in self.operations.items()}
        assert states == self.model.states
        assert self.stepped.call(self.sink.counts).keys() == {each.name for each in self.model.said}

    def _say(self, name: str) -> Said:
        said = Said(name, self.sink._sequence, self.model.now)
        self.model.said.append(said)
        if name == "resume":
            self.model.resumed = said.sequence
        return said

    @rule(lane=st.sampled_from(("hot", "normal")), count=st.integers(1, 3))
    def enqueue(self, lane: str, count: int) -> None:
        if self.coordinator.is_closed:
            return
        lane = lane if len(self.lanes) > 1 else "normal"
        for _ in range(count):
            number = self.next
            self.next += 1
            keywords = {"lane": lane} if len(self.lanes) > 1 else {}
            self.operations[number] = self.stepped.call(self.coordinator.try_enqueue, number, **keywords)
            self.model.pending[lane].append(number)
            self.model.states[number] = "pending"
        self._compare()

    @rule(name=names)
    def emit(self, name: str) -> None:
        self.stepped.call(self.sink.emit, name)
        self._say(name)
        self._compare()

    @rule(name=names)
    def retract(self, name: str) -> None:
        self.stepped.call(self.sink.retract, name)
        self.model.said = [each for each in self.model.said if each.name != name]
        self._compare()

    @precondition(lambda self: len(self.holds) < 2)
    @rule(name=names)
    def hold(self, name: str) -> None:
        hold = self.sink.hold(name)
        self.stepped.call(hold.__enter__)
        said = self._say(name)
        said.is_held = True
        self.holds.append((hold, said))
        self._compare()

    @precondition(lambda self: self.holds)
    @rule(number=st.integers(0, 5))
    def let_go(self, number: int) -> None:
        hold, said = self.holds.pop(number % len(self.holds))
        self.stepped.call(hold.__exit__, None, None, None)
        self.model.said = [each for each in self.model.said if each is not said]
        self._compare()

    @rule(name=names)
    def retract_and_emit_in_one_turn(self, name: str) -> None:
        """Nothing can start in between: an episode that has time left goes on, one whose time is over has ended."""

        def again() -> None:
            self.sink.retract(name)
            self.sink.emit(name)

        self.stepped.call(again)
        self.model.said = [each for each in self.model.said if each.name != name]
        for episode in (self.model.whole, self.model.hot):
            if not self.model.cause(episode):
                episode.is_over = False
        self._say(name)
        self._compare()

    @rule(seconds=st.sampled_from((0.5, 2.0, 3.0, 3.0, 3.5, 5.0)))
    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.stepped.pass_time(STEP)
            self.model.pass_time(STEP)
            self._compare()

    @precondition(lambda self: self.model.running)
    @rule(number=st.integers(0, 5))
    def finish(self, number: int) -> None:
        ended = self.model.running.pop(number % len(self.model.running))
        self.model.states[ended] = "completed"
        self.stepped.call(self.gates[ended].set_result, None)
        self._compare()

    @rule(
        what=st.sampled_from(("clear", "clear by signal", "pause", "resume", "resume", "limit 1", "limit 3", "drain"))
    )
    def do_something_else(self, what: str) -> None:
        match what:
            case "clear" | "clear by signal":
                self.stepped.call(*([self.sink.clear] if what == "clear" else [self.sink.emit, "forget"]))
                self.model.said = []
            case "pause" | "resume":
                self.stepped.call(getattr(self.coordinator, what))
                self.model.is_paused = what == "pause"
            case "limit 1" | "limit 3":
                self.model.concurrency = int(what[-1])
                self.stepped.call(self.coordinator.set_max_concurrency, self.model.concurrency)
            case _:
                self._drain()
        self._compare()

    def _drain(self) -> None:
        self.stepped.call(self.sink.emit, "coordinator.drain.all")
        self._say("coordinator.drain.all")
        self.model.is_paused = False
        for episode in (self.model.whole, self.model.hot):
            episode.is_lifted |= self.model.limit is None

    def teardown(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        try:
            self.stepped.call(self.sink.emit, "coordinator.drain.all")
            for _ in range(len(self.operations) + 5):
                self.stepped.pass_time(10)
                for gate in self.gates.values():
                    if not gate.done():
                        self.stepped.call(gate.set_result, None)
            assert self.coordinator.is_idle, "a drain hangs"
            self.stepped.complete(self.coordinator.aclose())
            left = {kind: count for kind, count in self.coordinator.engine.leftovers().items() if count}
            assert not left, f"left behind: {left}"
            assert not self.sink._table.listeners
        finally:
            self.stepped.close()


TestReactions = ReactionsMachine.TestCase
TestReactions.settings = settings(stateful_step_count=30)
