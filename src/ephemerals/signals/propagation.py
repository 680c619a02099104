"""What caused what, and where a chain of causes is cut.

While a handler runs, or an operation that it started, a context variable carries the chain of events that led
there. What it emits continues that chain by itself. So two handlers that answer each other come to an end,
and the event log tells why something happened.

    >>> from ephemerals.signals import SignalSink
    >>> sink = SignalSink()
    >>> ping = sink.subscribe("ping", lambda event: sink.emit("pong"))
    >>> pong = sink.subscribe("pong", lambda event: sink.emit("ping"))
    >>> _ = sink.emit("ping")
    >>> [str(event.propagation) for event in sink.events()]
    ['ping', 'ping -> pong']

A chain consists of names, never of events: it may outlive them, and it must not keep their data. A chain that
a long-lived task inherited goes on for as long as that task: start such tasks in an empty context, or under
`uncaused()`.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Optional, TypeAlias

from ephemerals.functions import as_callback

from .pattern import Pattern, PatternLike
from .validation import as_count

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from .event import SignalEvent

__all__ = ["BlockReason", "Link", "Propagation", "SignalConstraints", "current_cause", "uncaused"]

Link: TypeAlias = tuple[int, int, str, Optional["Link"]]
"""The chain in its cheapest form: depth, number of the sink, name, and the link before."""

cause: Final[ContextVar[Link | None]] = ContextVar("ephemerals.signals.cause", default=None)


class BlockReason(StrEnum):
    """Say why a signal was not emitted: the chain was too long, came back, or had ended."""

    DEPTH = "depth"
    CYCLE = "cycle"
    TERMINAL = "terminal"
    LEAF = "leaf"


class Propagation:
    """Show a chain of causes, the first one first.

    `names` are the names of its events. `depth` is how many there are: 1 for an event that nothing caused.
    """

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def depth(self) -> int:
        """Return how many events the chain has; 1 is a root."""
        return self._link[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its events, from the root on."""
        return tuple(reversed([name for _, name in walk(self._link)]))

    @property
    def is_root(self) -> bool:
        """Tell whether nothing caused the event."""
        return self._link[3] is None

    def __contains__(self, name: object) -> bool:
        return any(each == name for _, each in walk(self._link))

    def __len__(self) -> int:
        return self._link[0]

    def __eq__(self, other: object) -> bool:
        return self.names == other.names if isinstance(other, Propagation) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.names)

    def __str__(self) -> str:
        return " -> ".join(self.names)

    def __repr__(self) -> str:
        return f"<Propagation {self}>"


def current_cause() -> Propagation | None:
    """Return the chain that led to the code that runs now; `None` if no signal did."""
    link = cause.get()
    return None if link is None else Propagation(link)


@contextmanager
def uncaused() -> Generator[None]:
    """Start new chains inside a `with` block: for what a handler merely sets going, such as a server."""
    token = cause.set(None)
    try:
        yield
    finally:
        cause.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalConstraints:
    """Limit what a signal may cause. A signal that nothing caused is always allowed.

    `max_depth` is how many events a chain may have (`None`: no limit); `block_cycles` forbids a name that the
    chain already has in the same sink. `terminal` names signals whose handlers must not emit: one that does
    is reported. `leaf` names side remarks, such as log lines: what their handlers emit is left out without a
    word. `on_blocked(event, reason)` is called for each signal that was not emitted; whatever it raises is
    logged.
    """

    max_depth: int | None = 10
    block_cycles: bool = True
    terminal: PatternLike | None = None
    leaf: PatternLike | None = None
    on_blocked: Callable[[SignalEvent, BlockReason], object] | None = None

    def __post_init__(self) -> None:
        if self.max_depth is not None:
            as_count("max_depth", self.max_depth)
        if self.on_blocked is not None:
            as_callback("on_blocked", self.on_blocked, "event", "reason")
        object.__setattr__(self, "terminal", Pattern.of_optional(self.terminal))
        object.__setattr__(self, "leaf", Pattern.of_optional(self.leaf))

    def check(self, sink: int, name: str, caused_by: Link) -> BlockReason | None:
        """Return why `name` may not follow a chain; `None` if it may."""
        if self.max_depth is not None and caused_by[0] >= self.max_depth:
            return BlockReason.DEPTH
        if self.block_cycles and (sink, name) in walk(caused_by):
            return BlockReason.CYCLE
        parent = caused_by[2]
        if self.terminal is not None and Pattern.of(self.terminal).matches(parent):
            return BlockReason.TERMINAL
        if self.leaf is not None and Pattern.of(self.leaf).matches(parent):
            return BlockReason.LEAF
        return None


def walk(link: Link | None) -> Iterator[tuple[int, str]]:
    """Yield the sink and the name of each event of a chain, the last one first."""
    while link is not None:
        _, sink, name, link = link
        yield sink, name


def chained(events: Iterable[tuple[int, str]]) -> Link | None:
    """Return the chain that `walk` yielded."""
    link: Link | None = None
    for depth, (sink, name) in enumerate(reversed(list(events)), 1):
        link = (depth, sink, name, link)
    return link


def passed(link: Link | None, sink: int, name: str) -> bool:
    """Tell whether a chain has an event of this name in this sink."""
    return (sink, name) in walk(link)
