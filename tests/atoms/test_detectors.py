"""Detectors: too many, too wild, too random, too much of the same; each said once, and nothing kept for long."""

from __future__ import annotations

import asyncio
import gc
import math
import random
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals import InvalidOption, WorkCoordinator
from ephemerals.atoms import AnomalyDetector, BurstDetector, EntropyAnalyzer, OutlierDetector
from ephemerals.clock import Clock
from ephemerals.signals import SignalSink
from ephemerals.testing import Payload, VirtualClock, assert_forgotten_sync, assert_quiet, run


def now():
    return VirtualClock.current().monotonic() - 1000


def said(sink, pattern):
    return [(event.name, event.key, event.data) for event in sink.events(pattern=pattern)]


# Bursts.


async def test_a_burst_begins_once_and_ends_once_when_few_are_left():
    sink = SignalSink(max_age=None)
    bursts = BurstDetector(sink, threshold=4, window=10, low=1)
    for _ in range(12):  # at 0, 1, 2, … 11
        bursts.note("bot")
        await asyncio.sleep(1)
    assert said(sink, "burst.*") == [("burst.started", "bot", {"count": 4})]
    assert bursts.bursting() == ["bot"]
    await asyncio.sleep(100)
    ended = sink.last("burst.ended")
    assert ended.data == {"seconds": 17}  # from 3 until 20, when only the one of 11 is left
    assert ended.monotonic == 1020
    assert (bursts.bursting(), bursts.statistics()["keys"]) == ([], 0)
    assert_quiet(bursts)


async def test_keys_are_counted_apart_and_events_without_one_left_out():
    sink = SignalSink()
    bursts = BurstDetector(sink, "login.*", threshold=2, window=10)
    for key in ("ada", None, "bob", None, "bob"):
        sink.emit("login.failed", key=key)
    assert (bursts.is_bursting("ada"), bursts.is_bursting("bob"), bursts.count("ada")) == (False, True, 1)
    assert bursts.statistics() == {"bursts": 1, "bursting": 1, "keys": 2, "evicted": 0, "without_key": 2}
    bursts.close()
    sink.emit("login.failed", key="ada")
    assert bursts.count("ada") == 0
    assert_quiet(bursts)


@given(
    threshold=st.integers(1, 6),
    gaps=st.lists(st.sampled_from([0, 0.5, 1, 2, 5, 11]), min_size=1, max_size=40),
    data=st.data(),
)
def test_whenever_somebody_looks_a_burst_is_what_the_window_says(threshold, gaps, data):
    low = data.draw(st.integers(0, threshold - 1))

    async def main():
        bursts, times, is_bursting = BurstDetector(threshold=threshold, window=10, low=low), [], False
        for gap in gaps:
            # Between two events the burst ends when the window has only `low` left.
            if is_bursting and len([each for each in times if each + 10 > now() + gap]) <= low:
                is_bursting = False
            await asyncio.sleep(gap)
            assert bursts.is_bursting("k") == is_bursting
            times.append(now())
            bursts.note("k")
            is_bursting = is_bursting or len([each for each in times if each + 10 > now()]) >= threshold
            assert bursts.is_bursting("k") == is_bursting
        await asyncio.sleep(11)
        assert_quiet(bursts)

    run(main())


async def test_a_burst_may_end_before_the_time_at_which_its_key_would_have_been_looked_at():
    sink = SignalSink(max_age=None)
    bursts = BurstDetector(sink, threshold=4, window=10, low=3)
    for gap in (0, 5, 4, 1.5, 0.5):  # at 10 the key was put off until 19
        await asyncio.sleep(gap)
        bursts.note("k")
    assert bursts.is_bursting("k")
    await asyncio.sleep(20)
    assert sink.last("burst.ended").monotonic == 1015
    assert_quiet(bursts)


async def test_a_key_that_is_pushed_out_while_it_bursts_has_ended():
    sink = SignalSink()
    bursts = BurstDetector(sink, threshold=1, max_keys=2)
    for key in "abc":
        bursts.note(key)
    assert len(bursts.bursting()) == 2
    assert [name for name, _, _ in said(sink, "burst.*")] == ["burst.started"] * 2 + ["burst.ended", "burst.started"]
    assert bursts.statistics()["evicted"] == 1


def test_without_a_loop_time_passes_all_the_same():
    time = 0.0
    bursts = BurstDetector(threshold=2, window=10, clock=Clock(monotonic=lambda: time))
    bursts.note("k")
    bursts.note("k")
    assert bursts.is_bursting("k")
    time = 10.0
    assert not bursts.is_bursting("k")
    assert bursts.statistics()["keys"] == 0


async def test_ten_thousand_keys_cost_one_timer_and_no_more_room_than_allowed():
    bursts = BurstDetector(threshold=1000, max_keys=100)
    for key in range(10_000):
        bursts.note(key)
    loop = asyncio.get_running_loop()
    assert len([timer for timer in loop._scheduled if not timer.cancelled()]) == 1
    assert bursts.statistics()["keys"] == 100
    await asyncio.sleep(30)
    assert_quiet(bursts)


# The rate of a pattern.


async def test_too_many_are_a_condition_that_lasts_until_few_are_left():
    sink = SignalSink(max_age=None)
    detector = AnomalyDetector(sink, "error.*", threshold=3, window=10, low=1)
    for name in ("error.a", "order.b", "error.c"):
        sink.emit(name)
    assert (detector.is_anomalous, detector.count) == (False, 2)
    await asyncio.sleep(4)
    sink.emit("error.d")
    assert sink.last("anomaly.rate").data == {"count": 3}
    await asyncio.sleep(5.5)
    assert sink.has("anomaly.rate")
    await asyncio.sleep(0.5)
    assert (sink.has("anomaly.rate"), detector.is_anomalous, detector.count) == (False, False, 1)
    assert detector.statistics() == {"count": 1, "anomalies": 1}
    await asyncio.sleep(4)
    assert_quiet(detector)


async def test_what_is_in_the_sink_already_counts_if_it_is_young_enough():
    sink = SignalSink(max_age=None)
    sink.emit("error.old")
    await asyncio.sleep(5)
    assert not AnomalyDetector(sink, threshold=1, window=0.1).is_anomalous
    assert AnomalyDetector(sink, threshold=1, window=6).is_anomalous


async def test_its_count_does_not_depend_on_how_much_the_sink_remembers():
    sink = SignalSink(max_capacity=1)
    detector = AnomalyDetector(sink, threshold=50)
    for _ in range(50):
        sink.emit("error.x")
    assert detector.is_anomalous


async def test_its_own_signal_is_no_error_even_if_the_pattern_says_so():
    sink = SignalSink()
    detector = AnomalyDetector(sink, "error.*", threshold=2, name="error.rate")
    sink.emit("error.a")
    sink.emit("error.b")
    assert detector.count == 2


async def test_a_coordinator_holds_back_while_there_are_too_many_errors():
    sink, starts = SignalSink(), []

    async def body(_):
        starts.append(now())

    options = {"signals": sink, "defer_on_signals": "anomaly.*", "max_defer_time": None}
    async with WorkCoordinator(body, **options) as coordinator:
        detector = AnomalyDetector(sink, threshold=2, window=10, low=0)
        sink.emit("error.a")
        sink.emit("error.b")
        await coordinator.enqueue(1)
        await coordinator.join()
    assert starts == [10]
    assert_quiet(coordinator, detector)


async def test_a_detector_that_is_closed_or_dropped_leaves_the_sink_alone():
    sink = SignalSink()
    detector = AnomalyDetector(sink, threshold=1)
    sink.emit("error.a")
    detector.close()
    detector.close()
    assert not sink.has("anomaly.rate")
    dropped = AnomalyDetector(sink, threshold=1)
    reference = weakref.ref(dropped)
    assert sink.has("anomaly.rate")
    del dropped
    await asyncio.sleep(10)  # its timer still holds it
    assert not sink.has("anomaly.rate")
    gc.collect()
    assert reference() is None
    sink.emit("error.b")
    assert not sink.has("anomaly.rate")


# Values.


def test_a_value_far_from_the_others_is_an_outlier_and_hides_no_later_one():
    chance = random.Random(1)
    detector = OutlierDetector()
    verdicts = [detector.check(chance.gauss(100, 5)) for _ in range(100)]
    assert verdicts[:10] == [None] * 10
    assert sum(verdict.is_outlier for verdict in verdicts[10:]) <= 3
    for _ in range(20):
        assert detector.check(200).is_outlier
        assert detector.check(20).score < -3.5
    assert not detector.check(103).is_outlier
    assert detector.statistics()["outliers"] >= 40


@pytest.mark.parametrize(("constant", "wild", "near"), [(100, 1_000_000, 100.5), (1e-6, 2e-6, 1.001e-6), (0, 1, 0)])
def test_after_equal_values_another_one_stands_out_at_any_scale(constant, wild, near):
    detector = OutlierDetector()
    for _ in range(10):
        detector.check(constant)
    assert not detector.check(near).is_outlier
    assert detector.check(wild).is_outlier


def test_mostly_equal_values_have_a_deviation_too():
    detector = OutlierDetector()
    for value in [5] * 8 + [9, 1]:
        detector.check(value)
    assert not detector.check(6).is_outlier
    assert detector.check(50).is_outlier


async def test_a_new_level_becomes_normal_and_old_values_go():
    detector = OutlierDetector(size=20, window=60)
    for value in range(20):
        detector.check(value % 3)
    assert detector.check(50).is_outlier
    for value in range(11):
        detector.check(50 + value % 3)
    assert not detector.check(51).is_outlier
    await asyncio.sleep(60)
    assert detector.check(7) is None
    await asyncio.sleep(60)
    assert_quiet(detector)


async def test_values_are_heard_compared_within_their_key_and_outliers_said():
    sink = SignalSink()
    detector = OutlierDetector(sink, "latency", min_samples=3, value_of=lambda event: event.data["ms"])
    for ms in (10, 11, 12, 10, 500):
        sink.emit("latency", {"ms": ms}, key="a")
        sink.emit("latency", {"ms": ms * 50}, key="b")
    assert [(event.key, event.data["value"], event.data["median"]) for event in sink.events("anomaly.detected")] == [
        ("a", 500, 10.5),
        ("b", 25000, 525),
    ]
    for value in (math.nan, math.inf, "fast", True, None):
        sink.emit("latency", {"ms": value}, key="a")
    assert detector.statistics() == {"checked": 10, "outliers": 2, "ignored": 5, "keys": 2, "evicted": 0}
    detector.close()
    sink.emit("latency", {"ms": 1}, key="a")
    assert detector.statistics()["checked"] == 10
    assert_quiet(detector)


@pytest.mark.parametrize("value", [math.nan, math.inf, "1", None, True])
def test_what_is_no_finite_number_is_refused_and_not_remembered(value):
    detector = OutlierDetector(min_samples=2)
    with pytest.raises(InvalidOption, match="value"):
        detector.check(value)
    detector.check(1)
    detector.check(1)
    assert detector.check(1).count == 2


# Entropy.


def test_one_value_for_ever_is_as_repetitive_as_can_be():
    analyzer = EntropyAnalyzer()
    assert [analyzer.note("/a") for _ in range(12)] == [None] * 9 + ["repetitive"] * 3
    assert analyzer.entropy() == 0


@pytest.mark.parametrize("count", [10, 50, 100])
def test_different_values_are_random_however_many_there_are(count):
    analyzer = EntropyAnalyzer()
    assert [analyzer.note(number) for number in range(count)][-1] == "random"
    assert analyzer.entropy() == pytest.approx(1)


@given(st.lists(st.sampled_from([-1, -2, "a", "b", None, 1.5]), min_size=10, max_size=60), st.integers(10, 30))
def test_the_entropy_of_the_newest_values_is_what_it_should_be(values, size):
    analyzer = EntropyAnalyzer(size=size)
    for value in values:
        analyzer.note(value)
    newest = values[-size:]
    bits = -sum(newest.count(each) / len(newest) * math.log2(newest.count(each) / len(newest)) for each in set(newest))
    assert analyzer.entropy() == pytest.approx(bits / math.log2(len(newest)))


async def test_a_change_of_the_verdict_is_said_once_with_the_key():
    sink = SignalSink()
    analyzer = EntropyAnalyzer(sink, "page.*", min_samples=4, size=8)
    for name in ["page.a"] * 10 + ["page.a", "page.b"] * 5 + [f"page.{number}" for number in range(12)]:
        sink.emit(name, key="ada")
    assert [event.name for event in sink.events(pattern="entropy.*", key="ada")] == [
        "entropy.low",
        "entropy.normal",
        "entropy.high",
    ]
    assert analyzer.statistics() == {"noted": 32, "ignored": 0, "random": 1, "repetitive": 1, "keys": 1, "evicted": 0}
    await asyncio.sleep(900)
    assert_quiet(analyzer)


async def test_values_leave_with_the_window_and_unhashable_ones_are_left_out():
    sink = SignalSink()
    analyzer = EntropyAnalyzer(sink, "page", window=10, min_samples=2, value_of=lambda event: event.data)
    for page in ("a", "a", []):
        sink.emit("page", page, key="k")
    assert (analyzer.entropy("k"), analyzer.statistics()["ignored"]) == (0, 1)
    await asyncio.sleep(10)
    assert analyzer.entropy("k") is None
    with pytest.raises(TypeError):
        analyzer.note([])
    analyzer.close()
    sink.emit("page", "a", key="k")
    assert analyzer.statistics()["noted"] == 2


# All.


def test_a_value_is_forgotten_at_once():
    analyzer = EntropyAnalyzer()
    assert_forgotten_sync(analyzer.note)


@pytest.mark.parametrize("make", [BurstDetector, OutlierDetector, EntropyAnalyzer])
async def test_a_key_is_forgotten_when_it_has_been_idle_for_the_window(make):
    detector, key = make(window=10), Payload()
    reference = weakref.ref(key)
    if make is OutlierDetector:
        detector.check(1, key)
    else:
        detector.note(*([key] if make is BurstDetector else [1, key]))
    del key
    await asyncio.sleep(10)
    assert reference() is None
    assert_quiet(detector)


@pytest.mark.parametrize("make", [BurstDetector, OutlierDetector, EntropyAnalyzer])
def test_a_pattern_needs_a_sink(make):
    with pytest.raises(InvalidOption, match="pattern="):
        make(pattern="x.*")


@pytest.mark.parametrize(
    ("make", "option", "value"),
    [
        (BurstDetector, "threshold", 0),
        (BurstDetector, "low", 10),
        (BurstDetector, "window", 0),
        (BurstDetector, "max_keys", 0),
        (OutlierDetector, "threshold", 0),
        (OutlierDetector, "size", 1),
        (OutlierDetector, "min_samples", 101),
        (OutlierDetector, "value_of", 1),
        (EntropyAnalyzer, "low", 0.95),
        (EntropyAnalyzer, "min_samples", 1),
    ],
)
def test_a_wrong_option_is_refused(make, option, value):
    with pytest.raises(InvalidOption, match=f"{option}="):
        make(**{option: value})
