"""Causes: carried along by context, and cut where a chain is too long, comes back, or has ended."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from ephemerals.errors import InvalidOption, InvalidOptionType
from ephemerals.signals import BlockReason, SignalConstraints, SignalSink, current_cause, uncaused

from .support import names


def chained(sink, *signals):
    """Let each signal be emitted by a handler of the one before."""
    for name, following in itertools.pairwise(signals):
        sink.subscribe(name, lambda event, following=following: sink.emit(following))
    sink.emit(signals[0])


def test_a_signal_that_nothing_caused_is_a_root():
    event = SignalSink().emit("a")
    assert event.propagation.names == ("a",)
    assert event.propagation.depth == len(event.propagation) == 1
    assert event.propagation.is_root


def test_a_handler_continues_the_chain_by_itself():
    sink = SignalSink()
    chained(sink, "a", "b", "c")
    chain = sink.last("c").propagation
    assert chain.names == ("a", "b", "c")
    assert str(chain) == "a -> b -> c"
    assert repr(chain) == "<Propagation a -> b -> c>"
    assert chain.depth == 3
    assert not chain.is_root
    assert "b" in chain
    assert "x" not in chain
    assert chain == sink.last("c").propagation
    assert hash(chain) == hash(sink.last("c").propagation)
    assert chain != sink.last("b").propagation
    assert chain != "a -> b -> c"


def test_the_cause_can_be_asked_for():
    sink = SignalSink()
    seen = []
    sink.subscribe("a", lambda event: seen.append(current_cause()))
    sink.emit("a")
    assert str(seen[0]) == "a"
    assert current_cause() is None


async def test_a_task_started_by_a_handler_carries_it_on():
    sink = SignalSink()
    tasks = []

    async def work():
        await asyncio.sleep(0)
        sink.emit("b")

    sink.subscribe("a", lambda event: tasks.append(asyncio.create_task(work())))
    sink.emit("a")
    await tasks[0]
    assert sink.last("b").propagation.names == ("a", "b")


def test_uncaused_starts_a_new_chain():
    sink = SignalSink()

    def handle(event):
        with uncaused():
            sink.emit("b")
        sink.emit("c")

    sink.subscribe("a", handle)
    sink.emit("a")
    assert sink.last("b").propagation.is_root
    assert sink.last("c").propagation.names == ("a", "c")


def test_a_chain_has_at_most_max_depth_events():
    sink = SignalSink(constraints=SignalConstraints(max_depth=3))
    chained(sink, *"abcde")
    assert names(sink.events()) == ["a", "b", "c"]
    assert sink.statistics().blocked == 1


def test_by_default_that_is_ten():
    sink = SignalSink()
    chained(sink, *"abcdefghijklm")
    assert names(sink.events()) == list("abcdefghij")


def test_without_limits_it_goes_on():
    sink = SignalSink(constraints=SignalConstraints(max_depth=None, block_cycles=False))
    count = []
    sink.subscribe("a", lambda event: len(count) < 100 and (count.append(1), sink.emit("a")))
    sink.emit("a")
    assert sink.count() == 101
    assert sink.last().propagation.depth == 101


def test_emit_says_when_it_was_blocked():
    sink = SignalSink()
    got = []
    sink.subscribe("a", lambda event: got.append(sink.emit("a")))
    assert sink.emit("a") is not None
    assert got == [None]


def test_two_handlers_that_answer_each_other_are_reported_once(caplog):
    blocked = []
    sink = SignalSink(constraints=SignalConstraints(on_blocked=lambda event, why: blocked.append((event, why))))
    with caplog.at_level(logging.WARNING, "ephemerals.signals"):
        chained(sink, "ping", "pong", "ping")
        ((event, reason),) = blocked
        assert (event.name, event.sequence, reason) == ("ping", 0, BlockReason.CYCLE)
        assert event.propagation.names == ("ping", "pong", "ping")
        assert names(sink.events()) == ["ping", "pong"]
        sink.emit("ping")
    assert len(blocked) == 2
    assert caplog.text.count("'ping' blocked (cycle): ping -> pong -> ping") == 1


def test_handlers_of_a_terminal_signal_may_not_emit(caplog):
    sink = SignalSink(constraints=SignalConstraints(terminal="*.done"))
    chained(sink, "job.started", "job.done", "job.archived")
    assert names(sink.events()) == ["job.started", "job.done"]
    assert "terminal" in caplog.text


def test_what_a_leaf_causes_is_left_out_without_a_word(caplog):
    reasons = []
    constraints = SignalConstraints(leaf=["b", "log.*"], on_blocked=lambda event, reason: reasons.append(reason))
    sink = SignalSink(constraints=constraints)
    chained(sink, "a", "b", "a")  # the loop that a leaf makes endless in the reference
    chained(sink, "log.line", "more")
    assert names(sink.events()) == ["a", "b", "log.line"]
    assert set(reasons) == {BlockReason.CYCLE, BlockReason.LEAF}
    assert "leaf" not in caplog.text


def test_a_cycle_is_a_matter_of_one_sink():
    here, there = SignalSink(), SignalSink()
    here.subscribe("a", lambda event: there.emit("a"))
    there.subscribe("a", lambda event: here.emit("a"))
    here.emit("a")
    assert here.count() == there.count() == 1


def test_a_hook_that_fails_goes_no_further(caplog):
    sink = SignalSink(constraints=SignalConstraints(on_blocked=lambda event, reason: 1 / 0))
    chained(sink, "a", "a")
    assert sink.count() == 1
    assert "on_blocked failed on 'a': ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_depth": 0}, InvalidOption),
        ({"max_depth": "3"}, InvalidOptionType),
        ({"terminal": ""}, InvalidOption),
        ({"leaf": 3}, InvalidOptionType),
        ({"on_blocked": 3}, InvalidOptionType),
    ],
)
def test_what_makes_no_sense_is_refused(options, error):
    with pytest.raises(error):
        SignalConstraints(**options)
