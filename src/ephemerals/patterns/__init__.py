"""Patterns: ready-made compositions of coordinators, signals and atoms."""

from .molecule import Molecule, MoleculeRun, Step
from .molecules import Molecules, MoleculesStatistics
from .pipeline import Pipeline

__all__ = [
    "Molecule",
    "MoleculeRun",
    "Molecules",
    "MoleculesStatistics",
    "Pipeline",
    "Step",
]
