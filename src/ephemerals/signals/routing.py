"""Who hears what: from a name to its listeners, worked out once for each name.

Listeners of exact names are found by name, the others by trying their patterns. The answer is kept for a
bounded number of names, so that a pattern costs an emission no more than an exact name does, and it is
forgotten when a listener comes or goes. No method locks; the sink does.
"""

from __future__ import annotations

from typing import Final

from .subscription import Subscription
from .watch import Watch

__all__ = ["Route", "RoutingTable"]

_MAX_ROUTES: Final = 4096


class Route:
    """Hold the listeners of one name, each kind in the order in which they came."""

    __slots__ = ("has_async", "listeners", "retractions", "watches")

    def __init__(self, found: list[Subscription | Watch]) -> None:
        handlers = [each for each in found if isinstance(each, Subscription)]
        self.listeners = tuple(each for each in handlers if not each.retractions)
        self.retractions = tuple(each for each in handlers if each.retractions)
        self.watches = tuple(each for each in found if isinstance(each, Watch))
        self.has_async = any(each.is_async for each in handlers)


class RoutingTable:
    """Know the listeners, and find those of a name.

    `routes` is the part of the answers that is known already; ask it first. `listeners` are in their order,
    numbered.
    """

    __slots__ = ("_exact", "_globs", "listeners", "routes")

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.listeners: dict[Subscription | Watch, int] = {}
        self._exact: dict[str, dict[Subscription | Watch, None]] = {}
        self._globs: dict[Subscription | Watch, None] = {}

    @property
    def subscriptions(self) -> list[Subscription]:
        """Return the subscriptions, in their order."""
        return [each for each in self.listeners if isinstance(each, Subscription)]

    def add(self, listener: Subscription | Watch) -> None:
        """Let a listener hear of everything that is emitted from now on."""
        newest = next(reversed(self.listeners.values()), 0)
        self.listeners[listener] = newest + 1
        if listener.pattern.is_exact:
            for name in listener.pattern.names:
                self._exact.setdefault(name, {})[listener] = None
        else:
            self._globs[listener] = None
        self._forget(listener)

    def remove(self, listener: Subscription | Watch) -> None:
        """Let a listener go; nothing happens if it is gone already."""
        if self.listeners.pop(listener, None) is None:
            return
        if listener.pattern.is_exact:
            for name in listener.pattern.names:
                del self._exact[name][listener]
                if not self._exact[name]:
                    del self._exact[name]
        else:
            del self._globs[listener]
        self._forget(listener)

    def find(self, name: str) -> Route:
        """Work out who hears of a name, and remember it."""
        found = [*self._exact.get(name, ()), *(each for each in self._globs if each.pattern.matches(name))]
        found.sort(key=self.listeners.__getitem__)
        if len(self.routes) >= _MAX_ROUTES:
            self.routes.clear()
        route = self.routes[name] = Route(found)
        return route

    def _forget(self, listener: Subscription | Watch) -> None:
        """Forget the answers that a listener changes."""
        if not listener.pattern.is_exact:
            self.routes.clear()
            return
        for name in listener.pattern.names:
            self.routes.pop(name, None)
