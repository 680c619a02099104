"""What a body does, written down beforehand: small scripts that hypothesis chooses from, the plainest first."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final

from hypothesis import strategies as st

Wait = tuple[str, float]

TURN: Final[Wait] = ("turns", 1)
TURNS: Final[Wait] = ("turns", 3)
SECONDS: Final[Wait] = ("seconds", 1.0)
GATE: Final[Wait] = ("gate", 0)

REACTIONS: Final = ("obey", "linger", "ignore", "return", "raise")
"""What it does when it is cancelled while it waits; each wait is given up by the first cancellation."""

ENDINGS: Final = ("return", "raise", "raise cancelled", "raise stop", "raise base")

ACTS: Final = (
    "enqueue",
    "try",
    "enqueue and await",
    "gather children",
    "await another",
    "cancel itself",
    "cancel another",
    "pause",
    "resume",
    "narrow",
    "widen",
    "complete",
    "cancel all",
)
"""What it asks of its own coordinator before it waits."""


class Broken(Exception):
    """Be what a body raises on purpose."""


class Worse(BaseException):
    """Be what no `except Exception` catches."""


@dataclass(frozen=True)
class Script:
    """Say what a body does: acts, then waits, then an ending."""

    waits: tuple[Wait, ...] = ()
    reaction: str = "obey"
    ending: str = "return"
    acts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        parts = [*self.acts, *(f"{kind} {amount:g}" for kind, amount in self.waits), self.ending]
        return f"<{', '.join(parts)}; cancelled: {self.reaction}>"


_WAITS: Final = ((GATE,), (TURN,), (SECONDS,), (TURNS,), (TURN, GATE), (GATE, SECONDS))

QUIET: Final = (
    Script(),
    Script((GATE,)),
    *(Script(ending=ending) for ending in ENDINGS[1:]),
    *(Script(waits, reaction, ending) for waits, reaction, ending in product(_WAITS, REACTIONS, ENDINGS)),
)
ACTIVE: Final = tuple(Script(waits, acts=(act,)) for act, waits in product(ACTS, ((), (GATE,), (TURNS,))))
CHILDREN: Final = (Script(), Script((GATE,)), Script(acts=("enqueue and await",)))

quiet_scripts: Final = st.sampled_from(QUIET)
scripts: Final = st.one_of(quiet_scripts, st.sampled_from(ACTIVE))
