"""What was found out about a plan's steps a moment ago? One plan is often that of many goals.

Steps are known by identity, and kept as long as what is known of them: nobody else gets their
place in memory. Only what cannot change may be remembered, so not steps with arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from satchel.goals.model import Step

_T = TypeVar("_T")
_KEPT = 32
"""Plans that are remembered; the largest takes a megabyte."""


class Seen(Generic[_T]):
    """What is known of the steps of the last few plans."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[Step, ...], _T]] = {}

    def get(self, steps: tuple[Step, ...]) -> _T | None:
        """What was found out; None when that is not known."""
        found = self._known.get(id(steps))
        return None if found is None else found[1]

    def keep(self, steps: tuple[Step, ...], found: _T) -> _T:
        """Remember it, if these steps stay as they are."""
        changing = any(
            step.arguments or step.output or type(step.needs) is not tuple for step in steps
        )
        if type(steps) is tuple and not changing:
            if len(self._known) >= _KEPT:
                self._known.clear()  # simple, and safe among threads
            self._known[id(steps)] = (steps, found)
        return found
