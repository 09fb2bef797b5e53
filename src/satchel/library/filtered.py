"""A filtered view of a library, for sessions and sub-agents with fewer skills.

It reads through the whole library, so both see a change at the same time. Filters of nested views
both apply. Skills that were filtered out have the state `excluded`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from satchel.library.library import Library, names_of
from satchel.library.snapshot import Filter, Snapshot
from satchel.library.tool_scanner import ToolSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from satchel.library.integrity import IntegrityChecker
    from satchel.library.served_skills import ServedSkills
    from satchel.library.watcher import Watcher
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem


def filter_library(library: Library, include: tuple[str, ...], exclude: tuple[str, ...]) -> Library:
    """Filter a library; returns the library itself when there is no filter."""
    if not (include or exclude):
        return library
    return FilteredLibrary(library, Filter(include, exclude))


class FilteredLibrary(Library):
    """The skills of a library that pass a filter.

    It has no state of its own but the filtered snapshots: methods that need the disk delegate to
    the whole library, and the inherited lookups use `snapshot` and `tools`.
    """

    def __init__(self, whole: Library, wanted: Filter) -> None:
        """Filter a library; nothing is read yet.

        Args:
            whole: The library to filter.
            wanted: The filter.
        """
        # The base is not initialised: its state is that of the whole library.
        self.whole = whole
        self.wanted = wanted
        self.locations = whole.locations
        self.trust = whole.trust
        self.trace = whole.trace
        self._sieve = wanted.compile()
        self._part: tuple[Snapshot, Snapshot] | None = None
        self._tool_part: tuple[ToolSnapshot, ToolSnapshot] | None = None

    def snapshot(self) -> Snapshot:
        """The filtered skills as of the last refresh."""
        return self._filter(self.whole.snapshot())

    def refresh(self) -> Snapshot:
        """Scan the disk for changes; returns the same snapshot when there are none."""
        return self._filter(self.whole.refresh())

    discover = scan = refresh_if_stale = refresh

    def tools(self, *, refresh: bool = False) -> ToolSnapshot:
        """The filtered tool skills."""
        whole = self.whole.tools(refresh=refresh)
        if self._tool_part is None or self._tool_part[0] is not whole:
            self._tool_part = (whole, self._filter_tools(whole))
        return self._tool_part[1]

    @property
    def files_read(self) -> int:
        """Number of files that the last refresh opened."""
        return self.whole.files_read

    @property
    def seals(self) -> IntegrityChecker:
        """Verifies that skills may be used."""
        return self.whole.seals

    def unmatched(self, patterns: Iterable[str] | None = None) -> list[str]:
        """The patterns that match no skill of the whole library."""
        return self.whole.unmatched(patterns)

    def strays(self) -> list[Problem]:
        """Problems of files that look like skills, in the whole library."""
        return self.whole.strays()

    def supply_of(self, skill: Skill) -> ServedSkills | None:
        """The source of a served skill's files; None for a local skill."""
        return self.whole.supply_of(skill)

    def supply_at(self, path: str) -> ServedSkills | None:
        """The served skills of the location with this path."""
        return self.whole.supply_at(path)

    def skills_containing(self, real: str) -> Iterator[Skill]:
        """The skills of the whole library that contain a real path."""
        return self.whole.skills_containing(real)

    def wants(self, folder: str) -> bool:
        """Whether both filters accept the name of a folder."""
        return self.whole.wants(folder) and self._passes(folder)

    def invalidate(self) -> None:
        """Make the next call scan for changes."""
        self.whole.invalidate()

    def close(self) -> None:
        """Close the whole library."""
        self.whole.close()

    def watch(self) -> Watcher:
        """Watch the locations of the whole library."""
        return self.whole.watch()

    def _keeps(self, skill: Skill) -> bool:
        return self._sieve is None or self._sieve.keeps(skill.head)

    def _passes(self, folder: str) -> bool:
        return self._sieve is None or self._sieve.passes(*names_of(folder, self.locations))

    def _hide(self, skill: Skill) -> Skill:
        """Mark a hidden skill as excluded if the filter drops it or the skill that shadows it."""
        winner = self.whole.by_ref(skill.winner) if skill.winner else None
        kept = self._keeps(skill) and (winner is None or self._keeps(winner))
        return skill if kept else skill._replace(state="excluded")

    def _filter_problems(self, problems: Sequence[Problem]) -> tuple[Problem, ...]:
        return tuple(one for one in problems if self._passes(os.path.dirname(one.path)))

    def _filter(self, whole: Snapshot) -> Snapshot:
        if self._part is None or self._part[0] is not whole:
            kept = tuple(skill for skill in whole.skills if self._keeps(skill))
            left = tuple(
                skill._replace(state="excluded") for skill in whole.skills if not self._keeps(skill)
            )
            by_name = {skill.name: skill for skill in kept}
            hidden = (*map(self._hide, whole.hidden), *left)
            part = Snapshot(kept, by_name, hidden, self._filter_problems(whole.problems))
            self._part = (whole, part)
        return self._part[1]

    def _filter_tools(self, whole: ToolSnapshot) -> ToolSnapshot:
        kept = [one for one in whole.skills if self._keeps(one.skill)]
        left = [
            one._replace(skill=one.skill._replace(state="excluded"))
            for one in whole.skills
            if not self._keeps(one.skill)
        ]
        tools = {name: pair for name, pair in whole.tools.items() if self._keeps(pair[0].skill)}
        known = [one._replace(skill=self._hide(one.skill)) for one in whole.hidden]
        hidden = [*known, *left]
        left_out = {one.skill.ref for one in hidden if one.skill.state == "excluded"}
        refused = {ref: why for ref, why in whole.refused.items() if ref not in left_out}
        return ToolSnapshot(kept, hidden, self._filter_problems(whole.problems), tools, refused)
