"""The command of each line: the words given, with the line in the place of `{}`.

The other replacement strings are GNU parallel's: `{.}` without extension, `{/}` without folder, `{//}` the folder,
`{/.}` without either, `{#}` the number of the line.
"""

from __future__ import annotations

import os.path
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Template"]

_PLACE: Final = re.compile(r"\{(?:|\.|/|//|/\.|#)\}")
_SHELL: Final = "/bin/sh"


@dataclass(frozen=True, slots=True)
class Template:
    """Make commands of lines: from `words`, or, without any, from the line itself.

    Without a replacement string the line becomes the last argument. With `shell` the command is a text for the
    shell, in which the line is quoted.

    >>> Template(("echo", "<{}>")).command("a b", 1)
    ['echo', '<a b>']
    >>> Template(("wc -l < {} | sort",), shell=True).command("a b", 1)
    ['/bin/sh', '-c', "wc -l < 'a b' | sort"]
    >>> Template(()).command("echo 'a b'", 1)
    ['echo', 'a b']
    """

    words: tuple[str, ...]
    shell: bool = False

    def command(self, line: str, number: int) -> list[str]:
        """Return the words of the command for a line; a `ValueError` if the line is to be one and is not."""
        if not self.words:
            return [_SHELL, "-c", line] if self.shell else shlex.split(line)
        if self.shell:
            return [_SHELL, "-c", " ".join(_filled(self.words, line, number, shlex.quote))]
        return _filled(self.words, line, number, str)


def _filled(words: Sequence[str], line: str, number: int, quote: Callable[[str], str]) -> list[str]:
    def fill(place: re.Match[str]) -> str:
        return quote(_part(place[0], line, number))

    filled = [_PLACE.sub(fill, word) for word in words]
    if not any(map(_PLACE.search, words)):
        filled.append(quote(line))
    return filled


def _part(place: str, line: str, number: int) -> str:
    match place:
        case "{.}":
            return os.path.splitext(line)[0]  # noqa: PTH122 - a line is not a path; it is kept as it is written
        case "{/}":
            return os.path.basename(line)  # noqa: PTH119 - as above
        case "{//}":
            return os.path.dirname(line) or "."  # noqa: PTH120 - as above
        case "{/.}":
            return os.path.splitext(os.path.basename(line))[0]  # noqa: PTH119, PTH122 - as above
        case "{#}":
            return str(number)
        case _:
            return line
