"""Objects that are stored in memory between two requests: plans, messages, results."""

from __future__ import annotations

import math
import secrets
import threading
import time
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from satchel.errors import NotFound
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.store.plan import ChangePlan
    from satchel.store.store import Store

T = TypeVar("T")


class PendingPlan(NamedTuple):
    """A plan that waits for confirmation."""

    store: Store
    plan: ChangePlan
    label: str = ""
    """The name of its source."""


class PendingItems(Generic[T]):
    """The latest objects of a kind, under unguessable keys. Thread-safe."""

    def __init__(
        self,
        max_items: int,
        release: Callable[[T], object] | None = None,
        lifetime: float = math.inf,
    ) -> None:
        """Start without any.

        Args:
            max_items: The number of objects stored; the oldest is dropped first.
            release: Called with each object that is dropped.
            lifetime: Seconds after which an object is dropped when it is asked for.
        """
        self._max_items = max_items
        self._release = release
        self._lifetime = lifetime
        self._items: dict[str, tuple[T, float]] = {}
        """Key -> object, and when it was added."""
        self._lock = threading.Lock()

    def add(self, item: T, key: str = "") -> str:
        """Store an object; returns its key, which is new unless one is given."""
        key = key or secrets.token_urlsafe(18)
        with self._lock:
            self._items[key] = (item, time.monotonic())
            oldest_keys = [*self._items][: -self._max_items]
            dropped = [self._items.pop(oldest_key)[0] for oldest_key in oldest_keys]
        self._release_all(dropped)
        return key

    def get(self, key: str) -> T | None:
        """Return an object; None when it is not there, or no longer."""
        item, added_at = self._items.get(key, (None, math.inf))
        if time.monotonic() - added_at > self._lifetime:
            self.drop(key)
            return None
        return item

    def require(self, key: str) -> T:
        """Return an object.

        Raises:
            NotFound: it was removed, or dropped for later ones.
        """
        item = self.get(key)
        if item is None:
            raise expired_error()
        return item

    def pop(self, key: str) -> T:
        """Remove an object and return it, without releasing it.

        Raises:
            NotFound: as `require`.
        """
        item = self.require(key)
        with self._lock:
            if self._items.pop(key, None) is None:
                raise expired_error()
        return item

    def drop(self, key: str) -> None:
        """Drop an object, if it is there."""
        with self._lock:
            dropped = [self._items.pop(key)[0]] if key in self._items else []
        self._release_all(dropped)

    def values(self) -> list[T]:
        """Return all objects."""
        with self._lock:
            return [item for item, _ in self._items.values()]

    def clear(self) -> None:
        """Drop all objects."""
        with self._lock:
            dropped = [item for item, _ in self._items.values()]
            self._items = {}
        self._release_all(dropped)

    def _release_all(self, items: list[T]) -> None:
        if self._release is not None:
            for item in items:
                self._release(item)


def expired_error() -> NotFound:
    """Return the error for an object that is no longer stored."""
    return NotFound(say("This preview has expired"))
