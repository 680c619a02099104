"""Read by mypy and pyright, never run: the types that users of pipelines, schedules and their like see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

from ephemerals import Background, CoordinatorStatistics, Operation
from ephemerals.atoms import Escalator, LastWords, Occurrence, Scheduled, ScheduledJob
from ephemerals.patterns import Molecule, Molecules, Pipeline, Step
from ephemerals.signals import SignalSink

if TYPE_CHECKING:
    from datetime import datetime

    from ephemerals import Echo
    from ephemerals.patterns import MoleculeRun
    from ephemerals.signals import SignalEvent


async def fetch(url: str) -> bytes:
    """Be an async stage."""
    return url.encode()


def measure(page: bytes) -> int:
    """Be a plain stage."""
    return len(page)


async def use_pipelines() -> None:
    """Know what comes out of each stage."""
    pipeline = Pipeline(["a", "b"]).stage(fetch, 16)
    assert_type(pipeline, Pipeline[bytes])
    longer = pipeline.stage(measure, max_pending=3, errors="skip", ordered=True)
    assert_type(longer, Pipeline[int])
    async with longer as lengths:
        async for length in lengths:
            assert_type(length, int)
        assert_type(await lengths.drain(), list[int])
    assert_type(await pipeline.run(), tuple[CoordinatorStatistics, ...])
    pipeline.stage(measure, errors="ignore")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


scheduled = Scheduled(max_sleep=None, max_concurrency=3)


@scheduled.job("0 2 * * *", tz="Europe/Berlin")
async def report(occurrence: Occurrence) -> str:
    """Be a job, and stay a function."""
    return occurrence.job


async def use_schedules() -> None:
    """Keep the types of what is declared."""
    assert_type(await report(Occurrence(job="x", scheduled_at=scheduled_at())), str)
    scheduled.add(ScheduledJob(name="tick", cron="* * * * *", signal="tick"))
    assert_type(scheduled.trigger("tick"), Operation[Any] | None)
    assert_type(scheduled.coordinator, Background)


def scheduled_at() -> datetime:
    """Return a time."""
    raise NotImplementedError


async def keep(echo: Echo) -> None:
    """Persist an echo."""


async def store(event: SignalEvent[object]) -> None:
    """Persist an event."""


async def reserve(run: MoleculeRun) -> None:
    """Be a step."""


async def use_the_rest() -> None:
    """Take functions of the right kinds."""
    sink = SignalSink()
    order = Molecule("order", "order.*", Step(reserve, compensate=reserve), reserve)
    async with (
        LastWords(keep, capture="audit.*"),
        Escalator(sink, targets={"db": store}),
        Molecules(sink, order, concurrency=2),
    ):
        pass
