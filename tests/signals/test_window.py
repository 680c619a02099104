"""What a sink remembers: bounded by number and by exact age, asked in many ways, cleared, resized."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ephemerals.errors import InvalidOption, InvalidOptionType
from ephemerals.signals import SignalKey, SignalSink

from .support import ManualClock, names


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def sink(clock):
    return SignalSink(clock=clock)


def emit(sink, *signals, **fields):
    return [sink.emit(name, **fields) for name in signals]


class TestAsking:
    def test_what_was_emitted_is_there(self, sink):
        emit(sink, "test.signal")
        assert names(sink.events()) == ["test.signal"]
        assert sink.has("test.signal")
        assert not sink.has("other.signal")
        assert sink.count() == len(sink) == 1

    def test_an_empty_sink_is_true_and_says_no(self, sink):
        assert sink
        assert not sink.has("a")
        assert not sink.has_matching("*")
        assert sink.count() == sink.count("a") == sink.count_matching("*") == 0
        assert sink.events() == []
        assert sink.last() is None
        assert sink.counts() == {}
        assert sink.summary(1) is None

    def test_names_and_patterns(self, sink):
        emit(sink, "error.timeout", "error.connection", "warning.low", "error.timeout")
        assert names(sink.events(pattern="error.*")) == ["error.timeout", "error.connection", "error.timeout"]
        assert names(sink.events(pattern="*.low, *.connection")) == ["error.connection", "warning.low"]
        assert names(sink.events("error.timeout")) == ["error.timeout"] * 2
        assert sink.has_matching("warning.*")
        assert sink.has_matching("nothing, warning.low")
        assert not sink.has_matching("info.*")
        assert sink.count("error.timeout") == 2
        assert sink.count_matching("error.*") == 3
        assert sink.count_matching("nothing") == 0
        assert sink.counts() == {"error.timeout": 2, "error.connection": 1, "warning.low": 1}

    def test_a_name_is_not_a_pattern(self, sink):
        emit(sink, "a*", "ab")
        assert names(sink.events("a*")) == ["a*"]
        assert sink.count("a*") == 1
        assert names(sink.events("a*", pattern="*b")) == []

    def test_many_names(self, sink):
        emit(sink, *(f"signal.{number}" for number in range(100)))
        assert len(sink.events(pattern="signal.5*")) == 11

    def test_a_thousand_signals_fit(self, sink):
        emit(sink, *(f"signal.{number}" for number in range(1000)))
        assert sink.has("signal.0")

    def test_by_key_operation_and_source(self, sink):
        sink.emit("a", key=1, operation_id=10, source="x")
        sink.emit("b", key=2, operation_id=10, source="y")
        sink.emit("a", key=2, operation_id=20, source="x")
        assert names(sink.events(key=2)) == ["b", "a"]
        assert names(sink.events(operation_id=10)) == ["a", "b"]
        assert names(sink.events(source="x")) == ["a", "a"]
        assert names(sink.events(source="x", key=2)) == ["a"]
        assert sink.has("a", key=2)
        assert not sink.has("b", key=1)
        assert sink.last("a", key=1).operation_id == 10
        assert sink.last("a").operation_id == 20
        assert sink.last(operation_id=10).name == "b"
        assert sink.last(source="z") is None

    def test_by_time(self, sink, clock):
        for name in "abc":
            sink.emit(name)
            clock.advance(10)
        start = 1_767_225_600.0
        assert names(sink.events(since=start + 10)) == ["b", "c"]
        assert names(sink.events(until=start + 10)) == ["a", "b"]
        assert names(sink.events(since=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=1), until=start + 10)) == [
            "b"
        ]

    def test_by_limit(self, sink):
        emit(sink, *"abcd")
        assert names(sink.events(limit=2)) == ["c", "d"]
        assert sink.events(limit=0) == []
        assert names(sink.events(limit=9)) == list("abcd")

    def test_a_summary_of_an_operation(self, sink, clock):
        sink.emit("job.started", key="k", operation_id=5)
        clock.advance(3)
        clock.wall -= 100  # somebody sets the clock back
        sink.emit("job.done", operation_id=5)
        sink.emit("job.done", operation_id=6)
        summary = sink.summary(5)
        assert (summary.operation_id, summary.key, summary.count) == (5, "k", 2)
        assert names(summary.events) == ["job.started", "job.done"]
        assert summary.duration == 3
        assert summary.first_at > summary.last_at
        assert summary.has("job.*")
        assert not summary.has("error.*")
        assert names(summary.matching("*.done")) == ["job.done"]

    def test_what_makes_no_sense_is_refused(self, sink):
        with pytest.raises(InvalidOption):
            sink.events(since=datetime(2026, 1, 1))  # noqa: DTZ001
        with pytest.raises(InvalidOptionType):
            sink.events(until="yesterday")
        with pytest.raises(InvalidOption):
            sink.events(limit=-1)
        with pytest.raises(InvalidOptionType):
            sink.has(None)
        with pytest.raises(InvalidOption):
            sink.count("")


class TestEmitting:
    @pytest.mark.parametrize("wrong", [None, 1, b"a", ("a",)])
    def test_a_name_is_a_text(self, sink, wrong):
        with pytest.raises(InvalidOptionType):
            sink.emit(wrong)
        assert sink.count() == 0

    def test_a_name_is_not_empty(self, sink):
        with pytest.raises(InvalidOption):
            sink.emit("")

    def test_an_enum_will_do(self, sink):
        from enum import StrEnum

        class Name(StrEnum):
            STARTED = "job.started"

        assert type(sink.emit(Name.STARTED).name) is str
        assert sink.has(Name.STARTED)
        assert sink.has("job.started")

    def test_a_key_will_do(self, sink):
        key = SignalKey[int]("job.progress")
        sink.emit(key, 3)
        assert sink.has(key)
        assert sink.has_matching(key)
        assert sink.count(key) == sink.count_matching(key) == 1
        assert sink.events(key)[0].data == 3
        assert sink.last(key).data == 3


class TestCapacity:
    def test_the_newest_stay(self, clock):
        sink = SignalSink(10, clock=clock)
        for number in range(6100):
            sink.emit(f"n{number}")
            assert len(sink._index.fresh) + sink._index.indexed <= 10
        assert names(sink.events()) == [f"n{number}" for number in range(6090, 6100)]
        assert sink.count() == 10

    def test_the_newest_stay_also_while_somebody_asks(self, clock):
        sink = SignalSink(10, clock=clock)
        emitted = 0
        for number in range(100):
            emit(sink, f"n{number % 7}", *["filler"] * (number % 5))
            emitted += 1 + number % 5
            assert sink.count() == min(emitted, 10)
            assert sum(sink.counts().values()) == sink.count()

    @pytest.mark.parametrize(
        ("capacity", "error"),
        [(0, InvalidOption), (-1, InvalidOption), (1.5, InvalidOptionType), (True, InvalidOptionType)],
    )
    def test_it_is_a_positive_whole_number(self, capacity, error):
        with pytest.raises(error):
            SignalSink(capacity)
        with pytest.raises(error):
            SignalSink().resize(capacity)


class TestAge:
    def test_an_event_is_gone_exactly_at_its_age(self, clock):
        sink = SignalSink(100, 0.05, clock=clock)
        sink.emit("early")
        clock.advance(0.025)
        sink.emit("late")
        clock.advance(0.024)
        assert sink.has("early")
        clock.advance(0.001)
        assert not sink.has("early")
        assert not sink.has_matching("ear*")
        assert sink.count("early") == sink.count_matching("early") == 0
        assert names(sink.events()) == ["late"]
        assert sink.last().name == "late"
        clock.advance(0.025)
        assert sink.count() == 0

    def test_setting_the_wall_clock_ages_nothing(self, sink, clock):
        sink.emit("a")
        clock.wall += 86_400
        assert sink.has("a")

    def test_none_is_no_limit(self, clock):
        sink = SignalSink(max_age=None, clock=clock)
        sink.emit("a")
        clock.advance(1e9)
        assert sink.has("a")
        assert sink.max_age is None

    @pytest.mark.parametrize(("age", "error"), [(0, InvalidOption), (-1, InvalidOption), ("1", InvalidOptionType)])
    def test_it_is_positive(self, age, error):
        with pytest.raises(error):
            SignalSink(max_age=age)
        with pytest.raises(error):
            SignalSink().resize(max_age=age)

    def test_it_may_be_a_timedelta(self):
        assert SignalSink(max_age=timedelta(minutes=2)).max_age == 120


class TestResizing:
    def test_what_is_not_given_stays(self, sink):
        sink.resize(200)
        assert (sink.max_capacity, sink.max_age) == (200, 60)
        sink.resize(max_age=5)
        assert (sink.max_capacity, sink.max_age) == (200, 5)
        sink.resize(300, None)
        assert (sink.max_capacity, sink.max_age) == (300, None)

    def test_it_trims_at_once(self, sink, clock):
        emit(sink, *"abcd")
        sink.resize(2)
        assert names(sink.events()) == ["c", "d"]
        clock.advance(10)
        emit(sink, "e")
        sink.resize(10, 10)
        assert names(sink.events()) == ["e"]
        emit(sink, *"fghijklmnop")
        assert sink.count() == 10

    def test_it_may_grow(self, clock):
        sink = SignalSink(2, 10, clock=clock)
        emit(sink, *"abc")
        sink.resize(4, 20)
        emit(sink, *"def")
        clock.advance(15)
        assert names(sink.events()) == list("cdef")


class TestRetracting:
    def test_it_ends_what_a_name_said(self, sink):
        emit(sink, *"abab")
        assert sink.retract("a") == 2
        assert sink.retract("a") == 0
        assert not sink.has("a")
        assert names(sink.events()) == ["b", "b"]

    def test_it_can_be_told_whose(self, sink):
        sink.emit("busy", key=1, operation_id=10, source="x")
        sink.emit("busy", key=2, operation_id=20, source="y")
        assert sink.retract("busy", key=1) == 1
        assert sink.has("busy", key=2)
        assert sink.retract("busy", operation_id=10) == 0
        assert sink.retract("busy", source="y", operation_id=20) == 1

    def test_by_pattern(self, sink):
        emit(sink, "error.a", "error.b", "info")
        assert sink.retract_matching("error.*") == 2
        assert names(sink.events()) == ["info"]

    def test_exactly_one_event(self, sink):
        first, second = emit(sink, "a", "a")
        assert sink.retract_event(first)
        assert not sink.retract_event(first)
        assert sink.events() == [second]

    def test_what_has_expired_cannot_be_retracted(self, sink, clock):
        (event,) = emit(sink, "a")
        clock.advance(60)
        assert not sink.retract_event(event)
        assert sink.retract("a") == 0

    def test_in_any_order_the_index_and_the_window_agree(self, sink):
        for turn in range(50):
            events = emit(sink, *"abcabc")
            for position in ((5, 0, 3), (1, 2), (2, 1, 0, 5))[turn % 3]:
                sink.retract_event(events[position])
            assert sum(sink.counts().values()) == len(sink.events()) == sink.count()
            for name, count in sink.counts().items():
                assert len(sink.events(name)) == count
        assert len(sink._index._order) <= 2 * sink.count() + 33


class TestHolding:
    def test_a_condition_holds_as_long_as_the_block(self, sink):
        with sink.hold("backpressure.db", {"depth": 9}, key="db") as event:
            assert sink.has("backpressure.db", key="db")
            assert event.data == {"depth": 9}
        assert not sink.has("backpressure.db")

    def test_also_when_the_block_fails(self, sink):
        with pytest.raises(ZeroDivisionError), sink.hold("busy"):
            raise ZeroDivisionError
        assert not sink.has("busy")

    def test_it_outlives_the_age_and_the_room(self, clock):
        sink = SignalSink(3, 10, clock=clock)
        with sink.hold("busy"):
            clock.advance(1000)
            assert sink.has("busy")
            emit(sink, *"abcdef")
            assert names(sink.events()) == ["busy", "e", "f"]
            clock.advance(1000)
            assert names(sink.events()) == ["busy"]
            emit(sink, *"gh")
        assert names(sink.events()) == ["g", "h"]

    def test_held_twice_it_is_present_until_both_end(self, sink):
        with sink.hold("busy"):
            with sink.hold("busy"):
                assert sink.count("busy") == 2
            assert sink.has("busy")
        assert not sink.has("busy")

    def test_the_bound_wins_over_the_held(self, clock):
        sink = SignalSink(2, clock=clock)
        with sink.hold("x"), sink.hold("y"), sink.hold("z"):
            assert names(sink.events()) == ["y", "z"]
            emit(sink, "a")
            assert sink.count() == 2
            assert sink.has("a")
        assert names(sink.events()) == ["a"]

    def test_retracted_in_between_it_is_gone(self, sink):
        with sink.hold("busy"):
            assert sink.retract("busy") == 1
            emit(sink, "busy")
        assert sink.count("busy") == 1

    def test_an_old_one_with_newer_ones_of_its_name(self, clock):
        sink = SignalSink(100, 10, clock=clock)
        with sink.hold("a"):
            for _ in range(20):
                clock.advance(3)
                emit(sink, "a", "b")
                assert sink.count("a") == len(sink.events("a")) == min(sink.count("b") + 1, 5)
        clock.advance(30)
        assert sink.count() == 0


class TestClearing:
    def test_everything(self, sink):
        emit(sink, *"abc")
        assert sink.clear() == 3
        assert sink.count() == 0
        assert sink.clear() == 0

    def test_by_pattern(self, sink):
        emit(sink, "error.http.timeout", "error.db.connection", "error.cache.miss", "warning.http.slow")
        assert sink.clear_matching("error.*") == 3
        assert names(sink.events()) == ["warning.http.slow"]
        assert sink.clear_matching("error.*") == 0

    def test_by_operation(self, sink):
        emit(sink, "a", "b", operation_id=42)
        emit(sink, "a", "b", operation_id=84)
        assert sink.clear_operation(42) == 2
        assert {event.operation_id for event in sink.events()} == {84}
        assert sink.clear_operation(999) == 0

    def test_by_key(self, sink):
        emit(sink, "a", "b", key="TENANT-A")
        emit(sink, "a", "b", key="TENANT-B")
        assert sink.clear_key("TENANT-A") == 2
        assert {event.key for event in sink.events()} == {"TENANT-B"}

    def test_the_oldest(self, sink):
        emit(sink, *"abcdefghij")
        assert sink.clear_oldest(3) == 3
        assert names(sink.events())[0] == "d"
        assert sink.clear_oldest(0) == 0
        assert sink.clear_oldest(100) == 7
        with pytest.raises(InvalidOption):
            sink.clear_oldest(-1)

    def test_older_than(self, clock):
        sink = SignalSink(max_age=3600, clock=clock)
        for name in "abcd":
            sink.emit(name)
            clock.advance(60)
        assert sink.clear_older_than(86_400) == 0
        assert sink.clear_older_than(timedelta(minutes=2)) == 3
        assert names(sink.events()) == ["d"]
        assert sink.clear_older_than(0) == 1

    def test_a_missing_argument_is_refused(self, sink):
        emit(sink, "a")
        with pytest.raises(InvalidOption):
            sink.clear_key(None)
        with pytest.raises(InvalidOptionType):
            sink.clear_matching(None)
        assert sink.count() == 1

    def test_a_key_that_cannot_be_compared_changes_nothing(self, sink):
        class Prickly:
            def __eq__(self, other):
                raise RuntimeError

            __hash__ = None

        emit(sink, "a")
        sink.emit("b", key=Prickly())
        emit(sink, "c")
        with pytest.raises(RuntimeError):
            sink.clear_key("k")
        assert names(sink.events()) == ["a", "b", "c"]

    def test_whoever_wants_hears_of_it_and_nothing_of_it_is_stored(self, sink):
        heard = []
        sink.subscribe("sink.cleared", lambda event: heard.append((event.data, event.sequence)))
        emit(sink, "a.x", "b.x", "a.y")
        sink.clear_matching("a.*")
        sink.clear()
        sink.clear()
        assert heard == [({"count": 2, "pattern": "a.*"}, 0), ({"count": 1}, 0)]
        assert sink.count() == 0

    def test_clearing_on_clearing_ends(self, sink):
        def again(event):
            sink.emit("more")
            sink.clear()

        sink.subscribe("sink.cleared", again)
        emit(sink, "a")
        assert sink.clear() == 1
        assert sink.count() == 0


class TestRoom:
    def test_held_ones_that_stepped_aside_survive_when_the_window_is_tidied(self, clock):
        sink = SignalSink(20, 10, clock=clock)
        with sink.hold("held", key=1), sink.hold("held", key=2):
            for turn in range(30):
                for number in range(20):
                    sink.emit(f"n.{number}", turn)
                sink.count()
                sink.retract_matching("n.1*")
                clock.advance(0.3)
            assert [event.key for event in sink.events("held")] == [1, 2]
            assert sink.count() == 2 + sink.count_matching("n.*") <= 20
            clock.advance(10)
            assert [event.name for event in sink.events()] == ["held", "held"]
            sink.retract("held", key=1)
            assert [event.key for event in sink.events()] == [2]
        assert sink.count() == 0

    def test_retracting_much_leaves_no_empty_places_behind(self, clock):
        sink = SignalSink(10_000, None, clock=clock)
        with sink.hold("held"):
            for turn in range(50):
                for number in range(20):
                    sink.emit("many", number)
                sink.emit("few", turn)
                sink.count()
                sink.retract("many")
            index = sink._index
            assert len(index._order) + len(index._aside) < 200
            assert [event.data for event in sink.events("few")] == list(range(50))
            assert sink.has("held")

    def test_what_has_gone_before_it_could_be_held_is_not_held(self, clock):
        sink = SignalSink(10, clock=clock)
        sink.subscribe("busy", lambda event: sink.retract("busy"))
        with sink.hold("busy") as event:
            assert event is not None
            assert not sink.has("busy")
        assert not sink._index._held
