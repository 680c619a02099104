"""How the pytest plugin runs one async test, by the name of the loop that it asks for."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ephemerals.errors import InvalidOption
from ephemerals.options import as_seconds

from .loop import run

if TYPE_CHECKING:
    from .clock import VirtualClock

__all__ = ["Loop", "LoopUnavailable", "Runner", "loop_id", "runner_for"]

LoopFactory: TypeAlias = Callable[[], asyncio.AbstractEventLoop]
Loop: TypeAlias = str | LoopFactory
Main: TypeAlias = Coroutine[Any, Any, object]
Runner: TypeAlias = Callable[[Main], object]


class LoopUnavailable(Exception):
    """Tell that a known loop cannot be had with this Python, or without a package."""


def runner_for(loop: Loop, *, clock: VirtualClock | None, timeout: float) -> Runner:
    """Return what runs a coroutine on that loop; a loop that is not to be had here is `LoopUnavailable`.

    `loop` is "virtual", "asyncio", "eager" (asyncio with its eager task factory, Python 3.12), "uvloop" or a
    loop factory. `clock` is for the virtual loop (`None`: a new one each time), `timeout` (seconds) for
    real ones.
    """
    if loop == "virtual":
        return partial(run, clock=clock)
    return partial(_run_really, factory=_factory(loop), timeout=as_seconds("timeout", timeout))


def loop_id(loop: Loop) -> str:
    """Return a short name of a loop for the ids of tests."""
    return loop if isinstance(loop, str) else getattr(loop, "__name__", type(loop).__name__)


def _factory(loop: Loop) -> LoopFactory:
    if not isinstance(loop, str):
        return loop
    match loop:
        case "asyncio":
            return asyncio.new_event_loop
        case "eager":
            if not hasattr(asyncio, "eager_task_factory"):
                raise LoopUnavailable("eager tasks need Python 3.12")
            return _eager_loop
        case "uvloop":
            try:
                return cast("LoopFactory", importlib.import_module("uvloop").new_event_loop)
            except ImportError:
                raise LoopUnavailable("uvloop is not installed") from None
        case _:
            option = "loop"
            raise InvalidOption(option, loop, "'virtual', 'asyncio', 'eager', 'uvloop' or a loop factory")


def _eager_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009 - unknown to Python 3.11
    return loop


def _run_really(main: Main, *, factory: LoopFactory, timeout: float) -> object:
    __tracebackhide__ = True
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(_within(main, timeout))


async def _within(main: Main, timeout: float) -> object:  # noqa: ASYNC109 - the limit of the whole test
    __tracebackhide__ = True
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await main
    except TimeoutError as error:
        if not limit.expired():
            raise
        msg = f"the test did not end within {timeout:g} s"
        raise AssertionError(msg) from error
