"""Who keeps an engine alive, and what becomes of it in a forked process.

A loop holds its tasks weakly, so work that waits for something only it knows could vanish with its coordinator.
Therefore an engine that has accepted work is kept here until the work has ended or its loop is closed.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Final

from ephemerals.operation import _current

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["keep_while_busy", "let_go", "register"]

_all: Final[weakref.WeakSet[Engine]] = weakref.WeakSet()
_busy: Final[set[Engine]] = set()


def register(engine: Engine) -> None:
    """Let an engine hear of forks."""
    _all.add(engine)


def keep_while_busy(engine: Engine) -> None:
    """Hold an engine that has got work; let go of those whose loop has closed with work left."""
    if _busy:
        for each in [other for other in _busy if other.is_orphaned]:
            _busy.discard(each)
    _busy.add(engine)


def let_go(engine: Engine) -> None:
    """Stop holding an engine that has no work left."""
    _busy.discard(engine)


def _after_fork_in_child() -> None:
    _busy.clear()
    _current.set(None)
    for engine in list(_all):
        engine.start_anew()


os.register_at_fork(after_in_child=_after_fork_in_child)
