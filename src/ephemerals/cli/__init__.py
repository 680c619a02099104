"""The command line: `ephemerals run` does the library's main job from a shell.

It needs the extra `cli`; nothing here imports what that brings before `main` has looked for it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from importlib.util import find_spec
from typing import Final, NoReturn

from ephemerals.errors import MissingExtra

__all__ = ["main"]

_NEEDED: Final = ("click", "rich")
_INTERRUPTED: Final = 130
_BROKEN_PIPE: Final = 141


def main() -> NoReturn:
    """Run the program with the arguments of this process, and exit with its code."""
    if not all(map(find_spec, _NEEDED)):
        sys.exit(f"ephemerals: {MissingExtra('the command line', 'cli')}")
    try:
        _open_standard_streams()
        from .commands import invoke

        sys.exit(invoke())
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what Python still wants to flush goes nowhere
        sys.exit(_BROKEN_PIPE)


def _open_standard_streams() -> None:
    """Put the null device where a standard stream is closed, so that no other file takes its number.

    It is opened the wrong way round: reading what was closed, or writing to it, is still the error that it was.
    """
    for descriptor, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_RDONLY)):
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            continue
        os.open(os.devnull, flags)
