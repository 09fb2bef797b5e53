"""How is a library looked up by key and by name, without doing it again for every look?

An agent looks at the same few sequences again and again: all skills, those for models, its scope.
The last few are remembered. Names are gathered when the first goal could be one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.detect.index.upkeep import keys_of
from satchel.detect.words import query_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.skill import Skill

_KEPT = 4
_LONGEST_NAME = 300
"""Characters; a longer goal is nobody's name."""


class Shelf:
    """Some skills by key and by name."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        self.skills = skills
        self.by_key: dict[str, Skill] = dict(zip(keys_of(skills), skills, strict=True))
        self._names: dict[bytes, list[str]] | None = None

    def called(self, goal: str) -> tuple[str, ...]:
        """Keys of the skills whose name is the goal and nothing else."""
        if len(goal) > _LONGEST_NAME:
            return ()
        if self._names is None:
            names: dict[bytes, list[str]] = {}
            for key, skill in self.by_key.items():
                names.setdefault(query_bytes(skill.name), []).append(key)
            self._names = names
        return tuple(self._names.get(query_bytes(goal), ()))


class Shelves:
    """The shelves of the last few sequences."""

    def __init__(self) -> None:
        self._kept: list[Shelf] = []

    def of(self, skills: Sequence[Skill]) -> Shelf:
        """The shelf of a sequence; a tuple's is made once."""
        for shelf in self._kept:
            if shelf.skills is skills:
                return shelf
        shelf = Shelf(skills)
        if isinstance(skills, tuple):  # a list may change under us
            self._kept = [shelf, *self._kept[: _KEPT - 1]]
        return shelf
