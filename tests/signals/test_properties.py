"""What holds whatever happens, tried against a model that is too simple to be wrong."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ephemerals.signals import Pattern, SignalConstraints, SignalSink

from .support import ManualClock

NAMES = ("a", "a.b", "a.c", "b", "busy")
PATTERNS = ("a", "a.*", "*", "b, busy", "?", "nothing")
KEYS = (None, 1, 2)

signal = st.sampled_from(NAMES)
pattern = st.sampled_from(PATTERNS)
some_key = st.sampled_from(KEYS[1:])


class SinkAgainstModel(RuleBasedStateMachine):
    """Do the same to a sink and to a plain list of its events, and compare."""

    @initialize(capacity=st.integers(1, 8), age=st.one_of(st.none(), st.integers(1, 6)))
    def start(self, capacity, age):
        self.clock = ManualClock()
        self.sink = SignalSink(capacity, age, clock=self.clock)
        self.capacity = capacity
        self.age = float("inf") if age is None else age
        self.model = []  # events that are in the window, oldest first
        self.held = []  # (context manager, event)
        self.emitted = []
        self.heard = {each: [] for each in PATTERNS}
        self.retracted = []
        self.expected_retractions = []
        self.watches = {each: self.sink.watch(each) for each in PATTERNS}
        for each in PATTERNS:
            self.sink.subscribe(each, self.heard[each].append)
        self.sink.subscribe("*", self.retracted.append, retractions=True)

    def is_held(self, event):
        return any(event is each for _, each in self.held)

    def settle(self, *, spared=None):
        self.model = [
            event for event in self.model if event.monotonic + self.age > self.clock.now or self.is_held(event)
        ]
        while len(self.model) > self.capacity:
            free = [event for event in self.model if not self.is_held(event) and event is not spared]
            self.model.remove((free or self.model)[0])

    def remember(self, event):
        self.emitted.append(event)
        self.model.append(event)
        self.settle(spared=event)

    @rule(
        name=signal,
        key=st.sampled_from(KEYS),
        operation=st.sampled_from((None, 1, 2)),
        source=st.sampled_from((None, "here", "there")),
    )
    def emit(self, name, key, operation, source):
        self.remember(self.sink.emit(name, key=key, operation_id=operation, source=source))

    @rule(seconds=st.sampled_from((0.5, 1, 3)))
    def wait(self, seconds):
        self.clock.advance(seconds)
        self.settle()

    @rule(name=signal)
    def hold(self, name):
        holding = self.sink.hold(name)
        event = holding.__enter__()
        self.held.append((holding, event))
        self.remember(event)

    @rule(position=st.integers(0, 9))
    def release(self, position):
        if self.held:
            holding, event = self.held[position % len(self.held)]
            holding.__exit__(None, None, None)
            self.held = [each for each in self.held if each[1] is not event]
            if event in self.model:
                self.model.remove(event)
                self.expected_retractions.append(event)

    def take(self, condition):
        gone = [event for event in self.model if condition(event)]
        self.model = [event for event in self.model if not condition(event)]
        return gone

    @rule(name=signal, key=st.sampled_from(KEYS))
    def retract(self, name, key):
        gone = self.take(lambda event: event.name == name and key in (None, event.key))
        assert self.sink.retract(name, key=key) == len(gone)
        self.expected_retractions += gone

    @rule(pattern=pattern)
    def retract_matching(self, pattern):
        gone = self.take(lambda event: event.matches(pattern))
        assert self.sink.retract_matching(pattern) == len(gone)
        self.expected_retractions += gone

    @rule(position=st.integers(0, 9))
    def retract_event(self, position):
        if self.emitted:
            event = self.emitted[-1 - position % len(self.emitted)]
            gone = self.take(lambda each: each is event)
            assert self.sink.retract_event(event) is bool(gone)
            self.expected_retractions += gone

    @rule(pattern=pattern)
    def clear_matching(self, pattern):
        assert self.sink.clear_matching(pattern) == len(self.take(lambda event: event.matches(pattern)))

    @rule(key=some_key)
    def clear_key(self, key):
        assert self.sink.clear_key(key) == len(self.take(lambda event: event.key == key))

    @rule(operation=some_key)
    def clear_operation(self, operation):
        assert self.sink.clear_operation(operation) == len(self.take(lambda event: event.operation_id == operation))

    @rule(age=st.sampled_from((1, 2.5)))
    def clear_older_than(self, age):
        gone = self.take(lambda event: event.monotonic + age <= self.clock.now)
        assert self.sink.clear_older_than(age) == len(gone)

    @rule(number=st.integers(0, 3))
    def clear_oldest(self, number):
        oldest = self.model[:number]
        assert self.sink.clear_oldest(number) == len(self.take(lambda event: event in oldest))

    @rule(capacity=st.integers(1, 8), age=st.integers(1, 6))
    def resize(self, capacity, age):
        self.capacity, self.age = capacity, age
        self.sink.resize(capacity, age)
        self.settle()

    @rule()
    def ask(self):
        """Have `fresh` indexed, which otherwise happens only in half of the checks."""
        self.sink.count()

    @invariant()
    def never_too_many(self):
        if hasattr(self, "sink"):
            index = self.sink._index
            assert index.indexed + len(index.fresh) <= self.capacity

    @invariant()
    def watches_agree(self):
        for each, watch in getattr(self, "watches", {}).items():
            matching = [event for event in self.model if event.matches(each)]
            assert watch.event is (matching[-1] if matching else None)
            assert watch.present is bool(matching)

    @rule(name=signal, pattern=pattern, key=some_key)
    def queries_agree(self, name, pattern, key):
        sink, model = self.sink, self.model
        matches = Pattern(pattern).matches
        assert sink.events() == model
        assert sink.events(name) == [event for event in model if event.name == name]
        assert sink.events(pattern=pattern) == [event for event in model if matches(event.name)]
        assert sink.events(key=key, limit=2) == [event for event in model if event.key == key][-2:]
        assert sink.count() == len(model)
        assert sink.count(name) == sum(event.name == name for event in model)
        assert sink.count_matching(pattern) == sum(matches(event.name) for event in model)
        assert sink.has(name) is any(event.name == name for event in model)
        assert sink.has(name, key=key) is any(event.name == name and event.key == key for event in model)
        assert sink.has_matching(pattern) is any(matches(event.name) for event in model)
        assert sum(sink.counts().values()) == len(model)
        assert len(sink) == len(model)

    @rule(
        pattern=pattern,
        key=some_key,
        ago=st.sampled_from((0, 0.5, 2, 100)),
        limit=st.integers(0, 3),
    )
    def all_other_queries_agree(self, pattern, key, ago, limit):
        sink, model, moment = self.sink, self.model, self.clock.wall - ago
        matching = [event for event in model if event.matches(pattern)]
        of_operation = [event for event in model if event.operation_id == key]
        from_here = [event for event in model if event.source == "here"]
        assert sink.last() is (model[-1] if model else None)
        assert sink.last(pattern) is (matching[-1] if matching else None)
        assert sink.last(operation_id=key) is (of_operation[-1] if of_operation else None)
        assert sink.events(operation_id=key) == of_operation
        assert sink.events(source="here") == from_here
        assert sink.events(since=moment) == [event for event in model if event._wall >= moment]
        assert sink.events(until=moment, pattern=pattern) == [event for event in matching if event._wall <= moment]
        assert sink.events(limit=limit) == model[max(0, len(model) - limit) :]
        summary = sink.summary(key)
        assert (() if summary is None else summary.events) == tuple(of_operation)
        with contextlib.closing(sink.stream(pattern, since=moment)) as stream:
            assert list(stream._buffer.events) == [event for event in matching if event._wall >= moment]
        scope = sink.scoped("a")
        inside = [event for event in model if event.name.startswith("a.")]
        assert scope.events() == inside
        assert scope.count() == len(inside)
        assert scope.last() is (inside[-1] if inside else None)

    @invariant()
    def the_index_agrees_with_the_window(self):
        if hasattr(self, "sink"):
            index = self.sink._index
            names = list(index.names())
            assert sum(map(index.count_of, names)) == index.indexed
            assert sorted(cell[0].sequence for name in names for cell in index.cells_of(name)) == sorted(
                cell[0].sequence for cell in index.cells()
            )

    @rule()
    def everybody_heard_everything_once_in_order(self):
        for each, heard in self.heard.items():
            stored = [event for event in heard if event.name != "sink.cleared"]
            assert stored == [event for event in self.emitted if event.matches(each)]
        assert self.retracted == self.expected_retractions

    def teardown(self):
        for holding, _ in getattr(self, "held", []):
            holding.__exit__(None, None, None)


SinkAgainstModel.TestCase.settings = settings(stateful_step_count=40)
TestSinkAgainstModel = SinkAgainstModel.TestCase


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), max_size=3), max_size=6),
    st.integers(1, 5),
)
def test_chains_of_causes_end_whoever_answers_whom(answers, depth):
    sink = SignalSink(100_000, constraints=SignalConstraints(max_depth=depth))
    orders = [[], [], []]
    sink.subscribe("*", orders[0].append)
    for name, following in answers.items():
        sink.subscribe(name, lambda event, following=following: [sink.emit(each) for each in following])
    sink.subscribe("?", orders[1].append)
    sink.subscribe(list("abcdef"), orders[2].append)
    sink.emit("a")
    events = sink.events()
    assert orders[0] == orders[1] == orders[2] == events
    for event in events:
        chain = event.propagation.names
        assert len(chain) <= depth
        assert len(set(chain)) == len(chain)
        assert chain[0] == "a"
        assert chain[-1] == event.name


MISDEEDS = ("raise", "raise worse", "cancel me", "cancel the next", "emit", "retract", "clear", "resize", "subscribe")


@given(
    st.lists(st.lists(st.sampled_from(MISDEEDS), max_size=6), max_size=4), st.lists(st.sampled_from("abc"), max_size=12)
)
def test_whatever_some_handlers_do_the_others_hear_everything_once_and_in_one_order(scripts, emitted):
    sink = SignalSink(100_000)
    emissions, first, last, subscriptions = [], [], [], []

    def emit(name):
        if (event := sink.emit(name)) is not None:
            emissions.append(event.sequence)

    def misbehave(script, position):
        steps = iter(script)

        def handle(event):
            match next(steps, None):
                case "raise":
                    raise ValueError
                case "raise worse":
                    raise GeneratorExit
                case "cancel me":
                    subscriptions[position].cancel()
                case "cancel the next":
                    subscriptions[(position + 1) % len(subscriptions)].cancel()
                case "emit":
                    emit("d")
                case "retract":
                    sink.retract(event.name)
                case "clear":
                    sink.clear()
                case "resize":
                    sink.resize(7)
                case "subscribe":
                    sink.subscribe("?", lambda event: None)

        return handle

    sink.subscribe("?", lambda event: first.append(event.sequence))
    for position, script in enumerate(scripts):
        subscriptions.append(sink.subscribe("?", misbehave(script, position)))
    sink.subscribe("?", lambda event: last.append(event.sequence))
    for name in emitted:
        emit(name)
    assert first == last == sorted(emissions)
    assert sink.count() <= sink.max_capacity
    assert sink.statistics().undelivered == 0


@pytest.mark.parametrize("capacity", [1, 2, 50])
def test_no_live_event_is_lost_below_capacity(capacity):
    clock = ManualClock()
    sink = SignalSink(capacity, 10, clock=clock)
    for round_ in range(200):
        first = sink.emit("a", round_)
        for _ in range(capacity - 1):
            sink.emit("b")
        assert sink.events("a")[-1] is first
        if round_ % 3:
            sink.clear()
        clock.advance(1)
