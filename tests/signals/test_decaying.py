"""Scores that fade, and which one is forgotten when there are too many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals.errors import InvalidOption
from ephemerals.signals import DecayingScores, SignalSink

from .support import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


def test_a_score_halves_in_every_half_life(clock):
    scores = DecayingScores(60, clock=clock)
    assert scores.add("ada", 10) == 10
    clock.advance(60)
    assert scores.score("ada") == pytest.approx(5)
    assert scores.add("ada", 10) == pytest.approx(15)
    clock.advance(120)
    assert scores.score("ada") == pytest.approx(3.75)
    clock.advance(1e6)
    assert scores.score("ada") == 0


def test_what_is_not_known_is_neutral(clock):
    scores = DecayingScores(60, clock=clock)
    assert scores.score("nobody") == 0
    assert "nobody" not in scores
    assert len(scores) == 0
    assert not scores.forget("nobody")


def test_the_most_neutral_one_is_forgotten_not_the_worst(clock):
    scores = DecayingScores(60, max_size=3, clock=clock)
    scores.add("bad", -10)
    scores.add("good", 10)
    scores.add("meh", 1)
    scores.add("new", 0.1)
    assert set(scores.scores()) == {"bad", "good", "new"}


def test_scores_are_compared_as_they_are_now(clock):
    scores = DecayingScores(60, max_size=2, clock=clock)
    scores.add("old", 100)
    clock.advance(60 * 10)
    scores.add("fresh", 1)
    scores.add("new", 1)
    assert set(scores.scores()) == {"fresh", "new"}


def test_they_are_listed_the_highest_first(clock):
    scores = DecayingScores(60, clock=clock)
    for key, amount in (("a", 1), ("b", 3), ("c", -2)):
        scores.add(key, amount)
    assert list(scores.scores().items()) == [("b", 3), ("a", 1), ("c", -2)]
    assert scores.forget("b")
    assert list(scores.scores()) == ["a", "c"]


def test_a_key_that_changes_often_takes_no_more_room_than_others(clock):
    scores = DecayingScores(half_life=10, max_size=3, clock=clock)
    for turn in range(1000):
        scores.add(f"key {turn % 3}", 1)
    assert len(scores._heap) < 100
    assert scores.score("key 0") == 334
    scores.add("another", 1000)
    assert len(scores) == 3


def test_it_can_follow_signals(clock):
    sink = SignalSink(clock=clock)
    scores = DecayingScores(60, clock=clock)
    with scores.follow(sink, "login.failed"), scores.follow(sink, "abuse", weigh=lambda event: event.data):
        sink.emit("login.failed", key="ada")
        sink.emit("login.failed", key="ada")
        sink.emit("login.failed")
        sink.emit("abuse", -5, key="bob")
    sink.emit("login.failed", key="ada")
    assert scores.scores() == {"ada": 2, "bob": -5}


def test_what_makes_no_sense_is_refused():
    with pytest.raises(InvalidOption):
        DecayingScores(0)
    with pytest.raises(InvalidOption):
        DecayingScores(1, max_size=0)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(-4, 4), st.sampled_from((0, 1, 30, 200))), max_size=60),
    st.integers(1, 5),
)
def test_it_agrees_with_the_definition(steps, max_size):
    clock = ManualClock()
    scores = DecayingScores(60, max_size=max_size, clock=clock)
    model = {}
    for key, amount, pause in steps:
        clock.advance(pause)
        model = {each: value * 0.5 ** (pause / 60) for each, value in model.items()}
        model[key] = model.get(key, 0) + amount
        scores.add(key, amount)
        if len(model) > max_size:
            least = min(abs(value) for each, value in model.items() if each != key)
            (gone,) = set(model) - set(scores.scores())
            assert gone != key
            assert abs(model.pop(gone)) == pytest.approx(least)
        assert scores.scores() == pytest.approx(model)
        assert len(scores._heap) <= 2 * len(model) + 65
