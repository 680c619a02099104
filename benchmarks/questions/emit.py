"""What does it cost to emit a signal?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blinker import Signal as BlinkerSignal
from psygnal import SignalInstance
from pyee.base import EventEmitter

from benchmarks.rows import Bound, against
from ephemerals.signals import SignalSink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.plan import Plan
    from benchmarks.rows import Row
    from benchmarks.timing import Side

TITLE = "Emitting"

NAME = "order.placed"


def ask(plan: Plan) -> Iterator[Row]:
    """Emit to nobody, to one who knows the name, and to one with a glob; ours also remembers each event."""
    nobody, exact, by_glob = (subscribed(plan.items, pattern) for pattern in (None, NAME, "order.*ed"))
    blinker = "blinker, one receiver", in_blinker(plan.items)
    yield against(plan, "emit, no subscriber", nobody, blinker, Bound(0.7))
    yield against(plan, "emit, one exact subscriber", exact, blinker, Bound(0.9))
    yield against(plan, "emit, one glob subscriber", by_glob, blinker, Bound(1.1))
    yield against(plan, "emit, one glob, name seen before", by_glob, ("emit, one exact", exact), Bound(1.2))
    yield against(plan, "emit, one exact subscriber", exact, ("pyee, one listener", in_pyee(plan.items)), None)
    yield against(plan, "emit, one exact subscriber", exact, ("psygnal, one slot", in_psygnal(plan.items)), None)


def subscribed(count: int, pattern: str | None) -> Side:
    """Emit into a sink of ours."""
    sink = SignalSink()
    if pattern is not None:
        sink.subscribe(pattern, lambda _event: None)

    def run() -> None:
        emit = sink.emit
        for _ in range(count):
            emit(NAME)

    return run


def in_blinker(count: int) -> Side:
    """Keep the signal object, so that no name is looked up; a plain receiver for any sender."""
    signal = BlinkerSignal()

    def receive(_sender: object) -> None:
        pass

    signal.connect(receive, weak=False)  # a weak one costs more at every send

    def run() -> None:
        send = signal.send
        for _ in range(count):
            send(None)

    return run


def in_pyee(count: int) -> Side:
    """Use the plain emitter, not the one that looks for coroutines."""
    emitter = EventEmitter()
    emitter.on(NAME, lambda _event: None)

    def run() -> None:
        emit = emitter.emit
        for _ in range(count):
            emit(NAME, None)

    return run


def in_psygnal(count: int) -> Side:
    """Bind the instance once, and have no arguments checked, which is its default."""
    signal = SignalInstance((object,))
    signal.connect(lambda _event: None, unique=False)

    def run() -> None:
        emit = signal.emit
        for _ in range(count):
            emit(None)

    return run
