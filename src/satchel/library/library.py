"""`Library`: finds the skills of some locations.

library = Library([Location("skills")])
library.snapshot()      # the skills; reads the disk the first time
library.refresh()       # reads only changed files; the same object when nothing changed
library.tools()         # the tool skills, scanned on demand
"""

from __future__ import annotations

import gc
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from satchel._fs import is_inside
from satchel.errors import LockBroken, NotFound
from satchel.i18n import Message
from satchel.library.locations import Location
from satchel.library.scanner import (
    OWN_FOLDERS,
    LocationState,
    WalkLimits,
    find_repeated,
    rescan_location,
    scan_location,
    without_ids,
)
from satchel.library.snapshot import Filter, Snapshot
from satchel.library.trust_store import TrustStore
from satchel.skill.model import Skill
from satchel.skill.problems import Problem
from satchel.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from satchel.library.fingerprint import VerdictCache
    from satchel.library.integrity import IntegrityChecker
    from satchel.library.scan_cache import ScanCache
    from satchel.library.served_skills import ServedSkills
    from satchel.library.tool_scanner import ToolScanner, ToolSnapshot
    from satchel.library.trust_store import LocationTrust, TrustRecord
    from satchel.library.watcher import Watcher
    from satchel.skill.document import SkillHeader
    from satchel.skill.model import SkillOrigin, State

_new: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_MAX_SKILLS_SAVED_ALWAYS = 2_000
"""The cache of a smaller location is written in a few milliseconds."""
_MAX_EVENTS_PER_SCAN = 200
"""Larger scans are traced as a count."""


class Library:
    """Finds the skills of some locations, and decides which are offered."""

    def __init__(
        self,
        locations: Iterable[Location | str],
        *,
        bounds: WalkLimits | None = None,
        wanted: Filter | None = None,
        trust: TrustStore | None = None,
        scans: VerdictCache | None = None,
        index: ScanCache | None = None,
        trace: Trace | None = None,
        problems: Sequence[Problem] = (),
    ) -> None:
        """Create a library; nothing is read yet.

        Args:
            locations: Where to search, first wins; a server never wins over a folder. A text is a
                trusted folder.
            bounds: Limits of the search.
            wanted: Filter for the offered skills.
            trust: Decides about locations whose `trusted` is None; without it they are not offered.
            scans: Scans skills for security risks before their first use, with stored verdicts.
            index: The headers that earlier processes read.
            trace: Receives events.
            problems: Problems to add to every snapshot, such as refused settings.
        """
        places = [
            Location(os.path.abspath(os.path.expanduser(item)))
            if isinstance(item, str)
            else item._replace(path=os.path.abspath(item.path))
            for item in locations
        ]
        served = [place for place in places if place.supplier is not None]
        if served:
            places = [place for place in places if place.supplier is None] + served
        self.locations = tuple(places)
        self._supplies: dict[str, ServedSkills] = _supplies(served) if served else {}
        self.trust = trust or TrustStore(None)
        self.trace = trace or Trace()
        self._bounds = bounds or WalkLimits()
        self._wanted = wanted or Filter()
        self._index = index
        self._initial_problems = tuple(problems)
        self._lock = threading.RLock()
        self._states: list[LocationState] = []
        self._scans = scans
        self._trusted: TrustRecord | None = None
        self._locks: dict[str, tuple[int, ...]] = {}
        self._seals: IntegrityChecker | None = None
        self._snapshot: Snapshot | None = None
        self._watcher: Watcher | None = None
        self._index_problems: list[Problem] = []
        self._tools: ToolScanner | None = None
        self.notify: Callable[[Snapshot], None] | None = None
        """Called with each new snapshot."""
        self._refreshes = 0
        self._invalid = False
        self._tools_at = (-1, self._trusted)

    def snapshot(self) -> Snapshot:
        """The skills as of the last refresh; the first call reads the disk.

        Returns the cached snapshot without waiting for a concurrent refresh.
        """
        kept = self._snapshot
        return kept if kept is not None and not self._invalid else self.refresh()

    def refresh(self) -> Snapshot:
        """Scan the disk for changes; returns the same snapshot when there are none."""
        with self._lock:
            if (
                self._watcher is not None
                and self._snapshot is not None
                and not self._watcher.changed()
                and self.trust.read() is self._trusted
                and not any(supply.is_new() for supply in self._supplies.values())
            ):
                return self._snapshot
            self._refreshes += 1
            self._invalid = False
            # Garbage collection while thousands of records are created finds nothing.
            collecting = gc.isenabled()
            gc.disable()
            try:
                changed = self._rescan() if self._states else self._scan()
                decided = self.trust.read()
                locks = self._lock_stamps()
                if (
                    changed
                    or self._snapshot is None
                    or decided is not self._trusted
                    or locks != self._locks
                    or self._became_usable(decided.blocked)
                ):
                    self._trusted = decided
                    self._locks = locks
                    before = self._snapshot
                    self._snapshot = self._assemble()
                    self._report(before, self._snapshot)
                return self._snapshot
            finally:
                if collecting:
                    gc.enable()

    discover = scan = refresh_if_stale = refresh
    """Aliases for hosts that expect these names."""

    def invalidate(self) -> None:
        """Make the next call scan for changes, even if a watcher has reported none yet.

        For code that has just changed a file: watchers are notified with a delay.
        """
        with self._lock:
            self._invalid = True
            if self._watcher is not None:
                self._watcher.invalidate()

    def tools(self, *, refresh: bool = False) -> ToolSnapshot:
        """The tool skills (folders with a `skill.yaml`); the first call scans for them.

        Args:
            refresh: Scan for changes; returns the same object when there are none. Otherwise the
                cached snapshot is returned without waiting for a concurrent scan.
        """
        refresh = refresh or self._invalid
        kept = self._tools
        last = kept.last if kept is not None else None
        if last is not None and not refresh:
            return last
        with self._lock:
            kept = self._tools
            if kept is not None and kept.last is not None and not refresh:
                return kept.last
            self.refresh() if refresh else self.snapshot()
            kept = self._tools  # `notify` may have called this method
            if kept is None:
                from satchel.library.tool_scanner import ToolScanner

                kept = self._tools = ToolScanner(lambda: self.seals, self.trace)
            at = (self._refreshes, self._trusted)
            if kept.last is None or self._watcher is None or at != self._tools_at:
                self._tools_at = at
                return kept.scan(self._states, self._state_in, self._wanted.compile())
            return kept.last

    @property
    def files_read(self) -> int:
        """Number of files that the last refresh opened."""
        tools = self._tools.reads if self._tools is not None else 0
        return tools + sum(state.reads for state in self._states)

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
        snapshot = self.snapshot()
        tools = [one.skill for one in self.tools().only()]
        return [*snapshot.skills, *snapshot.hidden, *tools]

    def unmatched(self, patterns: Iterable[str] | None = None) -> list[str]:
        """The patterns that match no skill, offered or not; those of `include` when None."""
        from satchel.library.snapshot import unmatched_patterns

        left = unmatched_patterns(
            self._wanted.include if patterns is None else patterns, self._heads()
        )
        return (
            unmatched_patterns(left, (one.skill.head for one in self.tools().only()))
            if left
            else left
        )

    def strays(self) -> list[Problem]:
        """Problems of folders and Markdown files that look like skills and are none."""
        from satchel.library.scanner import find_strays

        self.snapshot()
        return [problem for state in self._states for problem in find_strays(state)]

    def _heads(self) -> Iterator[SkillHeader]:
        snapshot = self.snapshot()
        return (skill.head for skill in (*snapshot.skills, *snapshot.hidden))

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
                found += [skill] if self.seals.modified(skill) else []
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
        found = self.snapshot().by_ref(ref)
        if found is None:
            tool = self.tools().by_ref(ref)
            found = tool.skill if tool is not None else None
        return found

    def at_path(self, path: str) -> Skill | None:
        """The skill in an absolute folder, or with that file, as `by_ref` finds it."""
        for location in self.locations:
            if location.supplier is not None or not is_inside(path, location.path):
                continue
            below = path[len(location.path) :].strip(os.sep).replace(os.sep, "/")
            for skill_id in (below, below.rpartition("/")[0]):
                skill = self.by_ref(f"{location.origin.label}/{skill_id}")
                if skill is not None and path.rstrip(os.sep) in (skill.base_dir, skill.path):
                    return skill
        return None

    def named(self, name: str) -> list[Skill]:
        """All skills with that name, the offered one first, as `by_ref` finds them."""
        only = (one.skill for one in self.tools().only())
        return [*self.snapshot().named(name), *(one for one in only if one.head.name == name)]

    def find(self, reference: str) -> list[Skill]:
        """Skills by name, id, ref or path, offered or not, also with tools alone."""
        found = self.snapshot().find(reference)
        found += [one.skill for one in self.tools().find(reference) if one.skill.is_tool]
        return found

    def load_content(self, name: str) -> str:
        """Read the body of a skill.

        Raises:
            NotFound: there is no such skill.
            SatchelError: it may not be used (`IntegrityChecker.check`).
        """
        waits = (one for one in self.find(name) if one.state in ("untrusted", "blocked"))
        skill = self.get_skill(name) or next(waits, None)  # whose check raises the reason
        if skill is None:
            raise NotFound(
                Message("There is no skill `{name}`", name=name),
                "Run `satchel list` to see what there is",
            )
        return self.seals.read(skill).body

    @property
    def seals(self) -> IntegrityChecker:
        """Verifies that skills may be used."""
        if self._seals is None:
            from satchel.library.integrity import IntegrityChecker

            self._seals = IntegrityChecker(
                self.locations,
                self.trust,
                self.trace,
                supplies=self._supplies,
                scans=self._scans,
            )
        return self._seals

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
        return self._supplies.get(skill.origin.root) if skill.origin.remote else None

    def supply_at(self, path: str) -> ServedSkills | None:
        """The served skills of the location with this path."""
        return self._supplies.get(path)

    def close(self) -> None:
        """Close the connections to servers and the watcher."""
        for supply in self._supplies.values():
            supply.supplier.close()
        watcher, self._watcher = self._watcher, None  # without the lock: a refresh may hang
        if watcher is not None:
            watcher.close()

    def skills_containing(self, real: str) -> Iterator[Skill]:
        """The skills that contain a real path, offered or not, at most one per location."""
        self.snapshot()
        for state in self._states:
            if not state.heads:
                continue
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
                while skill_id and skill_id not in state.heads:
                    skill_id = skill_id.rpartition("/")[0]
                if skill_id:
                    yield Skill(state.heads[skill_id], location.origin)

    def wants(self, folder: str) -> bool:
        """Whether the filter accepts the name of a folder."""
        sieve = self._wanted.compile()
        return sieve is None or sieve.passes(*names_of(folder, self.locations))

    def watch(self) -> Watcher:
        """Watch the locations, so that `refresh` is free while nothing changes.

        Raises:
            MissingExtra: the `watch` extra is not installed.
        """
        with self._lock:
            if self._watcher is None:
                self._watcher = self.new_watcher()
            return self._watcher

    def new_watcher(self) -> Watcher:
        """Create a separate watcher that `refresh` does not use.

        Raises:
            MissingExtra: the `watch` extra is not installed.
        """
        from satchel.library.watcher import Watcher

        here = [place for place in self.locations if place.supplier is None]
        files = [os.path.join(place.path, "SKILL.md") for place in here if place.single]
        return Watcher([place.path for place in here if not place.single], files)

    def _scan(self) -> bool:
        """The first scan: from the cache where it is valid, else from the disk."""
        self._index_problems = []
        states: list[LocationState] = []
        for supply in self._supplies.values():
            supply.supplier.prepare()
        for location in self.locations:
            state = None
            if location.supplier is not None:
                state = LocationState(location, self._bounds)
                state.start_scan()
                self._supplies[location.path].fill(state)
                states.append(state)
                continue
            if self._index is not None and not location.single:
                state, damage = self._index.load(location, self._bounds)
                if damage:
                    values = {"reason": damage}
                    self._index_problems.append(
                        Problem("index-damaged", location.path, values=values)
                    )
            if state is None:
                state = scan_location(location, self._bounds)
                self._save(state)
            else:
                rescan_location(state)
                if state.reads and _worth_saving(state):
                    self._save(state)
            states.append(state)
        self._states = states  # all at once: an interrupted scan is repeated
        return True

    def _rescan(self) -> bool:
        changed = False
        for state in self._states:
            if state.location.supplier is not None:
                changed |= self._supplies[state.location.path].fill(state)
            elif rescan_location(state):
                changed = True
                if _worth_saving(state):
                    self._save(state)
        return changed

    def _save(self, state: LocationState) -> None:
        if self._index is None or state.location.single or not state.heads:
            return
        reason = self._index.save(state)
        if reason:
            self._index_problems.append(
                Problem("index-unsaved", state.location.path, values={"reason": reason})
            )
            self._index = None

    def _assemble(self) -> Snapshot:
        by_name: dict[str, Skill] = {}
        rest: list[tuple[SkillHeader, SkillOrigin, State]] = []
        lost: list[tuple[SkillHeader, SkillOrigin, str]] = []
        problems: list[Problem] = [
            *self._initial_problems,
            *self._index_problems,
            *self._lock_problems(),
        ]
        sieve = self._wanted.compile()
        impostors: list[Skill] = []
        repeated = find_repeated(self._states, lambda at: self._states[at].heads)
        for at, state in enumerate(self._states):
            for item in state.broken.values():
                problems += item.problems
            for notes in state.notes.values():
                problems += notes
            if not state.heads:
                continue
            location = state.location
            origin = location.origin
            trust = self._location_trust(state)
            here: dict[str, SkillHeader] = {}
            heads = (
                state.heads
                if location.supplier is None
                else self._without_impostors(state, impostors)
            )
            for skill_id in sorted(without_ids(heads, repeated.get(at))):
                head = heads[skill_id]
                if sieve is not None and not sieve.keeps(head):
                    rest.append((head, origin, "excluded"))
                    continue
                skill_state = self._state(trust, head, origin)
                if skill_state != "active":
                    rest.append((head, origin, skill_state))
                    continue
                earlier = here.get(head.name)
                if earlier is not None:
                    # Twice in one location: the last one wins, and both are reported.
                    problems.append(_duplicate_problem(origin, earlier, head))
                    if by_name[head.name].head is earlier:
                        del by_name[head.name]
                    lost.append((earlier, origin, head.name))
                here[head.name] = head
                if head.name in by_name:
                    lost.append((head, origin, head.name))
                else:
                    by_name[head.name] = _new(Skill, (head, origin, "active", ""))
        hidden = [Skill(head, origin, state) for head, origin, state in rest]
        hidden += impostors
        for head, origin, name in lost:
            winner = by_name[name]
            hidden.append(Skill(head, origin, "shadowed", winner.ref))
        skills = tuple(by_name.values())
        return Snapshot(skills, by_name, tuple(hidden), tuple(problems))

    def _without_impostors(
        self, served: LocationState, impostors: list[Skill]
    ) -> Mapping[str, SkillHeader]:
        """The skills of a server whose names resemble no local skill, offered or not.

        No server may impersonate a local skill, whatever the order of locations. Among servers the
        order decides.
        """
        from satchel.library.served_skills import confusable_key

        if not served.heads:
            return served.heads
        names: dict[str, str] = {}
        for state in self._states:
            if state.location.supplier is None:
                origin = state.location.origin
                for head in state.heads.values():
                    names.setdefault(confusable_key(head.name), Skill(head, origin).ref)
        free: dict[str, SkillHeader] = {}
        for skill_id, head in served.heads.items():
            ref = names.get(confusable_key(head.name))
            if ref is None:
                free[skill_id] = head
            else:
                impostors.append(Skill(head, served.location.origin, "shadowed", ref))
        return free

    def _location_trust(self, state: LocationState) -> LocationTrust:
        return self.trust.location_trust(
            state.location.path,
            state.followed,
            own=state.location.trusted,
            project=state.location.boundary,
        )

    def _became_usable(self, blocked: Mapping[str, str]) -> bool:
        """Whether a skill that was unpinned or blocked at the last refresh has become usable.

        Args:
            blocked: Real path of a skill's folder -> the digest of the blocked content.
        """
        if self._snapshot is None or not (blocked or self.trust.locked):
            return False
        for skill in self._snapshot.hidden:
            if skill.state == "untrusted" and self.trust.locked and self.seals.pins(skill):
                return True
            if skill.state == "blocked":
                digest = blocked.get(os.path.realpath(skill.base_dir), "")
                if not self.seals.blocks(skill, digest):
                    return True
        return False

    def _state_in(self, state: LocationState) -> Callable[[SkillHeader], State]:
        trust = self._location_trust(state)
        return lambda head: self._state(trust, head, state.location.origin)

    def _state(self, trust: LocationTrust, head: SkillHeader, origin: SkillOrigin) -> State:
        if not trust.trusts(head.id):
            return "untrusted"
        blocked = trust.blocked(head.id)
        if blocked and self.seals.blocks(Skill(head, origin), blocked):
            return "blocked"
        if self.trust.locked and not self.seals.pins(Skill(head, origin)):
            return "untrusted"
        return "active"

    def _lock_stamps(self) -> dict[str, tuple[int, ...]]:
        stamps: dict[str, tuple[int, ...]] = {}
        for state in self._states:
            lock = state.location.lock if state.heads else ""
            if lock and lock not in stamps:
                try:
                    info = os.stat(lock)
                except OSError:
                    continue
                stamps[lock] = (info.st_ctime_ns, info.st_size, info.st_ino)
        return stamps

    def _lock_problems(self) -> list[Problem]:
        """Damaged lockfiles. One that was valid and did not change is not read again."""
        index = self._index
        found: list[Problem] = []
        for path, stamp in self._locks.items():
            if index is None or not index.knows_lock(path, stamp):
                problem = self.seals.lock_problem(path)
                if problem is not None:
                    found.append(problem)
                elif index is not None and stamp[0] <= self._states[0].settled:
                    index.note_lock(path, stamp)
        return found

    def _report(self, before: Snapshot | None, after: Snapshot) -> None:
        self._trace_changes(before, after)
        self._trace_problems(after)
        if self.notify is not None:
            self.notify(after)

    def _trace_changes(self, before: Snapshot | None, after: Snapshot) -> None:
        old = {skill.ref: skill.head for skill in before.skills} if before is not None else {}
        fresh = [skill for skill in after.skills if skill.ref not in old] if old else after.skills
        if len(fresh) <= _MAX_EVENTS_PER_SCAN:
            for skill in fresh:
                self.trace.record("discovered", (skill.name,), ref=skill.ref)
        else:
            self.trace.record("discovered", (), count=len(fresh))
        if old:
            now = {skill.ref: skill for skill in after.skills}
            for ref, head in old.items():
                skill = now.get(ref)
                if skill is None:
                    self.trace.record("removed", (head.name,), ref=ref)
                elif skill.head is not head:
                    self.trace.record("changed", (head.name,), ref=ref)

    def _trace_problems(self, after: Snapshot) -> None:
        odd = [skill for skill in after.skills if skill.head.problems]
        for skill in odd[:_MAX_EVENTS_PER_SCAN]:
            for problem in skill.head.problems:
                if problem.severity == "warning":
                    self.trace.record("repaired", (skill.name,), ref=skill.ref, code=problem.code)
        for skill in after.hidden[:_MAX_EVENTS_PER_SCAN]:
            if skill.state == "shadowed":
                self.trace.record("shadowed", (skill.name,), ref=skill.ref, by=skill.winner)
            elif skill.state in ("untrusted", "blocked"):
                self.trace.record(skill.state, (skill.name,), ref=skill.ref)
        for problem in after.problems[:_MAX_EVENTS_PER_SCAN]:
            self.trace.record("broken", (), path=problem.path, code=problem.code)


def names_of(folder: str, locations: Iterable[Location]) -> tuple[str, ...]:
    """The name of a folder, and its ids in the locations that contain it."""
    found = [os.path.relpath(folder, one.path) for one in locations if is_inside(folder, one.path)]
    return os.path.basename(folder), *(one.replace(os.sep, "/") for one in found)


def _supplies(served: Sequence[Location]) -> dict[str, ServedSkills]:
    from satchel.library.served_skills import ServedSkills

    return {
        place.path: ServedSkills(place, os.path.join(os.path.dirname(place.path), "contents"))
        for place in served
    }


def _worth_saving(state: LocationState) -> bool:
    """Whether writing the cache is cheaper than reading the changed files at the next start."""
    size = len(state.heads)
    return size < _MAX_SKILLS_SAVED_ALWAYS or state.reads > size // 50


def _duplicate_problem(origin: SkillOrigin, first: SkillHeader, last: SkillHeader) -> Problem:
    values = {
        "name": last.name,
        "first": f"{origin.label}/{first.id}",
        "last": f"{origin.label}/{last.id}",
    }
    return Problem("duplicate-name", os.path.join(origin.root, last.id), values=values)
