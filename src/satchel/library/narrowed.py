"""A part of a library, for somebody who may have no more than that: a sub-agent.

It looks at the same disk through the library it was made from, so both see a change together, and
a part of a part is never more than either. What was filtered out is known as `excluded`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from satchel.library.library import Library, names_of
from satchel.library.snapshot import Filter, Snapshot
from satchel.library.tool_shelf import ToolSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.library.seal import Seals
    from satchel.library.watch import Watcher
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem


def narrowed(library: Library, include: tuple[str, ...], exclude: tuple[str, ...]) -> Library:
    """The skills of a library that pass a filter; the library itself when there is none."""
    if not (include or exclude):
        return library
    return NarrowedLibrary(library, Filter(include, exclude))


class NarrowedLibrary(Library):
    """The skills of a library that pass a filter."""

    def __init__(self, whole: Library, wanted: Filter) -> None:
        """Take a part; nothing is read yet.

        Args:
            whole: What to take from. It does the reading.
            wanted: Which skills pass.
        """
        # The base is not initialised: all that it keeps is the whole library's.
        self._whole = whole
        self.wanted = wanted
        self._sieve = wanted.compile()
        self._part: tuple[Snapshot, Snapshot] | None = None
        self._tool_part: tuple[ToolSnapshot, ToolSnapshot] | None = None
        self.locations = whole.locations
        self.trust = whole.trust
        self.trace = whole.trace

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_whole"], name)

    @property
    def whole(self) -> Library:
        """What it is a part of."""
        return self._whole

    def snapshot(self) -> Snapshot:
        """The part, as of the last look."""
        return self._take(self._whole.snapshot())

    def refresh(self) -> Snapshot:
        """Look for changes; the very same snapshot comes back when there are none."""
        return self._take(self._whole.refresh())

    discover = scan = refresh_if_stale = refresh

    def tools(self, *, refresh: bool = False) -> ToolSnapshot:
        """The tool skills of the part."""
        look = self._whole.tools(refresh=refresh)
        if self._tool_part is None or self._tool_part[0] is not look:
            self._tool_part = (look, self._take_tools(look))
        return self._tool_part[1]

    @property
    def files_read(self) -> int:
        """How many files the last look opened."""
        return self._whole.files_read

    @property
    def seals(self) -> Seals:
        """Decides whether a skill may be used as it is now."""
        return self._whole.seals

    def holders(self, real: str) -> Iterator[Skill]:
        """The skills in whose folders a real path lies; also those outside the part."""
        return self._whole.holders(real)

    def wants(self, folder: str) -> bool:
        """Whether the filter lets a folder's name pass, whatever is in it."""
        return self._whole.wants(folder) and self._passes(folder)

    def doubt(self) -> None:
        """Let the next call look for changes."""
        self._whole.doubt()

    def close(self) -> None:
        """End connections to servers, and the watching, of the whole library."""
        self._whole.close()

    def watch(self) -> Watcher:
        """Watch the locations of the whole library."""
        return self._whole.watch()

    def _keeps(self, skill: Skill) -> bool:
        return self._sieve is None or self._sieve.keeps(skill.head)

    def _passes(self, folder: str) -> bool:
        return self._sieve is None or self._sieve.passes(*names_of(folder, self.locations))

    def _hide(self, skill: Skill) -> Skill:
        """A skill that is not offered: excluded where the filter leaves out it or its winner."""
        winner = self._whole.by_ref(skill.winner) if skill.winner else None
        kept = self._keeps(skill) and (winner is None or self._keeps(winner))
        return skill if kept else skill._replace(state="excluded")

    def _told(self, problems: Sequence[Problem]) -> tuple[Problem, ...]:
        return tuple(one for one in problems if self._passes(os.path.dirname(one.path)))

    def _take(self, look: Snapshot) -> Snapshot:
        if self._part is None or self._part[0] is not look:
            kept = tuple(skill for skill in look.skills if self._keeps(skill))
            left = tuple(
                skill._replace(state="excluded") for skill in look.skills if not self._keeps(skill)
            )
            by_name = {skill.name: skill for skill in kept}
            hidden = (*map(self._hide, look.hidden), *left)
            part = Snapshot(kept, by_name, hidden, self._told(look.problems))
            self._part = (look, part)
        return self._part[1]

    def _take_tools(self, look: ToolSnapshot) -> ToolSnapshot:
        kept = [one for one in look.skills if self._keeps(one.skill)]
        left = [
            one._replace(skill=one.skill._replace(state="excluded"))
            for one in look.skills
            if not self._keeps(one.skill)
        ]
        tools = {name: pair for name, pair in look.tools.items() if self._keeps(pair[0].skill)}
        known = [one._replace(skill=self._hide(one.skill)) for one in look.hidden]
        hidden = [*known, *left]
        left_out = {one.skill.ref for one in hidden if one.skill.state == "excluded"}
        refused = {ref: why for ref, why in look.refused.items() if ref not in left_out}
        return ToolSnapshot(kept, hidden, self._told(look.problems), tools, refused)
