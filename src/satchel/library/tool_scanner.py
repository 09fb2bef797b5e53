"""Scans locations for tool skills: folders with a `skill.yaml`.

It runs only when `Library.tools()` is called, to keep the scan of SKILL.md files fast. It checks
the folders of the last scan for a skill.yaml, and later only changed folders and files. Order,
shadowing and trust are those of every skill. One thing is stricter: tool definitions are sent with
every request, so a skill is verified as a whole before its tools are offered.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.errors import Blocked, Changed, SatchelError
from satchel.i18n import Message
from satchel.library.scanner import (
    OPEN_FLAGS,
    find_repeated,
    not_a_file_problem,
    outside_problem,
    parent_folders,
    unreadable_problem,
    without_ids,
)
from satchel.skill.document import MANIFEST
from satchel.skill.model import Skill
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from satchel.library.integrity import IntegrityChecker
    from satchel.library.scanner import LocationState
    from satchel.library.snapshot import PreparedFilter
    from satchel.skill.document import SkillHeader
    from satchel.skill.manifest import ToolDecl, ToolManifest
    from satchel.skill.manifest_parser import ManifestResult
    from satchel.skill.model import State
    from satchel.trace import Trace


class ToolSkill(NamedTuple):
    """A skill with tools."""

    skill: Skill
    """The skill of the SKILL.md, if the folder has one too."""
    manifest: ToolManifest
    description: str
    """Description of the skill in its skill.yaml."""
    digest: str
    """Hexadecimal SHA-256 of the skill.yaml."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of its tools."""
        return tuple(tool.name for tool in self.manifest.tools)

    @property
    def wants(self) -> tuple[str, ...]:
        """The permissions of its program, for review."""
        from satchel.i18n import listed, say

        manifest = self.manifest
        found: list[str] = []
        if manifest.network:
            found.append(say("use the network"))
        if manifest.secrets:
            names = listed(f"`{name}`" for name in manifest.secrets)
            found.append(say("get the secrets {names}", names=names))
        if manifest.files.access == "read":
            found.append(say("read the project's files"))
        elif manifest.files.access == "write":
            found.append(say("read and change the project's files"))
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        manifest = self.manifest
        return {
            "tools": list(self.tools),
            "runtime": manifest.runtime,
            "entry": manifest.entry,
            "wants": {
                "network": manifest.network,
                "secrets": list(manifest.secrets),
                "files": manifest.files.access,
            },
        }


class ToolSnapshot:
    """The tool skills of a library at one moment.

    `skills` are the offered ones, in the order of their locations and then of their ids. `hidden`
    are not offered. `problems` are of files and of tools that are not offered.
    """

    def __init__(
        self,
        skills: Sequence[ToolSkill],
        hidden: Sequence[ToolSkill],
        problems: Sequence[Problem],
        tools: Mapping[str, tuple[ToolSkill, ToolDecl]],
        refused: Mapping[str, SatchelError],
    ) -> None:
        self.skills = skills
        self.hidden = hidden
        self.problems = problems
        self.tools = tools
        """Tool name -> its skill and declaration."""
        self.refused = refused
        """Skills that may not be used: ref -> the error."""
        self._by_ref: dict[str, ToolSkill] | None = None
        self._by_place: dict[tuple[str, str], ToolSkill] | None = None

    def __len__(self) -> int:
        return len(self.skills)

    def find(self, reference: str) -> list[ToolSkill]:
        """Tool skills by name, id, ref or path, or by a tool's name; offered ones first."""
        keys = {reference, reference.rstrip("/")}
        if os.sep in reference or reference.startswith("."):
            keys.add(os.path.abspath(reference))
        return [
            one
            for one in (*self.skills, *self.hidden)
            if not keys.isdisjoint((
                one.skill.name,
                one.skill.id,
                one.skill.ref,
                one.skill.base_dir,
                one.skill.path,
                *one.tools,
            ))
        ]  # fmt: skip

    def of(self, skill: Skill) -> ToolSkill | None:
        """The tools of a skill; None when it has none."""
        table = self._by_place
        if table is None:
            every = (*self.hidden[::-1], *self.skills[::-1])  # the first of two counts
            table = {(one.skill.origin.root, one.skill.head.id): one for one in every}
            self._by_place = table
        return table.get((skill.origin.root, skill.head.id))

    def by_ref(self, ref: str) -> ToolSkill | None:
        """The tool skill without a SKILL.md that has this ref, offered or not."""
        table = self._by_ref
        if table is None:
            table = self._by_ref = {one.skill.ref: one for one in reversed(self.only())}
        return table.get(ref)

    def only(self) -> list[ToolSkill]:
        """The tool skills without a SKILL.md, offered or not."""
        return [one for one in (*self.skills, *self.hidden) if one.skill.is_tool]

    def withheld(self, tool: str) -> ToolSkill | None:
        """The hidden skill that has a tool of this name."""
        return next((one for one in self.hidden if tool in one.tools), None)

    def same_as(self, other: ToolSnapshot) -> bool:
        """Whether both are equal for users."""
        return self._visible() == other._visible()

    def _visible(self) -> tuple[Any, ...]:
        rows = [
            (one.skill.ref, one.skill.head.name, one.skill.state, one.skill.winner, one.digest)
            for one in (*self.skills, *self.hidden)
        ]
        return rows, list(self.problems)


_Stamp = tuple[int, int, int]
_NEVER: _Stamp = (0, 0, 0)
_WRONG = "skill.yml"
"""A common wrong name; checked only in folders that are no skill."""


class _ParsedManifest(NamedTuple):
    stamp: _Stamp
    """mtime, ctime and size; all zero when it must be read again."""
    digest: str
    reading: ManifestResult | None
    head: SkillHeader | None
    problems: tuple[Problem, ...] = ()
    """Why it could not be read."""


class ToolScanner:
    """Scans the skill.yaml files of one library."""

    def __init__(self, seals: Callable[[], IntegrityChecker], trace: Trace) -> None:
        self._seals = seals
        self._trace = trace
        self._seen: list[dict[str, _ParsedManifest]] = []
        self._folders: list[dict[str, int]] = []
        self._misnamed: list[set[str]] = []
        """Folders with a `skill.yml`, which is not read."""
        self.reads = 0
        """Files opened by the last scan."""
        self.last: ToolSnapshot | None = None

    def scan(
        self,
        states: Sequence[LocationState],
        state_in: Callable[[LocationState], Callable[[SkillHeader], State]],
        sieve: PreparedFilter | None,
    ) -> ToolSnapshot:
        """Scan for changes; returns the same snapshot when there are none.

        Args:
            states: The scanned locations, in order.
            state_in: Returns, for a location, the function that determines the state of a skill.
            sieve: Filter for the offered skills.
        """
        if len(self._seen) != len(states):
            self._seen = [{} for _ in states]
            self._folders = [{} for _ in states]
            self._misnamed = [set() for _ in states]
        self.reads = 0
        sorting = _ToolSorting(self._seals)
        for at, state in enumerate(states):
            if not state.location.single:  # the root of a project is no tool skill
                self._rescan(at, state)
        repeated = find_repeated(states, lambda at: self._seen[at])
        for at, state in enumerate(states):
            if state.location.single:
                continue
            if self._seen[at]:
                state_of = state_in(state)
                for folder in sorted(without_ids(self._seen[at], repeated.get(at))):
                    sorting.add(state, folder, self._seen[at], state_of, sieve)
            sorting.misnamed(f"{state.path_of(one)}/{_WRONG}" for one in sorted(self._misnamed[at]))
            sorting.end_of_location()
        found = sorting.snapshot()
        if self.last is not None and self.last.same_as(found):
            return self.last
        self._trace_changes(self.last, found)
        self.last = found
        return found

    def _rescan(self, at: int, state: LocationState) -> None:
        seen, before = self._seen[at], self._folders[at]
        folders = state.folders
        base = state.location.path + "/"
        there = os.access
        for folder, stamp in folders.items():
            # A folder with an unchanged stamp has no new entries.
            if (not stamp or before.get(folder) != stamp) and folder not in seen and folder:
                path = f"{base}{folder}/{MANIFEST}"
                if there(path, os.F_OK):
                    seen[folder] = self._read(state, folder, path, None)
                elif folder not in state.heads and there(f"{base}{folder}/{_WRONG}", os.F_OK):
                    self._misnamed[at].add(folder)
        self._folders[at] = dict(folders)
        for folder in list(self._misnamed[at]):
            gone = folder not in folders or not there(f"{base}{folder}/{_WRONG}", os.F_OK)
            if gone or folder in seen:
                self._misnamed[at].discard(folder)
        for folder, known in list(seen.items()):
            path = f"{base}{folder}/{MANIFEST}"
            if folder not in folders or not there(path, os.F_OK):
                del seen[folder]
            elif known.stamp == _NEVER or _stamp(path) != known.stamp:
                seen[folder] = self._read(state, folder, path, known)

    def _read(
        self, state: LocationState, folder: str, path: str, known: _ParsedManifest | None
    ) -> _ParsedManifest:
        # Without tool skills, YAML and hashes are not imported.
        from hashlib import sha256

        from satchel.skill.manifest_parser import MAX_FILE_BYTES, read_manifest, tool_header

        self.reads += 1
        try:
            descriptor = os.open(path, OPEN_FLAGS)
            try:
                info = os.fstat(descriptor)
                data = (
                    os.read(descriptor, MAX_FILE_BYTES + 1) if stat.S_ISREG(info.st_mode) else None
                )
            finally:
                os.close(descriptor)
        except OSError as exc:
            return _ParsedManifest(_NEVER, "", None, None, (unreadable_problem(path, exc),))
        young = info.st_ctime_ns > state.settled
        times = (info.st_mtime_ns, info.st_ctime_ns, info.st_size)
        stamp = _NEVER if young else times
        if data is None:
            return _ParsedManifest(
                _NEVER, "", None, None, (not_a_file_problem(path, MANIFEST, info.st_mode),)
            )
        if state.escapes(path):
            return _ParsedManifest(_NEVER, "", None, None, (outside_problem(path),))
        digest = sha256(data).hexdigest()
        if known is not None and known.digest == digest:
            return known._replace(stamp=stamp)  # touched, not changed: keep the same objects
        reading = read_manifest(data, folder.rpartition("/")[2])
        return _ParsedManifest(stamp, digest, reading, tool_header(reading, data, folder, times))

    def _trace_changes(self, before: ToolSnapshot | None, after: ToolSnapshot) -> None:
        old = {one.skill.ref: one for one in before.skills} if before is not None else {}
        for one in after.skills:
            ref, was = one.skill.ref, old.pop(one.skill.ref, None)
            if was is None:
                names = [tool.name for tool in one.manifest.tools]
                self._trace.record("discovered", (one.skill.name,), ref=ref, tools=names)
            elif was.digest != one.digest:
                self._trace.record("changed", (one.skill.name,), ref=ref)
        for ref, one in old.items():
            self._trace.record("removed", (one.skill.name,), ref=ref)
        for one in after.hidden:
            if one.skill.state in ("shadowed", "untrusted", "blocked"):
                self._trace.record(one.skill.state, (one.skill.name,), ref=one.skill.ref)
        for problem in after.problems:
            self._trace.record("broken", (), path=problem.path, code=problem.code)


def _stamp(path: str) -> _Stamp:
    try:
        info = os.stat(path)
    except OSError:
        return _NEVER
    return info.st_mtime_ns, info.st_ctime_ns, info.st_size


class _ToolSorting:
    """Determines the state of every tool skill, in the order of the locations."""

    def __init__(self, seals: Callable[[], IntegrityChecker]) -> None:
        self._seals = seals
        self._by_name: dict[str, ToolSkill] = {}
        self._here: dict[str, ToolSkill] = {}
        self._hidden: list[ToolSkill] = []
        self._lost: list[ToolSkill] = []
        self._problems: list[Problem] = []
        self._refused: dict[str, SatchelError] = {}

    def add(
        self,
        state: LocationState,
        folder: str,
        seen: dict[str, _ParsedManifest],
        state_of: Callable[[SkillHeader], State],
        sieve: PreparedFilter | None,
    ) -> None:
        """Add one skill.yaml."""
        from satchel.skill.manifest_parser import check_entry

        path = state.path_of(folder)
        outer = next((one for one in parent_folders(folder) if one in seen), "")
        if outer:
            values = {"outer": f"{state.location.name}/{outer}"}
            self._problems.append(Problem("tool-nested", f"{path}/{MANIFEST}", values=values))
            return
        known = seen[folder]
        self._problems += known.problems
        if known.reading is None:
            return
        reading = check_entry(known.reading, path)
        if reading.manifest is None or known.head is None:
            self._problems += [one.at(f"{path}/{MANIFEST}") for one in reading.problems]
            return
        if reading.manifest.runtime == "go" and not os.path.isfile(os.path.join(path, "go.mod")):
            values = {"name": os.path.basename(path)}
            self._problems.append(Problem("tool-go-module", f"{path}/{MANIFEST}", values=values))
            return
        # A folder with both files is one skill, with the name of its SKILL.md.
        own = state.heads.get(folder)
        if own is not None:
            self._problems += [one.at(f"{path}/{MANIFEST}") for one in reading.problems]
        skill = Skill(own or known.head, state.location.origin)
        one = ToolSkill(skill, reading.manifest, reading.description, known.digest)
        if sieve is not None and not sieve.keeps(skill.head):
            self._hide(one, "excluded")
            return
        skill_state = state_of(skill.head)
        if skill_state == "active":
            skill_state = self._verified_state(one)
        if skill_state == "active":
            self._offer(one)
        else:
            self._hide(one, skill_state)

    def _hide(self, one: ToolSkill, state: State) -> None:
        self._hidden.append(one._replace(skill=one.skill._replace(state=state)))

    def _verified_state(self, one: ToolSkill) -> State:
        """The state of a skill after verifying it, including the skill.yaml that was read."""
        skill = one.skill
        try:
            verified = self._seals().check(skill, clean=False)  # a tool call cleans
            if not verified.has(MANIFEST, one.digest):
                raise Changed(
                    Message("The skill `{name}` changed while it was read", name=skill.name),
                    Message("Try again"),
                )
        except SatchelError as exc:
            self._refused[skill.ref] = exc
            values = {"name": skill.typed, "reason": exc.message}
            self._problems.append(Problem("tool-not-offered", skill.path, values=values))
            return "blocked" if isinstance(exc, Blocked) else "untrusted"
        return "active"

    def _offer(self, one: ToolSkill) -> None:
        name = one.skill.name
        earlier = self._here.get(name)
        if earlier is not None:
            # Twice in one location: the last one wins, and both are reported.
            values = {"name": name, "first": earlier.skill.ref, "last": one.skill.ref}
            self._problems.append(Problem("duplicate-name", one.skill.base_dir, values=values))
            if self._by_name[name] is earlier:
                del self._by_name[name]
            self._lost.append(earlier)
        self._here[name] = one
        if name in self._by_name:
            self._lost.append(one)
        else:
            self._by_name[name] = one

    def misnamed(self, paths: Iterator[str]) -> None:
        """Report files with the wrong name."""
        self._problems += [Problem("tool-file-name", path) for path in paths]

    def end_of_location(self) -> None:
        """Start the next location."""
        self._here = {}

    def snapshot(self) -> ToolSnapshot:
        """Build the snapshot."""
        for one in self._lost:
            winner = self._by_name[one.skill.name].skill.ref
            skill = one.skill._replace(state="shadowed", winner=winner)
            self._hidden.append(one._replace(skill=skill))
        tools: dict[str, tuple[ToolSkill, Any]] = {}
        for one in self._by_name.values():
            for tool in one.manifest.tools:
                first = tools.setdefault(tool.name, (one, tool))[0]
                if first is not one:
                    values = {"name": tool.name, "winner": first.skill.ref}
                    path = os.path.join(one.skill.base_dir, MANIFEST)
                    problem = Problem("tool-name-taken", path, tool.line, values)
                    self._problems.append(problem)
        return ToolSnapshot(
            tuple(self._by_name.values()),
            tuple(self._hidden),
            tuple(self._problems),
            tools,
            self._refused,
        )
