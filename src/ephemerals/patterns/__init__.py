"""Patterns: ready-made compositions of coordinators, signals and atoms."""

from .pipeline import Pipeline

__all__ = [
    "Pipeline",
]
