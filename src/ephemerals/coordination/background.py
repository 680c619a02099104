"""Any function, called in the background: what `asyncio.create_task` and `BackgroundTasks` are used for."""

from __future__ import annotations

import asyncio
import functools
import threading
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from ephemerals.errors import CoordinatorFull, InvalidOption
from ephemerals.functions import function_name
from ephemerals.options import EphemeralOptions, as_seconds

from .call import Call, background, checked, checked_call
from .coordinator import Coordinator, as_selector, hashable_key
from .keyed import keyed_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Mapping
    from typing import Unpack

    from ephemerals.operation import Operation
    from ephemerals.options import OptionKeywords, Seconds


__all__ = ["Background", "BackgroundTask", "TaskDecorator"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
C = TypeVar("C")
"""What calling a function gives: its result, or a coroutine that gives it."""


class Background(Coordinator[Call, Any]):
    """Call functions in the background, so many at once, and follow each call as an operation.

    An `async def` runs on the loop, a plain function in threads that belong to this `Background` alone. The operation
    has the function's qualified name as its `name`; the function gets at it with `current_operation()`. The arguments
    are forgotten when the call has ended. Every option is understood but `run_in="process"`.

    >>> import asyncio
    >>> async def greet(name: str, *, greeting: str = "Hello") -> str:
    ...     return f"{greeting} {name}"
    >>> async def main() -> None:
    ...     async with Background(max_concurrency=8) as background:
    ...         operation = await background.spawn(greet, "Ada", greeting="Good morning")
    ...         print(await operation, operation.name)
    >>> asyncio.run(main())
    Good morning Ada greet
    """

    def __init__(self, *, options: EphemeralOptions | None = None, **keywords: Unpack[OptionKeywords]) -> None:
        chosen = EphemeralOptions.of(options, keywords)
        if chosen.run_in != "thread":
            raise InvalidOption("run_in", chosen.run_in, "'thread': use a WorkCoordinator for work in processes")
        super().__init__(background, keyed_schedule, options=chosen, keywords={})

    # `async def` first: a coroutine function is a function, too, whose result is the coroutine.
    @overload
    async def spawn(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Operation[R]: ...
    @overload
    async def spawn(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Operation[R]: ...
    async def spawn(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Operation[Any]:
        """Call `function(*args, **kwargs)` in the background; return the operation at once, or when there is room.

        Raise `InvalidBody` (a `TypeError`) if it is no function, or does not take the arguments;
        `CoordinatorClosed` if the intake is closed, also while waiting; `CoordinatorFull` instead of waiting with
        `overflow="reject"`.
        """
        call = Call.of("spawn", function, args, kwargs)
        del args, kwargs
        return await self.enqueue(call)

    @overload
    def try_spawn(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Operation[R] | None: ...
    @overload
    def try_spawn(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Operation[R] | None: ...
    def try_spawn(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Operation[Any] | None:
        """Do the same as `spawn` if there is room at once; return `None` if it was refused."""
        return self.try_enqueue(Call.of("try_spawn", function, args, kwargs))

    @overload
    def add_task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Operation[R]: ...
    @overload
    def add_task(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Operation[R]: ...
    def add_task(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Operation[Any]:
        """Do the same as `spawn` without waiting for room; raise `CoordinatorFull` if there is none.

        This is the signature of Starlette's `BackgroundTasks.add_task`, and like that it may be called from a thread
        without a running loop, such as that of a plain endpoint; the thread waits until the loop has accepted it.
        """
        call = Call.of("add_task", function, args, kwargs)
        return self._add(call) if _is_on_loop() else self._add_from_thread(call)

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> BackgroundTask[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> BackgroundTask[P, R, R]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        timeout: Seconds | None = None,
        key: Callable[..., Hashable] | str | None = None,
    ) -> TaskDecorator: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        key: Callable[..., Hashable] | str | None = None,
    ) -> Any:
        """Declare a function as a task of this `Background`: it gets `.spawn(…)`, and stays callable.

        `timeout` is in seconds (`None`: that of the `Background`). Calls of one key run one after another, in
        order, or `max_concurrency_per_key` at once. `key` is a function of the same arguments, or the name of an
        attribute of the first one, asked once for each call; `None`, for all or as the key of one call, is no key.

        >>> import asyncio
        >>> jobs = Background()
        >>> @jobs.task(timeout=30, key=lambda user, text: user)
        ... async def mail(user: str, text: str) -> str:
        ...     return f"{user}: {text}"
        >>> async def main() -> None:
        ...     async with jobs:
        ...         operation = await mail.spawn("Ada", "Good morning")
        ...         print(await operation, operation.key)
        >>> asyncio.run(main())
        Ada: Good morning Ada
        """
        seconds = None if timeout is None else as_seconds("timeout", timeout)
        selector = None if key is None else _selector(key)

        def declare(function: Callable[..., Any]) -> Any:
            checked(function, "task")
            declared: BackgroundTask[..., Any, Any] = BackgroundTask(self, function, seconds, selector)
            return declared

        return declare if function is None else declare(function)

    def _new(self, item: Call, metadata: Mapping[str, Any] | None, lane: str | None = None) -> Operation[Any]:
        item = checked_call(item)
        return self.engine.new_operation(
            item, key=item.key, lane=lane, metadata=metadata, name=item.name, timeout=item.timeout
        )

    def _add(self, call: Call) -> Operation[Any]:
        operation = self._new(call, None)
        if not self.engine.enqueue_nowait(operation):
            reason, waits = self.engine.why_full(operation), self.options.overflow == "wait"
            raise CoordinatorFull(self.name, reason, *(["await spawn()"] if waits else []))
        return operation

    def _add_from_thread(self, call: Call) -> Operation[Any]:
        outcome: list[Operation[Any] | BaseException] = []
        is_settled = threading.Event()

        def accept() -> None:
            try:
                outcome.append(self._add(call))
            except BaseException as error:  # noqa: BLE001 - it belongs to the thread that waits
                outcome.append(error)
            finally:
                is_settled.set()

        self._foreign_loop().call_soon_threadsafe(accept)  # in a copy of this thread's context
        is_settled.wait()
        operation = outcome.pop()
        if isinstance(operation, BaseException):
            try:
                raise operation
            finally:
                del operation
        return operation


class BackgroundTask(Generic[P, C, R]):
    """Be a declared function: calling it calls the function, here and now; `spawn` does so in the background."""

    def __init__(
        self,
        background: Background,
        function: Callable[P, C],
        timeout: float | None,
        key: Callable[..., Hashable] | None,
    ) -> None:
        self.background: Final = background
        self._function = function
        self._timeout = timeout
        self._key = key
        functools.update_wrapper(self, function)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> C:
        """Call the function itself."""
        return self._function(*args, **kwargs)

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Return a `Call` of the function with its timeout and key, for the methods that take an item."""
        call = Call.of("spawn", self._function, args, kwargs)
        call.timeout = self._timeout
        if self._key is not None:
            call.key = hashable_key(self._key(*args, **kwargs))
        return call

    async def spawn(self, /, *args: P.args, **kwargs: P.kwargs) -> Operation[R]:
        """Call the function in the background, as `Background.spawn` does."""
        return await self.background.enqueue(self.call(*args, **kwargs))

    def try_spawn(self, /, *args: P.args, **kwargs: P.kwargs) -> Operation[R] | None:
        """Call the function in the background if there is room at once; return `None` if it was refused."""
        return self.background.try_enqueue(self.call(*args, **kwargs))

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: BackgroundTask[Concatenate[S, Q], C, R], instance: S, owner: type | None = None
    ) -> BackgroundTask[Q, C, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> BackgroundTask[..., Any, Any]:
        """Bind a method to its instance, as a plain function does; `key` takes the instance, too."""
        function: Any = self._function
        if instance is None or not hasattr(function, "__get__"):
            return self
        bound, key = function.__get__(instance, owner), self._key
        if bound is function:
            return self
        if key is not None and getattr(bound, "__self__", None) is instance:
            key = functools.partial(key, instance)
        return BackgroundTask(self.background, bound, self._timeout, key)

    def __repr__(self) -> str:
        """Show the function and where it runs."""
        return f"<BackgroundTask {function_name(self._function)} of {self.background.name!r}>"


class TaskDecorator(Protocol):
    """Declare a function as a task: what `Background.task(...)` returns."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> BackgroundTask[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> BackgroundTask[P, R, R]: ...


def _is_on_loop() -> bool:
    """Tell whether this thread runs a loop, here and now."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _selector(key: Callable[..., Hashable] | str) -> Callable[..., Hashable]:
    """Return a key selector as a function of a call's arguments."""
    as_selector(key, of_item=False)  # refuses what is neither
    if not isinstance(key, str):
        return key
    get = attrgetter(key)

    def of_first(*args: Any, **kwargs: Any) -> Hashable:
        key: Hashable = get(args[0] if args else next(iter(kwargs.values())))
        return key

    return of_first
