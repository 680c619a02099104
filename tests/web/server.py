"""A real uvicorn in a process of its own, on a free port of the loopback."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Self

ADDRESS = re.compile(r"Uvicorn running on (http://127\.0\.0\.1:\d+)")


@dataclass(frozen=True)
class Exit:
    """Say how a server has ended: its code, the seconds from the signal to the end, and all it wrote."""

    code: int
    seconds: float
    output: str


class Server:
    """Start an application under uvicorn, and stop it when the block is left."""

    def __init__(self, application, *arguments, environment=None):
        self.url = ""
        self._lines = []
        command = [sys.executable, "-X", "dev", "-m", "uvicorn", application, "--host=127.0.0.1", "--port=0"]
        self._process = subprocess.Popen(
            [*command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        )
        self._found = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            self._lines.append(line)
            if address := ADDRESS.search(line):
                self._found.put(address[1])
        self._found.put(None)

    def __enter__(self) -> Self:
        self.url = self._found.get(timeout=60)
        assert self.url, f"the server did not start:\n{self.output}"
        return self

    def __exit__(self, *_):
        if self._process.poll() is None:
            self.stop(patience=20)

    @property
    def output(self):
        return "".join(self._lines)

    @property
    def pid(self):
        return self._process.pid

    def stop(self, sent=signal.SIGTERM, patience=30):
        """Send a signal, wait for the end, and say how it was; kill what does not end."""
        before = time.monotonic()
        self._process.send_signal(sent)
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        seconds = time.monotonic() - before
        self._reader.join(5)
        self._process.stdout.close()
        return Exit(self._process.returncode, seconds, self.output)
