"""Read by mypy and pyright, never run: what signals look like to their users."""

from __future__ import annotations

from datetime import datetime
from typing import Any, assert_type

from ephemerals import Acknowledgement, AcknowledgementOutcome, Operation
from ephemerals.signals import (
    Contributors,
    DecayingScores,
    DependencyGraph,
    EarlyExit,
    Progress,
    QuorumResult,
    SignalDispatcher,
    SignalEvent,
    SignalKey,
    SignalSink,
    StageOutcome,
    Stages,
    StagesReport,
    Subscription,
    Watch,
    early_exit,
    forward,
    quorum,
)
from ephemerals.testing import capture, strict

BOT_SCORE = SignalKey[float]("bot.score")
sink = SignalSink()

assert_type(sink.emit(BOT_SCORE, 0.9), SignalEvent[float] | None)
assert_type(sink.emit("name", key=1), SignalEvent[Any] | None)
sink.emit(BOT_SCORE, "high")  # type: ignore[misc]  # pyright: ignore[reportArgumentType, reportCallIssue]
sink.emit(3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def typed(event: SignalEvent[float]) -> None:
    """Take an event with a number."""
    assert_type(event.data, float)
    assert_type(event.time, datetime)


def wrong(event: SignalEvent[str]) -> None:
    """Take an event with a text."""


async def later(event: SignalEvent) -> None:
    """Take any event, later."""
    assert_type(event, SignalEvent[Any])


assert_type(sink.subscribe(BOT_SCORE, typed), Subscription)
sink.subscribe("bot.*", typed)
sink.subscribe(["bot.*", "other"], later, retractions=True)
sink.subscribe(BOT_SCORE, wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@sink.on("bot.*")
def decorated(event: SignalEvent) -> int:
    """Stay what it is."""
    return event.sequence


assert_type(decorated(sink.events()[0]), int)


@sink.on(BOT_SCORE)
def scored(event: SignalEvent[float]) -> None:
    """Take an event with a number."""


async def use() -> None:
    """Use what waits."""
    with sink.hold("busy") as event, sink.watch("busy", print) as watch:
        assert_type(event, SignalEvent[Any] | None)
        assert_type(watch, Watch)
        assert_type(watch.present, bool)
    async for each in sink.stream("a.*"):
        assert_type(each, SignalEvent[Any])
    assert_type(await sink.wait_for("a", timeout=3), SignalEvent[Any])
    assert_type(await quorum(sink, "vote", 3), QuorumResult)
    with forward(sink, SignalSink()):
        pass
    contributors = Contributors[float](["a"])
    contributors.complete("a", 0.5)
    assert_type(dict((await contributors.wait()).results), dict[str, float])
    graph = DependencyGraph()
    assert_type((await graph.run()).results["a"], Any)
    scores = DecayingScores[str](60)
    assert_type(scores.add("ada", 3), float)
    dispatcher = SignalDispatcher(sink)
    dispatcher.on("*")(later)


stages = Stages(sink, exit_on="verdict.*", on_finished=lambda report: report.values)


@stages.when(BOT_SCORE, wave=1)
async def stage(event: SignalEvent[float]) -> float:
    """Stay what it is."""
    return event.data


async def with_helpers(operation: Operation[int]) -> None:
    """Use what takes part in an operation, or ends a block."""
    with operation.progress(total=10, name=SignalKey[dict[str, float]]("progress.rows")) as bar:
        assert_type(bar, Progress)
        bar.update()
        bar.update(0.5)
        bar.update("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert_type(bar.fraction, float | None)
    result = await operation.acknowledged(BOT_SCORE, timeout=None)
    assert_type(result, Acknowledgement)
    assert_type(result.outcome, AcknowledgementOutcome)
    await operation.acknowledged("seen")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    async with early_exit(sink, "stop") as decision:
        assert_type(decision, EarlyExit)
    assert_type(decision.event, SignalEvent[Any] | None)
    assert_type(await stage(sink.events()[0]), float)
    report = await stages.run(sink.events()[0])
    assert_type(report, StagesReport)
    assert_type(report.outcomes, tuple[StageOutcome, ...])
    with capture(sink, BOT_SCORE, strict=True) as events:
        assert_type(events, list[SignalEvent[Any]])
    async with strict(sink) as errors:
        assert_type(errors, list[BaseException])
