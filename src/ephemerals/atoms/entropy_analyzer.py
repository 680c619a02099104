"""Whether what somebody does is too random, or too much of the same."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from ephemerals.clock import system_clock
from ephemerals.errors import InvalidOption
from ephemerals.functions import as_callback
from ephemerals.options import as_count, as_seconds

from .following import follow
from .keyed_states import KeyedStates
from .recent import Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ephemerals.clock import Clock
    from ephemerals.options import Seconds
    from ephemerals.signals import PatternLike, SignalEvent, SignalSink

__all__ = ["EntropyAnalyzer"]


class _Sequence:
    """Count the newest values of one key; of anything but whole numbers, a hash stands for the value."""

    __slots__ = ("_counts", "recent", "verdict")

    def __init__(self, window: float, size: int) -> None:
        self._counts: Counter[Any] = Counter()
        self.recent: Recent[Any] = Recent(window, size, self._left)
        self.verdict: str | None = None

    @property
    def due(self) -> float:
        """Return when the last one leaves the window."""
        return self.recent.empty_at

    def add(self, now: float, value: Hashable) -> None:
        sign = (value,) if isinstance(value, int) else hash(value)
        self._counts[sign] += 1
        self.recent.add(now, sign)

    @property
    def entropy(self) -> float:
        """Return the Shannon entropy as a share of the most that so many values can have."""
        total = len(self.recent)
        bits = -sum(count / total * math.log2(count / total) for count in self._counts.values())
        return min(1.0, max(0.0, bits / math.log2(total)))

    def _left(self, sign: Any) -> None:
        self._counts[sign] -= 1
        if not self._counts[sign]:
            del self._counts[sign]


class EntropyAnalyzer:
    """Measure how varied the values of each key are, from 0 (all the same) to 1 (all different).

    It is their Shannon entropy over the most that so many values can have, so that few and many values compare. Above
    `high` (0.95) they are "random", below `low` (0.1) "repetitive", else "normal"; with fewer than `min_samples` (10)
    there is no verdict. Taken are the newest `size` (100) values of the last `window` (900) seconds, of at most
    `max_keys` (1000) keys; values are remembered as hashes only.

    Say `note(value, key)`, or let it hear the events of `signals` that match `pattern`: `value_of(event)` is by default
    the event's name; what cannot be hashed is left out and counted.

    Signals, if `signals` is given, when the verdict on a key changes, with the key: `entropy.high`, `entropy.low`,
    `entropy.normal`, with `{"entropy": …}`.

    >>> pages = EntropyAnalyzer(min_samples=4)
    >>> [pages.note(page, "bot") for page in ("/a", "/a", "/a", "/a")]
    [None, None, None, 'repetitive']
    >>> [pages.note(page, "ada") for page in ("/a", "/b", "/a", "/c")], pages.entropy("ada")
    ([None, None, None, 'normal'], 0.75)
    """

    def __init__(  # noqa: PLR0913 - its options
        self,
        signals: SignalSink | None = None,
        pattern: PatternLike | None = None,
        *,
        low: float = 0.1,
        high: float = 0.95,
        window: Seconds = 900.0,
        size: int = 100,
        min_samples: int = 10,
        max_keys: int = 1000,
        value_of: Callable[[SignalEvent[Any]], Any] = lambda event: event.name,
        clock: Clock = system_clock,
    ) -> None:
        if not 0 <= low < high <= 1:
            raise InvalidOption("low", low, f"a share from 0 up to less than high={high}, which is at most 1")
        as_callback("value_of", value_of, "event")
        seconds = as_seconds("window", window)
        if as_count("size", size, least=2) < as_count("min_samples", min_samples, least=2):
            raise InvalidOption("min_samples", min_samples, f"at most size={size}")
        self._low, self._high, self._min_samples = low, high, min_samples
        self._value_of = value_of
        self._signals = signals
        self._clock = clock
        self._states: KeyedStates[_Sequence] = KeyedStates(
            as_count("max_keys", max_keys), clock, lambda: _Sequence(seconds, size)
        )
        self._noted = self._random = self._repetitive = self._ignored = 0
        self._subscription = follow(signals, pattern, self._hear)

    def note(self, value: Hashable, key: Hashable = None) -> Literal["random", "repetitive", "normal"] | None:
        """Note one more value of a key, and return the verdict on its newest values; `None` if there are too few.

        Raise `TypeError` if the value cannot be hashed.
        """
        hash(value)
        now = self._clock.monotonic()
        sequence = self._states.of(key)
        sequence.recent.trim(now)
        sequence.add(now, value)
        self._states.watch(key)
        self._noted += 1
        entropy = self.entropy(key)
        if entropy is None:
            return None
        if entropy > self._high:
            return self._say(sequence, "random", "entropy.high", entropy, key)
        if entropy < self._low:
            return self._say(sequence, "repetitive", "entropy.low", entropy, key)
        return self._say(sequence, "normal", "entropy.normal", entropy, key)

    def entropy(self, key: Hashable = None) -> float | None:
        """Return the normalised entropy of a key's newest values; `None` if there are too few."""
        sequence = self._states.get(key)
        if sequence is None:
            return None
        sequence.recent.trim(self._clock.monotonic())
        return None if len(sequence.recent) < self._min_samples else sequence.entropy

    def close(self) -> None:
        """Hear nothing more, and forget all."""
        if self._subscription is not None:
            self._subscription.cancel()
        self._states.clear()

    def statistics(self) -> dict[str, int]:
        """Return how many were noted and left out, how often a key became what, and how many keys are known."""
        return {
            "noted": self._noted,
            "ignored": self._ignored,
            "random": self._random,
            "repetitive": self._repetitive,
            "keys": len(self._states),
            "evicted": self._states.evicted,
        }

    def leftovers(self) -> dict[str, int]:
        """Count what must be gone when all have been idle for the window, for tests."""
        return self._states.leftovers()

    def _say(
        self,
        sequence: _Sequence,
        verdict: Literal["random", "repetitive", "normal"],
        signal: str,
        entropy: float,
        key: Hashable,
    ) -> Literal["random", "repetitive", "normal"]:
        before, sequence.verdict = sequence.verdict, verdict
        if before != verdict:
            self._random += verdict == "random"
            self._repetitive += verdict == "repetitive"
            if self._signals is not None and (before, verdict) != (None, "normal"):
                self._signals.emit(signal, {"entropy": entropy}, key=key)
        return verdict

    def _hear(self, event: SignalEvent[Any]) -> None:
        try:
            value = self._value_of(event)
            hash(value)
        except TypeError:
            self._ignored += 1
        else:
            self.note(value, event.key)
