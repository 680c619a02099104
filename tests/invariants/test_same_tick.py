"""What happens to one operation in one tick of the loop, in every order: it ends once, and nothing is lost (R21, R26).

Finished and cancelled, cancelled and timed out, awaited and given up, closed while the next is about to come in.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from itertools import permutations, product

import pytest
from tests.invariants.stepping import SteppedLoop

from ephemerals import KeyedWorkCoordinator, PriorityWorkCoordinator, ResultCoordinator, WorkCoordinator
from ephemerals.errors import CoordinatorClosed, OperationCancelled, OperationTimeout

EVENTS = ("finish", "fail", "cancel", "time out", "give up the wait", "make way", "cancel all", "close")
MAKERS = {
    "work": WorkCoordinator,
    "keyed": lambda body, **options: KeyedWorkCoordinator(lambda _: "key", body, **options),
    "result": ResultCoordinator,
    "priority": lambda body, **options: PriorityWorkCoordinator(body, key=lambda _: "key", **options),
}


class Failed(Exception):
    """Be what the body raises."""


class Scene:
    """Have one operation running, one pending, one about to come in, and somebody waiting for each."""

    def __init__(self, make, stepped):
        self.stepped = stepped
        self.finalized = []
        self.gates = {}
        self.ran = []
        self.coordinator = make(
            self.body,
            max_concurrency=1,
            max_pending=1,
            operation_timeout=1.0,
            clock=stepped.clock,
            on_finalized=lambda snapshot, _: self.finalized.append(snapshot.id),
        )
        self.operations = {}
        self.offers = {name: stepped.spawn(self.offer(name)) for name in ("first", "second", "third")}
        stepped.settle()
        self.waits = {name: stepped.spawn(self.wait(name)) for name in self.operations}
        stepped.settle()
        assert self.ran == ["first"]
        assert list(self.operations) == ["first", "second"]

    async def body(self, name):
        self.ran.append(name)
        gate = self.gates[name] = asyncio.get_running_loop().create_future()
        await gate
        return name

    async def offer(self, name):
        self.operations[name] = await self.coordinator.enqueue(name)

    async def wait(self, name):
        with suppress(Failed, OperationCancelled, OperationTimeout):
            assert await self.operations[name] == name

    def do(self, event):
        first, gate = self.operations["first"], self.gates["first"]
        match event:
            case "finish" if not gate.done():
                gate.set_result(None)
            case "fail" if not gate.done():
                gate.set_exception(Failed())
            case "cancel":
                first.cancel()
            case "time out":
                self.stepped.leap(2)
            case "give up the wait":
                self.waits["first"].cancel()
                self.offers["third"].cancel()
            case "make way":
                self.operations["second"].cancel()
            case "cancel all":
                self.coordinator.cancel()
            case "close":
                self.coordinator.complete()

    def see_it_out(self):
        coordinator, settle = self.coordinator, self.stepped.settle
        settle()
        while any(not each.done() for each in self.gates.values()):
            for each in self.gates.values():
                if not each.done():
                    each.set_result(None)
            settle()
        assert coordinator.is_idle
        for name, offer in self.offers.items():
            refused = offer.cancelled() or isinstance(offer.exception(), CoordinatorClosed)
            assert refused == (name not in self.operations)
        assert coordinator.total_enqueued == len(self.operations)
        assert len(self.ran) == len(set(self.ran))
        assert set(self.ran) <= set(self.operations), "a refused item ran"
        ended = coordinator.total_completed + coordinator.total_failed + coordinator.total_cancelled
        assert ended == coordinator.total_enqueued
        assert all(each.has_ended for each in self.operations.values())
        for name, wait in self.waits.items():
            assert wait.cancelled() or wait.result() is None, name
        self.stepped.complete(coordinator.aclose())
        assert sorted(self.finalized) == sorted(each.id for each in self.operations.values())
        assert not any(coordinator.engine.leftovers().values())


@pytest.fixture
def stepped():
    logging.disable(logging.CRITICAL)
    stepped = SteppedLoop()
    yield stepped
    stepped.close()
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_whatever_happens_in_one_tick_each_operation_ends_once_and_nothing_is_lost(make, stepped):
    for events in permutations(EVENTS, 3):
        for turns in product((False, True), repeat=2):
            scene = Scene(make, stepped)
            for event, turn in zip(events, (*turns, False), strict=True):
                scene.do(event)
                if turn:
                    stepped.turn()
            scene.see_it_out()


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("events", [("finish", "cancel"), ("cancel", "finish")])
def test_completed_and_cancelled_in_the_same_tick_is_cancelled_and_frees_the_slot(make, events, stepped):
    # R21: the cancellation is not lost, whichever comes first; and it is no failure.
    scene = Scene(make, stepped)
    for event in events:
        scene.do(event)
    stepped.settle()
    assert scene.operations["first"].status == "cancelled"
    assert scene.ran == ["first", "second"]
    assert "third" in scene.operations
    scene.see_it_out()
    assert (scene.coordinator.total_completed, scene.coordinator.total_cancelled) == (2, 1)
    assert scene.coordinator.total_failed == 0


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_an_operation_that_finished_a_turn_before_its_cancellation_is_completed(make, stepped):
    scene = Scene(make, stepped)
    scene.do("finish")
    stepped.turn()
    scene.do("cancel")
    stepped.settle()
    assert scene.operations["first"].status == "completed"
    scene.see_it_out()
