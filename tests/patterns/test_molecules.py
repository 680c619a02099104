"""Molecules: steps in order, started by signals, undone in reverse when they do not get to the end."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals import CoordinatorClosed, DuplicateName, InvalidBody, InvalidOption
from ephemerals.atoms import RetryPolicy
from ephemerals.patterns import Molecule, Molecules, Step
from ephemerals.signals import SignalSink
from ephemerals.testing import VirtualClock, assert_forgotten, assert_quiet, run


def now():
    return VirtualClock.current().monotonic() - 1000


class Log(list):
    """Make steps that note what they do, take some seconds, and may fail."""

    def step(self, name, seconds=0, *, fails=None, undoing_fails=None, undo=True):
        async def action(run):
            self.append(name)
            await asyncio.sleep(seconds)
            if fails is not None:
                raise fails
            return f"{name} of {run.event.data}"

        async def compensate(run):
            await asyncio.sleep(seconds)
            if undoing_fails is not None:
                raise undoing_fails
            self.append(f"-{name}")

        return Step(action, compensate if undo else None, name=name)


def said(sink):
    return [
        (event.name.removeprefix("molecule."), event.data.get("step")) for event in sink.events(pattern="molecule.*")
    ]


async def test_one_signal_one_run_of_one_step():
    """[atoms:molecules] 153."""
    sink, ran = SignalSink(), []
    async with Molecules(sink, Molecule("watch", "order.*", lambda run: ran.append(run.event.name))) as molecules:
        sink.emit("order.ready")
        sink.emit("orders")
        await molecules.join()
        assert ran == ["order.ready"]
    sink.emit("order.late")
    assert ran == ["order.ready"]
    with pytest.raises(CoordinatorClosed):
        await molecules.__aenter__()
    assert_quiet(molecules)


async def test_steps_run_in_order_those_added_later_too():
    """[atoms:molecules] 154."""
    sink, log = SignalSink(), Log()
    order = Molecule("order", "order.*", log.step("payment", 1))
    order.add(log.step("inventory"))
    async with Molecules(sink, order):
        sink.emit("order.placed", "a book")
        await sink.wait_for("molecule.completed", timeout=1.1)
        assert log == ["payment", "inventory"]
    assert said(sink) == [("started", None), ("completed", None)]


async def test_a_step_that_was_removed_does_not_run():
    """[atoms:molecules] 155."""
    sink, log = SignalSink(), Log()
    order = Molecule("order", "order.*", log.step("payment"), log.step("inventory"))
    assert order.remove("inventory")
    assert not order.remove("inventory")
    async with Molecules(sink, order) as molecules:
        sink.emit("order.placed")
    assert log == ["payment"]
    assert molecules.statistics().completed == 1


async def test_a_run_keeps_the_steps_it_began_with():
    sink, log = SignalSink(), Log()
    order = Molecule("order", "order", log.step("a", 10), log.step("b"))
    async with Molecules(sink, order):
        sink.emit("order")
        await asyncio.sleep(5)
        order.remove("b")
        order.add(log.step("c"))
        await asyncio.sleep(10)
        assert log == ["a", "b"]
        sink.emit("order")
    assert log == ["a", "b", "a", "c"]


async def test_steps_see_the_event_and_what_came_before():
    sink, seen = SignalSink(), []

    async def first(run):
        run.data["left"] = 3
        return run.event.data + 1

    def second(run):  # a plain function, in a thread
        seen.append((run.molecule, run.event.key, dict(run.data), dict(run.results)))

    async with Molecules(sink, Molecule("sum", "sum", Step(first, name="first"), second)) as molecules:
        sink.emit("sum", 41, key="k")
    assert seen == [("sum", "k", {"left": 3}, {"first": 42})]
    assert_quiet(molecules)


async def test_every_step_is_an_operation():
    sink, log = SignalSink(), Log()
    async with Molecules(sink, Molecule("order", "order", log.step("a", 1), log.step("b", 5))) as molecules:
        sink.emit("order")
        await asyncio.sleep(3)
        assert [each.name for each in molecules.runs.running()] == ["order"]
        assert [each.name for each in molecules.steps.running()] == ["b"]
        assert [each.name for each in molecules.steps.completed()] == ["a"]


async def test_after_a_failure_what_was_done_is_undone_in_reverse():
    sink, log = SignalSink(max_age=None), Log()
    steps = [log.step("a", 1), log.step("b", 1), log.step("c", undo=False), log.step("d", fails=OSError("secret"))]
    async with Molecules(sink, Molecule("order", "order", *steps, log.step("e"))) as molecules:
        sink.emit("order")
        await molecules.join()
        (failed,) = molecules.runs.failed()
        assert failed.error.type == "OSError"
    assert log == ["a", "b", "c", "d", "-b", "-a"]
    assert said(sink) == [("started", None), ("failed", "d"), ("compensated", "b"), ("compensated", "a")]
    assert sink.last("molecule.failed").data == {"molecule": "order", "step": "d", "error": "OSError"}
    counts = molecules.statistics()
    assert (counts.failed, counts.compensated, counts.not_compensated) == (1, 2, 0)
    assert_quiet(molecules)


async def test_undoing_goes_on_after_one_that_fails(caplog):
    sink, log = SignalSink(), Log()
    steps = [
        log.step("a"),
        log.step("b", undoing_fails=KeyError("secret")),
        log.step("c"),
        log.step("d", fails=OSError()),
    ]
    async with Molecules(sink, Molecule("order", "order", *steps)) as molecules:
        sink.emit("order")
        await molecules.join()
        assert molecules.runs.failed()[0].error.type == "OSError"
    assert log == ["a", "b", "c", "d", "-c", "-a"]
    assert said(sink)[2:] == [("compensated", "c"), ("not_compensated", "b"), ("compensated", "a")]
    assert molecules.statistics().not_compensated == 1
    assert "step b is not undone" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("how", ["one", "all", "leave"])
async def test_a_run_that_is_cancelled_is_undone_too_and_is_no_failure(how):
    sink, log = SignalSink(), Log()
    order = Molecule("order", "order", log.step("a", 1), log.step("b", 100))
    with pytest.raises(ZeroDivisionError):
        async with Molecules(sink, order) as molecules:
            sink.emit("order")
            await asyncio.sleep(10)
            if how == "one":
                assert molecules.runs.cancel_operation(molecules.runs.running()[0].id)
                await molecules.join()
            elif how == "all":
                await molecules.aclose(grace=5)
            raise ZeroDivisionError
    assert log == ["a", "b", "-a"]
    assert said(sink) == [("started", None), ("compensated", "a")]
    counts = molecules.statistics()
    assert (counts.failed, counts.cancelled, counts.compensated) == (0, 1, 1)
    assert_quiet(molecules)


async def test_a_step_that_completes_in_the_moment_of_the_cancellation_is_undone_too():
    sink, log = SignalSink(), Log()
    async with Molecules(sink, Molecule("order", "order", log.step("a", 1), log.step("b", 1))) as molecules:
        sink.emit("order")
        await asyncio.sleep(0.5)
        (operation,) = molecules.runs.running()
        molecules.steps.engine.listen(on_end=lambda _: molecules.runs.cancel_operation(operation.id))
        await molecules.join()
    assert log == ["a", "-a"]
    assert molecules.statistics().cancelled == 1


async def test_a_step_that_takes_no_notice_of_its_cancellation_is_waited_for():
    sink, log = SignalSink(), []

    async def stubborn(run):
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            await asyncio.sleep(3)
        log.append(("done", now()))

    async def undo(run):
        log.append(("undone", now()))

    async with Molecules(sink, Molecule("order", "order", Step(stubborn, undo))) as molecules:
        sink.emit("order")
        await asyncio.sleep(1)
        molecules.runs.cancel_operation(molecules.runs.running()[0].id)
        await molecules.join()
    assert log == [("done", 4), ("undone", 4)]


async def test_steps_are_retried_and_timed_out_like_anything_else():
    sink, calls = SignalSink(max_age=None), []

    async def flaky(run):
        calls.append(now())
        if len(calls) < 3:
            raise OSError

    async def slow(run):
        await asyncio.sleep(100)

    order = Molecule("order", "order", flaky, Step(slow, timeout=7))
    policy = RetryPolicy(initial=1, jitter=False, retry_on=OSError)
    async with Molecules(sink, order, retry=policy) as molecules:
        sink.emit("order")
        await molecules.join()
        assert molecules.runs.failed()[0].error.type == "ephemerals.errors.OperationTimeout"
    assert calls == [0, 1, 3]


async def test_so_many_runs_at_once_and_what_has_no_room_is_refused():
    sink, log = SignalSink(), Log()
    order = Molecule("order", "order", log.step("a", 10))
    async with Molecules(sink, order, concurrency=2, max_waiting=3) as molecules:
        for _ in range(10):
            sink.emit("order")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        counts = molecules.statistics()
        assert (counts.running, counts.waiting, counts.refused) == (2, 3, 5)
    assert len(log) == 5
    assert now() == 30


async def test_only_what_it_is_for_starts_it():
    sink, log = SignalSink(), Log()
    order = Molecule("order", "order", log.step("a"), when=lambda event: event.data > 3)
    async with Molecules(sink, order) as molecules:
        for number in (1, 5, 2, 7):
            sink.emit("order", number)
        sink.emit("order", None)  # the predicate raises
        await molecules.join()
    assert molecules.statistics().completed == 2
    assert sink.statistics().handler_errors == 1


async def test_a_molecule_that_triggers_itself_comes_to_an_end():
    """MOL-5."""
    sink, count = SignalSink(), []

    async def again(run):
        count.append(1)
        sink.emit("order")

    async with Molecules(sink, Molecule("order", "order", again)) as molecules:
        sink.emit("order")
        await asyncio.sleep(100)
    assert len(count) == 1
    assert sink.statistics().blocked == 1
    assert_quiet(molecules)


async def test_one_event_may_start_several_and_one_may_start_another():
    sink, log = SignalSink(max_age=None), Log()

    async def invoice(run):
        sink.emit("invoice.needed")

    molecules = Molecules(
        sink,
        Molecule("order", "order.placed", invoice),
        Molecule("stock", "order.*", log.step("stock")),
        Molecule("invoice", "invoice.*", log.step("invoice")),
    )
    async with molecules:
        sink.emit("order.placed")
        await molecules.join()
    assert sorted(log) == ["invoice", "stock"]
    assert molecules.statistics().completed == 3


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=8),
    st.lists(st.tuples(st.floats(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=5),
    st.integers(1, 3),
    st.none() | st.floats(0, 12),
)
def test_whatever_happens_a_run_is_whole_or_undone(gaps, plan, concurrency, cancelled_after):
    async def main():
        sink, state, most = SignalSink(max_age=None), {}, 0

        def step(number, seconds, fails, undoing_fails):
            async def action(run):
                nonlocal most
                most = max(most, molecules.steps.active_count)
                await asyncio.sleep(seconds)
                if fails and run.event.data % 2:
                    raise OSError
                state.setdefault(run.event.data, []).append(number)

            async def compensate(run):
                assert state[run.event.data].pop() == number

            return Step(action, compensate, name=str(number))

        order = Molecule("order", "order", *[step(number, *each) for number, each in enumerate(plan)])
        molecules = Molecules(sink, order, concurrency=concurrency)
        async with molecules:
            for number, gap in enumerate(gaps):
                await asyncio.sleep(gap)
                sink.emit("order", number)
            if cancelled_after is not None:
                await asyncio.sleep(cancelled_after)
                await molecules.aclose(grace=0)
        counts = molecules.statistics()
        assert counts.completed + counts.failed + counts.cancelled == len(gaps)
        whole = [steps for steps in state.values() if steps]
        assert len(whole) == counts.completed
        assert all(steps == list(range(len(plan))) for steps in whole)
        assert most <= concurrency
        assert_quiet(molecules)
        assert len(asyncio.all_tasks()) == 1

    run(main())


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_what_a_run_carried_is_forgotten(end):
    sink = SignalSink()

    async def first(run):
        return run.event.data

    async def undo(run):
        run.data["undone"] = run.event.data

    async def second(run):
        run.data["kept"] = run.event.data
        await asyncio.sleep(10)
        if end == "failed":
            raise OSError(run.event.data.secret)

    async with Molecules(sink, Molecule("order", "order", Step(first, undo), second)) as molecules:

        async def use(item):
            sink.emit("order", item)
            del item
            await asyncio.sleep(5)
            sink.clear()
            if end == "cancelled":
                molecules.runs.cancel_operation(molecules.runs.running()[0].id)
            await molecules.join()
            return molecules.runs.snapshot(), molecules.steps.snapshot()

        await assert_forgotten(use)
    assert molecules.statistics().compensated == (end != "completed")


def test_wrong_molecules_are_refused():
    log = Log()
    with pytest.raises(InvalidOption, match="at least one step"):
        Molecule("order", "order")
    with pytest.raises(DuplicateName, match="a"):
        Molecule("order", "order", log.step("a"), log.step("a"))
    with pytest.raises(InvalidOption, match="name"):
        Molecule(" ", "order", log.step("a"))
    with pytest.raises(InvalidOption, match="when"):
        Molecule("order", "order", log.step("a"), when=3)
    with pytest.raises(InvalidBody):
        Molecule("order", "order", "step")
    with pytest.raises(InvalidBody):
        Step(print, 3)
    with pytest.raises(InvalidOption, match="timeout"):
        Step(print, timeout=0)
    with pytest.raises(InvalidOption, match="molecules"):
        Molecules(SignalSink(), print)
    for option in ("concurrency", "max_waiting"):
        with pytest.raises(InvalidOption, match=option):
            Molecules(SignalSink(), **{option: 0})
    assert repr(Molecule("order", "order.*", log.step("a"))) == "<Molecule 'order' on order.*: a>"
