"""How many at once: found from how long calls take.

Below what an upstream can do at once, one call more makes the others no slower; above it everybody waits for the
share that is too much, so that latency grows as the number does. The two are told apart by trying a few more, or a
few less, and comparing: the elasticity of latency is 0 below and 1 above. Nothing is remembered for longer than such
a comparison, so it does not matter whether calls become slower or quicker by themselves. (In the line of Brakmo,
Peterson, "TCP Vegas", 1995, which compares with the least latency ever seen, and of Netflix's concurrency-limits.)
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

__all__ = ["Gradient", "Round"]

_KNOWN: Final = 0.03
"""Standard error of a mean latency, as a share of it, that is good enough at rest."""
_FINE: Final = 0.2
"""And in a trial, as a share of that by which its limit differs."""
_GENERATIONS: Final = 3
"""Times as many calls as run at once, that a round has at least: some may go in waves."""
_LEAST: Final = 20
_LONGEST: Final = 10
_PATIENCE: Final = 10
"""Rounds of rest between two trials."""
_TRIAL: Final = 0.05
"""Share by which a trial differs from where it rests."""
_ABOVE: Final = 0.5
"""Elasticity of latency from which on there are too many."""
_FAR: Final = 0.4
"""Logarithm of a step, beyond which it is so long that part of it may lie below and part above."""
_MOVED: Final = 0.1
"""Share by which latency must have changed at rest, noise aside, for something to have happened upstream."""
_NOISE: Final = 3.0
_SMOOTH: Final = 0.2


class Round:
    """Collect the latencies of some calls that began under one limit."""

    __slots__ = ("_held_back", "_most", "_squares", "_sum", "count")

    def __init__(self) -> None:
        self.count = self._held_back = self._most = 0
        self._sum = self._squares = 0.0

    def add(self, latency: float, active: int, *, is_held_back: bool) -> None:
        """Note one, how many were under way with it, and whether others had to wait."""
        self.count += 1
        self._held_back += is_held_back
        self._most = max(self._most, active)
        self._sum += latency
        self._squares += latency * latency

    @property
    def latency(self) -> float:
        """Return the mean latency in seconds."""
        return self._sum / self.count

    @property
    def noise(self) -> float:
        """Return the standard error of the mean latency, as a share of it."""
        mean = self.latency
        return math.sqrt(max(0.0, self._squares / self.count - mean * mean) / self.count) / mean if mean else 0.0

    def is_saturated(self, limit: int) -> bool:
        """Tell whether the limit was reached, and held calls back for half of the time at least."""
        return self._most >= limit and 2 * self._held_back >= self.count

    def is_over(self, limit: int, precision: float) -> bool:
        """Tell whether the mean is known well enough, as a share of it, or will not be."""
        least = max(_GENERATIONS * limit, _LEAST)
        return self.count >= least and (self.count >= _LONGEST * least or self.noise <= precision)


class _Point(NamedTuple):
    limit: int
    latency: float


class Gradient:
    """Say after each round how many at once the next one should have.

    It rests at a limit, and goes from there to a trial and back, or on. Successful steps up double.
    """

    __slots__ = ("_calm", "_down", "_rest", "_step", "_too_much")

    def __init__(self) -> None:
        self._rest: _Point | None = None
        self._calm = 0
        self._down = False
        self._step = 1
        self._too_much = math.inf

    def next(self, limit: int, ended: Round) -> float:
        """Return the limit for the next round, which may be beyond any bounds."""
        here, rest = _Point(limit, ended.latency), self._rest
        if not ended.is_saturated(limit):
            self._rest = None
            return limit
        if rest is None or not rest.latency:
            self._rest = here
            return self._up(limit)
        if limit == rest.limit:
            return self._resting(here, rest, _MOVED + _NOISE * ended.noise)
        rise = math.log(here.latency / rest.latency)
        is_above = abs(rise) > _ABOVE * self._distance(limit) and (rise > 0) == (limit > rest.limit)
        if limit < rest.limit:
            return self._went_down(here, rest, is_above=is_above)
        return self._went_up(here, rest, is_above=is_above)

    def precision(self, limit: int) -> float:
        """Return how well the latency at a limit must be known: its standard error, as a share of it."""
        return _FINE * self._distance(limit) or _KNOWN

    def complain(self, limit: int) -> None:
        """Note that a limit was too much."""
        self._too_much, self._step, self._calm, self._rest = limit, 1, 0, None

    def _distance(self, limit: int) -> float:
        return 0.0 if self._rest is None else min(_FAR, abs(math.log(limit / self._rest.limit)))

    def _resting(self, here: _Point, rest: _Point, most: float) -> float:
        change = here.latency / rest.latency
        if change > 1 + most:
            self._rest = here
            return min(here.limit - 1, here.limit / change)  # whether that helps will be seen
        if change < 1 - most:
            self._rest = here
            return self._up(here.limit)
        self._rest = _Point(here.limit, rest.latency + (here.latency - rest.latency) * _SMOOTH)
        self._calm += 1
        if self._calm < _PATIENCE:
            return here.limit
        self._too_much = math.inf
        self._down = not self._down
        self._step = max(1, round(here.limit * _TRIAL))
        return here.limit - self._step if self._down else self._up(here.limit)

    def _went_down(self, here: _Point, rest: _Point, *, is_above: bool) -> float:
        self._calm = _PATIENCE  # the next trial comes soon
        if is_above:  # so it helped, and more of it may help more
            self._rest, self._down = here, False
            return here.limit
        return rest.limit

    def _went_up(self, here: _Point, rest: _Point, *, is_above: bool) -> float:
        if not is_above:
            self._rest = here
            self._step *= 2
            return self._up(here.limit)
        knee = max(rest.limit, round(here.limit * rest.latency / here.latency))
        self._rest, self._calm, self._step = _Point(knee, rest.latency), 0, 1
        return knee

    def _up(self, limit: int) -> float:
        self._calm = 0
        self._step = min(self._step, limit)
        return max(limit, min(limit + self._step, self._too_much - 1))
