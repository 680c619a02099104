"""Waiting until enough have voted: reached, vetoed, out of time and cancelled are different things."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ephemerals.errors import InvalidOption, InvalidOptionType, SinkClosed
from ephemerals.signals import QuorumOutcome, SignalSink, quorum

from .support import ManualClock


@pytest.fixture
def sink():
    return SignalSink(clock=ManualClock())


async def voting(sink, *arguments, **options):
    task = asyncio.create_task(quorum(sink, *arguments, **options))
    await asyncio.sleep(0)
    return task


async def test_enough_different_voters_reach_it(sink):
    task = await voting(sink, "vote.*", 3, timeout=2)
    for name in ("vote.a", "vote.b", "other", "vote.c"):
        sink.emit(name)
    result = await task
    assert result
    assert result.outcome is QuorumOutcome.REACHED
    assert result.voters == ("vote.a", "vote.b", "vote.c")
    assert result.count == 3
    assert result.veto is None
    assert sink.statistics().subscriptions == 0


async def test_a_voter_counts_once(sink):
    task = await voting(sink, "vote", 2)
    for _ in range(3):
        sink.emit("vote", key="ada")
        sink.emit("vote", key="ada", operation_id=5)
    await asyncio.sleep(0)
    assert not task.done()
    sink.emit("vote", operation_id=5)
    assert (await task).voters == ("ada", 5)


async def test_who_a_voter_is_can_be_told(sink):
    task = await voting(sink, "vote", 2, by=lambda event: event.data)
    for data in (1, 1, 2):
        sink.emit("vote", data, key="same")
    assert (await task).voters == (1, 2)


async def test_a_veto_ends_it(sink):
    task = await voting(sink, "vote.*", 2, veto="*.no")
    sink.emit("vote.yes")
    veto = sink.emit("vote.no", key="bob")
    sink.emit("vote.sure")
    result = await task
    assert not result
    assert result.outcome is QuorumOutcome.VETOED
    assert result.veto is veto
    assert result.voters == ("vote.yes",)


async def test_earlier_votes_count_if_they_are_asked_for(sink):
    sink.emit("vote", key=1)
    sink.clock.advance(10)
    since = sink.clock.wall
    sink.emit("vote", key=2)
    task = await voting(sink, "vote", 2, since=since)
    assert not task.done()
    sink.emit("vote", key=3)
    assert (await task).voters == (2, 3)
    assert await quorum(sink, "vote", 2, since=since)
    sink.emit("no")
    assert (await quorum(sink, "vote", 4, since=since, veto="no")).outcome is QuorumOutcome.VETOED


async def test_running_out_of_time_is_a_result(sink):
    sink.emit("vote", key=1)
    result = await quorum(sink, "vote", 2, since=0, timeout=0.001)
    assert result.outcome is QuorumOutcome.TIMED_OUT
    assert result.voters == (1,)
    assert sink.statistics().subscriptions == 0


async def test_being_cancelled_is_none(sink):
    task = await voting(sink, "vote", 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sink.statistics().subscriptions == 0


async def test_closing_the_sink_ends_it(sink):
    task = await voting(sink, "vote", 2)
    await sink.aclose()
    with pytest.raises(SinkClosed):
        await task


async def test_votes_from_threads_are_not_lost(sink):
    task = await voting(sink, "vote", 400)
    threads = [
        threading.Thread(target=lambda part=part: [sink.emit("vote", key=(part, each)) for each in range(100)])
        for part in range(4)
    ]
    for thread in threads:
        thread.start()
    assert (await task).count == 400
    for thread in threads:
        thread.join()


async def test_what_makes_no_sense_is_refused(sink):
    with pytest.raises(InvalidOption):
        await quorum(sink, "vote", 0)
    with pytest.raises(InvalidOption):
        await quorum(sink, "", 1)
    with pytest.raises(InvalidOptionType):
        await quorum(sink, "vote", 1, by="key")
    with pytest.raises(InvalidOption):
        await quorum(sink, "vote", 1, timeout=-1)
