"""Named coordinators: declared in one place, created when first asked for, closed together.

A registry knows how to make each of its coordinators. It needs no running loop, so it may live in a module; what it
has created belongs to the time between entering and leaving `async with registry`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, get_origin, overload

from .coordination import (
    Background,
    KeyedWorkCoordinator,
    Lane,
    PriorityWorkCoordinator,
    ResultCoordinator,
    WorkCoordinator,
)
from .coordination.body import examine
from .coordination.call import background
from .coordination.coordinator import Coordinator, as_selector
from .coordination.lanes import LaneSchedule, as_lanes
from .coordination.schedule import FifoSchedule
from .errors import (
    CoordinatorError,
    DuplicateName,
    InvalidBody,
    InvalidOptionType,
    RegistryClosed,
    UnknownCoordinator,
)
from .functions import is_coroutine_function, is_generator_function, misfit, refuse_coroutine
from .options import EphemeralOptions, as_seconds, as_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import EllipsisType, TracebackType
    from typing import Unpack

    from .coordination import CoordinatorStatistics, DrainReport
    from .coordination.coordinator import KeySelector
    from .options import OptionKeywords, Seconds

__all__ = ["CoordinatorRegistry"]

_Any = Coordinator[Any, Any]
_Body = Callable[..., Any]
C = TypeVar("C", bound=_Any)
F = TypeVar("F", bound=_Body)

_GRACE: Final = 10.0
_CANCEL_GRACE: Final = 5.0
_LANES: Final = (Lane("normal"),)


@dataclass(frozen=True, slots=True)
class _Recipe:
    """Know how to make one coordinator: from a body that is here, or from one that a factory makes on first use."""

    kind: type[_Any]
    make: Callable[[_Body], _Any]
    body: Any
    factory: Any

    def coordinator(self) -> _Any:
        return self.make(self.body if self.factory is None else self.factory())


class CoordinatorRegistry:
    """Create coordinators by name, lazily and once each, and close them all.

    `grace` and `cancel_grace` (seconds; `None`: no limit) are the budget of leaving `async with` and of `aclose`,
    which may be given another. Everything but the body and what it needs is validated when a name is registered.

    >>> registry = CoordinatorRegistry()
    >>> @registry.coordinator("greetings", max_concurrency=4)
    ... async def greet(name: str) -> str:
    ...     return f"Hello {name}"
    >>> async def main() -> None:
    ...     async with registry:
    ...         print(await registry["greetings"].run("Ada"))
    ...         print(registry["greetings"] is registry["greetings"], registry["greetings"].name)
    >>> asyncio.run(main())
    Hello Ada
    True greetings
    """

    def __init__(self, *, grace: Seconds | None = _GRACE, cancel_grace: Seconds | None = _CANCEL_GRACE) -> None:
        self._grace = _as_budget("grace", grace)
        self._cancel_grace = _as_budget("cancel_grace", cancel_grace)
        self._recipes: dict[str, _Recipe] = {}
        self._created: dict[str, _Any] = {}
        self._being_made: list[str] = []
        self._lock = threading.RLock()
        self._is_closed = False

    # Declaring.

    def register(
        self,
        name: str,
        /,
        body: _Body | None = None,
        *,
        factory: Callable[[], _Body] | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        """Declare a `WorkCoordinator`; its `name` option is `name` unless it is given another.

        Give the body, or as `factory` a plain function without parameters that returns the body; the factory is
        called when the coordinator is first asked for, and again next time if it raises. A name that is taken raises
        `DuplicateName`, a registry that is closed `RegistryClosed`.
        """
        chosen = self._options(name, options, keywords)

        def make(made: _Body) -> _Any:
            return WorkCoordinator(made, options=chosen)

        self._add(name, WorkCoordinator, make, body, factory, chosen)

    def register_keyed(
        self,
        name: str,
        /,
        key: KeySelector[Any],
        body: _Body | None = None,
        *,
        factory: Callable[[], _Body] | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        """Declare a `KeyedWorkCoordinator`, as `register` does."""
        chosen = self._options(name, options, keywords)
        as_selector(key)

        def make(made: _Body) -> _Any:
            return KeyedWorkCoordinator(key, made, options=chosen)

        self._add(name, KeyedWorkCoordinator, make, body, factory, chosen)

    def register_result(  # noqa: PLR0913 - what the coordinator takes, and how to get its body
        self,
        name: str,
        /,
        body: _Body | None = None,
        *,
        factory: Callable[[], _Body] | None = None,
        key: KeySelector[Any] | None = None,
        results_ttl: Seconds | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        """Declare a `ResultCoordinator`, as `register` does."""
        chosen = self._options(name, options, keywords)
        if key is not None:
            as_selector(key)
        if results_ttl is not None:
            as_seconds("results_ttl", results_ttl)

        def make(made: _Body) -> _Any:
            return ResultCoordinator(made, key=key, results_ttl=results_ttl, options=chosen)

        self._add(name, ResultCoordinator, make, body, factory, chosen)

    def register_priority(  # noqa: PLR0913 - what the coordinator takes, and how to get its body
        self,
        name: str,
        /,
        body: _Body | None = None,
        *,
        factory: Callable[[], _Body] | None = None,
        lanes: Sequence[Lane] = _LANES,
        key: KeySelector[Any] | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        """Declare a `PriorityWorkCoordinator`, as `register` does."""
        chosen = self._options(name, options, keywords)
        lanes = as_lanes(lanes)
        LaneSchedule(lanes, lambda _: FifoSchedule(), table=None, starvation_limit=chosen.starvation_limit)
        if key is not None:
            as_selector(key)

        def make(made: _Body) -> _Any:
            return PriorityWorkCoordinator(made, lanes=lanes, key=key, options=chosen)

        self._add(name, PriorityWorkCoordinator, make, body, factory, chosen)

    def register_background(
        self, name: str, /, *, options: EphemeralOptions | None = None, **keywords: Unpack[OptionKeywords]
    ) -> None:
        """Declare a `Background`, which needs no body: it runs whatever function it is given."""
        chosen = self._options(name, options, keywords)
        Background(options=chosen)  # it does not understand every option

        def make(_: _Body) -> _Any:
            return Background(options=chosen)

        self._add(name, Background, make, background, None, chosen)

    def coordinator(
        self, name: str, /, *, options: EphemeralOptions | None = None, **keywords: Unpack[OptionKeywords]
    ) -> Callable[[F], F]:
        """Declare the decorated function as the body of a `WorkCoordinator`; the function stays as it is."""
        chosen = self._options(name, options, keywords)

        def declare(body: F) -> F:
            self.register(name, body, options=chosen)
            return body

        return declare

    def keyed_coordinator(
        self,
        name: str,
        /,
        key: KeySelector[Any],
        *,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> Callable[[F], F]:
        """Declare the decorated function as the body of a `KeyedWorkCoordinator`."""
        chosen = self._options(name, options, keywords)

        def declare(body: F) -> F:
            self.register_keyed(name, key, body, options=chosen)
            return body

        return declare

    def result_coordinator(
        self,
        name: str,
        /,
        *,
        key: KeySelector[Any] | None = None,
        results_ttl: Seconds | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> Callable[[F], F]:
        """Declare the decorated function as the body of a `ResultCoordinator`."""
        chosen = self._options(name, options, keywords)

        def declare(body: F) -> F:
            self.register_result(name, body, key=key, results_ttl=results_ttl, options=chosen)
            return body

        return declare

    def priority_coordinator(
        self,
        name: str,
        /,
        *,
        lanes: Sequence[Lane] = _LANES,
        key: KeySelector[Any] | None = None,
        options: EphemeralOptions | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> Callable[[F], F]:
        """Declare the decorated function as the body of a `PriorityWorkCoordinator`."""
        chosen = self._options(name, options, keywords)

        def declare(body: F) -> F:
            self.register_priority(name, body, lanes=lanes, key=key, options=chosen)
            return body

        return declare

    @staticmethod
    def _options(name: object, options: EphemeralOptions | None, keywords: OptionKeywords) -> EphemeralOptions:
        label = as_text("name", name)
        chosen = EphemeralOptions.of(options, keywords)
        return chosen if chosen.name is not None else chosen.replace(name=label)

    def _add(  # noqa: PLR0913, PLR0917 - the parts of a recipe
        self,
        name: str,
        kind: type[_Any],
        make: Callable[[_Body], _Any],
        body: Any,
        factory: Any,
        options: EphemeralOptions,
    ) -> None:
        if (body is None) == (factory is None):
            message = f"coordinator {name!r} needs a body, or a factory= that makes it (one of them)"
            raise InvalidBody(message)
        if body is not None:
            examine(body, options.run_in)
        refuse_coroutine(factory, "pass the factory itself, without calling it")
        if factory is not None and not _is_factory(factory):
            message = (
                f"the factory of coordinator {name!r} must be a plain function without parameters that returns the body"
            )
            raise InvalidBody(message)
        with self._lock:
            if self._is_closed:
                raise RegistryClosed(name)
            if name in self._recipes:
                raise DuplicateName("coordinator", name)
            self._recipes[name] = _Recipe(kind, make, body, factory)

    # Using.

    @overload
    def get(self, name: str) -> _Any: ...
    @overload
    def get(self, name: str, kind: type[C]) -> C: ...

    def get(self, name: str, kind: type[_Any] = Coordinator) -> _Any:
        """Return the coordinator of that name, and create it if this is the first time; the same one every time.

        An unknown name raises `UnknownCoordinator`. With `kind` (`WorkCoordinator`, or for a type checker
        `WorkCoordinator[str, int]`) one that is declared as something else raises `InvalidOptionType`, uncreated. One
        that was closed by itself has let go of everything, so it is created anew; one that only drains is returned.
        Raise `RegistryClosed` if it would have to be created and the registry is closed. Any thread may call this.
        """
        recipe = self._recipes.get(name)
        if recipe is None:
            raise UnknownCoordinator(name, self._recipes)
        if not issubclass(recipe.kind, get_origin(kind) or kind):
            allowed = f"{recipe.kind.__name__}, which {name!r} is registered as"
            raise InvalidOptionType("kind", kind.__name__, allowed)
        with self._lock:
            existing = self._created.get(name)
            if existing is not None and (self._is_closed or not existing.engine.is_released):
                return existing
            if self._is_closed:
                raise RegistryClosed(name)
            return self._create(name, recipe)

    def __getitem__(self, name: str) -> _Any:
        """Return what `get` returns."""
        return self.get(name)

    def _create(self, name: str, recipe: _Recipe) -> _Any:
        if name in self._being_made:
            circle = " -> ".join(map(repr, [*self._being_made[self._being_made.index(name) :], name]))
            message = f"coordinator {name!r} needs itself to be made ({circle}): break the circle"
            raise CoordinatorError(message, name)
        self._being_made.append(name)
        try:
            coordinator = recipe.coordinator()
        finally:
            self._being_made.pop()
        self._created.pop(name, None)
        self._created[name] = coordinator
        return coordinator

    def __contains__(self, name: object) -> bool:
        """Tell whether a name is registered, created or not."""
        return name in self._recipes

    def __len__(self) -> int:
        """Return how many names are registered."""
        return len(self._recipes)

    def names(self) -> tuple[str, ...]:
        """Return the registered names, in the order of their registration."""
        return tuple(self._recipes)

    def created(self) -> Mapping[str, _Any]:
        """Return the coordinators created so far by name, in the order of their creation."""
        return dict(self._created)

    def statistics(self) -> dict[str, CoordinatorStatistics]:
        """Return the statistics of the coordinators created so far, by name."""
        return {name: each.statistics() for name, each in self._created.items()}

    @property
    def is_closed(self) -> bool:
        """Tell whether it is closed, so that it creates nothing."""
        return self._is_closed

    # Ending.

    async def aclose(
        self, *, grace: Seconds | EllipsisType | None = ..., cancel_grace: Seconds | EllipsisType | None = ...
    ) -> dict[str, DrainReport]:
        """Close all coordinators at the same time, the newest first, and return their reports by name.

        Each closes as its `aclose` says, all within the same `grace` and `cancel_grace` (seconds; `None`: no limit; by
        default what the registry was given).
        Nothing is created any more from the moment of the call. Errors of bodies are not raised; what a coordinator
        itself raises comes out when all are closed. Cancelling this cancels everything that still runs. Repeating it
        gives the reports again.
        """
        grace = self._grace if grace is ... else _as_budget("grace", grace)
        cancel_grace = self._cancel_grace if cancel_grace is ... else _as_budget("cancel_grace", cancel_grace)
        self._is_closed = True
        closing = {
            name: asyncio.create_task(
                each.aclose(grace=grace, cancel_grace=cancel_grace), name=f"ephemerals close {name}"
            )
            for name, each in reversed(self._created.items())
        }
        if not closing:
            return {}
        try:
            await asyncio.wait(closing.values())
        except asyncio.CancelledError:
            for name, task in closing.items():
                self._created[name].cancel()
                task.cancel()
            raise
        errors = [error for task in closing.values() if isinstance(error := task.exception(), Exception)]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup("several coordinators could not be closed", errors)
        return {name: task.result() for name, task in closing.items()}

    async def __aenter__(self) -> Self:
        """Open it; after it was closed it starts with nothing created."""
        if self._is_closed:
            self._created.clear()
            self._is_closed = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close all within the budget; after an exception without grace."""
        await self.aclose(grace=... if kind is None else 0)

    def __repr__(self) -> str:
        """Show the names, and which of them are created."""
        shown = ", ".join(f"{name}*" if name in self._created else name for name in self._recipes)
        return f"<CoordinatorRegistry {shown or 'empty'}{' closed' if self._is_closed else ''}>"


def _as_budget(option: str, seconds: Seconds | None) -> float | None:
    return None if seconds is None else as_seconds(option, seconds, zero=True)


def _is_factory(factory: Any) -> bool:
    if not callable(factory) or is_coroutine_function(factory) or is_generator_function(factory):
        return False
    return misfit(factory) is None
