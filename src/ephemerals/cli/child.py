"""One command as a child process: in a process group of its own, its output kept together.

The child leads a new session, so that the terminal's Ctrl-C does not reach it, nothing in it can stop for input, and
it can be ended with everything it has started.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import struct
import tempfile
import termios
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Coroutine, Iterator, Sequence

__all__ = ["Capture", "CommandFailed", "Ended", "Launcher"]

TIMED_OUT: Final = 124
CANNOT_RUN: Final = 126
NOT_FOUND: Final = 127
BY_SIGNAL: Final = 128

_IN_MEMORY: Final = 1 << 20
_CHUNK: Final = 65_536
_KILL_GRACE: Final = 2.0
_REST_GRACE: Final = 0.2
_LOOK_AGAIN: Final = 0.02


class CommandFailed(Exception):
    """Say why a command failed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Say how a command ended: with the code that a shell would give, and in words."""

    exit_code: int
    reason: str

    @classmethod
    def by(cls, returncode: int) -> Self:
        """Describe what the system reports; a negative code is a signal."""
        if returncode >= 0:
            return cls(returncode, f"exit code {returncode}")
        try:
            name = signal.Signals(-returncode).name
        except ValueError:
            name = f"signal {-returncode}"
        return cls(BY_SIGNAL - returncode, f"killed by {name}")

    @classmethod
    def before(cls, error: OSError | ValueError, command: str) -> Self:
        """Describe why a command could not be started."""
        if isinstance(error, FileNotFoundError):
            return cls(NOT_FOUND, f"command not found: {command}")
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return cls(CANNOT_RUN, f"cannot run {command}: {reason}")


class Capture:
    """Take in what a child writes to one of its streams: small output in memory, more of it in a nameless file."""

    __slots__ = ("_loop", "_reading", "_spool", "_writing")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._spool = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed on leaving
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._loop.add_reader(self._reading, self._take)

    @property
    def descriptor(self) -> int:
        """Return the end that the child writes to."""
        return self._writing

    def started(self) -> None:
        """Leave the writing to the child."""
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1

    def finish(self) -> None:
        """Take what is there and nothing that a process left behind may still write."""
        (left,) = struct.unpack("i", fcntl.ioctl(self._reading, termios.FIONREAD, struct.pack("i", 0)))
        while left > 0 and (taken := self._take()):
            left -= taken
        self._stop_reading()

    def __bool__(self) -> bool:
        """Tell whether anything was taken in."""
        return self._spool.tell() > 0

    def chunks(self) -> Iterator[bytes]:
        """Yield all of it, once."""
        self._spool.seek(0)
        while chunk := self._spool.read(_CHUNK):
            yield chunk

    def __enter__(self) -> Self:
        """Use it for one child."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of everything."""
        self.started()
        self._stop_reading()
        self._spool.close()

    def _take(self) -> int:
        try:
            data = os.read(self._reading, _CHUNK)
        except BlockingIOError:
            return 0
        if data:
            self._spool.write(data)
        else:
            self._loop.remove_reader(self._reading)
        return len(data)

    def _stop_reading(self) -> None:
        if self._reading >= 0:
            self._loop.remove_reader(self._reading)
            os.close(self._reading)
            self._reading = -1


class Launcher:
    """Run commands, and leave nothing of them running."""

    __slots__ = ("_in_a_hurry",)

    def __init__(self) -> None:
        self._in_a_hurry = False

    def hurry(self) -> None:
        """Give no time any more to what is told to end."""
        self._in_a_hurry = True

    async def run(self, command: Sequence[str], out: Capture, err: Capture, within: float | None) -> Ended:
        """Run a command to its end, at most `within` seconds (`None`: no limit); cancelling this ends it as well."""
        try:
            process = await self._start(command, out, err)
        except (OSError, ValueError) as error:
            return Ended.before(error, command[0] if command else "''")
        finally:
            out.started()
            err.started()
        try:
            async with asyncio.timeout(within):
                returncode = await process.wait()
        except TimeoutError:
            await _to_the_end(self._stop(process))
            out.finish()
            err.finish()
            return Ended(TIMED_OUT, f"timed out after {within:g} s")
        except BaseException:
            await _to_the_end(self._stop(process))
            raise
        out.finish()
        err.finish()
        return Ended.by(returncode)

    async def _start(self, command: Sequence[str], out: Capture, err: Capture) -> Process:
        if not command or not command[0]:  # the system calls an empty name a folder that may not be run
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out.descriptor,
                stderr=err.descriptor,
                start_new_session=True,
            )
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError, ValueError):
                await _to_the_end(self._stop(await starting))
            raise

    async def _stop(self, process: Process) -> None:
        """Ask all of the group to end, and kill what is left of it after a while, which is short without its leader."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _KILL_GRACE
        is_leaderless = False
        alive = _signal_group(process.pid, signal.SIGTERM)
        while alive and not self._in_a_hurry and loop.time() < deadline:
            await asyncio.sleep(_LOOK_AGAIN)  # the system tells when the leader ends, not when the group does
            alive = _signal_group(process.pid, 0)
            if process.returncode is not None and not is_leaderless:
                is_leaderless, deadline = True, min(deadline, loop.time() + _REST_GRACE)
        if alive:
            _signal_group(process.pid, signal.SIGKILL)
        await process.wait()


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; tell whether there is one."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


async def _to_the_end(work: Coroutine[None, None, None]) -> None:
    """Await work that must not be left half done, however often the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()
