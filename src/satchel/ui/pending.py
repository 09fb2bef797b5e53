"""`PendingItems` keeps objects in memory between two requests: plans, messages, results."""

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
        self, most: int, release: Callable[[T], object] | None = None, lifetime: float = math.inf
    ) -> None:
        """Start without any.

        Args:
            most: The number kept; the oldest is dropped first.
            release: Called with each object that is dropped.
            lifetime: Seconds after which an object is dropped when it is asked for.
        """
        self._most = most
        self._release = release
        self._lifetime = lifetime
        self._kept: dict[str, tuple[T, float]] = {}
        """Key -> object, and when it was added."""
        self._lock = threading.Lock()

    def add(self, one: T, key: str = "") -> str:
        """Keep an object; returns its key, which is new unless one is given."""
        key = key or secrets.token_urlsafe(18)
        with self._lock:
            self._kept[key] = (one, time.monotonic())
            old = [self._kept.pop(first)[0] for first in [*self._kept][: -self._most]]
        self._drop(old)
        return key

    def get(self, key: str) -> T | None:
        """Return an object; None when it is not there, or no longer."""
        found, since = self._kept.get(key, (None, math.inf))
        if time.monotonic() - since > self._lifetime:
            self.drop(key)
            return None
        return found

    def require(self, key: str) -> T:
        """Return an object.

        Raises:
            NotFound: it was removed, or dropped for later ones.
        """
        found = self.get(key)
        if found is None:
            raise expired()
        return found

    def pop(self, key: str) -> T:
        """Remove an object and return it, without releasing it.

        Raises:
            NotFound: as `require`.
        """
        found = self.require(key)
        with self._lock:
            if self._kept.pop(key, None) is None:
                raise expired()
        return found

    def drop(self, key: str) -> None:
        """Drop an object, if it is there."""
        with self._lock:
            found = [self._kept.pop(key)[0]] if key in self._kept else []
        self._drop(found)

    def values(self) -> list[T]:
        """Return all objects."""
        with self._lock:
            return [one for one, _ in self._kept.values()]

    def clear(self) -> None:
        """Drop all objects."""
        with self._lock:
            every, self._kept = list(self._kept.values()), {}
        self._drop([one for one, _ in every])

    def _drop(self, found: list[T]) -> None:
        if self._release is not None:
            for one in found:
                self._release(one)


def expired() -> NotFound:
    """Return the error for an object that is no longer kept."""
    return NotFound(say("This preview has expired"))
