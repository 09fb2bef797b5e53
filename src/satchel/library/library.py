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
from satchel.errors import LockBroken, NotFound, Refused
from satchel.i18n import Message
from satchel.library.location_state import WalkLimits
from satchel.library.location_walk import OWN_FOLDERS
from satchel.library.locations import Location
from satchel.library.scanner import find_strays
from satchel.library.snapshot import Filter, filter_snapshot, folder_names, unmatched_patterns
from satchel.library.trust_store import TrustStore
from satchel.skill.model import Skill
from satchel.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from satchel.library.integrity import IntegrityChecker
    from satchel.library.location_state import LocationState
    from satchel.library.requirement_checker import SecretNames
    from satchel.library.scan_cache import ScanCache
    from satchel.library.served_skills import ServedSkills
    from satchel.library.snapshot import Snapshot, ToolSnapshot
    from satchel.library.verdict_cache import VerdictCache
    from satchel.skill.document import SkillHeader
    from satchel.skill.problems import Problem


class Library:
    """Finds the skills in some folders, and decides which of them are offered to a model.

    `Satchel` adds settings, sessions and a store to a library. Use a library alone for folders of
    your own choice.

    Example:
        from satchel import Library, build_catalogue

        library = Library(["skills"])
        print(build_catalogue(library.list_skills(), budget=2_000))
        print(library.load_content("code-review"))
    """

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
        secrets: Callable[[], SecretNames] | None = None,
        script_path: str = "",
        finders: Sequence[Callable[[], Sequence[Location]]] = (),
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
            secrets: Opens what may have values of required variables, beside the environment.
            script_path: The PATH of programs of skills; empty for that of this process.
            finders: Called at each refresh for locations that come and go, such as those of
                installed packages; they come after all other folders.
        """
        from satchel.library.library_scan import LibraryScan  # not for `import satchel`

        resolved = [
            location._replace(path=os.path.abspath(location.path))
            if isinstance(location, Location)
            else Location(os.path.abspath(os.path.expanduser(location)))
            for location in locations
        ]
        # The sort is stable: folders stay in their order, and servers come last.
        ordered = sorted(resolved, key=lambda location: location.supplier is not None)
        self.trust = trust or TrustStore(None)
        self.trace = trace or Trace()
        self.filters: tuple[Filter, ...] = ()
        """The filters of a view, the last one first."""
        self._filtered: tuple[Snapshot, Snapshot] | None = None
        """A snapshot of the whole library, and the same after the filters."""
        self._screened: Snapshot | None = None
        self._scan = LibraryScan(
            ordered,
            finders=finders,
            limits=bounds or WalkLimits(),
            conditions=wanted or Filter(),
            trust=self.trust,
            verdict_cache=scans,
            scan_cache=index,
            trace=self.trace,
            problems=problems,
            strict=strict,
            secrets=secrets,
            script_path=script_path,
        )

    @property
    def locations(self) -> Sequence[Location]:
        """The locations in their order, servers last."""
        return self._scan.locations

    def change_filter(self, wanted: Filter) -> None:
        """Replace the filter of the settings; the next refresh applies it."""
        self._scan.change_conditions(wanted)

    def filtered(self, wanted: Filter) -> Library:
        """A view of this library with fewer skills, for sessions and sub-agents.

        It shares everything that was read, so both see a change at the same time. Filters of nested
        views all apply. Skills that were filtered out have the state `excluded`.

        Args:
            wanted: Which skills the view has.
        """
        if not any(wanted):
            return self
        from copy import copy

        view = copy(self)
        view.filters = (wanted, *self.filters)
        view._filtered = None  # noqa: SLF001
        return view

    def snapshot(self) -> Snapshot:
        """The skills as of the last refresh; the first call reads the disk.

        Returns the cached snapshot without waiting for a concurrent refresh.
        """
        return self._filter(self._scan.snapshot())

    def refresh(self) -> Snapshot:
        """Scan the disk for changes; returns the same snapshot when there are none."""
        return self._filter(self._scan.refresh())

    def screened(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, or one without skills whose description the scan blocks."""
        if snapshot is not self._screened:
            if self.integrity.screen(snapshot.for_model):
                snapshot = self.refresh()
            self._screened = snapshot
        return snapshot

    def _filter(self, snapshot: Snapshot) -> Snapshot:
        if not self.filters:
            return snapshot
        if self._filtered is None or self._filtered[0] is not snapshot:
            self._filtered = (snapshot, filter_snapshot(snapshot, self.filters, self.locations))
        return self._filtered[1]

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
        """The offered skills; with `hidden` also those that are shadowed, untrusted or excluded.

        Args:
            hidden: Also return skills that are not offered.
        """
        snapshot = self.snapshot()
        return [*snapshot.skills, *snapshot.hidden] if hidden else list(snapshot.skills)

    def get_skill(self, name: str) -> Skill | None:
        """The offered skill with that name, id or path.

        Args:
            name: The name, the id, or the path of the folder or its SKILL.md.
        """
        snapshot = self.snapshot()
        match = snapshot.get(name)
        if match is None:
            match = next((skill for skill in snapshot.find(name, hidden=False)), None)
        return match

    def every(self) -> list[Skill]:
        """All skills, offered or not, including those with tools alone."""
        return self.snapshot().every()

    def unmatched(self, patterns: Iterable[str] | None = None) -> list[str]:
        """The patterns that match no skill, offered or not; those of `include` when None."""
        include = self._scan.conditions.include if patterns is None else patterns
        return unmatched_patterns(include, self._scan.snapshot()) if include else []

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
        modified: list[Skill] = []
        for skill in skills:
            with suppress(LockBroken):  # reported as a problem
                modified += [skill] if self.integrity.modified(skill) else []
        return modified

    def is_unpinned(self, skill: Skill) -> bool:
        """Whether a skill is untrusted only because no lockfile pins it."""
        if not self.trust.locked:
            return False
        location = next(
            (location for location in self.locations if location.origin == skill.origin), None
        )
        return (
            location is None
            or location.trusted is True
            or self.trust.trusts(*location.trust_decision(skill.base_dir))
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

        Args:
            name: The name, id or path of an offered skill.

        Raises:
            NotFound: there is no such skill.
            SatchelError: it may not be used (`IntegrityChecker.check`).
        """
        unavailable = (
            skill
            for skill in self.find(name)
            if skill.state in ("untrusted", "blocked", "unverified", "needs setup")
        )
        skill = self.get_skill(name) or next(unavailable, None)  # whose check raises the reason
        if skill is None:
            raise NotFound(
                Message("There is no skill `{name}`", name=name),
                "Run `satchel list` to see what there is",
            )
        if problem := skill.setup_problem:
            raise Refused(*problem.for_model())
        return self.integrity.read(skill).body

    @property
    def integrity(self) -> IntegrityChecker:
        """Verifies that skills may be used."""
        return self._scan.integrity

    def served_skill_at(self, path: str) -> tuple[Skill, str] | None:
        """The served skill in whose folder an absolute path lies, and the path below it.

        The skill need not be offered, and the file need not be fetched yet.
        """
        served = [location for location in self.locations if location.supplier is not None]
        for root in [location.path for location in served]:
            # Also by its real path: the cache may lie inside the project.
            for folder in dict.fromkeys((root, os.path.realpath(root))):
                if not is_inside(path, folder):
                    continue
                skill_id, _, file_path = path[len(folder) :].strip(os.sep).partition(os.sep)
                snapshot = self.snapshot()
                for skill in (*snapshot.skills, *snapshot.hidden):
                    if skill.origin.root == root and skill.head.id == skill_id:
                        return skill, file_path.replace(os.sep, "/")
        return None

    def find_served(self, uri: str) -> Skill | None:
        """The served skill at an address such as `skill://pdf/SKILL.md`, listed or not."""
        if "://" not in uri:
            return None
        for root, served_skills in self._scan.served_skills.items():
            if skill_id := served_skills.find_id(uri):
                self.refresh()
                for skill in self.every():
                    if (skill.origin.root, skill.head.id) == (root, skill_id):
                        return skill
        return None

    def served_skills_of(self, skill: Skill) -> ServedSkills | None:
        """The skills of the server that has a served skill; None for a local skill."""
        return self._scan.served_skills.get(skill.origin.root) if skill.origin.remote else None

    def served_skills_at(self, path: str) -> ServedSkills | None:
        """The served skills of the location with this path."""
        return self._scan.served_skills.get(path)

    def close(self) -> None:
        """Close the connections to servers."""
        self._scan.close()

    def skills_containing(self, real: str) -> Iterator[Skill]:
        """The skills that contain a real path, offered or not, at most one per location."""
        self.snapshot()
        for state in self._scan.states:
            location = state.location
            roots = {os.path.realpath(location.path): "", **state.link_by_target}
            for root, link in roots.items():
                if not is_inside(real, root):
                    continue
                relative = real[len(root) :].strip(os.sep).replace(os.sep, "/")
                if location.single:
                    header = _single_skill_header(state, relative)
                else:
                    header = _innermost_header(state, f"{link}/{relative}".strip("/"))
                if header is not None:
                    yield Skill(header, location.origin)

    def wants(self, folder: str) -> bool:
        """Whether all filters accept the name of a folder."""
        names = folder_names(folder, self.locations)
        filters = [conditions.compile() for conditions in (self._scan.conditions, *self.filters)]
        return all(prepared is None or prepared.matches_names(*names) for prepared in filters)


def _single_skill_header(state: LocationState, relative: str) -> SkillHeader | None:
    """The header of a location that is one skill, if a path is one of its own files."""
    header = state.headers.get("")
    if header is None:
        return None
    is_own_file = relative == header.file or relative.split("/", 1)[0] in OWN_FOLDERS
    return header if is_own_file else None


def _innermost_header(state: LocationState, relative: str) -> SkillHeader | None:
    """The header of the innermost skill in whose folder a path lies."""
    skill_id, header = relative, None
    while skill_id and header is None:
        header = state.header_of(skill_id)
        skill_id = skill_id.rpartition("/")[0]
    return header
