"""Which tool skills exist here: the folders with a `skill.yaml`, found when somebody asks.

A look at SKILL.md files must stay as fast as it is, so nothing here runs before `Library.tools()`
is called. Then the folders that the shelves know already are asked for a skill.yaml, and after
that only where a folder or a file changed. Order, shadowing and trust are those of every skill. One
thing is stricter: what a skill.yaml says reaches a model with every request, so the skill is
checked as a whole before its tools are offered at all.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._language import Message
from satchel.errors import Blocked, Changed, SatchelError
from satchel.library.walk import (
    OPEN,
    find_repeated,
    folders_above,
    not_a_file,
    outside,
    unreadable,
    without,
)
from satchel.skill.model import MANIFEST as FILE
from satchel.skill.model import Skill
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from satchel.library.seal import Seals
    from satchel.library.snapshot import Sieve
    from satchel.library.walk import Shelf
    from satchel.skill.manifest import Manifest, ToolDecl
    from satchel.skill.manifest_read import Reading
    from satchel.skill.model import Head, State
    from satchel.trace import Trace


class ToolSkill(NamedTuple):
    """A skill that brings tools."""

    skill: Skill
    """The skill as lists and trust know it. When the folder has a SKILL.md too, it is that one."""
    manifest: Manifest
    description: str
    """What the skill.yaml says about the whole."""
    digest: str
    """The hexadecimal SHA-256 of the skill.yaml that was read."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of its tools."""
        return tuple(tool.name for tool in self.manifest.tools)

    @property
    def wants(self) -> tuple[str, ...]:
        """What its program may touch beside its own folder: for a person who decides about it."""
        from satchel._language import listed, say

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
    """The tool skills of a library, frozen.

    `skills` are the offered ones, in the order of their locations and then of their ids. `hidden`
    are known but not offered. `problems` says what is wrong with files, and why tools are missing.
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
        """Tool name -> what offers it."""
        self.refused = refused
        """Skills that may not be used as they are: ref -> the error that says why."""
        self._by_ref: dict[str, ToolSkill] | None = None
        self._by_place: dict[tuple[str, str], ToolSkill] | None = None

    def __len__(self) -> int:
        return len(self.skills)

    def find(self, reference: str) -> list[ToolSkill]:
        """By the name, id, ref or path of the skill, or by a tool's name; offered ones first."""
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
        """What a skill brings beside its instructions; None when it brings no tools."""
        table = self._by_place
        if table is None:
            every = (*self.hidden[::-1], *self.skills[::-1])  # the first of two counts
            table = {(one.skill.origin.root, one.skill.head.id): one for one in every}
            self._by_place = table
        return table.get((skill.origin.root, skill.head.id))

    def by_ref(self, ref: str) -> ToolSkill | None:
        """The very one of a ref that has no SKILL.md beside it, offered or not."""
        table = self._by_ref
        if table is None:
            table = self._by_ref = {one.skill.ref: one for one in reversed(self.only())}
        return table.get(ref)

    def only(self) -> list[ToolSkill]:
        """Those that have no SKILL.md beside it, offered or not: no other list has them."""
        return [one for one in (*self.skills, *self.hidden) if one.skill.is_tool]

    def withheld(self, tool: str) -> ToolSkill | None:
        """Who would offer a tool that is not offered."""
        return next((one for one in self.hidden if tool in one.tools), None)

    def same_as(self, other: ToolSnapshot) -> bool:
        """Whether nothing differs that anybody could see."""
        return self._seen() == other._seen()

    def _seen(self) -> tuple[Any, ...]:
        rows = [
            (one.skill.ref, one.skill.head.name, one.skill.state, one.skill.winner, one.digest)
            for one in (*self.skills, *self.hidden)
        ]
        return rows, list(self.problems)


_Stamp = tuple[int, int, int]
_NEVER: _Stamp = (0, 0, 0)
_WRONG = "skill.yml"
"""How the file is called by mistake; looked for only where a folder would be no skill at all."""


class _Seen(NamedTuple):
    """One skill.yaml as it was read."""

    stamp: _Stamp
    """Time of change, of the inode's change, size; all zero when it must be read again."""
    digest: str
    reading: Reading | None
    head: Head | None
    problems: tuple[Problem, ...] = ()
    """Why there is no reading."""


class ToolShelf:
    """What is known of the skill.yaml files of one library."""

    def __init__(self, seals: Callable[[], Seals], trace: Trace) -> None:
        self._seals = seals
        self._trace = trace
        self._seen: list[dict[str, _Seen]] = []
        self._folders: list[dict[str, int]] = []
        self._misnamed: list[set[str]] = []
        """Folders with a `skill.yml`, which nobody reads."""
        self.reads = 0
        """Files opened by the last look."""
        self.last: ToolSnapshot | None = None

    def look(
        self,
        shelves: Sequence[Shelf],
        state_in: Callable[[Shelf], Callable[[Head], State]],
        sieve: Sieve | None,
    ) -> ToolSnapshot:
        """What there is now; the very same snapshot when nothing changed.

        Args:
            shelves: The locations as the library just saw them, in their order.
            state_in: Decides for each skill of a location whether trust and scan let it be offered.
            sieve: Which skills are wanted.
        """
        if len(self._seen) != len(shelves):
            self._seen = [{} for _ in shelves]
            self._folders = [{} for _ in shelves]
            self._misnamed = [set() for _ in shelves]
        self.reads = 0
        sorting = _Sorting(self._seals)
        for at, shelf in enumerate(shelves):
            if not shelf.location.single:  # a project's top is no program's folder
                self._revise(at, shelf)
        repeated = find_repeated(shelves, lambda at: self._seen[at])
        for at, shelf in enumerate(shelves):
            if shelf.location.single:
                continue
            if self._seen[at]:
                state_of = state_in(shelf)
                for folder in sorted(without(self._seen[at], repeated.get(at))):
                    sorting.take(shelf, folder, self._seen[at], state_of, sieve)
            sorting.misnamed(f"{shelf.path_of(one)}/{_WRONG}" for one in sorted(self._misnamed[at]))
            sorting.end_of_location()
        found = sorting.snapshot()
        if self.last is not None and self.last.same_as(found):
            return self.last
        self._tell(self.last, found)
        self.last = found
        return found

    def _revise(self, at: int, shelf: Shelf) -> None:
        """Find new files, and read those that changed."""
        seen, before = self._seen[at], self._folders[at]
        folders = shelf.folders
        base = shelf.location.path + "/"
        there = os.access
        for folder, stamp in folders.items():
            # A folder whose stamp stands has no new entries.
            if (not stamp or before.get(folder) != stamp) and folder not in seen and folder:
                path = f"{base}{folder}/{FILE}"
                if there(path, os.F_OK):
                    seen[folder] = self._read(shelf, folder, path, None)
                elif folder not in shelf.heads and there(f"{base}{folder}/{_WRONG}", os.F_OK):
                    self._misnamed[at].add(folder)
        self._folders[at] = dict(folders)
        for folder in list(self._misnamed[at]):
            gone = folder not in folders or not there(f"{base}{folder}/{_WRONG}", os.F_OK)
            if gone or folder in seen:
                self._misnamed[at].discard(folder)
        for folder, known in list(seen.items()):
            path = f"{base}{folder}/{FILE}"
            if folder not in folders or not there(path, os.F_OK):
                del seen[folder]
            elif known.stamp == _NEVER or _stamp(path) != known.stamp:
                seen[folder] = self._read(shelf, folder, path, known)

    def _read(self, shelf: Shelf, folder: str, path: str, known: _Seen | None) -> _Seen:
        # Where there are no tool skills nobody pays for YAML and hashes.
        from hashlib import sha256

        from satchel.skill.manifest_read import MAX_FILE, read_manifest, tool_head

        self.reads += 1
        try:
            descriptor = os.open(path, OPEN)
            try:
                info = os.fstat(descriptor)
                data = os.read(descriptor, MAX_FILE + 1) if stat.S_ISREG(info.st_mode) else None
            finally:
                os.close(descriptor)
        except OSError as exc:
            return _Seen(_NEVER, "", None, None, (unreadable(path, exc),))
        young = info.st_ctime_ns > shelf.settled
        times = (info.st_mtime_ns, info.st_ctime_ns, info.st_size)
        stamp = _NEVER if young else times
        if data is None:
            return _Seen(_NEVER, "", None, None, (not_a_file(path, FILE, info.st_mode),))
        if shelf.escapes(path):
            return _Seen(_NEVER, "", None, None, (outside(path),))
        digest = sha256(data).hexdigest()
        if known is not None and known.digest == digest:
            return known._replace(stamp=stamp)  # touched, not changed: the same objects stay
        reading = read_manifest(data, folder.rpartition("/")[2])
        return _Seen(stamp, digest, reading, tool_head(reading, data, folder, times))

    def _tell(self, before: ToolSnapshot | None, after: ToolSnapshot) -> None:
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


class _Sorting:
    """Decides for every tool skill whether it is offered, in the order of the locations."""

    def __init__(self, seals: Callable[[], Seals]) -> None:
        self._seals = seals
        self._by_name: dict[str, ToolSkill] = {}
        self._here: dict[str, ToolSkill] = {}
        self._hidden: list[ToolSkill] = []
        self._lost: list[ToolSkill] = []
        self._problems: list[Problem] = []
        self._refused: dict[str, SatchelError] = {}

    def take(
        self,
        shelf: Shelf,
        folder: str,
        seen: dict[str, _Seen],
        state_of: Callable[[Head], State],
        sieve: Sieve | None,
    ) -> None:
        """Sort in one skill.yaml."""
        from satchel.skill.manifest_read import with_entry

        path = shelf.path_of(folder)
        outer = next((one for one in folders_above(folder) if one in seen), "")
        if outer:
            values = {"outer": f"{shelf.location.name}/{outer}"}
            self._problems.append(Problem("tool-nested", f"{path}/{FILE}", values=values))
            return
        known = seen[folder]
        self._problems += known.problems
        if known.reading is None:
            return
        reading = with_entry(known.reading, path)
        if reading.manifest is None or known.head is None:
            self._problems += [one.at(f"{path}/{FILE}") for one in reading.problems]
            return
        if reading.manifest.runtime == "go" and not os.path.isfile(os.path.join(path, "go.mod")):
            values = {"name": os.path.basename(path)}
            self._problems.append(Problem("tool-go-module", f"{path}/{FILE}", values=values))
            return
        # A folder that has both is one skill, under the name of its SKILL.md.
        own = shelf.heads.get(folder)
        if own is not None:
            self._problems += [one.at(f"{path}/{FILE}") for one in reading.problems]
        skill = Skill(own or known.head, shelf.location.origin)
        one = ToolSkill(skill, reading.manifest, reading.description, known.digest)
        if sieve is not None and not sieve.keeps(skill.head):
            self._hide(one, "excluded")
            return
        state = state_of(skill.head)
        if state == "active":
            state = self._checked(one)
        if state == "active":
            self._offer(one)
        else:
            self._hide(one, state)

    def _hide(self, one: ToolSkill, state: State) -> None:
        self._hidden.append(one._replace(skill=one.skill._replace(state=state)))

    def _checked(self, one: ToolSkill) -> State:
        """Whether the skill, with the very skill.yaml that was read, may be used."""
        skill = one.skill
        try:
            sealed = self._seals().check(skill, clean=False)  # a call deletes what Python left
            if not sealed.has(FILE, one.digest):
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
            # Twice in one location: the last one wins, and both are named.
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
        """Note files that would be a skill.yaml under their right name."""
        self._problems += [Problem("tool-file-name", path) for path in paths]

    def end_of_location(self) -> None:
        """The next skills lie in another location."""
        self._here = {}

    def snapshot(self) -> ToolSnapshot:
        """What came of it."""
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
                    path = os.path.join(one.skill.base_dir, FILE)
                    problem = Problem("tool-name-taken", path, tool.line, values)
                    self._problems.append(problem)
        return ToolSnapshot(
            tuple(self._by_name.values()),
            tuple(self._hidden),
            tuple(self._problems),
            tools,
            self._refused,
        )
