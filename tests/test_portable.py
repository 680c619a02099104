"""What the library raises and shows can be pickled and copied, and says the same afterwards."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
import threading

import pytest

import ephemerals
from ephemerals import OperationSnapshot, ResultCoordinator, status_of
from ephemerals.atoms import CircuitOpen, GateRejected, LoadCancelled, LoadCycle, RetryAfter
from ephemerals.atoms.batch import ItemDiscarded
from ephemerals.errors import (
    CoordinatorBroken,
    CoordinatorClosed,
    CoordinatorError,
    CoordinatorFull,
    DeadlockError,
    DuplicateName,
    EphemeralsError,
    InvalidBody,
    InvalidOption,
    InvalidOptionType,
    MissingExtra,
    OperationCancelled,
    OperationError,
    OperationFailed,
    OperationSkipped,
    OperationTimeout,
    PinLimitReached,
    RegistryClosed,
    SinkClosed,
    UnknownCoordinator,
    UnknownLane,
    WrongLoop,
)
from ephemerals.patterns import FailoverExhausted, NoValue, WorkerStatus
from ephemerals.signals import SignalSink
from ephemerals.testing import WaitsForever

WAYS = {
    **{f"pickle {each}": lambda it, each=each: pickle.loads(pickle.dumps(it, each)) for each in (0, 2, 5)},
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
EVERY = [
    EphemeralsError("text"),
    InvalidOption("size", 0, "1 or more"),
    InvalidOptionType("size", "x", "an int"),
    InvalidBody("no body"),
    CoordinatorError("text", "name"),
    CoordinatorClosed("name"),
    RegistryClosed("name"),
    CoordinatorFull("name", "5 items are waiting"),
    CoordinatorBroken("name"),
    WrongLoop("name", "<one>", "<other>"),
    DeadlockError("name", [1, 2], "a, b"),
    OperationError("text", 7),
    OperationCancelled("text", 7),
    OperationSkipped("text", 7, "stop"),
    OperationTimeout("text", 7, 2.5),
    OperationFailed("text", 7, "ValueError"),
    SinkClosed("name"),
    PinLimitReached(5),
    UnknownLane("hot", ["hat"]),
    UnknownCoordinator("one", ["two"]),
    DuplicateName("lane", "hot"),
    MissingExtra("a bar", "progress"),
    ItemDiscarded(),
    CircuitOpen("name", 2.0),
    GateRejected("busy"),
    LoadCancelled(),
    LoadCycle(),
    RetryAfter(2),
    NoValue("worker", WorkerStatus.FAILED),
    FailoverExhausted("name", {}, 2.0),
    WaitsForever("nothing is ready", ("one", "two")),
]
every_way = pytest.mark.parametrize("travel", WAYS.values(), ids=WAYS.keys())


def subclasses(kind):
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_exception_class_is_here():
    for module in pkgutil.walk_packages(ephemerals.__path__, "ephemerals."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = {each for each in subclasses(EphemeralsError) if each.__module__.startswith("ephemerals.")}
    public = {each for each in ours if not each.__name__.startswith("_")}
    assert public <= {type(each) for each in EVERY}


@every_way
@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_an_exception_says_the_same_after_a_journey(error, travel):
    error.add_note("a note")
    travelled = travel(error)
    assert travelled is not error
    assert type(travelled) is type(error)
    assert str(travelled) == str(error)
    assert repr(travelled) == repr(error)
    assert travelled.args == error.args
    assert vars(travelled) == vars(error)


@every_way
def test_an_import_error_still_has_its_message(travel):
    assert travel(MissingExtra("a bar", "progress")).msg == str(MissingExtra("a bar", "progress"))


def test_of_an_attribute_that_cannot_travel_the_text_does():
    lock = threading.Lock()
    error = InvalidOption("lock", lock, "a number")
    assert copy.copy(error).value is lock
    travelled = pickle.loads(pickle.dumps(error))
    assert travelled.value == repr(lock)
    assert str(travelled) == str(error)


def test_a_subclass_with_an_init_of_its_own_travels_too():
    travelled = pickle.loads(pickle.dumps(OfTheUser(1, 2)))
    assert (travelled.first, travelled.second, str(travelled)) == (1, 2, "1 and 2")


class OfTheUser(EphemeralsError):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")
        self.first = first
        self.second = second


async def used(item, operation):
    operation.emit("step", data={"secret": item})
    if item == "bad":
        raise ValueError("no")
    return {"secret": item}


async def worked():
    async with ResultCoordinator(used, error_detail="exception", key=str, max_tracked_operations=2) as coordinator:
        for item in ("one", "two", "bad"):
            await coordinator.enqueue(item, metadata={"tags": ["a", {"b": 1}]})
        report = await coordinator.drain()
        return coordinator.snapshot(), coordinator.echoes(), report, coordinator.statistics(), coordinator.timeline()


@pytest.mark.parametrize("travel", WAYS.values(), ids=WAYS.keys())
async def test_what_is_shown_of_work_says_the_same_after_a_journey(travel):
    snapshots, echoes, report, statistics, timeline = await worked()
    assert [each.status for each in snapshots] == ["completed", "failed"]
    for snapshot in snapshots:
        travelled = travel(snapshot)
        assert type(travelled) is OperationSnapshot
        assert travelled.to_dict() == snapshot.to_dict()
        assert (travelled.key, travelled.signals) == (snapshot.key, snapshot.signals)
        with pytest.raises(AttributeError, match="frozen"):
            travelled.name = "other"
        with pytest.raises(TypeError):
            travelled.metadata["tags"][1]["b"] = 2
        assert str(travelled.error) == str(snapshot.error)
        view = status_of(snapshot)
        assert travel(view) == view
    assert travel(echoes) == echoes
    assert len(echoes) == 1
    assert travel(report).failed == 1
    assert travel(report).failures[0].to_dict() == report.failures[0].to_dict()
    assert travel(statistics) == statistics
    assert travel(timeline) == timeline


async def test_pickled_metadata_carries_no_result_no_exception_and_no_data():
    snapshots, echoes, report, *_ = await worked()
    packed = pickle.dumps((snapshots, echoes, report))
    assert b"secret" not in packed
    (done, failed), _, arrived = pickle.loads(packed)
    assert (done.has_result, done.result, done.signals[0].data) == (False, None, None)
    assert (failed.error.type, failed.error.message, failed.error.exception) == ("ValueError", "no", None)
    with pytest.raises(ExceptionGroup) as caught:
        arrived.raise_for_failures()
    assert type(caught.value.exceptions[0]) is OperationFailed


async def test_a_copy_of_what_is_frozen_is_the_thing_itself():
    snapshots, *_ = await worked()
    for frozen in (snapshots[0], snapshots[0].signals[0], snapshots[1].error):
        assert copy.copy(frozen) is frozen
        assert copy.deepcopy(frozen) is frozen
    assert snapshots[0].result == {"secret": "two"}
    assert isinstance(copy.deepcopy(snapshots)[1].error.exception, ValueError)


def test_a_pickled_event_still_has_its_chain():
    sink = SignalSink()
    sink.subscribe("first", lambda event: sink.emit("second", data=threading.Lock()))
    sink.emit("first")
    second = sink.events()[-1]
    travelled = pickle.loads(pickle.dumps(second))
    assert travelled == second
    assert travelled.propagation.names == ("first", "second")
    assert travelled.propagation.depth == 2
