"""A window's bounds, changed from afar by typed commands."""

from __future__ import annotations

import logging
import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from ephemerals.coordination.coordinator import Coordinator
from ephemerals.errors import InvalidOption, InvalidOptionType
from ephemerals.options import as_count, as_seconds
from ephemerals.signals import SignalKey, SignalSink

if TYPE_CHECKING:
    from types import TracebackType

    from ephemerals.options import Seconds
    from ephemerals.signals import SignalEvent

__all__ = ["WindowCommands", "WindowResizer"]

_logger: Final = logging.getLogger("ephemerals")
_VAST: Final = 1e15
_SPAN: Final = (int, float, timedelta)


class WindowCommands:
    """Name the commands to a `WindowResizer`: keys for `emit`, whose data is checked.

    Sizes are numbers of events or operations, times are seconds or a `timedelta`.

    >>> WindowCommands().set_size.name
    'window.size.set'
    """

    __slots__ = ("grow_size", "grow_time", "prefix", "set_size", "set_time", "shrink_size", "shrink_time")

    def __init__(self, prefix: str = "window") -> None:
        self.prefix = prefix
        self.set_size = SignalKey[int](f"{prefix}.size.set", check=int)
        self.grow_size = SignalKey[int](f"{prefix}.size.increase", check=int)
        self.shrink_size = SignalKey[int](f"{prefix}.size.decrease", check=int)
        self.set_time = SignalKey["Seconds"](f"{prefix}.time.set", check=_SPAN)
        self.grow_time = SignalKey["Seconds"](f"{prefix}.time.increase", check=_SPAN)
        self.shrink_time = SignalKey["Seconds"](f"{prefix}.time.decrease", check=_SPAN)


class _Window(Protocol):
    """Be what can be resized: a sink, or a coordinator's memory."""

    def bounds(self) -> tuple[int | None, float | None]: ...
    def resize(self, size: int | None, age: float | None) -> None: ...


class WindowResizer:
    """Change how much `sink` remembers, and for how long, by commands that are emitted there.

    With a `coordinator` it is that one's memory of ended operations that changes instead. `commands` are the names it
    listens to; a new `WindowCommands("app.window")` gives others. What is asked for is kept within `min_size` (16) and
    `max_size` (50000), `min_age` (5) and `max_age` (3600) seconds. A command that makes no sense, because its data is
    of the wrong kind or less than nothing, or because there is no bound to add to, changes nothing.

    It listens until `close()`, or the end of a `with` block. Signals: `window.resized` with `{"size": …, "age": …}`,
    `window.command.rejected` with `{"command": …}`, with the first part as in the prefix. Whoever may emit may give
    commands: keep texts from outside out of the names of signals.

    >>> from ephemerals.signals import SignalSink
    >>> sink = SignalSink(max_capacity=100)
    >>> with WindowResizer(sink) as resizer:
    ...     _ = sink.emit(resizer.commands.grow_size, 50)
    ...     _ = sink.emit(resizer.commands.set_time, timedelta(minutes=5))
    >>> sink.max_capacity, sink.max_age
    (150, 300.0)
    """

    def __init__(  # noqa: PLR0913 - its options
        self,
        sink: SignalSink,
        coordinator: Coordinator[Any, Any] | None = None,
        *,
        commands: WindowCommands | None = None,
        min_size: int = 16,
        max_size: int = 50_000,
        min_age: Seconds = 5.0,
        max_age: Seconds = 3600.0,
    ) -> None:
        if not isinstance(sink, SignalSink):
            raise InvalidOptionType("sink", sink, "a SignalSink")
        if coordinator is not None and not isinstance(coordinator, Coordinator):
            raise InvalidOptionType("coordinator", f"<{type(coordinator).__qualname__}>", "a coordinator, or None")
        self.commands = WindowCommands() if commands is None else commands
        self._sink = sink
        self._window: _Window = _Sink(sink) if coordinator is None else _Memory(coordinator)
        self._sizes = as_count("min_size", min_size), as_count("max_size", max_size)
        self._ages = as_seconds("min_age", min_age), as_seconds("max_age", max_age)
        for option, (least, most) in (("min_size", self._sizes), ("min_age", self._ages)):
            if least > most:
                raise InvalidOption(option, least, f"at most {most}")
        self._applied = self._rejected = 0
        prefix = self.commands.prefix
        self._subscription = sink.subscribe(f"{prefix}.size.*, {prefix}.time.*", self._on_command)

    def close(self) -> None:
        """Listen no more; twice is the same as once."""
        self._subscription.cancel()

    def statistics(self) -> dict[str, int]:
        """Return how many commands were applied, and how many made no sense."""
        return {"applied": self._applied, "rejected": self._rejected}

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when it is closed, for tests."""
        return {"subscriptions": int(self._subscription.is_active)}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _on_command(self, event: SignalEvent[Any]) -> None:
        what, how = event.name.removeprefix(f"{self.commands.prefix}.").split(".", 1)
        size, age = self._window.bounds()
        wanted = _wanted(how, size if what == "size" else age, _number(event.data, is_count=what == "size"))
        if wanted is None:
            self._rejected += 1
            _logger.warning("a command %s was rejected", event.name)
            self._sink.emit(f"{self.commands.prefix}.command.rejected", {"command": event.name})
            return
        if what == "size":
            size = int(_within(wanted, *self._sizes))
        else:
            age = _within(wanted, *self._ages)
        self._window.resize(size, age)
        self._applied += 1
        self._sink.emit(f"{self.commands.prefix}.resized", {"size": size, "age": age})


class _Sink:
    def __init__(self, sink: SignalSink) -> None:
        self._sink = sink

    def bounds(self) -> tuple[int | None, float | None]:
        return self._sink.max_capacity, self._sink.max_age

    def resize(self, size: int | None, age: float | None) -> None:
        self._sink.resize(size, age)


class _Memory:
    def __init__(self, coordinator: Coordinator[Any, Any]) -> None:
        self._memory = coordinator.engine.window

    def bounds(self) -> tuple[int | None, float | None]:
        return self._memory.limit, self._memory.lifetime

    def resize(self, size: int | None, age: float | None) -> None:
        self._memory.resize(size, age)


def _number(data: object, *, is_count: bool) -> float | None:
    """Return a command's data as a number; `None` if it is none."""
    if isinstance(data, timedelta) and not is_count:
        return data.total_seconds()
    if isinstance(data, bool) or not isinstance(data, int if is_count else int | float):
        return None
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return _within(data, -_VAST, _VAST)  # an int may be larger than any float


def _wanted(how: str, now: float | None, number: float | None) -> float | None:
    """Return what a command asks for; `None` if it makes no sense."""
    if number is None:
        return None
    if how == "set":
        return number
    if now is None or number < 0 or how not in {"increase", "decrease"}:
        return None
    return now + number if how == "increase" else now - number


def _within(number: float, least: float, most: float) -> float:
    return max(least, min(most, number))
