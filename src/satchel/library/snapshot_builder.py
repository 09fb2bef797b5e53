"""Builds the snapshot of a library: decides which skills of its locations are offered.

`SkillStateRules` determines the state of each skill. `SnapshotBuilder` applies the order of the
locations: of skills with the same name, the first one wins and shadows the others.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from satchel.library.location_state import SkillKey, find_repeated
from satchel.library.snapshot import NO_TOOLS, Snapshot, ToolSnapshot
from satchel.skill.model import Skill
from satchel.skill.problems import REPAIRS, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from satchel.errors import SatchelError
    from satchel.library.integrity import IntegrityChecker
    from satchel.library.location_state import LocationState
    from satchel.library.snapshot import Filter
    from satchel.library.tool_skills import CheckedManifest, ToolSkill
    from satchel.library.trust_store import TrustStore
    from satchel.skill.document import SkillHeader
    from satchel.skill.model import SkillOrigin, State

_new_tuple: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class SkillStateRules:
    """Determines the states of skills from the settings, the trust and the integrity of a library.

    Args:
        conditions: The filter of the settings.
        trust: The user's decisions.
        integrity: Compares skills with the lockfile and with the blocked contents.
    """

    def __init__(self, conditions: Filter, trust: TrustStore, integrity: IntegrityChecker) -> None:
        self._filter = conditions.compile()
        self._trust = trust
        self._integrity = integrity

    def compile(
        self, scanned: LocationState, setup_problems: Mapping[SkillKey, Problem] | None = None
    ) -> Callable[[SkillHeader], State]:
        """Return the function that determines the state of a location's skills.

        Args:
            scanned: The location.
            setup_problems: The skills whose requirements are not met.
        """
        location, skill_filter = scanned.location, self._filter
        is_trusted = location.trusted
        if location.trusted_with and is_trusted is None:
            is_trusted = self._trust.trusts(*location.trust_decision(location.path))
        trust = self._trust.location_trust(
            location.path,
            scanned.link_by_target,
            trusted=is_trusted,
            project=location.boundary,
        )
        is_locked = self._trust.locked
        is_lock_damaged = (
            bool(location.lock) and self._integrity.lock_problem(location.lock) is not None
        )
        unmet, path = setup_problems or {}, location.path
        if skill_filter is None and trust.is_complete and not is_locked and not is_lock_damaged:
            if not unmet:
                return lambda _header: "active"
            return lambda header: (
                "needs setup" if header.extra and (path, header.id) in unmet else "active"
            )

        def determine_state(header: SkillHeader) -> State:
            if skill_filter is not None and not skill_filter.matches(header):
                return "excluded"
            if not trust.trusts(header.id):
                return "untrusted"
            if is_lock_damaged:
                return "unverified"
            blocked_digest = trust.blocked(header.id)
            if blocked_digest and self._integrity.blocks(
                Skill(header, location.origin), blocked_digest
            ):
                return "blocked"
            if is_locked and not self._integrity.pins(Skill(header, location.origin)):
                return "untrusted"
            return "needs setup" if (path, header.id) in unmet else "active"

        return determine_state


class SnapshotBuilder:
    """Builds one snapshot from the scanned locations."""

    def __init__(
        self,
        states: Sequence[LocationState],
        manifests: Sequence[Mapping[str, CheckedManifest]],
        *,
        rules: SkillStateRules,
        setup_problems: Mapping[SkillKey, Problem],
        problems: Iterable[Problem],
        strict: bool,
    ) -> None:
        """Prepare a snapshot.

        Args:
            states: The scanned locations in their order.
            manifests: For each location, its skill.yaml files by folder; empty without any.
            rules: Determine the states of the skills.
            setup_problems: The skills whose requirements are not met.
            problems: Problems that the snapshot has beside those of the locations.
            strict: Leave out skills whose frontmatter needed a repair.
        """
        self._states = states
        self._manifests = manifests
        self._rules = rules
        self._setup_problems = setup_problems
        self._problems = list(problems)
        self._headers = self._merge_headers()
        """For each location, the headers of its skills by id."""
        if strict:
            self._headers = [
                self._without_repaired(state, headers)
                for state, headers in zip(states, self._headers, strict=True)
            ]
        self._by_name: dict[str, Skill] = {}
        """The offered skills."""
        self._unoffered: list[Skill] = []
        """Skills that their state keeps from being offered."""
        self._shadowed: list[tuple[SkillHeader, SkillOrigin, str]] = []
        """Skills with the name of one that wins, and that name."""
        self._impostors: list[Skill] = []
        """Served skills with the name of a local one."""

    def build(self) -> Snapshot:
        """Decide about all skills and return the snapshot."""
        self._add_locations()
        by_name = self._by_name
        shadowed = [
            Skill(header, origin, "shadowed", by_name[name].ref)
            for header, origin, name in self._shadowed
        ]
        # No other skill gets the name under which the user installed an unverified one.
        unverified = [skill for skill in by_name.values() if skill.state == "unverified"]
        for skill in unverified:
            del by_name[skill.name]
        hidden = [*unverified, *self._unoffered, *self._impostors, *shadowed]
        tools = NO_TOOLS
        if self._manifests:
            tools = self._build_tools([*by_name.values(), *hidden])
            by_name = {name: skill for name, skill in by_name.items() if not skill.is_tool}
            hidden = [skill for skill in hidden if not skill.is_tool]
        return Snapshot(
            skills=tuple(by_name.values()),
            by_name=by_name,
            hidden=tuple(hidden),
            problems=tuple(self._problems),
            tools=tools,
        )

    def _merge_headers(self) -> list[Mapping[str, SkillHeader]]:
        """The headers of each location, with those of skills that have tools alone."""
        tables: list[Mapping[str, SkillHeader]] = [state.headers for state in self._states]
        for index, manifests in enumerate(self._manifests):
            tool_headers = {
                folder: manifest.source.skill.head
                for folder, manifest in manifests.items()
                if manifest.source
            }
            if tool_headers:
                tables[index] = {**tables[index], **tool_headers}
        return tables

    def _without_repaired(
        self, state: LocationState, headers: Mapping[str, SkillHeader]
    ) -> dict[str, SkillHeader]:
        """The skills whose frontmatter needed no repair; the others become problems."""
        unrepaired: dict[str, SkillHeader] = {}
        for skill_id, header in headers.items():
            repair = next((problem for problem in header.problems if problem.code in REPAIRS), None)
            if repair is None:
                unrepaired[skill_id] = header
            else:
                path = Skill(header, state.location.origin).path
                values: dict[str, str] = {"what": repair.for_model()[0]}
                self._problems.append(Problem("not-strict", path, repair.line, values))
        return unrepaired

    def _add_locations(self) -> None:
        repeated_ids = find_repeated(self._states, self._headers)
        for index, state in enumerate(self._states):
            for broken in state.broken.values():
                self._problems += broken.problems
            for problems in state.folder_problems.values():
                self._problems += problems
            headers = self._headers[index]
            if not headers:
                continue
            if state.location.supplier is not None:
                headers = self._without_impostors(state)
            tool_states: dict[str, State] = {}
            if self._manifests:
                manifests = self._manifests[index].items()
                tool_states = {
                    folder: manifest.state for folder, manifest in manifests if manifest.source
                }
            self._add_location(
                state, headers, repeated_ids=repeated_ids.get(index, ()), tool_states=tool_states
            )

    def _add_location(
        self,
        scanned: LocationState,
        headers: Mapping[str, SkillHeader],
        *,
        repeated_ids: Container[str],
        tool_states: Mapping[str, State],
    ) -> None:
        """Add the skills of one location; those of earlier locations win.

        Args:
            scanned: The location.
            headers: Id -> header.
            repeated_ids: Ids that links also put into an earlier location.
            tool_states: Id -> state of skills whose skill.yaml was checked.
        """
        by_name, origin = self._by_name, scanned.location.origin
        determine_state = self._rules.compile(scanned, self._setup_problems)
        headers_by_name: dict[str, SkillHeader] = {}
        for skill_id in sorted(headers):
            if skill_id in repeated_ids:
                continue
            header = headers[skill_id]
            state = tool_states.get(skill_id) or determine_state(header)
            if state not in ("active", "unverified"):
                self._unoffered.append(self._make_unoffered(header, origin, state))
                continue
            earlier = headers_by_name.get(header.name)
            if earlier is not None:
                # Twice in one location: the last one wins, and both are reported.
                self._problems.append(_duplicate_problem(origin, earlier, header))
                if by_name[header.name].head is earlier:
                    del by_name[header.name]
                self._shadowed.append((earlier, origin, header.name))
            headers_by_name[header.name] = header
            if header.name in by_name:
                self._shadowed.append((header, origin, header.name))
            else:
                by_name[header.name] = _new_tuple(Skill, (header, origin, state, ""))

    def _make_unoffered(self, header: SkillHeader, origin: SkillOrigin, state: State) -> Skill:
        """A skill that is not offered; one that needs setup has the problem that says why."""
        if state == "needs setup":
            problem = self._setup_problems.get(SkillKey(origin.root, header.id))
            if problem is not None:
                header = header._replace(problems=(*header.problems, problem))
        return Skill(header, origin, state)

    def _without_impostors(self, served: LocationState) -> Mapping[str, SkillHeader]:
        """The skills of a server whose names resemble no local skill, offered or not.

        No server may impersonate a local skill, whatever the order of locations. Among servers the
        order decides.
        """
        from satchel.library.served_skills import confusable_key

        local_refs: dict[str, str] = {}
        for state, headers in zip(self._states, self._headers, strict=True):
            if state.location.supplier is None:
                origin = state.location.origin
                for header in headers.values():
                    local_refs.setdefault(confusable_key(header.name), Skill(header, origin).ref)
        genuine: dict[str, SkillHeader] = {}
        for skill_id, header in served.headers.items():
            ref = local_refs.get(confusable_key(header.name))
            if ref is None:
                genuine[skill_id] = header
            else:
                origin = served.location.origin
                self._impostors.append(Skill(header, origin, "shadowed", ref))
        return genuine

    def _build_tools(self, skills: Iterable[Skill]) -> ToolSnapshot:
        """The tools of those skills that have a usable skill.yaml."""
        origins = [state.location.origin for state in self._states]
        manifests_by_origin = dict(zip(origins, self._manifests, strict=True))
        offered: list[ToolSkill] = []
        hidden: list[ToolSkill] = []
        refused: dict[str, SatchelError] = {}
        for skill in skills:
            manifest = manifests_by_origin[skill.origin].get(skill.head.id)
            if manifest is None or manifest.source is None:
                continue
            tool_skill = manifest.source._replace(skill=skill)
            if manifest.error:
                refused[skill.ref] = manifest.error
            if manifest.error or skill.state != "active":
                hidden.append(tool_skill)
            else:
                offered.append(tool_skill)
        problems = [
            problem
            for manifests in self._manifests
            for manifest in manifests.values()
            for problem in manifest.problems
        ]
        return ToolSnapshot(offered, hidden, problems, refused)


def _duplicate_problem(origin: SkillOrigin, first: SkillHeader, last: SkillHeader) -> Problem:
    values = {
        "name": last.name,
        "first": f"{origin.label}/{first.id}",
        "last": f"{origin.label}/{last.id}",
    }
    return Problem("duplicate-name", os.path.join(origin.root, last.id), values=values)
