"""Tasks that wait for one another."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals.errors import DuplicateName, InvalidOption, InvalidOptionType
from ephemerals.signals import DependencyGraph, SignalSink, TaskStatus

from .support import names


def build(dependencies, log, *, failing=(), sink=None):
    graph = DependencyGraph(sink=sink)
    for name, after in dependencies.items():

        async def work(name=name):
            log.append(name)
            await asyncio.sleep(0)
            if name in failing:
                raise ValueError(name)

        graph.add(name, work, after=after)
    return graph


DIAMOND = {"a": "", "b": ["a"], "c": ["a"], "d": ["b", "c"]}
DIAMOND["a"] = []


async def test_each_starts_when_what_it_comes_after_has_completed():
    log = []
    report = await build(DIAMOND, log).run(max_concurrency=4)
    assert log == ["a", "b", "c", "d"]
    assert report
    assert set(report.statuses.values()) == {TaskStatus.COMPLETED}


async def test_results_are_handed_on():
    graph = DependencyGraph()

    @graph.task()
    async def load():
        return 20

    @graph.task("more", after=["load"])
    async def anything(results):
        return results["load"] + 1

    @graph.task(after=["load", "more"])
    async def add(results):
        return dict(results)

    assert (await graph.run()).results["add"] == {"load": 20, "more": 21}
    assert await load() == 20


async def test_what_comes_after_a_failure_is_skipped_and_the_rest_goes_on():
    log = []
    graph = build({"a": [], "b": ["a"], "c": ["b"], "d": ["c"], "e": ["a"], "f": ["e", "d"]}, log, failing=["b"])
    report = await graph.run(errors="collect")
    assert log == ["a", "b", "e"]
    assert report.statuses == {
        "a": "completed",
        "b": "failed",
        "e": "completed",
        "c": "skipped",
        "d": "skipped",
        "f": "skipped",
    }
    assert not report
    assert isinstance(report.errors["b"], ValueError)


async def test_failures_are_raised_when_everything_has_ended():
    log = []
    with pytest.raises(ExceptionGroup, match="2 of 3 tasks failed") as caught:
        await build({"a": [], "b": [], "c": []}, log, failing="ab").run()
    assert [str(error) for error in caught.value.exceptions] == ["a", "b"]
    assert log == ["a", "b", "c"]


async def test_no_more_at_once_than_allowed():
    running = most = 0

    async def work():
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    graph = DependencyGraph()
    for number in range(10):
        graph.add(f"n{number}", work)
    await graph.run(max_concurrency=3)
    assert most == 3
    await graph.run()
    assert most == 10


async def test_one_that_gives_up_is_cancelled_and_its_children_skipped():
    graph = DependencyGraph()

    @graph.task()
    async def give_up():
        raise asyncio.CancelledError

    graph.add("child", asyncio.sleep, after=["give_up"])
    report = await graph.run()
    assert report.statuses == {"give_up": "cancelled", "child": "skipped"}


async def test_being_cancelled_cancels_what_runs():
    graph = DependencyGraph()
    started, log = asyncio.Event(), []

    @graph.task()
    async def hang():
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            log.append("unwound")

    task = asyncio.create_task(graph.run())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["unwound"]


async def test_it_tells_a_sink():
    sink = SignalSink()
    await build({"test": [], "next": ["test"], "last": ["next"]}, [], failing=["next"], sink=sink).run(errors="collect")
    assert [
        (name.removeprefix("graph.task."), event.key)
        for name, event in zip(names(sink.events()), sink.events(), strict=True)
    ] == [
        ("started", "test"),
        ("completed", "test"),
        ("started", "next"),
        ("failed", "next"),
        ("skipped", "last"),
    ]


async def test_it_may_be_run_again():
    log = []
    graph = build(DIAMOND, log)
    await asyncio.gather(graph.run(), graph.run())
    assert sorted(log) == sorted(2 * "abcd")
    assert await DependencyGraph().run()


def test_an_order_can_be_asked_for():
    assert build(DIAMOND, []).order() == ("a", "b", "c", "d")


async def test_a_circle_is_refused():
    graph = build({"a": ["c"], "b": ["a"], "c": ["b"]}, [])
    with pytest.raises(InvalidOption, match="no circle"):
        await graph.run()
    with pytest.raises(InvalidOption):
        graph.order()


async def test_what_makes_no_sense_is_refused():
    async def work(): ...

    graph = DependencyGraph()
    graph.add("a", work, after=["missing"])
    with pytest.raises(DuplicateName):
        graph.add("a", work)
    with pytest.raises(InvalidOption, match="'missing'"):
        await graph.run()

    async def greedy(one, two): ...

    async def keyword(*, one): ...

    for function in (print, 3, greedy, keyword):
        with pytest.raises(InvalidOptionType):
            graph.add("b", function)
    with pytest.raises(InvalidOptionType):
        graph.add("b", work, after="a")
    with pytest.raises(InvalidOption):
        await DependencyGraph().run(max_concurrency=0)
    with pytest.raises(InvalidOption):
        await DependencyGraph().run(errors="ignore")


@given(st.integers(1, 12), st.randoms(use_true_random=False), st.one_of(st.none(), st.integers(1, 3)))
def test_any_graph_runs_in_order_each_once(size, rng, limit):
    dependencies = {f"n{i}": [f"n{j}" for j in range(i) if rng.random() < 0.3] for i in range(size)}
    failing = {name for name in dependencies if rng.random() < 0.2}
    log = []
    shuffled = dict(random.Random(size).sample(list(dependencies.items()), size))
    report = asyncio.run(build(shuffled, log, failing=failing).run(max_concurrency=limit, errors="collect"))
    assert len(set(log)) == len(log)
    assert set(report.statuses) == set(dependencies)
    for name, after in dependencies.items():
        is_ready = all(report.statuses[each] == "completed" for each in after)
        assert (name in log) is is_ready
        assert report.statuses[name] == ("skipped" if not is_ready else "failed" if name in failing else "completed")
        if is_ready:
            assert all(log.index(each) < log.index(name) for each in after)
