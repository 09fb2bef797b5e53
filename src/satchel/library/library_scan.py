"""The scanned locations of a library, and the snapshot made of them.

One refresh compares stamps, reads what changed (SKILL.md and skill.yaml), checks the tool skills,
and makes a new snapshot only if users would see a difference.
"""

from __future__ import annotations

import gc
import os
import threading
from contextlib import contextmanager
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from satchel.library.location_state import LocatedHeader, LocationState
from satchel.library.scanner import rescan_location, scan_location
from satchel.library.snapshot_builder import SkillStateRules, SnapshotBuilder
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from satchel.library.integrity import IntegrityChecker
    from satchel.library.location_state import SkillKey, WalkLimits
    from satchel.library.locations import Location
    from satchel.library.requirement_checker import RequirementChecker, SecretNames
    from satchel.library.scan_cache import ScanCache
    from satchel.library.served_skills import ServedSkills
    from satchel.library.snapshot import Filter, Snapshot
    from satchel.library.tool_skills import CheckedManifest, ToolSkill
    from satchel.library.trust_store import TrustRecord, TrustStore
    from satchel.library.verdict_cache import VerdictCache
    from satchel.skill.model import Skill
    from satchel.trace import Trace

_header_extra = attrgetter("extra")
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
        finders: Sequence[Callable[[], Sequence[Location]]],
        limits: WalkLimits,
        conditions: Filter,
        trust: TrustStore,
        verdict_cache: VerdictCache | None,
        scan_cache: ScanCache | None,
        trace: Trace,
        problems: Sequence[Problem],
        strict: bool,
        secrets: Callable[[], SecretNames] | None,
        script_path: str,
    ) -> None:
        self.locations = self._given_locations = tuple(locations)
        self._finders = finders
        self._found_locations: list[Location] = []
        """Those of the finders, at the last refresh."""
        self.conditions = conditions
        self.states: list[LocationState] = []
        self.served_skills: dict[str, ServedSkills] = _open_served_skills(locations)
        """The skills of each server by the path of its location."""
        self.on_change: Callable[[Snapshot], None] | None = None
        """Called with each new snapshot."""
        self._limits = limits
        self._trust = trust
        self._verdict_cache = verdict_cache
        self._scan_cache = scan_cache
        self._cache_folder = scan_cache.cache if scan_cache is not None else ""
        self._cache_problems: list[Problem] = []
        self._trace = trace
        self._initial_problems = tuple(problems)
        self._strict = strict
        self._secrets = secrets
        self._script_path = script_path
        self._requirement_checker: RequirementChecker | None = None
        """None as long as no skill has requirements."""
        self._lock = threading.RLock()
        self._is_invalid = False
        self._has_unshown_changes = False
        """A change was read and is not in the snapshot yet."""
        self._snapshot: Snapshot | None = None
        # What the snapshot was made of:
        self._setup_problems: dict[SkillKey, Problem] = {}
        self._manifests: list[dict[str, CheckedManifest]] = []
        """For each location, its skill.yaml files by folder."""
        self._trust_record: TrustRecord | None = None
        self._lock_stamps: dict[str, tuple[int, ...]] = {}

    def snapshot(self) -> Snapshot:
        """The skills as of the last refresh; the first call reads the disk.

        Returns the cached snapshot without waiting for a concurrent refresh.
        """
        cached = self._snapshot
        return cached if cached is not None and not self._is_invalid else self.refresh()

    def refresh(self) -> Snapshot:
        """Scan the disk for changes; returns the same snapshot when there are none."""
        with self._lock:
            self._is_invalid = False
            before = self._snapshot
            with _paused_collection():
                after = self._refresh_snapshot()
            if after is not before:
                self._trace_changes(before, after)
                if self.on_change is not None:
                    self.on_change(after)
            return after

    def _refresh_snapshot(self) -> Snapshot:
        self._has_unshown_changes |= self._find_locations()
        self._has_unshown_changes |= self._rescan() if self.states else self._scan()
        setup_problems_before = self._setup_problems
        self._setup_problems = self._find_setup_problems()
        manifests = self._check_manifests()  # which may block a skill
        trust_record = self._trust.read()
        lock_stamps = self._read_lock_stamps()
        if (
            self._has_unshown_changes
            or self._snapshot is None
            or setup_problems_before != self._setup_problems
            or trust_record is not self._trust_record
            or lock_stamps != self._lock_stamps
            or _visible_values(manifests) != _visible_values(self._manifests)
            or self._has_become_usable(trust_record.blocked)
        ):
            self._trust_record = trust_record
            self._lock_stamps = lock_stamps
            self._manifests = manifests
            self._snapshot = self._build_snapshot()
            self._has_unshown_changes = False
        return self._snapshot

    def invalidate(self) -> None:
        """Make the next call scan for changes; for code that has just changed a file."""
        with self._lock:
            self._is_invalid = True

    def change_conditions(self, conditions: Filter) -> None:
        """Replace the filter of the settings; the next call applies it."""
        with self._lock:
            self.conditions = conditions
            self._state_rules = SkillStateRules(conditions, self._trust, self.integrity)
            self._is_invalid = self._has_unshown_changes = True

    @cached_property
    def integrity(self) -> IntegrityChecker:
        """Verifies that skills may be used."""
        from satchel.library.integrity import IntegrityChecker

        return IntegrityChecker(
            self.locations,
            self._trust,
            self._trace,
            served_skills=self.served_skills,
            scans=self._verdict_cache,
        )

    @cached_property
    def _state_rules(self) -> SkillStateRules:
        return SkillStateRules(self.conditions, self._trust, self.integrity)

    def close(self) -> None:
        """Close the connections to servers."""
        for served in self.served_skills.values():
            served.supplier.close()

    # --- scanning -------------------------------------------------------------------------

    def _find_locations(self) -> bool:
        """Ask the finders for their locations; True when one came, went or changed."""
        found = [location for finder in self._finders for location in finder()]
        if found == self._found_locations:
            return False
        self._found_locations = found
        paths = {location.path for location in self._given_locations}
        added = [location for location in found if location.path not in paths]
        count = sum(location.supplier is None for location in self._given_locations)
        self.locations = (*self._given_locations[:count], *added, *self._given_locations[count:])
        self.integrity.set_locations(self.locations)
        if self.states:
            states = {state.location: state for state in self.states}
            self.states = [
                states.get(location) or self._scan_location(location) for location in self.locations
            ]
        return True

    def _scan(self) -> bool:
        """The first scan: from the cache where it is valid, else from the disk."""
        self._cache_problems = []
        for served in self.served_skills.values():
            served.supplier.prepare()
        # All at once: an interrupted scan is repeated.
        self.states = [self._scan_location(location) for location in self.locations]
        return True

    def _scan_location(self, location: Location) -> LocationState:
        if location.supplier is not None:
            state = LocationState(location, self._limits)
            state.start_scan()
            self.served_skills[location.path].fill(state)
            return state
        state = self._load(location)
        if state is None:
            state = scan_location(location, self._limits)
            self._save(state)
        elif (rescan_location(state) or state.reads) and _is_worth_saving(state):
            self._save(state)
        return state

    def _rescan(self) -> bool:
        """Scan for changes; returns whether there are some."""
        changed = False
        for state in self.states:
            if state.location.supplier is not None:
                changed |= self.served_skills[state.location.path].fill(state)
            elif rescan_location(state):
                changed = True
                if _is_worth_saving(state):
                    self._save(state)
        return changed

    def _load(self, location: Location) -> LocationState | None:
        """Load a location from the cache; None when it is not there or damaged."""
        if self._scan_cache is None or location.single:
            return None
        state, damage = self._scan_cache.load(location, self._limits)
        if damage:
            problem = Problem("index-damaged", location.path, values={"reason": damage})
            self._cache_problems.append(problem)
        return state

    def _save(self, state: LocationState) -> None:
        """Save a location in the cache, which is not used any more after an error."""
        is_empty = not (state.headers or state.manifests)
        if self._scan_cache is None or state.location.single or is_empty:
            return
        reason = self._scan_cache.save(state)
        if reason:
            problem = Problem("index-unsaved", state.location.path, values={"reason": reason})
            self._cache_problems.append(problem)
            self._scan_cache = None

    def _read_lock_stamps(self) -> dict[str, tuple[int, ...]]:
        stamps: dict[str, tuple[int, ...]] = {}
        for state in self.states:
            path = state.location.lock if state.headers or state.manifests else ""
            if path and path not in stamps:
                try:
                    info = os.stat(path)
                except OSError:
                    continue
                stamps[path] = (info.st_ctime_ns, info.st_size, info.st_ino)
        return stamps

    # --- checking -------------------------------------------------------------------------

    def _check_manifests(self) -> list[dict[str, CheckedManifest]]:
        """Check the skill.yaml files of all locations; an empty list when there are none."""
        if not any(state.manifests for state in self.states):
            return []
        from satchel.library.tool_skills import check_manifest

        tables: list[dict[str, CheckedManifest]] = []
        for state in self.states:
            determine_state = self._state_rules.compile(state, self._setup_problems)
            tables.append(
                {
                    folder: check_manifest(
                        state,
                        folder,
                        determine_state=determine_state,
                        integrity=self.integrity,
                        cache=self._cache_folder,
                    )
                    for folder in sorted(state.manifests)
                }
            )
        return tables

    def _find_setup_problems(self) -> dict[SkillKey, Problem]:
        """Find the skills whose requirements are not met."""
        if self._has_unshown_changes or self._snapshot is None:
            requiring = [
                LocatedHeader(state, header)
                for state in self.states
                for header in filter(_header_extra, state.headers.values())
                if "requires" in header.extra
            ]
            if self._requirement_checker is None and requiring:
                from satchel.library.requirement_checker import RequirementChecker

                secrets = self._secrets() if self._secrets else None
                self._requirement_checker = RequirementChecker(secrets, self._script_path)
            if self._requirement_checker is not None:
                self._requirement_checker.set_skills(requiring, self.states)
        checker = self._requirement_checker
        return checker.find_unmet(self._is_usable) if checker is not None else {}

    def _is_usable(self, skill: LocatedHeader) -> bool:
        """Whether a skill would be offered if it required nothing."""
        return self._state_rules.compile(skill.state)(skill.header) == "active"

    def _build_snapshot(self) -> Snapshot:
        lock_problems = map(self.integrity.lock_problem, self._lock_stamps)
        return SnapshotBuilder(
            self.states,
            self._manifests,
            rules=self._state_rules,
            setup_problems=self._setup_problems,
            problems=[
                *self._initial_problems,
                *self._cache_problems,
                *filter(None, lock_problems),
            ],
            strict=self._strict,
        ).build()

    def _has_become_usable(self, blocked: Mapping[str, str]) -> bool:
        """Whether a skill that was unpinned or blocked at the last refresh has become usable.

        Args:
            blocked: Real path of a skill's folder -> the digest of the blocked content.
        """
        if self._snapshot is None or not (blocked or self._trust.locked):
            return False
        for skill in self._snapshot.hidden:
            if skill.state == "untrusted" and self._trust.locked and self.integrity.pins(skill):
                return True
            if skill.state == "blocked":
                digest = blocked.get(os.path.realpath(skill.base_dir), "")
                if not self.integrity.blocks(skill, digest):
                    return True
        return False

    # --- tracing --------------------------------------------------------------------------

    def _trace_changes(self, before: Snapshot | None, after: Snapshot) -> None:
        if before is None and len(after.skills) > _MAX_EVENTS_PER_SCAN:
            self._trace.record("discovered", (), count=len(after.skills))
            return
        old_skills = _offered_by_ref(before) if before is not None else {}
        new_skills = _offered_by_ref(after)
        added_refs = [ref for ref in new_skills if ref not in old_skills]
        if len(added_refs) <= _MAX_EVENTS_PER_SCAN:
            for ref in added_refs:
                skill, tools = new_skills[ref]
                details: dict[str, Any] = {"tools": list(tools.tools)} if tools else {}
                self._trace.record("discovered", (skill.name,), ref=ref, **details)
        else:
            self._trace.record("discovered", (), count=len(added_refs))
        for ref, (skill, tools) in old_skills.items():
            if ref not in new_skills:
                self._trace.record("removed", (skill.name,), ref=ref)
                continue
            new_skill, new_tools = new_skills[ref]
            if new_skill.head is not skill.head or _tools_digest(new_tools) != _tools_digest(tools):
                self._trace.record("changed", (skill.name,), ref=ref)


def _offered_by_ref(snapshot: Snapshot) -> dict[str, tuple[Skill, ToolSkill | None]]:
    """The offered skills by ref, each with its offered tools."""
    if not snapshot.tools.skills:
        return {skill.ref: (skill, None) for skill in snapshot.skills}
    tools = {tool_skill.skill.ref: tool_skill for tool_skill in snapshot.tools.skills}
    offered = {skill.ref: (skill, tools.get(skill.ref)) for skill in snapshot.skills}
    return offered | {ref: (tool_skill.skill, tool_skill) for ref, tool_skill in tools.items()}


def _tools_digest(tools: ToolSkill | None) -> str:
    return tools.digest if tools is not None else ""


def _open_served_skills(locations: Iterable[Location]) -> dict[str, ServedSkills]:
    """The skills of each server by the path of its location."""
    served_locations = [location for location in locations if location.supplier is not None]
    if not served_locations:
        return {}
    from satchel.library.served_skills import ServedSkills

    return {
        location.path: ServedSkills(
            location,
            os.path.join(os.path.dirname(location.path), "contents")
            if location.source == "server"
            else "",
        )
        for location in served_locations
    }


def _is_worth_saving(state: LocationState) -> bool:
    """Whether writing the cache is cheaper than reading the changed files at the next start."""
    skill_count = len(state.headers)
    return skill_count < _MAX_SKILLS_SAVED_ALWAYS or state.reads > skill_count // 50


@contextmanager
def _paused_collection() -> Generator[None]:
    """Pause garbage collection, which finds nothing while thousands of records are created."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _visible_values(tables: Iterable[Mapping[str, CheckedManifest]]) -> list[dict[str, object]]:
    """What users see of the skill.yaml files of each location, to be compared."""
    return [
        {folder: manifest.visible for folder, manifest in manifests.items()} for manifests in tables
    ]
