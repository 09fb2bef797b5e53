"""How is a library looked up by key and by name, without doing it again for every look?

An agent looks at the same few sequences again and again: all skills, those for models, its scope.
The last few are remembered. When a skill has changed, what is known of all the others is taken over
from the sequence before. Names are gathered when the first goal could be one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.detect.index.upkeep import keys_of, moved
from satchel.detect.words import query_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.skill import Skill

_KEPT = 4
_LONGEST_NAME = 300
"""Characters; a longer goal is nobody's name."""
SMALL = 2_000
"""Skills up to which words are looked for in names: in a larger library every word is in some."""
_TOLD_BY = 2
"""Names that a word may always tell from others."""
_FEW = 8
"""Of so many skills one may have changed for the others to be taken over."""


class Shelf:
    """Some skills by key and by name."""

    def __init__(self, skills: Sequence[Skill], last: Shelf | None = None) -> None:
        """Look at all skills, or at those that are not as they were on the `last` shelf."""
        self.skills = skills
        self._keys: list[str] = []
        self._names: dict[bytes, list[str]] | None = None
        self._words: dict[str, bool] = {}
        if last is None or not self._take_over(last):
            self._keys = keys_of(skills)
        self.by_key: dict[str, Skill] = dict(zip(self._keys, skills, strict=True))
        if len(self.by_key) != len(skills):
            self._names = None

    def called(self, goal: str) -> tuple[str, ...]:
        """Keys of the skills whose name is the goal and nothing else."""
        if len(goal) > _LONGEST_NAME:
            return ()
        return tuple(self._by_name().get(query_bytes(goal), ()))

    def named_by(self, word: str) -> bool:
        """Whether a word is what a few names of a small library are told by.

        `go` says nothing in most requests, and all in one for `go-review`.
        """
        if len(self.by_key) > SMALL or not word.isascii():
            return False
        if word not in self._words:
            names = b"".join(self._by_name())  # each has a space before and behind it
            count = names.count(b" %s " % word.encode())
            self._words[word] = 0 < count <= max(_TOLD_BY, len(self.by_key) // 20)
        return self._words[word]

    def _by_name(self) -> dict[bytes, list[str]]:
        if self._names is None:
            names: dict[bytes, list[str]] = {}
            for key, skill in self.by_key.items():
                names.setdefault(query_bytes(skill.name), []).append(key)
            self._names = names
        return self._names

    def _take_over(self, last: Shelf) -> bool:
        """Whether keys, and names if there are any, could be had from another shelf."""
        before, now = last.skills, self.skills
        if len(last.by_key) != len(before):
            return False
        gone, new = moved(before, now)
        if max(len(gone), len(new)) * _FEW > len(now):
            return False
        self._keys = last._keys.copy()
        if isinstance(gone, range) and isinstance(new, range):
            self._keys[gone.start : gone.stop] = keys_of(now[new.start : new.stop])
        else:
            for at, key in zip(new, keys_of([now[at] for at in new]), strict=True):
                self._keys[at] = key
        if last._names is not None:
            were = {(last._keys[at], before[at].name) for at in gone}
            are = {(self._keys[at], now[at].name) for at in new}
            self._names = self._renamed(last._names, were - are, are - were)
        return True

    def _renamed(
        self,
        names: dict[bytes, list[str]],
        gone: set[tuple[str, str]],
        new: set[tuple[str, str]],
    ) -> dict[bytes, list[str]]:
        """The names of another shelf, less those of some pairs of key and name, and with others."""
        if not gone and not new:
            return names
        names = names.copy()
        for key, name in gone:
            data = query_bytes(name)
            names[data] = [one for one in names[data] if one != key]
        for key, name in new:
            data = query_bytes(name)
            found = [*names.get(data, ()), key]
            # As everywhere, in the order of the library.
            names[data] = sorted(found, key=self._keys.index) if len(found) > 1 else found
        return names


class Shelves:
    """The shelves of the last few sequences."""

    def __init__(self) -> None:
        self._kept: list[Shelf] = []

    def of(self, skills: Sequence[Skill]) -> Shelf:
        """The shelf of a sequence; a tuple's is made once."""
        for shelf in self._kept:
            if shelf.skills is skills:
                return shelf
        if not isinstance(skills, tuple):  # a list may change under us
            return Shelf(skills)
        # All skills, those for models, a scope: whose number is nearest is likely the same before.
        count = len(skills)
        last = min(self._kept, key=lambda shelf: abs(len(shelf.skills) - count), default=None)
        shelf = Shelf(skills, last)
        self._kept = [shelf, *self._kept[: _KEPT - 1]]
        return shelf
