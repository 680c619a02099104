"""Names that know the type of their data, and numbers over a span of time."""

from __future__ import annotations

import pytest

from ephemerals.errors import InvalidOption, InvalidOptionType
from ephemerals.signals import SignalKey, SignalSink, statistics_of

from .support import ManualClock

BOT_SCORE = SignalKey[float]("bot.score")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def sink(clock):
    return SignalSink(max_age=300, clock=clock)


def test_a_key_stands_for_its_name_everywhere(sink):
    heard = []
    sink.subscribe(BOT_SCORE, heard.append)
    sink.on(BOT_SCORE)(heard.append)
    event = sink.emit(BOT_SCORE, 0.95, key="test-op")
    assert (event.name, event.data, event.key) == ("bot.score", 0.95, "test-op")
    assert heard == [event, event]
    assert sink.events(BOT_SCORE) == sink.events(pattern=BOT_SCORE) == [event]
    assert sink.retract(BOT_SCORE) == 1
    with sink.hold(BOT_SCORE, 0.5):
        assert sink.has(BOT_SCORE)
    assert sink.clear_matching(BOT_SCORE) == 0


async def test_also_where_one_waits(sink):
    events = sink.stream(BOT_SCORE)
    watch = sink.watch(BOT_SCORE)
    sink.emit(BOT_SCORE, 0.5)
    assert (await anext(events)).data == 0.5
    assert (await sink.wait_for(BOT_SCORE, since=0)).data == 0.5
    assert watch.present
    assert sink.retract_matching(BOT_SCORE) == 1


def test_keys_are_frozen_and_compared_by_name():
    assert SignalKey("a") == SignalKey[int]("a")
    assert hash(SignalKey("a")) == hash(SignalKey("a"))
    assert SignalKey("a") != SignalKey("b")
    assert SignalKey("a") != "a"
    assert str(SignalKey("a")) == "a"
    assert repr(SignalKey("a")) == "SignalKey('a')"
    with pytest.raises(AttributeError):
        SignalKey("a").name = "b"


@pytest.mark.parametrize("name", ["", "  ", "a*", "a?", "a,b"])
def test_its_name_is_a_name(name):
    with pytest.raises(InvalidOption):
        SignalKey(name)


def test_its_name_is_a_text():
    with pytest.raises(InvalidOptionType):
        SignalKey(3)


def test_it_checks_at_run_time_when_asked_to(sink):
    score = SignalKey[float]("score", check=(int, float))
    sink.emit(score, 1)
    with pytest.raises(InvalidOptionType, match=r"int or float") as caught:
        sink.emit(score, "secret")
    assert "secret" not in str(caught.value)
    assert sink.count() == 1
    with pytest.raises(InvalidOptionType):
        sink.emit(SignalKey[str]("text", check=str), 3)


def test_statistics_over_a_pattern(sink):
    for name, value in (("score.ua", 0.5), ("score.ip", 0.3), ("score.header", 0.7), ("other", 9)):
        sink.emit(name, value)
    statistics = statistics_of(sink, "score.*")
    assert statistics.count == 3
    assert statistics.sum == pytest.approx(1.5)
    assert statistics.mean == pytest.approx(0.5)
    assert (statistics.minimum, statistics.maximum) == (0.3, 0.7)


def test_statistics_by_key(sink):
    for key, value in (("ua", 0.5), ("ua", 0.6), ("ip", 0.3)):
        sink.emit(BOT_SCORE, value, key=key)
    statistics = statistics_of(sink, BOT_SCORE)
    assert {key: each.count for key, each in statistics.by_key.items()} == {"ua": 2, "ip": 1}
    assert statistics.by_key["ua"].mean == pytest.approx(0.55)


def test_statistics_of_the_last_seconds(sink, clock):
    sink.emit(BOT_SCORE, 1.0)
    clock.advance(60)
    sink.emit(BOT_SCORE, 3.0)
    assert statistics_of(sink, BOT_SCORE, last=60).sum == 4
    assert statistics_of(sink, BOT_SCORE, last=59).sum == 3
    with pytest.raises(InvalidOption, match="max_age"):
        statistics_of(sink, BOT_SCORE, last=301)


def test_statistics_of_nothing(sink):
    sink.emit(BOT_SCORE, None)
    sink.emit("bot.score", "text")
    sink.emit("bot.score", True)
    statistics = statistics_of(sink, BOT_SCORE)
    assert (statistics.count, statistics.sum, statistics.mean) == (0, 0, None)
    assert (statistics.minimum, statistics.maximum, dict(statistics.by_key)) == (None, None, {})
