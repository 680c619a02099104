"""The live table: what runs, for how long, and how far it all is."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from rich.console import Console, ConsoleDimensions
from rich.table import Table
from rich.text import Text

from ephemerals.owner_window import duration_text

from .job import Phase
from .text import printable

if TYPE_CHECKING:
    from .job import Job, State

__all__ = ["LiveTable"]

_OTHER_LINES: Final = 4
"""Lines of the terminal that rows leave free: the head, the counts, what is left out, and the cursor."""


class LiveTable:
    """Draw the state of a run as text for the terminal behind standard error, in its size at that moment."""

    def __init__(self, *, keyed: bool) -> None:
        self._console = Console(file=sys.stderr, force_terminal=True, highlight=False, soft_wrap=False)
        self._keyed = keyed

    def draw(self, state: State) -> str:
        """Return lines with their ends, none longer than the terminal is wide."""
        width, height = _size()
        self._console.size = ConsoleDimensions(width, height)
        room = max(1, height - _OTHER_LINES)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", width=max(20, width - 1))
        table.add_column("age", justify="right", no_wrap=True, min_width=6)
        table.add_column("line", justify="right", no_wrap=True)
        if self._keyed:
            table.add_column("key", no_wrap=True, overflow="ellipsis", max_width=24)
        table.add_column("item", no_wrap=True, overflow="ellipsis", ratio=1)
        shown = sorted(state.active, key=lambda job: job.since)[:room]
        for job in shown:
            table.add_row(*self._row(job, state.now))
        with self._console.capture() as capture:
            if shown:
                self._console.print(table)
            if len(state.active) > room:
                self._console.print(Text(f"… and {len(state.active) - room} more", style="dim"))
            self._console.print(self._counts(state), no_wrap=True, overflow="ellipsis", width=max(20, width - 1))
        return capture.get()

    def _row(self, job: Job, now: float) -> list[Text]:
        item = Text(printable(job.text))
        if job.attempt > 1:
            item.append(f"  attempt {job.attempt}", style="yellow")
        if job.phase is Phase.PAUSE:
            item.append(", waiting to try again", style="yellow")
        row = [Text(duration_text(now - job.since), style="cyan"), Text(str(job.line), style="dim"), item]
        if self._keyed:
            row.insert(2, Text(printable(job.key, 24), style="magenta"))
        return row

    @staticmethod
    def _counts(state: State) -> Text:
        finished = state.done + state.failed
        rate = finished / state.elapsed if state.elapsed else 0.0
        parts = [
            (f"{len(state.active)} running", "bold"),
            (f"{state.done} done", "green"),
            (f"{state.failed} failed", "bold red" if state.failed else "dim"),
            (f"{rate:.1f}/s", "dim"),
        ]
        if state.left is not None:
            parts.append((f"{state.left} left", "dim"))
            if state.left and rate:
                parts.append((f"about {duration_text(state.left / rate)}", "dim"))
        if state.note:
            parts.insert(1, (state.note, "bold yellow"))
        return Text(" · ").join(Text(text, style=style) for text, style in parts)


def _size() -> tuple[int, int]:
    """Return columns and lines as the terminal has them now, which COLUMNS and LINES may contradict."""
    try:
        columns, lines = os.get_terminal_size(2)
    except OSError:
        columns, lines = 0, 0
    return columns or 80, lines or 24
