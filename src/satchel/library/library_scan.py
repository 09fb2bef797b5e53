"""The scanned locations of a library, and the snapshot made of them.

One refresh compares stamps, reads what changed (SKILL.md and skill.yaml), checks the tool skills,
and makes a new snapshot only if users would see a difference.
"""

from __future__ import annotations

import gc
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from satchel.library.scanner import LocationState, find_repeated, rescan_location, scan_location
from satchel.library.snapshot import NO_TOOLS, Snapshot, ToolSnapshot
from satchel.skill.model import Skill
from satchel.skill.problems import REPAIRS, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from satchel.errors import SatchelError
    from satchel.library.fingerprint import VerdictCache
    from satchel.library.integrity import IntegrityChecker
    from satchel.library.locations import Location
    from satchel.library.scan_cache import ScanCache
    from satchel.library.scanner import WalkLimits
    from satchel.library.served_skills import ServedSkills
    from satchel.library.snapshot import Filter, PreparedFilter
    from satchel.library.tool_skills import CheckedManifest, ToolSkill
    from satchel.library.trust_store import TrustRecord, TrustStore
    from satchel.skill.document import SkillHeader
    from satchel.skill.model import SkillOrigin, State
    from satchel.trace import Trace

_new: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_MAX_SKILLS_SAVED_ALWAYS = 2_000
"""The cache of a smaller location is written in a few milliseconds."""
_MAX_EVENTS_PER_SCAN = 200
"""Larger scans are traced as a count."""


class LibraryScan:
    """The state of a library, shared by its filtered views."""

    def __init__(  # noqa: PLR0913 - one keyword for each part
        self,
        locations: Sequence[Location],
        *,
        bounds: WalkLimits,
        wanted: Filter,
        trust: TrustStore,
        scans: VerdictCache | None,
        index: ScanCache | None,
        trace: Trace,
        problems: Sequence[Problem],
        strict: bool,
    ) -> None:
        self.locations = locations
        self._strict = strict
        served = [place for place in locations if place.supplier is not None]
        self.supplies: dict[str, ServedSkills] = _supplies(served) if served else {}
        self.trust = trust
        self.trace = trace
        self.wanted = wanted
        self.states: list[LocationState] = []
        self._bounds = bounds
        self._index = index
        self._cache = index.cache if index is not None else ""
        self._initial_problems = tuple(problems)
        self._lock = threading.RLock()
        self._scans = scans
        self._trusted: TrustRecord | None = None
        self._locks: dict[str, tuple[int, ...]] = {}
        self._checked: list[dict[str, CheckedManifest]] = []
        """For each location, its skill.yaml files by folder."""
        self._integrity: IntegrityChecker | None = None
        self._snapshot: Snapshot | None = None
        self._index_problems: list[Problem] = []
        self.on_change: Callable[[Snapshot], None] | None = None
        """Called with each new snapshot."""
        self._invalid = False
        self._pending = False
        """A change was read and is not in the snapshot yet."""

    def snapshot(self) -> Snapshot:
        """The skills as of the last refresh; the first call reads the disk.

        Returns the cached snapshot without waiting for a concurrent refresh.
        """
        kept = self._snapshot
        return kept if kept is not None and not self._invalid else self.refresh()

    def refresh(self) -> Snapshot:
        """Scan the disk for changes; returns the same snapshot when there are none."""
        with self._lock:
            self._invalid = False
            before = self._snapshot
            with _paused_collection():
                after = self._refreshed()
            if after is not before:
                self._report(before, after)
            return after

    def _refreshed(self) -> Snapshot:
        self._pending |= self._rescan() if self.states else self._scan()
        checked = self._check_manifests()  # which may block a skill
        decided = self.trust.read()
        locks = self._lock_stamps()
        if (
            self._pending
            or self._snapshot is None
            or decided is not self._trusted
            or locks != self._locks
            or _visible(checked) != _visible(self._checked)
            or self._became_usable(decided.blocked)
        ):
            self._trusted = decided
            self._locks = locks
            self._checked = checked
            self._snapshot = self._assemble()
            self._pending = False
        return self._snapshot

    def invalidate(self) -> None:
        """Make the next call scan for changes; for code that has just changed a file."""
        with self._lock:
            self._invalid = True

    @property
    def integrity(self) -> IntegrityChecker:
        """Verifies that skills may be used."""
        if self._integrity is None:
            from satchel.library.integrity import IntegrityChecker

            self._integrity = IntegrityChecker(
                self.locations, self.trust, self.trace, supplies=self.supplies, scans=self._scans
            )
        return self._integrity

    def close(self) -> None:
        """Close the connections to servers."""
        for supply in self.supplies.values():
            supply.supplier.close()

    def _scan(self) -> bool:
        """The first scan: from the cache where it is valid, else from the disk."""
        self._index_problems = []
        states: list[LocationState] = []
        for supply in self.supplies.values():
            supply.supplier.prepare()
        for location in self.locations:
            state = None
            if location.supplier is not None:
                state = LocationState(location, self._bounds)
                state.start_scan()
                self.supplies[location.path].fill(state)
                states.append(state)
                continue
            if self._index is not None and not location.single:
                state, damage = self._index.load(location, self._bounds)
                if damage:
                    problem = Problem("index-damaged", location.path, values={"reason": damage})
                    self._index_problems.append(problem)
            if state is None:
                state = scan_location(location, self._bounds)
                self._save(state)
            elif (rescan_location(state) or state.reads) and _worth_saving(state):
                self._save(state)
            states.append(state)
        self.states = states  # all at once: an interrupted scan is repeated
        return True

    def _rescan(self) -> bool:
        changed = False
        for state in self.states:
            if state.location.supplier is not None:
                changed |= self.supplies[state.location.path].fill(state)
            elif rescan_location(state):
                changed = True
                if _worth_saving(state):
                    self._save(state)
        return changed

    def _save(self, state: LocationState) -> None:
        if self._index is None or state.location.single or not (state.heads or state.manifests):
            return
        reason = self._index.save(state)
        if reason:
            problem = Problem("index-unsaved", state.location.path, values={"reason": reason})
            self._index_problems.append(problem)
            self._index = None

    def _check_manifests(self) -> list[dict[str, CheckedManifest]]:
        if not any(state.manifests for state in self.states):
            return []
        from satchel.library.tool_skills import check_manifest

        sieve = self.wanted.compile()
        found: list[dict[str, CheckedManifest]] = []
        for state in self.states:
            state_of = self._state_in(state, sieve)
            found.append(
                {
                    folder: check_manifest(state, folder, state_of, self.integrity, self._cache)
                    for folder in sorted(state.manifests)
                }
            )
        return found

    def _assemble(self) -> Snapshot:
        by_name: dict[str, Skill] = {}
        rest: list[tuple[SkillHeader, SkillOrigin, State]] = []
        lost: list[tuple[SkillHeader, SkillOrigin, str]] = []
        problems: list[Problem] = [*self._initial_problems, *self._index_problems]
        problems += filter(
            None, map(self.integrity.lock_problem, self._locks) if self._locks else ()
        )
        sieve = self.wanted.compile()
        impostors: list[Skill] = []
        tables = self._headers()
        if self._strict:
            tables = [
                self._without_repaired(state, heads, problems)
                for state, heads in zip(self.states, tables, strict=True)
            ]
        repeated = find_repeated(self.states, tables)
        for at, state in enumerate(self.states):
            problems += (one for item in state.broken.values() for one in item.problems)
            problems += (one for notes in state.notes.values() for one in notes)
            heads = tables[at]
            if not heads:
                continue
            origin = state.location.origin
            state_of = self._state_in(state, sieve)
            checked = self._checked[at] if self._checked else {}
            left_out = repeated.get(at, ())
            here: dict[str, SkillHeader] = {}
            if state.location.supplier is not None:
                heads = self._without_impostors(state, tables, impostors)
            for skill_id in sorted(heads):
                if skill_id in left_out:
                    continue
                head = heads[skill_id]
                tool = checked.get(skill_id) if checked else None
                skill_state = tool.state if tool and tool.source else state_of(head)
                if skill_state not in ("active", "unverified"):
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
                    by_name[head.name] = _new(Skill, (head, origin, skill_state, ""))
        others = [Skill(head, origin, state) for head, origin, state in rest]
        others += [*impostors] + [
            Skill(head, place, "shadowed", by_name[name].ref) for head, place, name in lost
        ]
        hidden = [*_take_unverified(by_name), *others]
        tools = NO_TOOLS
        if self._checked:
            tools = self._tool_snapshot([*by_name.values(), *hidden])
            by_name = {name: skill for name, skill in by_name.items() if not skill.is_tool}
            hidden = [skill for skill in hidden if not skill.is_tool]
        return Snapshot(tuple(by_name.values()), by_name, tuple(hidden), tuple(problems), tools)

    def _headers(self) -> list[dict[str, SkillHeader]]:
        """For each location, the headers of its skills by id."""
        tables = [state.heads for state in self.states]
        for at, checked in enumerate(self._checked):
            tools = {one: item.source.skill.head for one, item in checked.items() if item.source}
            if tools:
                tables[at] = {**tables[at], **tools}
        return tables

    def _without_repaired(
        self, state: LocationState, heads: Mapping[str, SkillHeader], problems: list[Problem]
    ) -> dict[str, SkillHeader]:
        """The skills whose frontmatter needed no repair; the others become problems."""
        kept: dict[str, SkillHeader] = {}
        for skill_id, head in heads.items():
            repair = next((one for one in head.problems if one.code in REPAIRS), None)
            if repair is None:
                kept[skill_id] = head
            else:
                path = Skill(head, state.location.origin).path
                values: dict[str, str] = {"what": repair.for_model()[0]}
                problems.append(Problem("not-strict", path, repair.line, values))
        return kept

    def _tool_snapshot(self, skills: Iterable[Skill]) -> ToolSnapshot:
        """The tools of those skills that have a usable skill.yaml."""
        places = [state.location.origin for state in self.states]
        tables = dict(zip(places, self._checked, strict=True))
        offered: list[ToolSkill] = []
        hidden: list[ToolSkill] = []
        refused: dict[str, SatchelError] = {}
        for skill in skills:
            checked = tables[skill.origin].get(skill.head.id)
            if checked is None or checked.source is None:
                continue
            kept = hidden if checked.error or skill.state != "active" else offered
            kept.append(checked.source._replace(skill=skill))
            if checked.error:
                refused[skill.ref] = checked.error
        problems = [
            one for here in self._checked for item in here.values() for one in item.problems
        ]
        return ToolSnapshot(offered, hidden, problems, refused)

    def _without_impostors(
        self,
        served: LocationState,
        tables: Sequence[Mapping[str, SkillHeader]],
        impostors: list[Skill],
    ) -> Mapping[str, SkillHeader]:
        """The skills of a server whose names resemble no local skill, offered or not.

        No server may impersonate a local skill, whatever the order of locations. Among servers the
        order decides.
        """
        from satchel.library.served_skills import confusable_key

        names: dict[str, str] = {}
        for state, heads in zip(self.states, tables, strict=True):
            if state.location.supplier is None:
                origin = state.location.origin
                for head in heads.values():
                    names.setdefault(confusable_key(head.name), Skill(head, origin).ref)
        free: dict[str, SkillHeader] = {}
        for skill_id, head in served.heads.items():
            ref = names.get(confusable_key(head.name))
            if ref is None:
                free[skill_id] = head
            else:
                impostors.append(Skill(head, served.location.origin, "shadowed", ref))
        return free

    def _became_usable(self, blocked: Mapping[str, str]) -> bool:
        """Whether a skill that was unpinned or blocked at the last refresh has become usable.

        Args:
            blocked: Real path of a skill's folder -> the digest of the blocked content.
        """
        if self._snapshot is None or not (blocked or self.trust.locked):
            return False
        for skill in self._snapshot.hidden:
            if skill.state == "untrusted" and self.trust.locked and self.integrity.pins(skill):
                return True
            if skill.state == "blocked":
                digest = blocked.get(os.path.realpath(skill.base_dir), "")
                if not self.integrity.blocks(skill, digest):
                    return True
        return False

    def _state_in(
        self, state: LocationState, sieve: PreparedFilter | None
    ) -> Callable[[SkillHeader], State]:
        """The function that determines the state of a location's skills."""
        place = state.location
        trust = self.trust.location_trust(
            place.path, state.followed, own=place.trusted, project=place.boundary
        )
        locked = self.trust.locked
        damaged = bool(place.lock) and self.integrity.lock_problem(place.lock) is not None
        if sieve is None and not locked and trust.is_complete and not damaged:
            return lambda _head: "active"

        def state_of(head: SkillHeader) -> State:
            if sieve is not None and not sieve.keeps(head):
                return "excluded"
            if not trust.trusts(head.id):
                return "untrusted"
            if damaged:
                return "unverified"
            blocked = trust.blocked(head.id)
            if blocked and self.integrity.blocks(Skill(head, place.origin), blocked):
                return "blocked"
            if locked and not self.integrity.pins(Skill(head, place.origin)):
                return "untrusted"
            return "active"

        return state_of

    def _lock_stamps(self) -> dict[str, tuple[int, ...]]:
        stamps: dict[str, tuple[int, ...]] = {}
        for state in self.states:
            lock = state.location.lock if state.heads or state.manifests else ""
            if lock and lock not in stamps:
                try:
                    info = os.stat(lock)
                except OSError:
                    continue
                stamps[lock] = (info.st_ctime_ns, info.st_size, info.st_ino)
        return stamps

    def _report(self, before: Snapshot | None, after: Snapshot) -> None:
        self._trace_changes(before, after)
        if self.on_change is not None:
            self.on_change(after)

    def _trace_changes(self, before: Snapshot | None, after: Snapshot) -> None:
        if before is None and len(after.skills) > _MAX_EVENTS_PER_SCAN:
            self.trace.record("discovered", (), count=len(after.skills))
            return
        old, now = _offered(before) if before is not None else {}, _offered(after)
        fresh = [ref for ref in now if ref not in old] if old else list(now)
        if len(fresh) <= _MAX_EVENTS_PER_SCAN:
            for ref in fresh:
                skill, tools = now[ref]
                more: dict[str, Any] = {"tools": list(tools.tools)} if tools else {}
                self.trace.record("discovered", (skill.name,), ref=ref, **more)
        else:
            self.trace.record("discovered", (), count=len(fresh))
        for ref, (skill, tools) in old.items():
            found = now.get(ref)
            if found is None:
                self.trace.record("removed", (skill.name,), ref=ref)
            elif found[0].head is not skill.head or _digest(found[1]) != _digest(tools):
                self.trace.record("changed", (skill.name,), ref=ref)


def _take_unverified(by_name: dict[str, Skill]) -> list[Skill]:
    """Remove unverified skills; no other skill gets the name under which the user installed one."""
    found = [skill for skill in by_name.values() if skill.state == "unverified"]
    for skill in found:
        del by_name[skill.name]
    return found


def _offered(snapshot: Snapshot) -> dict[str, tuple[Skill, ToolSkill | None]]:
    """The offered skills by ref, each with its offered tools."""
    if not snapshot.tools.skills:
        return {skill.ref: (skill, None) for skill in snapshot.skills}
    tools = {one.skill.ref: one for one in snapshot.tools.skills}
    found = {skill.ref: (skill, tools.get(skill.ref)) for skill in snapshot.skills}
    return found | {ref: (one.skill, one) for ref, one in tools.items()}


def _digest(tools: ToolSkill | None) -> str:
    return tools.digest if tools is not None else ""


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


@contextmanager
def _paused_collection() -> Generator[None]:
    """Pause garbage collection, which finds nothing while thousands of records are created."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _visible(checked: Iterable[Mapping[str, CheckedManifest]]) -> list[dict[str, object]]:
    return [{folder: one.visible for folder, one in here.items()} for here in checked]
