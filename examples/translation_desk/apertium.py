r"""Machine translation by Apertium, as Debian packages it: long-lived processes, started and ended by the desk.

A mode of Apertium is a shell pipeline of small programs. With `-z` each of them flushes at a NUL, so one pipeline
translates text after text without being started anew; the programs flush reliably only if a blank, `[][\n]`, stands
before the NUL, and the tagger does better with a full stop before that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .translators import TranslatorError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

__all__ = ["ApertiumTranslator"]

_MODES: Final = Path("/usr/share/apertium/modes")
_ROUTES: Final = {
    "es": ("Spanish", ("eng-spa",)),
    "ca": ("Catalan", ("eng-cat",)),
    "it": ("Italian (via Spanish)", ("eng-spa", "spa-ita")),
}
_RESERVED: Final = re.compile(r"[\\^$/\[\]{}<>@]")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_TOO_LONG_WORD: Final = re.compile(r"\S{200}")
_END: Final = ".[][\n]"
_LARGEST_ANSWER: Final = 4 * 1024 * 1024


class ApertiumTranslator:
    """Translate from English with the pairs that are installed, `processes` texts of a pair at once.

    `timeout` (seconds) is for one call of `translate`; `path` says where the programs are (`None`: as the shell).
    """

    name = "Apertium"
    is_translation = True

    def __init__(
        self, *, processes: int = 2, modes: Path = _MODES, path: str | None = None, timeout: float = 30.0
    ) -> None:
        self.processes = processes
        self._modes = modes
        self._path = path or os.environ.get("PATH", os.defpath)
        self._timeout = timeout
        self._idle: dict[str, list[_Pipeline]] = {}

    def languages(self) -> Mapping[str, str]:
        """Return the languages whose pairs are installed."""
        return {
            language: name
            for language, (name, modes) in _ROUTES.items()
            if all(self._mode(mode).is_file() for mode in modes)
        }

    async def is_up(self) -> bool:
        """Tell whether the programs and a pair are there; what has died is started again when it is needed."""
        return bool(self.languages()) and shutil.which("lt-proc", path=self._path) is not None

    async def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """Translate texts, through as many pairs as the language needs."""
        if language not in self.languages():
            message = f"{self.name} has no pair for {language}"
            raise TranslatorError(message)
        # What has such a word in it is no text, and takes time with the square of its length.
        sent = [index for index, text in enumerate(texts) if text.strip() and not _TOO_LONG_WORD.search(text)]
        translated = [texts[index] for index in sent]
        try:
            async with asyncio.timeout(self._timeout):
                for mode in _ROUTES[language][1]:
                    async with self._pipeline(mode) as pipeline:
                        translated = await pipeline.translate(translated)
        except TimeoutError:
            message = f"{self.name} did not answer within {self._timeout:g} s"
            raise TranslatorError(message) from None
        answers = dict(zip(sent, translated, strict=True))
        return [answers.get(index, text) for index, text in enumerate(texts)]

    async def aclose(self) -> None:
        """End the processes that wait for work."""
        idle = [each for pipelines in self._idle.values() for each in pipelines]
        self._idle.clear()
        await asyncio.gather(*(each.end() for each in idle))

    def pids(self) -> list[int]:
        """Return the ids of the processes that wait for work; each leads a process group."""
        return [each.pid for pipelines in self._idle.values() for each in pipelines]

    def _mode(self, mode: str) -> Path:
        return self._modes / f"{mode}.mode"

    @contextlib.asynccontextmanager
    async def _pipeline(self, mode: str) -> AsyncIterator[_Pipeline]:
        """Lend a pipeline that nobody uses; one whose conversation was broken off is of no more use."""
        idle = self._idle.setdefault(mode, [])
        while idle and not idle[-1].is_alive:
            await idle.pop().end()
        pipeline = idle.pop() if idle else await _Pipeline.start(self._mode(mode).read_text("utf-8"), self._path)
        try:
            yield pipeline
        except BaseException:
            await pipeline.end()
            raise
        if len(idle) < self.processes:
            idle.append(pipeline)
        else:
            await pipeline.end()


class _Pipeline:
    """Talk to the processes of one mode."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, mode: str, path: str) -> _Pipeline:
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                _flushing(mode),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,  # it repeats what it could not read
                env={"PATH": path, "LC_ALL": "C.UTF-8"},
                start_new_session=True,
                limit=_LARGEST_ANSWER,
            )
        except OSError as error:
            message = f"Apertium cannot be started: {error.strerror}"
            raise TranslatorError(message) from None
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        output = self._process.stdout
        return self._process.returncode is None and output is not None and not output.at_eof()

    async def translate(self, texts: Sequence[str]) -> list[str]:
        source, target = self._process.stdin, self._process.stdout
        assert source is not None
        assert target is not None
        try:
            source.writelines(_to_stream(text) for text in texts)
            await source.drain()
            return [_from_stream(await target.readuntil(b"\0"), text) for text in texts]
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            message = f"Apertium broke off ({type(error).__name__})"
            raise TranslatorError(message) from None

    async def end(self) -> None:
        """Kill the whole pipeline, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()


def _flushing(mode: str) -> str:
    """Return the pipeline of a mode with each program flushing at a NUL, and unknown words left unmarked."""
    stages = []
    for stage in mode.strip().split("|"):
        program, *arguments = shlex.split(stage)
        kept = ["-n" if each == "$1" else each for each in arguments if each != "$2"]
        stages.append(shlex.join([program, "-z", *kept]))
    return " | ".join(stages)


def _to_stream(text: str) -> bytes:
    return f"{_RESERVED.sub(_escape, text.replace(chr(0), ' '))}{_END}\0".encode()


def _escape(reserved: re.Match[str]) -> str:
    return f"\\{reserved[0]}"


def _from_stream(answer: bytes, text: str) -> str:
    decoded = answer.decode(errors="replace").rstrip("\0").removesuffix(_END)
    translated = _ESCAPED.sub(r"\1", decoded).strip() or text
    # Each text is a sentence to Apertium, and some are only a part of one.
    return translated[0].lower() + translated[1:] if text[:1].islower() and translated else translated
