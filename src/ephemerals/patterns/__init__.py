"""Patterns: ready-made compositions of coordinators, signals and atoms."""

from .failover import FailoverExhausted, FailoverStatistics, PriorityFailover
from .molecule import Molecule, MoleculeRun, Step
from .molecules import Molecules, MoleculesStatistics
from .pipeline import Pipeline
from .wave_report import NoValue, WaveReport, WorkerOutcome, WorkerStatus
from .waves import Waves

__all__ = [
    "FailoverExhausted",
    "FailoverStatistics",
    "Molecule",
    "MoleculeRun",
    "Molecules",
    "MoleculesStatistics",
    "NoValue",
    "Pipeline",
    "PriorityFailover",
    "Step",
    "WaveReport",
    "Waves",
    "WorkerOutcome",
    "WorkerStatus",
]
