"""`Library`: finds the skills of some locations.

library = Library([Location("skills")])
library.snapshot()      # the skills; reads the disk the first time
library.refresh()       # reads only changed files; the same object when nothing changed
library.tools()         # those with a skill.yaml
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel._fs import is_inside
from satchel._optional import renamed_attribute
from satchel.errors import LockBroken, NotFound
from satchel.i18n import Message
from satchel.library.locations import Location
from satchel.library.scanner import OWN_FOLDERS, WalkLimits, find_strays
from satchel.library.snapshot import Filter, filter_snapshot, names_of, unmatched_patterns
from satchel.library.trust_store import TrustStore
from satchel.skill.model import Skill
from satchel.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from satchel.library.fingerprint import VerdictCache
    from satchel.library.integrity import IntegrityChecker
    from satchel.library.scan_cache import ScanCache
    from satchel.library.served_skills import ServedSkills
    from satchel.library.snapshot import Snapshot, ToolSnapshot
    from satchel.skill.problems import Problem


class Library:
    """Finds the skills of some locations, and decides which are offered."""

    def __init__(  # noqa: PLR0913 - one keyword for each part
        self,
        locations: Iterable[Location | str | os.PathLike[str]],
        *,
        bounds: WalkLimits | None = None,
        wanted: Filter | None = None,
        trust: TrustStore | None = None,
        scans: VerdictCache | None = None,
        index: ScanCache | None = None,
        trace: Trace | None = None,
        problems: Sequence[Problem] = (),
        strict: bool = False,
    ) -> None:
        """Create a library; nothing is read yet.

        Args:
            locations: Where to search, first wins; a server never wins over a folder. A path is a
                trusted folder.
            bounds: Limits of the search.
            wanted: Filter for the offered skills.
            trust: Decides about locations whose `trusted` is None; without it they are not offered.
            scans: Scans skills for security risks before their first use, with stored verdicts.
            index: The headers that earlier processes read.
            trace: Receives events.
            problems: Problems to add to every snapshot, such as refused settings.
            strict: Skip skills whose frontmatter needed a repair.
        """
        from satchel.library.library_scan import LibraryScan  # not for `import satchel`

        places = [
            item._replace(path=os.path.abspath(item.path))
            if isinstance(item, Location)
            else Location(os.path.abspath(os.path.expanduser(item)))
            for item in locations
        ]
        served = [place for place in places if place.supplier is not None]
        if served:
            places = [place for place in places if place.supplier is None] + served
        self.locations = tuple(places)
        self.trust = trust or TrustStore(None)
        self.trace = trace or Trace()
        self.filters: tuple[Filter, ...] = ()
        """The filters of a view, the last one first."""
        self._part: tuple[Snapshot, Snapshot] | None = None
        self._scan = LibraryScan(
            self.locations,
            bounds=bounds or WalkLimits(),
            wanted=wanted or Filter(),
            trust=self.trust,
            scans=scans,
            index=index,
            trace=self.trace,
            problems=problems,
            strict=strict,
        )

    def filtered(self, wanted: Filter) -> Library:
        """A view of this library with fewer skills, for sessions and sub-agents.

        It shares everything that was read, so both see a change at the same time. Filters of nested
        views all apply. Skills that were filtered out have the state `excluded`.
        """
        if not any(wanted):
            return self
        from copy import copy

        part = copy(self)
        part.filters = (wanted, *self.filters)
        part._part = None  # noqa: SLF001
        return part

    def snapshot(self) -> Snapshot:
        """The skills as of the last refresh; the first call reads the disk.

        Returns the cached snapshot without waiting for a concurrent refresh.
        """
        return self._filter(self._scan.snapshot())

    def refresh(self) -> Snapshot:
        """Scan the disk for changes; returns the same snapshot when there are none."""
        return self._filter(self._scan.refresh())

    def _filter(self, whole: Snapshot) -> Snapshot:
        if not self.filters:
            return whole
        if self._part is None or self._part[0] is not whole:
            self._part = (whole, filter_snapshot(whole, self.filters, self.locations))
        return self._part[1]

    discover = scan = refresh_if_stale = refresh
    """Aliases for hosts that expect these names."""

    def invalidate(self) -> None:
        """Make the next call scan for changes; for code that has just changed a file."""
        self._scan.invalidate()

    def on_change(self, callback: Callable[[Snapshot], None]) -> None:
        """Call a function with each new snapshot of the whole library."""
        self._scan.on_change = callback

    def tools(self, *, refresh: bool = False) -> ToolSnapshot:
        """The tool skills (folders with a `skill.yaml`).

        Args:
            refresh: Scan for changes first.
        """
        return (self.refresh() if refresh else self.snapshot()).tools

    @property
    def files_read(self) -> int:
        """Number of SKILL.md files that the last refresh opened."""
        return sum(state.reads for state in self._scan.states)

    def list_skills(self, *, hidden: bool = False) -> list[Skill]:
        """The offered skills; with `hidden` also those that are shadowed, untrusted or excluded."""
        snapshot = self.snapshot()
        return [*snapshot.skills, *snapshot.hidden] if hidden else list(snapshot.skills)

    def get_skill(self, name: str) -> Skill | None:
        """The offered skill with that name, id or path."""
        snapshot = self.snapshot()
        found = snapshot.get(name)
        if found is None:
            found = next((skill for skill in snapshot.find(name, hidden=False)), None)
        return found

    def every(self) -> list[Skill]:
        """All skills, offered or not, including those with tools alone."""
        return self.snapshot().every()

    def unmatched(self, patterns: Iterable[str] | None = None) -> list[str]:
        """The patterns that match no skill, offered or not; those of `include` when None."""
        chosen = self._scan.wanted.include if patterns is None else patterns
        return unmatched_patterns(chosen, self._scan.snapshot()) if chosen else []

    def strays(self) -> list[Problem]:
        """Problems of folders and Markdown files that look like skills and are none."""
        self.snapshot()
        return [problem for state in self._scan.states for problem in find_strays(state)]

    def untrusted_skills(self) -> list[Skill]:
        """The skills that are not trusted yet."""
        if all(location.trusted is True for location in self.locations):
            return []
        return [
            skill
            for skill in self.every()
            if skill.state == "untrusted" and not self.is_unpinned(skill)
        ]

    def untrusted_notice(self) -> str:
        """One line with the number of untrusted skills and the next step; empty when none."""
        count = len(self.untrusted_skills())
        if count == 1:
            return Message(
                "1 skill of this folder is not trusted yet: the user can run `satchel trust`",
                people="1 skill of this folder is not trusted yet: run `satchel trust`",
            )
        if not count:
            return ""
        return Message(
            "{count} skills of this folder are not trusted yet: the user can run `satchel trust`",
            people="{count} skills of this folder are not trusted yet: run `satchel trust`",
            count=count,
        )

    def modified(self, skills: Iterable[Skill]) -> list[Skill]:
        """The skills whose files differ from the lockfile; only locked files are read."""
        found: list[Skill] = []
        for skill in skills:
            with suppress(LockBroken):  # reported as a problem
                found += [skill] if self.integrity.modified(skill) else []
        return found

    def is_unpinned(self, skill: Skill) -> bool:
        """Whether a skill is untrusted only because no lockfile pins it."""
        if not self.trust.locked:
            return False
        location = next((one for one in self.locations if one.origin == skill.origin), None)
        return (
            location is None
            or location.trusted is True
            or self.trust.trusts(skill.base_dir, location.boundary)
        )

    def by_ref(self, ref: str) -> Skill | None:
        """The skill with that ref, offered or not, also with tools alone.

        Constant time, except for the first call after a change.
        """
        return self.snapshot().by_ref(ref)

    def named(self, name: str) -> list[Skill]:
        """All skills with that name, the offered one first, as `by_ref` finds them."""
        return self.snapshot().named(name)

    def find(self, reference: str) -> list[Skill]:
        """Skills by name, id, ref or path, offered or not, also with tools alone."""
        return self.snapshot().find(reference)

    def load_content(self, name: str) -> str:
        """Read the body of a skill.

        Raises:
            NotFound: there is no such skill.
            SatchelError: it may not be used (`IntegrityChecker.check`).
        """
        waits = (
            one for one in self.find(name) if one.state in ("untrusted", "blocked", "unverified")
        )
        skill = self.get_skill(name) or next(waits, None)  # whose check raises the reason
        if skill is None:
            raise NotFound(
                Message("There is no skill `{name}`", name=name),
                "Run `satchel list` to see what there is",
            )
        return self.integrity.read(skill).body

    @property
    def integrity(self) -> IntegrityChecker:
        """Verifies that skills may be used."""
        return self._scan.integrity

    seals = renamed_attribute("seals", "integrity")

    def served_skill_at(self, path: str) -> tuple[Skill, str] | None:
        """The served skill in whose folder an absolute path lies, and the path below it.

        The skill need not be offered, and the file need not be fetched yet.
        """
        for root in [place.path for place in self.locations if place.supplier is not None]:
            # Also by its real path: the cache may lie inside the project.
            for base in dict.fromkeys((root, os.path.realpath(root))):
                if not is_inside(path, base):
                    continue
                skill_id, _, below = path[len(base) :].strip(os.sep).partition(os.sep)
                snapshot = self.snapshot()
                for skill in (*snapshot.skills, *snapshot.hidden):
                    if skill.origin.root == root and skill.head.id == skill_id:
                        return skill, below.replace(os.sep, "/")
        return None

    def supply_of(self, skill: Skill) -> ServedSkills | None:
        """The source of a served skill's files; None for a local skill."""
        return self._scan.supplies.get(skill.origin.root) if skill.origin.remote else None

    def supply_at(self, path: str) -> ServedSkills | None:
        """The served skills of the location with this path."""
        return self._scan.supplies.get(path)

    def close(self) -> None:
        """Close the connections to servers."""
        self._scan.close()

    def skills_containing(self, real: str) -> Iterator[Skill]:
        """The skills that contain a real path, offered or not, at most one per location."""
        self.snapshot()
        for state in self._scan.states:
            location = state.location
            roots = {os.path.realpath(location.path): "", **state.followed}
            for root, via in roots.items():
                if not is_inside(real, root):
                    continue
                below = real[len(root) :].strip(os.sep).replace(os.sep, "/")
                if location.single:
                    head = state.heads.get("")
                    own = head is not None and (
                        below == head.file or below.split("/", 1)[0] in OWN_FOLDERS
                    )
                    if head is not None and own:
                        yield Skill(head, location.origin)
                    continue
                skill_id = f"{via}/{below}".strip("/")
                head = None
                while skill_id and head is None:
                    head = state.head(skill_id)
                    skill_id = skill_id.rpartition("/")[0]
                if head is not None:
                    yield Skill(head, location.origin)

    def wants(self, folder: str) -> bool:
        """Whether all filters accept the name of a folder."""
        names = names_of(folder, self.locations)
        sieves = [one.compile() for one in (self._scan.wanted, *self.filters)]
        return all(sieve is None or sieve.passes(*names) for sieve in sieves)
