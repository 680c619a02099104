"""The place of signals in an engine: its sink, made when first needed, and the reactions to it."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from ephemerals.signals import SignalSink

from .reactions import Reactions, has_conditions
from .signal_hooks import has_hooks

if TYPE_CHECKING:
    import asyncio

    from ephemerals.operation import Operation
    from ephemerals.signals import SignalEvent, SignalKey

    from .engine import Engine

__all__ = ["Signalling", "Source"]


class Source(str):
    """Be the name of a coordinator as the source of its signals: two of one name are told apart by identity."""

    __slots__ = ()


class Signalling:
    """Emit for operations, and hold what an engine asks before it starts one (`gate`: `None` if there is nothing)."""

    __slots__ = ("_engine", "_lock", "_most", "_reactions", "_sink", "gate", "source")

    def __init__(self, engine: Engine) -> None:
        self._engine = weakref.ref(engine)
        self._most = engine.options.max_operation_signals
        self._sink: SignalSink | None = engine.options.signals
        self._reactions: Reactions | None = None
        self.source = Source(engine.name)
        self.gate: Reactions | None = None

    def start_anew(self, engine: Engine) -> None:
        """Listen, if there is anything to listen to; in a forked child once more."""
        self._lock = threading.RLock()
        if self._sink is not None:
            self._react(engine, self._sink)
        elif has_conditions(engine.options, engine.schedule) or has_hooks(engine.options):
            self._make_sink()  # a body that starts at once must find its conditions watched

    @property
    def sink(self) -> SignalSink:
        """Return the sink: the shared one, or its own, made when first needed."""
        return self._make_sink() if self._sink is None else self._sink

    def emit(self, operation: Operation[Any], name: str | SignalKey[Any], data: Any) -> SignalEvent | None:
        """Emit a signal in the name of an operation."""
        key = operation._draft.key
        event = self.sink.emit(name, data, key=key, operation_id=operation.id, source=self.source)
        if event is not None:
            with self._lock:
                operation._record(event, self._most)
        return event

    def retract(self, operation: Operation[Any], name: str) -> int:
        """Take back an operation's signals of a name."""
        with self._lock:
            operation._forget_signal(name)
        return self.sink.retract(name, operation_id=operation.id)

    def settle(self, operation: Operation[Any]) -> None:
        """Move the signals of an operation that has ended into its snapshot; its threads may still emit."""
        draft = operation._draft
        with self._lock:
            draft.signals = tuple(operation._signals or ())
            draft.signal_count = operation._emitted
            operation._signals = None

    @property
    def is_holding(self) -> bool:
        """Tell whether a signal keeps everything from starting."""
        return self.gate is not None and self.gate.is_holding

    def end_episodes(self) -> None:
        """End the deferrals whose cause has ended, once what they held back has had its turn."""
        if self._reactions is not None:
            self._reactions.settle()

    def lift_endless(self) -> None:
        """Let go of what is held back without a limit of time."""
        if self._reactions is not None:
            self._reactions.lift_endless()

    def bind(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Deliver on a loop from now on; on none if it is `None`."""
        if self._sink is not None and loop is not None:
            self._sink.bind()
        if self._reactions is not None:
            self._reactions.bind(loop)

    async def finish_hooks(self, budget: float | None) -> None:
        """Wait `budget` seconds for asynchronous hooks that were called (`None`: no limit), then cancel them."""
        if self._reactions is not None:
            await self._reactions.finish_hooks(budget)

    def cancel(self) -> None:
        """Listen no more; twice is the same as once."""
        if self._reactions is not None:
            self._reactions.cancel()

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when nothing is left to do."""
        return {} if self._reactions is None else self._reactions.leftovers()

    def _make_sink(self) -> SignalSink:
        """Make a sink of its own; a body's thread may be the first to need it."""
        engine = self._engine()
        assert engine is not None, "whoever asks holds it"
        with self._lock:
            if self._sink is None:
                self._sink = SignalSink(clock=engine.options.clock, name=engine.name)
                if not engine.is_released:
                    self._react(engine, self._sink)
            sink = self._sink
        if engine.loop is not None and not engine.is_on_own_loop:
            engine.on_own_loop(sink.bind)
        return sink

    def _react(self, engine: Engine, sink: SignalSink) -> None:
        """Listen to the sink, for as long as the engine exists and is not closed."""
        self.cancel()
        self._reactions = reactions = Reactions(engine, sink)
        self.gate = reactions if reactions.is_gate else None
        weakref.finalize(engine, reactions.cancel).atexit = False
