"""An ordered set of steps, each with what undoes it: the description of a molecule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ephemerals.coordination.call import checked
from ephemerals.errors import DuplicateName, InvalidOption
from ephemerals.functions import as_callback, function_name
from ephemerals.options import as_seconds, as_text
from ephemerals.signals import Pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemerals.options import Seconds
    from ephemerals.signals import PatternLike, SignalEvent

__all__ = ["Molecule", "MoleculeRun", "Step"]


@dataclass(slots=True, eq=False)
class MoleculeRun:
    """Be one run of a molecule, as each of its steps gets it.

    `event` has started it. `results` has what the steps so far have returned, by name; `data` is for whatever else they
    want to tell one another. All of it is forgotten when the run has ended.
    """

    molecule: str
    event: SignalEvent[Any]
    results: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Show the molecule only: the rest is nobody's business."""
        return f"<MoleculeRun of {self.molecule}>"


@dataclass(frozen=True, slots=True)
class Step:
    """Say what a step does, and what undoes it: functions of the `MoleculeRun`, plain or async.

    `name` is by default the qualified name of `action`. `timeout` is in seconds, for each attempt at either (`None`:
    that of the coordinator). `compensate` is called only if the step has completed and a later one has not.
    """

    action: Callable[[MoleculeRun], Any]
    compensate: Callable[[MoleculeRun], Any] | None = None
    name: str = ""
    timeout: Seconds | None = None

    def __post_init__(self) -> None:
        """Validate."""
        checked(self.action, "Step")
        if self.compensate is not None:
            checked(self.compensate, "Step")
        object.__setattr__(self, "name", as_text("name", self.name or function_name(self.action)))
        if self.timeout is not None:
            object.__setattr__(self, "timeout", as_seconds("timeout", self.timeout))


class Molecule:
    """Say which steps run, one after another, when a signal that matches `trigger` is emitted.

    A step may be given as its function alone. With `when(event)`, only an event of which that is true starts a run.
    Steps may be added and removed at any time; a run keeps those it began with.

    >>> def reserve(run: MoleculeRun) -> None: ...
    >>> def release(run: MoleculeRun) -> None: ...
    >>> def pay(run: MoleculeRun) -> None: ...
    >>> order = Molecule("order", "order.placed", Step(reserve, release), pay)
    >>> [step.name for step in order.steps]
    ['reserve', 'pay']
    """

    def __init__(
        self,
        name: str,
        trigger: PatternLike,
        *steps: Step | Callable[[MoleculeRun], Any],
        when: Callable[[SignalEvent[Any]], bool] | None = None,
    ) -> None:
        self.name = as_text("name", name)
        self.trigger = Pattern.of(trigger)
        if when is not None:
            as_callback("when", when, "event")
        self.when = when
        self.steps: tuple[Step, ...] = ()
        for step in steps:
            self.add(step)
        if not steps:
            raise InvalidOption("steps", steps, "at least one step")

    def add(self, step: Step | Callable[[MoleculeRun], Any]) -> None:
        """Add a step at the end; a name that is taken is a `DuplicateName`."""
        added = step if isinstance(step, Step) else Step(step)
        if any(each.name == added.name for each in self.steps):
            raise DuplicateName("step", added.name)
        self.steps = (*self.steps, added)

    def remove(self, name: str) -> bool:
        """Remove a step; False if there is none of that name."""
        before = self.steps
        self.steps = tuple(each for each in before if each.name != name)
        return len(self.steps) < len(before)

    def __repr__(self) -> str:
        """Show name, trigger and steps."""
        return f"<Molecule {self.name!r} on {self.trigger}: {', '.join(each.name for each in self.steps)}>"
