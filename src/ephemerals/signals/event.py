"""What is said: one event, frozen, and cheap to make.

An event is made for every emission, on the path of running work. So its fields are slots filled by a mutable
draft, which then becomes an event by changing its class; a frozen dataclass costs five times as much. The
datetime and the chain of causes are computed when somebody asks for them.

    >>> from ephemerals.signals import SignalSink
    >>> event = SignalSink().emit("order.placed", key="42", data={"lines": 3})
    >>> event.name, event.key, event.matches("order.*")
    ('order.placed', '42', True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn, cast

from ephemerals.clock import utc
from ephemerals.errors import shown
from ephemerals.ids import format_id

from .pattern import Pattern
from .propagation import Propagation, chained, walk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from typing import Self

    from typing_extensions import TypeVar

    from ephemerals.clock import Clock

    from .propagation import Link

    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)

__all__ = ["SignalEvent", "unstored"]


class _Draft(Generic[T_co]):
    """Carry the fields while an event is filled; the sink does that in its own `emit`."""

    __slots__ = ("_cause", "_wall", "data", "key", "monotonic", "name", "operation_id", "sequence", "source")

    name: str
    operation_id: int | None
    key: Any
    source: str | None
    data: T_co
    monotonic: float
    sequence: int
    _wall: float
    _cause: Link | None


class SignalEvent(_Draft[T_co]):
    """Tell that something happened, or began to hold; nothing in it changes afterwards.

    `operation_id`, `key` and `source` (the coordinator's name) are `None` unless the emitter gave them;
    `data` is whatever it gave. `sequence` counts the events of one sink, from 1, and orders them; it is 0 for
    an event that was never stored: one that a constraint blocked, or the notice that something was cleared.
    `monotonic` is the stamp, in seconds, that ages are counted from.

    It can be pickled, if its key can, but `data` stays behind and is `None`, because it may be private and may be
    anything. A copy is the event itself.
    """

    __slots__ = ()

    def __init__(self) -> NoReturn:
        """Refuse: events come from a sink."""
        raise TypeError("a SignalEvent is not created by hand: emit one")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: an event is frozen."""
        raise AttributeError(f"cannot set {name!r}: a SignalEvent is frozen")

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse: an event is frozen."""
        raise AttributeError(f"cannot delete {name!r}: a SignalEvent is frozen")

    @property
    def time(self) -> datetime:
        """Return when it was emitted, in UTC."""
        return utc(self._wall)

    @property
    def propagation(self) -> Propagation:
        """Return the chain of events that led to this one, this one included."""
        return Propagation((1 if self._cause is None else self._cause[0] + 1, 0, self.name, self._cause))

    def matches(self, pattern: str | Pattern | Iterable[str | Pattern]) -> bool:
        """Tell whether its name matches a pattern, or one of several."""
        return Pattern.of(pattern).matches(self.name)

    def starts_with(self, prefix: str) -> bool:
        """Tell whether its name starts with a text."""
        return self.name.startswith(prefix)

    def to_dict(self, *, data: bool = False) -> dict[str, Any]:
        """Return it as plain values for JSON: the id and the key as text, the time as ISO 8601.

        `data` is left out, because it may be private and may be anything; ask for it with `data=True`.
        """
        plain: dict[str, Any] = {
            "name": self.name,
            "operation_id": None if self.operation_id is None else format_id(self.operation_id),
            "key": None if self.key is None else shown(self.key, str),
            "source": self.source,
            "time": self.time.isoformat(),
            "sequence": self.sequence,
            "propagation": list(self.propagation.names),
        }
        if data:
            plain["data"] = self.data
        return plain

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the data."""
        fields = {name: getattr(self, name) for name in _Draft.__slots__ if name not in {"data", "_cause"}}
        return _restored, (fields, list(walk(self._cause)))

    def __copy__(self) -> Self:
        """Return itself, which never changes."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return itself, which never changes."""
        return self

    def _fields(self) -> tuple[object, ...]:
        return (self.sequence, self.monotonic, self._wall, self.name, self.operation_id, self.source)

    def __eq__(self, other: object) -> bool:
        """Tell whether both are the same event; `data` is not compared, for that may do anything."""
        if not isinstance(other, SignalEvent):
            return NotImplemented
        same = cast("SignalEvent[Any]", other)
        return self is same or self._fields() == same._fields()

    def __hash__(self) -> int:
        """Hash what `__eq__` compares."""
        return hash(self._fields())

    def __repr__(self) -> str:
        """Show everything but the data."""
        parts = [repr(self.name)]
        if self.key is not None:
            parts.append(f"key={shown(self.key)}")
        if self.operation_id is not None:
            parts.append(f"operation_id={self.operation_id}")
        if self.source is not None:
            parts.append(f"source={self.source!r}")
        return f"<SignalEvent {' '.join(parts)} #{self.sequence}>"


def _restored(fields: dict[str, Any], causes: list[tuple[int, str]]) -> SignalEvent[Any]:
    draft: _Draft[Any] = _Draft()
    for name, value in fields.items():
        setattr(draft, name, value)
    draft.data = None
    draft._cause = chained(causes)
    draft.__class__ = SignalEvent  # type: ignore[assignment]
    return draft  # type: ignore[return-value]  # its class has just been changed


def unstored(draft: _Draft[T_co], clock: Clock) -> SignalEvent[T_co]:
    """Turn a draft into an event that no sink keeps."""
    draft.monotonic = clock.monotonic()
    draft._wall = clock.time()
    draft.sequence = 0
    draft.__class__ = SignalEvent  # type: ignore[assignment]
    return draft  # type: ignore[return-value]  # its class has just been changed
