"""`Snapshot`, the immutable state of a library, and filters for skills."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import is_inside
from satchel.skill.document import MANIFEST
from satchel.skill.problems import PROBLEMS, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from satchel.errors import SatchelError
    from satchel.library.locations import Location
    from satchel.library.tool_skills import ToolSkill
    from satchel.skill.document import SkillHeader
    from satchel.skill.manifest import ToolDecl
    from satchel.skill.model import Skill


class Filter(NamedTuple):
    """Keeps a skill when it matches `include` (if any), no `exclude`, and has a tag (if any)."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def compile(self) -> PreparedFilter | None:
        """Compile the filter; None when it keeps everything."""
        return PreparedFilter(self) if any(self) else None


class PreparedFilter:
    """A compiled filter."""

    def __init__(self, wanted: Filter) -> None:
        self._include = _pattern(wanted.include)
        self._exclude = _pattern(wanted.exclude)
        self._tags = frozenset(tag.casefold() for tag in wanted.tags)

    def passes(self, *names: str) -> bool:
        """Whether something with these names and no tags passes."""
        return not self._tags and self._matches(names)

    def _matches(self, names: tuple[str, ...]) -> bool:
        if self._exclude and any(map(self._exclude, names)):
            return False
        return not self._include or any(map(self._include, names))

    def keeps(self, head: SkillHeader) -> bool:
        """Whether the skill passes."""
        if not self._matches((head.name, head.id)):
            return False
        if self._tags:
            tags = (head.extra or {}).get("tags", ())
            return any(str(tag).casefold() in self._tags for tag in tags)
        return True


def unmatched_patterns(patterns: Iterable[str], snapshot: Snapshot) -> list[str]:
    """The patterns that match neither name nor id of any skill."""
    left = {item: match for item in patterns if (match := _pattern((item,))) is not None}
    for skill in snapshot.every():
        if not left:
            break
        head = skill.head
        for item in [one for one, match in left.items() if match(head.name) or match(head.id)]:
            del left[item]
    return list(left)


def _pattern(patterns: tuple[str, ...]) -> Callable[[str], object] | None:
    if not patterns:
        return None
    import fnmatch
    from unicodedata import normalize

    match = re.compile("|".join(fnmatch.translate(normalize("NFC", one)) for one in patterns)).match
    # Accented letters have two encodings.
    return lambda text: match(text if text.isascii() else normalize("NFC", text))


class ToolSnapshot:
    """The skills with a skill.yaml at one moment.

    The tools of `skills` are offered, those of `hidden` are not. `problems` are of skill.yaml files
    and of tools that are not offered.
    """

    def __init__(
        self,
        skills: Sequence[ToolSkill] = (),
        hidden: Sequence[ToolSkill] = (),
        problems: Sequence[Problem] = (),
        refused: Mapping[str, SatchelError] | None = None,
    ) -> None:
        self.skills = skills
        self.hidden = hidden
        self.tools: dict[str, tuple[ToolSkill, ToolDecl]] = {}
        """Tool name -> its skill and declaration."""
        self.refused = refused or {}
        """Skills whose tools may not be used: ref -> the error."""
        self._by_place = {
            (one.skill.origin.root, one.skill.head.id): one for one in (*skills, *hidden)
        }
        taken: list[Problem] = []
        for one in skills:
            for tool in one.manifest.tools:
                first = self.tools.setdefault(tool.name, (one, tool))[0]
                if first is not one:
                    values = {"name": tool.name, "winner": first.skill.ref}
                    path = os.path.join(one.skill.base_dir, MANIFEST)
                    taken.append(Problem("tool-name-taken", path, tool.line, values))
        self.problems = (*problems, *taken)

    def __len__(self) -> int:
        return len(self.skills)

    def find(self, reference: str) -> list[ToolSkill]:
        """Tool skills by name, id, ref or path, or by a tool's name; offered ones first."""
        keys = set(_reference_keys(reference))
        return [
            one
            for one in (*self.skills, *self.hidden)
            if not keys.isdisjoint((*_keys_of(one.skill), *one.tools))
        ]

    def of(self, skill: Skill) -> ToolSkill | None:
        """The tools of a skill; None when it has none."""
        return self._by_place.get((skill.origin.root, skill.head.id))

    def only(self) -> list[ToolSkill]:
        """The tool skills without a SKILL.md, offered or not."""
        return [one for one in (*self.skills, *self.hidden) if one.skill.is_tool]

    def withheld(self, tool: str) -> ToolSkill | None:
        """The hidden skill that has a tool of this name."""
        return next((one for one in self.hidden if tool in one.tools), None)


NO_TOOLS = ToolSnapshot()


def _keys_of(skill: Skill) -> set[str]:
    return {skill.id, skill.ref, skill.name, skill.base_dir, skill.path}


def _reference_keys(reference: str) -> list[str]:
    keys = [reference, reference.rstrip("/")]
    if os.sep in reference or reference.startswith("."):
        keys.append(os.path.abspath(reference))
    return keys


class Snapshot:
    """The skills of a library at one moment.

    `skills` are the offered ones, in the order of their locations and then of their ids. `hidden`
    are not offered: shadowed, untrusted, blocked or excluded. Both have a SKILL.md; `every` also
    has the skills with tools alone. `problems` are of files that are no skills, of locations and
    of settings; `tools` has its own.
    """

    def __init__(
        self,
        skills: Sequence[Skill],
        by_name: Mapping[str, Skill],
        hidden: Sequence[Skill],
        problems: Sequence[Problem],
        tools: ToolSnapshot = NO_TOOLS,
    ) -> None:
        self.skills = skills
        self.hidden = hidden
        self.problems = problems
        self.tools = tools
        self.withheld = tuple(
            skill.name for skill in skills if skill.head.extra and not skill.for_model
        )
        """Names of skills with `disable-model-invocation`."""
        self._by_name = by_name
        self._digest = ""
        self._for_model: Sequence[Skill] | None = None
        self._by_id: dict[str, list[Skill]] | None = None
        self._by_place: dict[str, dict[str, Skill]] | None = None
        self._namesakes: dict[str, list[Skill]] | None = None

    def __len__(self) -> int:
        return len(self.skills)

    def __iter__(self) -> Iterator[Skill]:
        return iter(self.skills)

    def every(self) -> list[Skill]:
        """All skills, offered or not, including those with tools alone."""
        return [*self.skills, *self.hidden, *(one.skill for one in self.tools.only())]

    @property
    def for_model(self) -> Sequence[Skill]:
        """The skills that a model may load; always the same object, as detectors cache by it."""
        if self._for_model is None:
            self._for_model = (
                tuple(skill for skill in self.skills if skill.for_model)
                if self.withheld
                else self.skills
            )
        return self._for_model

    def get(self, name: str) -> Skill | None:
        """The offered skill with that name, in constant time."""
        return self._by_name.get(name)

    def by_ref(self, ref: str) -> Skill | None:
        """The skill with that ref, offered or not; constant time after the first call."""
        if self._by_place is None:
            # Keyed by label and id, which exist already: one text per ref costs time and memory.
            table: dict[str, dict[str, Skill]] = {}
            for skill in self.every():
                here = table.get(skill.origin.label)
                if here is None:
                    here = table[skill.origin.label] = {}
                here.setdefault(skill.head.id, skill)
            self._by_place = table
        places = self._by_place
        for label, here in places.items():
            if ref.startswith(label) and ref[len(label) : len(label) + 1] == "/":
                found = here.get(ref[len(label) + 1 :])
                if found is not None:
                    return found
        return None

    def named(self, name: str) -> list[Skill]:
        """All skills with that name, the offered one first."""
        if self._namesakes is None:
            table: dict[str, list[Skill]] = {}
            for skill in self.every()[len(self.skills) :]:
                table.setdefault(skill.head.name, []).append(skill)
            self._namesakes = table
        offered = self._by_name.get(name)
        behind = self._namesakes.get(name, [])
        return [offered, *behind] if offered is not None else list(behind)

    def find(self, reference: str, *, hidden: bool = True) -> list[Skill]:
        """Skills by name, id, ref or path; offered ones first.

        Args:
            reference: The text.
            hidden: Also skills that are not offered, and those with tools alone.
        """
        exact = self._by_name.get(reference)
        found = [exact] if exact is not None else []
        if self._by_id is None:
            # Built on the first lookup.
            table: dict[str, list[Skill]] = {}
            for skill in self.every():
                keys = _keys_of(skill)
                if skill.is_tool:
                    keys.update((skill.head.extra or {}).get("tools", ()))
                for key in keys:
                    table.setdefault(key, []).append(skill)
            self._by_id = table
        for key in _reference_keys(reference):
            for skill in self._by_id.get(key, ()):
                offered = skill.state == "active" and not skill.is_tool
                if skill not in found and (hidden or offered):
                    found.append(skill)
        return found

    @property
    def digest(self) -> str:
        """Digest over everything that the catalogue can show; the same in every process."""
        if not self._digest:
            from hashlib import blake2b

            total = blake2b(digest_size=16)
            for skill in self.skills:
                head = skill.head
                total.update(
                    f"{head.name}\0{head.description}\0{skill.ref}\0{head.extra}\n".encode(
                        "utf-8", "replace"
                    )
                )
            self._digest = total.hexdigest()
        return self._digest


def names_of(folder: str, locations: Iterable[Location]) -> tuple[str, ...]:
    """The name of a folder, and its ids in the locations that contain it."""
    found = [os.path.relpath(folder, one.path) for one in locations if is_inside(folder, one.path)]
    return os.path.basename(folder), *(one.replace(os.sep, "/") for one in found)


def filter_snapshot(
    whole: Snapshot, filters: Iterable[Filter], locations: Sequence[Location]
) -> Snapshot:
    """Keep the skills that pass all filters; the others get the state `excluded`."""
    sieves = [sieve for one in filters if (sieve := one.compile()) is not None]

    def keeps(skill: Skill) -> bool:
        return all(sieve.keeps(skill.head) for sieve in sieves)

    def hide(skill: Skill) -> Skill:
        """Mark a skill as excluded if the filters drop it or the skill that shadows it."""
        winner = whole.by_ref(skill.shadowed_by) if skill.shadowed_by else None
        kept = keeps(skill) and (winner is None or keeps(winner))
        return skill if kept else skill._replace(state="excluded")

    def problems(found: Iterable[Problem]) -> list[Problem]:
        names = ((one, names_of(os.path.dirname(one.path), locations)) for one in found)
        return [one for one, known in names if all(sieve.passes(*known) for sieve in sieves)]

    kept = tuple(filter(keeps, whole.skills))
    hidden = (*map(hide, whole.hidden), *(hide(one) for one in whole.skills if not keeps(one)))
    tools = [
        one._replace(skill=hide(one.skill)) for one in (*whole.tools.skills, *whole.tools.hidden)
    ]
    offered = [one for one in whole.tools.skills if keeps(one.skill)]
    left = [
        one for one in tools if one.skill.state != "active" or one.skill.ref in whole.tools.refused
    ]
    refused = {
        one.skill.ref: whole.tools.refused[one.skill.ref]
        for one in left
        if one.skill.state != "excluded" and one.skill.ref in whole.tools.refused
    }
    wrong = [one for one in whole.tools.problems if one.code != "tool-name-taken"]
    return Snapshot(
        kept,
        {skill.name: skill for skill in kept},
        hidden,
        problems(whole.problems),
        ToolSnapshot(offered, left, problems(wrong), refused),
    )


class BrokenSkill(NamedTuple):
    """A file or folder that should be a skill and is none."""

    name: str
    """Name of the folder."""
    source: str
    problem: Problem
    """The first of its errors."""

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`, with the keys of a skill."""
        return {
            "name": self.name,
            "description": "",
            "source": self.source,
            "state": "broken",
            "path": self.problem.path,
            "problems": [self.problem.to_dict()],
        }


def find_broken(problems: Sequence[Problem], locations: Iterable[Location]) -> list[BrokenSkill]:
    """Files that cannot be read as skills, in the order they were found."""
    if not problems:
        return []
    errors: dict[str, Problem] = {}
    for problem in problems:
        if problem.code.startswith("setting-"):
            continue  # of a settings file
        if problem.path and PROBLEMS[problem.code].severity == "error":
            errors.setdefault(problem.path, problem)
    # The deepest folder wins: `.agents/skills` lies inside `.`.
    places = sorted(locations, key=lambda location: -len(location.path)) if errors else []
    found: list[BrokenSkill] = []
    for path, problem in errors.items():
        folder, file = os.path.split(path)
        known = {"skill.md", "skill.yaml", "skill.yml"}
        name = os.path.basename(folder) if file.lower() in known else file
        inside = [item.source for item in places if is_inside(path, item.path)]
        found.append(BrokenSkill(name, inside[0] if inside else "", problem))
    return found
