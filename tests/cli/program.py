"""The real program in a process of its own, and what a test needs to follow it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAM = [sys.executable, "-m", "ephemerals"]
PATIENCE = 30.0


def run(*arguments, stdin=b"", **keywords):
    """Run the program to its end."""
    return subprocess.run(
        [*PROGRAM, "run", *map(str, arguments)],
        **({"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}),
        **({"capture_output": True} | keywords),
        check=False,
        timeout=PATIENCE,
    )


@contextmanager
def started(*arguments, **keywords):
    """Start the program; whatever happens, it is gone afterwards."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([*PROGRAM, "run", *map(str, arguments)], **(pipes | keywords))
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def eventually(condition, pause=0.01):
    """Wait until a condition holds, for a bounded time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(pause)


def is_running(pid):
    """Tell whether a process runs; one that only waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def seq(last):
    return b"".join(b"%d\n" % number for number in range(1, last + 1))


def entries(report):
    text = report if isinstance(report, bytes) else Path(report).read_bytes()
    return [json.loads(line) for line in text.split(b"\n")[:-1]]


class Gate:
    """Commands that say that they have begun, and go on when the test lets them."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.script = (
            f'cd "{folder}"; echo $$ > "began.$0"; mv "began.$0" "began-$0"; '
            'while [ ! -e go ] && kill -0 $PPID; do sleep 0.01; done; echo "done $0"'  # none outlives the program
        )
        self.command = ["sh", "-c", self.script, "{}"]

    def begun(self):
        return sorted(each.name.partition("-")[2] for each in self.folder.glob("began-*"))

    def wait_for(self, *names):
        eventually(lambda: self.begun() == sorted(names))

    def pids(self):
        return [int(each.read_text()) for each in self.folder.glob("began-*")]

    def open(self):
        (self.folder / "go").touch()


def feed(program, lines, *, end=False):
    """Give the program some lines; with `end` there will be no more."""
    program.stdin.write(lines)
    program.stdin.flush()
    if end:
        program.stdin.close()


def read_until(stream, text):
    """Read lines until one has the text; return all of them."""
    seen = b""
    while text not in seen:
        line = stream.readline()
        assert line, f"it ended without {text!r}: {seen!r}"
        seen += line
    return seen


def environment(**changes):
    return os.environ | changes
