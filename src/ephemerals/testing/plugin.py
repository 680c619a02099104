"""The pytest plugin: async tests on a virtual loop, or on real ones, without any other plugin.

An `async def` test is run by this plugin if it requests the fixture `ephemeral_clock` or has the mark
`ephemeral` or `real_loop`; with the setting `ephemeral_mode = auto` every async test is that no other
plugin's mark claims. Other tests are left to whoever runs them: pytest-asyncio (strict or auto) and anyio
are not disturbed. Async *fixtures* are not run here; use an async context manager inside the test.

Such a test is replaced at collection time by a plain function that runs the coroutine, before other plugins
look.
"""

from __future__ import annotations

import functools
import inspect
import unittest
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from ephemerals.errors import InvalidOption

from .clock import VirtualClock
from .runners import Loop, LoopUnavailable, loop_id, runner_for

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from .runners import Runner

_MODE: Final = "ephemeral_mode"
_LOOP: Final = "ephemeral_loop"
_FOREIGN_MARKS: Final = ("asyncio", "anyio", "trio")
_REAL_TIMEOUT: Final = 30.0
_NOT_ASYNC_WARNING: Final = r"ignore:[\s\S]*is marked with '@pytest.mark.asyncio' but it is not an async function"

_adopted: Final = pytest.StashKey[bool]()
_runner: Final[ContextVar[Runner]] = ContextVar("ephemeral_runner")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting `ephemeral_mode`."""
    parser.addini(
        _MODE,
        default="strict",
        help="auto: run every async test that no other plugin's mark claims; strict (default): only our own",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks, and check the setting."""
    config.addinivalue_line(
        "markers",
        "ephemeral(*loops): run this async test on the virtual loop, or once on each of the loops named",
    )
    config.addinivalue_line(
        "markers",
        "real_loop(*loops, timeout=30.0): run this async test once on each of the real loops named "
        "('asyncio', 'eager', 'uvloop', a loop factory; none: 'asyncio'), for at most so many seconds",
    )
    if config.getini(_MODE) not in ("auto", "strict"):
        msg = f"{_MODE}={config.getini(_MODE)!r} is not allowed: expected 'auto' or 'strict'"
        raise pytest.UsageError(msg)


@pytest.fixture
def ephemeral_clock(request: pytest.FixtureRequest) -> Iterator[VirtualClock]:
    """Provide a `VirtualClock`, installed for the test; an async test runs on the loop that it drives.

    It starts at monotonic 1000.0 and 2026-01-01T00:00Z. In a test on a real loop it is an error.
    """
    if isinstance(request.node, pytest.Function) and _loop_of(request.node) != "virtual":
        pytest.fail(f"ephemeral_clock drives the virtual loop, not {loop_id(_loop_of(request.node))!r}", pytrace=False)
    with VirtualClock().installed() as clock:
        yield clock


@pytest.fixture
def ephemeral_loop(request: pytest.FixtureRequest) -> Loop:
    """Provide the name of the loop that the test runs on, or its factory."""
    return _loop_of(request.node)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat a test for each of the loops that its mark names."""
    loops = _named_loops(metafunc.definition)
    if len(loops) > 1 and _coroutine_function(metafunc.function) is not None:
        metafunc.fixturenames.append(_LOOP)
        metafunc.parametrize(_LOOP, loops, ids=map(loop_id, loops), indirect=True)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, object, object]:
    """Take over this plugin's tests; other plugins wrap this hook, so that they find plain functions."""
    made = yield
    _adopt_all(_listed(made), collector.config)
    return made


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Take over the tests that a conftest marked only now, unless another plugin has them."""
    _adopt_all((item for item in items if type(item) is pytest.Function), config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Choose the loop for the coroutines that the test, or each of its examples, makes."""
    if not pyfuncitem.stash.get(_adopted, False):
        return (yield)
    loop = _loop_of(pyfuncitem)
    real = pyfuncitem.get_closest_marker("real_loop")
    timeout = real.kwargs.get("timeout", _REAL_TIMEOUT) if real else _REAL_TIMEOUT
    clock = cast("VirtualClock | None", pyfuncitem.funcargs.get("ephemeral_clock"))
    try:
        runner = runner_for(loop, clock=clock, timeout=timeout)
    except LoopUnavailable as reason:
        pytest.skip(str(reason))
    except InvalidOption as error:
        pytest.fail(str(error), pytrace=False)
    token = _runner.set(runner)
    try:
        return (yield)
    finally:
        _runner.reset(token)


def _listed(made: object) -> list[object]:
    """Return what was made, be it one thing, several or `None`, as a list."""
    return cast("list[object]", made) if isinstance(made, list) else [made]


def _adopt_all(nodes: Iterable[object], config: pytest.Config) -> None:
    for node in nodes:
        if isinstance(node, pytest.Function) and not node.stash.get(_adopted, False) and _is_ours(node, config):
            _adopt(node)


def _is_ours(item: pytest.Function, config: pytest.Config) -> bool:
    if _coroutine_function(item.obj) is None or (item.cls and issubclass(item.cls, unittest.TestCase)):
        return False
    if "ephemeral_clock" in item.fixturenames or _marker(item) is not None:
        return True
    return config.getini(_MODE) == "auto" and not any(map(item.get_closest_marker, _FOREIGN_MARKS))


def _adopt(item: pytest.Function) -> None:
    item.stash[_adopted] = True
    if item.get_closest_marker("asyncio") is not None:
        item.add_marker(pytest.mark.filterwarnings(_NOT_ASYNC_WARNING))
    hypothesis = getattr(item.obj, "hypothesis", None)
    if hypothesis is None:
        item.obj = _synchronous(item.obj)
    elif inspect.iscoroutinefunction(hypothesis.inner_test):  # shared by all items of one function
        hypothesis.inner_test = _synchronous(hypothesis.inner_test)


def _synchronous(function: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(function)
    def run_coroutine(*args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        _runner.get()(function(*args, **kwargs))

    return run_coroutine


def _coroutine_function(function: Any) -> Callable[..., Any] | None:
    """Return the coroutine function behind a collected test, taken over already or not; `None` for others."""
    hypothesis = getattr(function, "hypothesis", None)
    inner = getattr(hypothesis, "inner_test", function)
    inner = getattr(inner, "__wrapped__", inner)
    return inner if inspect.iscoroutinefunction(inner) else None


def _marker(node: pytest.Item) -> pytest.Mark | None:
    return node.get_closest_marker("real_loop") or node.get_closest_marker("ephemeral")


def _named_loops(node: pytest.Item) -> list[Loop]:
    marker = _marker(node)
    if marker is None:
        return ["virtual"]
    return list(marker.args) or ["asyncio" if marker.name == "real_loop" else "virtual"]


def _loop_of(item: pytest.Function) -> Loop:
    callspec = getattr(item, "callspec", None)
    chosen: Loop | None = callspec.params.get(_LOOP) if callspec is not None else None
    return chosen if chosen is not None else _named_loops(item)[0]
