"""A terminal: a pseudo-terminal to run the program in, and just enough of a screen to see what a person would."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from contextlib import contextmanager

CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(\r\n|\n|\r)")


class Terminal:
    """Take what was written to a pseudo-terminal."""

    def __init__(self, rows, columns):
        self.reading, self.writing = pty.openpty()
        fcntl.ioctl(self.writing, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.text = ""

    def read_until(self, condition, patience=30):
        deadline = time.monotonic() + patience
        while not condition(self):
            ready, _, _ = select.select([self.reading], [], [], 0.05)
            if ready:
                self.text += os.read(self.reading, 65536).decode()
            assert time.monotonic() < deadline, self.screen()

    def send(self, data):
        os.write(self.reading, data)

    def screen(self):
        """Return the lines that a person would see, without the empty ones at the end."""
        lines, row, column, place = [""], 0, 0, 0
        while place < len(self.text):
            match = CONTROL.match(self.text, place)
            if match is None:
                lines[row] = lines[row][:column].ljust(column) + self.text[place] + lines[row][column + 1 :]
                column, place = column + 1, place + 1
                continue
            place = match.end()
            if match[3]:
                column = 0
                row += match[3] != "\r"
                lines += [""] * (row + 1 - len(lines))
            elif match[2] == "A":
                row -= int(match[1] or 1)
            elif match[2] == "J":
                lines[row:] = [lines[row][:column]]
        while lines and not lines[-1].strip():
            lines.pop()
        return [line.rstrip() for line in lines]


@contextmanager
def terminal(rows=24, columns=80):
    opened = Terminal(rows, columns)
    try:
        yield opened
    finally:
        os.close(opened.reading)
        os.close(opened.writing)
