"""Options: frozen, keyword-only, validated once, with errors that say what is allowed."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta

import pytest

from ephemerals import Clock, EphemeralOptions, InvalidOption, InvalidOptionType, WorkCoordinator
from ephemerals.options import OptionKeywords, default_concurrency


async def body(item):
    return item


COUNTS = ["max_concurrency", "max_concurrency_per_key", "fair_scheduling_threshold", "max_operation_signals"]
COUNTS_OR_NONE = ["max_pending", "starvation_limit"]
FROM_ZERO = ["echo_capacity"]
FROM_ZERO_OR_NONE = ["max_tracked_operations", "max_pinned"]
SPANS_OR_NONE = ["operation_timeout", "max_operation_lifetime", "max_defer_time"]
SPANS_FROM_ZERO = ["echo_retention", "sample_interval"]
CHOICES = {
    "overflow": "'wait', 'reject', 'drop_oldest'",
    "run_in": "'thread', 'process'",
    "context": "'inherit', 'fresh'",
    "error_detail": "'type', 'message', 'exception'",
    "key_privacy": "'plain', 'hashed'",
    "on_defer_timeout": "'run', 'skip'",
    "clear": "'all', 'matching'",
}
CALLBACKS = ["on_finalized", "on_sample", "on_signal", "on_signal_retracted"]
PATTERNS = [
    "cancel_on_signals",
    "defer_on_signals",
    "resume_on_signals",
    "clear_on_signals",
    "drain_on_signals",
]
OTHERS = ["name", "fair_scheduling", "signals", "clock"]

WRONG = [
    *((name, value, "an int of at least 1") for name in COUNTS + COUNTS_OR_NONE for value in (0, -1, 1.5, "4", True)),
    *((name, None, "an int of at least 1") for name in COUNTS),
    *((name, value, "an int of at least 0") for name in FROM_ZERO + FROM_ZERO_OR_NONE for value in (-1, 1.5, "4")),
    *((name, None, "an int of at least 0") for name in FROM_ZERO),
    *(
        (name, value, "more than 0")
        for name in SPANS_OR_NONE
        for value in (0, -1, -0.5, math.inf, math.nan, "5", True, timedelta(0), timedelta(seconds=-1))
    ),
    *(
        (name, value, "0 or more")
        for name in SPANS_FROM_ZERO
        for value in (-1, math.inf, math.nan, "5", None, True, timedelta(seconds=-1))
    ),
    *((name, value, allowed) for name, allowed in CHOICES.items() for value in ("", "other", None, 1, ["wait"])),
    *((name, value, "that can be called as ") for name in CALLBACKS for value in (1, "print", ["print"])),
    *((name, value, "signal patterns") for name in PATTERNS for value in (1, [1], b"a.*", {"a.*": 1}, None)),
    *((name, value, "not empty") for name in PATTERNS for value in ("", " , ", ["a", ""])),
    ("name", 1, "a text, or None"),
    ("name", " ", "a text that is not empty"),
    ("fair_scheduling", 1, "True or False"),
    ("fair_scheduling", None, "True or False"),
    ("signals", object(), "a SignalSink, or None"),
    *(("retry", value, "a RetryPolicy, or None") for value in (3, "3", len)),
    *(("limiter", value, "a limiter such as TokenBucket, or None") for value in (10, "10", len)),
    ("clock", None, "a Clock"),
    ("clock", 1.0, "a Clock"),
]


@pytest.mark.parametrize(("option", "value", "allowed"), WRONG)
def test_a_wrong_value_is_refused_with_the_option_the_value_and_what_is_allowed(option, value, allowed):
    for construct in (lambda: EphemeralOptions(**{option: value}), lambda: WorkCoordinator(body, **{option: value})):
        with pytest.raises(InvalidOption) as caught:
            construct()
        error = caught.value
        assert error.option == option
        assert f"{option}={error.value!r} is not allowed: expected " in str(error)
        assert allowed in error.allowed
        assert isinstance(error, ValueError)
        assert isinstance(error, TypeError) == isinstance(error, InvalidOptionType)


def test_the_table_of_wrong_values_knows_every_option():
    assert {option for option, _, _ in WRONG} == {each.name for each in fields(EphemeralOptions)}


def test_the_keywords_for_type_checkers_are_the_options():
    assert OptionKeywords.__annotations__.keys() == {each.name for each in fields(EphemeralOptions)}


@pytest.mark.parametrize(("option", "value"), [("max_concurrency", 1.5), ("name", 7), ("clock", None)])
def test_a_value_of_the_wrong_type_is_a_type_error_too(option, value):
    with pytest.raises(TypeError):
        EphemeralOptions(**{option: value})


def test_a_value_that_is_only_wrong_is_no_type_error():
    with pytest.raises(InvalidOption) as caught:
        EphemeralOptions(max_pending=0)
    assert not isinstance(caught.value, TypeError)


@pytest.mark.parametrize("option", COUNTS_OR_NONE + FROM_ZERO_OR_NONE + SPANS_OR_NONE + CALLBACKS + ["name", "signals"])
def test_none_means_no_limit_or_none_at_all_where_it_is_allowed(option):
    assert getattr(EphemeralOptions(**{option: None}), option) is None


def test_zero_is_a_number_and_not_another_word_for_none():
    options = EphemeralOptions(max_tracked_operations=0, max_pinned=0, echo_capacity=0, echo_retention=0)
    assert (options.max_tracked_operations, options.max_pinned, options.echo_capacity) == (0, 0, 0)


@pytest.mark.parametrize("option", SPANS_OR_NONE + SPANS_FROM_ZERO)
def test_a_time_span_is_seconds_or_a_timedelta_and_is_kept_as_float_seconds(option):
    for value in (90, 90.0, timedelta(minutes=1, seconds=30)):
        kept = getattr(EphemeralOptions(**{option: value}), option)
        assert kept == 90.0
        assert isinstance(kept, float)


def test_the_defaults_are_the_documented_ones():
    options = EphemeralOptions()
    assert options.max_concurrency == default_concurrency() >= 1
    assert options.max_pending == 1000
    assert options.max_tracked_operations == 200
    assert options.max_operation_lifetime == 300.0
    assert options.max_pinned == 100
    assert options.max_concurrency_per_key == 1
    assert options.fair_scheduling is False
    assert options.fair_scheduling_threshold == 10
    assert options.echo_retention == 60.0
    assert options.echo_capacity == 256
    assert options.sample_interval == 1.0
    assert options.max_operation_signals == 256
    assert options.error_detail == "message"
    assert options.overflow == "wait"
    assert options.operation_timeout is None


def test_without_a_known_number_of_processors_one_body_runs_at_a_time(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert EphemeralOptions().max_concurrency == 1


def test_the_history_and_the_queue_are_bounded_by_two_options():  # fault OP3
    options = EphemeralOptions(max_tracked_operations=1)
    assert options.max_pending == 1000


def test_options_are_frozen():
    options = EphemeralOptions()
    with pytest.raises(FrozenInstanceError):
        options.max_concurrency = 2


def test_options_are_keyword_only():
    with pytest.raises(TypeError):
        EphemeralOptions(4)


def test_an_unknown_option_is_refused_with_the_closest_name():
    with pytest.raises(TypeError, match="no option named 'max_concurency'; did you mean 'max_concurrency'"):
        EphemeralOptions(max_concurency=4)
    with pytest.raises(TypeError, match="no option named 'zzz'$"):
        WorkCoordinator(body, zzz=4)


def test_patterns_may_be_one_text_or_several_and_become_a_tuple():
    options = EphemeralOptions(cancel_on_signals="a.*, b", defer_on_signals=["a", "b"], drain_on_signals=())
    assert options.cancel_on_signals == ("a.*, b",)
    assert options.defer_on_signals == ("a", "b")
    assert options.drain_on_signals == ()


def test_a_copy_with_changes_is_validated_and_leaves_the_original():
    options = EphemeralOptions(max_concurrency=2, name="mail")
    changed = options.replace(max_concurrency=3)
    assert (changed.max_concurrency, changed.name) == (3, "mail")
    assert options.max_concurrency == 2
    with pytest.raises(InvalidOption, match="max_concurrency=0"):
        options.replace(max_concurrency=0)


def test_a_keyword_wins_over_a_ready_options_object():
    options = EphemeralOptions(max_concurrency=2, max_pending=7)
    coordinator = WorkCoordinator(body, options=options, max_concurrency=3)
    assert (coordinator.options.max_concurrency, coordinator.options.max_pending) == (3, 7)
    assert WorkCoordinator(body, options=options).options is options


@pytest.mark.parametrize("wrong", [{"max_concurrency": 2}, 4, "options"])
def test_options_must_be_an_options_object(wrong):
    with pytest.raises(InvalidOptionType, match="options="):
        WorkCoordinator(body, options=wrong)


def test_the_clock_is_the_one_that_was_given():
    clock = Clock(monotonic=lambda: 1.0, time=lambda: 2.0)
    assert EphemeralOptions(clock=clock).clock is clock


def test_a_name_is_the_coordinators_name_and_by_default_the_bodys():
    assert WorkCoordinator(body, name="mail").name == "mail"
    assert WorkCoordinator(body).name.startswith("body-")
    assert WorkCoordinator(body).name != WorkCoordinator(body).name


@pytest.mark.parametrize("option", fields(EphemeralOptions), ids=lambda option: option.name)
def test_help_says_of_every_option_its_unit_its_default_and_what_none_means(option):
    described = inspect.getdoc(EphemeralOptions).partition("Attributes:\n")[2]
    entries = dict(re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", described, flags=re.MULTILINE))
    assert list(entries) == [each.name for each in fields(EphemeralOptions)]
    sentence = " ".join(entries[option.name].split())
    assert "default" in sentence
    assert ("`None`" in sentence) == option.metadata["optional"]
    if option.name in SPANS_OR_NONE + SPANS_FROM_ZERO:
        assert "Seconds" in sentence
    if option.name in CHOICES:
        for choice in re.findall(r"'(\w+)'", CHOICES[option.name]):
            assert f'`"{choice}"`' in sentence
        assert f'`"{option.default}"` (the default)' in sentence
    elif isinstance(option.default, int | float) and option.name != "max_concurrency":
        assert re.search(rf"default `?{option.default:g}\b" if option.default is not False else "`False`", sentence)
