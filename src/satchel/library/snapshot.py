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


_SKILL_FILE_NAMES = frozenset(("skill.md", "skill.yaml", "skill.yml"))


class Filter(NamedTuple):
    """Keeps a skill when it matches `include` (if any), no `exclude`, and has a tag (if any).

    Example:
        from satchel import Filter

        few = library.filtered(Filter(include=("pdf-*",)))
        assert [skill.name for skill in few.list_skills()] == ["pdf-forms"]
    """

    include: tuple[str, ...] = ()
    """Patterns of names or ids, such as `pdf-*`."""
    exclude: tuple[str, ...] = ()
    """Patterns of names or ids."""
    tags: tuple[str, ...] = ()
    """Tags of the frontmatter, one of which has to match."""

    def compile(self) -> PreparedFilter | None:
        """Compile the filter; None when it keeps everything."""
        return PreparedFilter(self) if any(self) else None


class PreparedFilter:
    """A compiled filter."""

    def __init__(self, conditions: Filter) -> None:
        self._matches_include = _compile_patterns(conditions.include)
        self._matches_exclude = _compile_patterns(conditions.exclude)
        self._tags = frozenset(tag.casefold() for tag in conditions.tags)

    def matches_names(self, *names: str) -> bool:
        """Whether something with these names and no tags passes."""
        return not self._tags and self._matches(names)

    def _matches(self, names: tuple[str, ...]) -> bool:
        if self._matches_exclude and any(map(self._matches_exclude, names)):
            return False
        return not self._matches_include or any(map(self._matches_include, names))

    def matches(self, header: SkillHeader) -> bool:
        """Whether the skill passes."""
        if not self._matches((header.name, header.id)):
            return False
        if self._tags:
            tags = (header.extra or {}).get("tags", ())
            return any(str(tag).casefold() in self._tags for tag in tags)
        return True


def unmatched_patterns(patterns: Iterable[str], snapshot: Snapshot) -> list[str]:
    """The patterns that match neither name nor id of any skill."""
    matchers = {pattern: _compile_patterns((pattern,)) for pattern in patterns}
    for skill in snapshot.every():
        if not matchers:
            break
        name, skill_id = skill.head.name, skill.head.id
        matchers = {
            pattern: matches
            for pattern, matches in matchers.items()
            if matches is not None and not matches(name) and not matches(skill_id)
        }
    return list(matchers)


def _compile_patterns(patterns: tuple[str, ...]) -> Callable[[str], object] | None:
    """Return the function that tells whether one of the patterns matches; None without any."""
    if not patterns:
        return None
    import fnmatch
    from unicodedata import normalize

    match = re.compile(
        "|".join(fnmatch.translate(normalize("NFC", pattern)) for pattern in patterns)
    ).match
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
        self._by_root_and_id = {
            (tool_skill.skill.origin.root, tool_skill.skill.head.id): tool_skill
            for tool_skill in (*skills, *hidden)
        }
        name_problems: list[Problem] = []
        for tool_skill in skills:
            for tool in tool_skill.manifest.tools:
                first = self.tools.setdefault(tool.name, (tool_skill, tool))[0]
                if first is not tool_skill:
                    values = {"name": tool.name, "winner": first.skill.ref}
                    path = os.path.join(tool_skill.skill.base_dir, MANIFEST)
                    name_problems.append(Problem("tool-name-taken", path, tool.line, values))
        self.problems = (*problems, *name_problems)

    def __len__(self) -> int:
        return len(self.skills)

    def find(self, reference: str) -> list[ToolSkill]:
        """Tool skills by name, id, ref or path, or by a tool's name; offered ones first."""
        keys = set(_reference_keys(reference))
        return [
            tool_skill
            for tool_skill in (*self.skills, *self.hidden)
            if not keys.isdisjoint((*_keys_of(tool_skill.skill), *tool_skill.tools))
        ]

    def of(self, skill: Skill) -> ToolSkill | None:
        """The tools of a skill; None when it has none."""
        return self._by_root_and_id.get((skill.origin.root, skill.head.id))

    def without_document(self) -> list[ToolSkill]:
        """The tool skills without a SKILL.md, offered or not."""
        return [
            tool_skill for tool_skill in (*self.skills, *self.hidden) if tool_skill.skill.is_tool
        ]

    def find_hidden(self, tool_name: str) -> ToolSkill | None:
        """The hidden skill that has a tool of this name."""
        owners = (tool_skill for tool_skill in self.hidden if tool_name in tool_skill.tools)
        return next(owners, None)


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
        # Built when they are needed for the first time:
        self._by_key: dict[str, list[Skill]] | None = None
        """Name, id, ref or path -> skills."""
        self._by_label_and_id: dict[str, dict[str, Skill]] | None = None
        self._unoffered_by_name: dict[str, list[Skill]] | None = None

    def __len__(self) -> int:
        return len(self.skills)

    def __iter__(self) -> Iterator[Skill]:
        return iter(self.skills)

    def every(self) -> list[Skill]:
        """All skills, offered or not, including those with tools alone."""
        return [
            *self.skills,
            *self.hidden,
            *(tool_skill.skill for tool_skill in self.tools.without_document()),
        ]

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
        """The offered skill with that name, in constant time.

        Args:
            name: The name in its frontmatter.
        """
        return self._by_name.get(name)

    def by_ref(self, ref: str) -> Skill | None:
        """The skill with that ref, offered or not; constant time after the first call."""
        if self._by_label_and_id is None:
            # Keyed by label and id, which exist already: one text per ref costs time and memory.
            table: dict[str, dict[str, Skill]] = {}
            for skill in self.every():
                skills_by_id = table.get(skill.origin.label)
                if skills_by_id is None:
                    skills_by_id = table[skill.origin.label] = {}
                skills_by_id.setdefault(skill.head.id, skill)
            self._by_label_and_id = table
        for label, skills_by_id in self._by_label_and_id.items():
            if ref.startswith(f"{label}/"):
                candidate = skills_by_id.get(ref[len(label) + 1 :])
                if candidate is not None:
                    return candidate
        return None

    def named(self, name: str) -> list[Skill]:
        """All skills with that name, the offered one first."""
        if self._unoffered_by_name is None:
            table: dict[str, list[Skill]] = {}
            for skill in self.every()[len(self.skills) :]:
                table.setdefault(skill.head.name, []).append(skill)
            self._unoffered_by_name = table
        offered = self._by_name.get(name)
        unoffered = self._unoffered_by_name.get(name, [])
        return [offered, *unoffered] if offered is not None else list(unoffered)

    def find(self, reference: str, *, hidden: bool = True) -> list[Skill]:
        """Skills by name, id, ref or path; offered ones first.

        Args:
            reference: The text.
            hidden: Also skills that are not offered, and those with tools alone.
        """
        exact = self._by_name.get(reference)
        matching = [exact] if exact is not None else []
        if self._by_key is None:
            self._by_key = self._index_by_key()
        for key in _reference_keys(reference):
            for skill in self._by_key.get(key, ()):
                is_offered = skill.state == "active" and not skill.is_tool
                if skill not in matching and (hidden or is_offered):
                    matching.append(skill)
        return matching

    def _index_by_key(self) -> dict[str, list[Skill]]:
        table: dict[str, list[Skill]] = {}
        for skill in self.every():
            keys = _keys_of(skill)
            if skill.is_tool:
                keys.update((skill.head.extra or {}).get("tools", ()))
            for key in keys:
                table.setdefault(key, []).append(skill)
        return table

    @property
    def digest(self) -> str:
        """Digest over everything that the catalogue can show; the same in every process."""
        if not self._digest:
            from hashlib import blake2b

            hasher = blake2b(digest_size=16)
            for skill in self.skills:
                header = skill.head
                line = f"{header.name}\0{header.description}\0{skill.ref}\0{header.extra}\n"
                hasher.update(line.encode("utf-8", "replace"))
            self._digest = hasher.hexdigest()
        return self._digest


def folder_names(folder: str, locations: Iterable[Location]) -> tuple[str, ...]:
    """The name of a folder, and its ids in the locations that contain it."""
    ids = [
        os.path.relpath(folder, location.path)
        for location in locations
        if is_inside(folder, location.path)
    ]
    return os.path.basename(folder), *(skill_id.replace(os.sep, "/") for skill_id in ids)


def filter_snapshot(
    snapshot: Snapshot, filters: Iterable[Filter], locations: Sequence[Location]
) -> Snapshot:
    """Keep the skills that pass all filters; the others get the state `excluded`."""
    prepared_filters = [
        prepared for conditions in filters if (prepared := conditions.compile()) is not None
    ]

    def passes(skill: Skill) -> bool:
        return all(prepared.matches(skill.head) for prepared in prepared_filters)

    def hide(skill: Skill) -> Skill:
        """Mark a skill as excluded if the filters drop it or the skill that shadows it."""
        winner = snapshot.by_ref(skill.shadowed_by) if skill.shadowed_by else None
        is_included = passes(skill) and (winner is None or passes(winner))
        return skill if is_included else skill._replace(state="excluded")

    def concerns_view(problem: Problem) -> bool:
        names = folder_names(os.path.dirname(problem.path), locations)
        return all(prepared.matches_names(*names) for prepared in prepared_filters)

    offered = tuple(filter(passes, snapshot.skills))
    excluded = (hide(skill) for skill in snapshot.skills if not passes(skill))
    hidden = (*map(hide, snapshot.hidden), *excluded)
    offered_tools = [tool_skill for tool_skill in snapshot.tools.skills if passes(tool_skill.skill)]
    tool_problems = [
        problem
        for problem in snapshot.tools.problems
        if problem.code != "tool-name-taken" and concerns_view(problem)
    ]
    return Snapshot(
        skills=offered,
        by_name={skill.name: skill for skill in offered},
        hidden=hidden,
        problems=list(filter(concerns_view, snapshot.problems)),
        tools=_filter_tools(snapshot.tools, offered_tools, tool_problems, hide),
    )


def _filter_tools(
    tools: ToolSnapshot,
    offered: Sequence[ToolSkill],
    problems: Sequence[Problem],
    hide: Callable[[Skill], Skill],
) -> ToolSnapshot:
    """The tool skills with the states that `hide` gives to their skills."""
    tool_skills = [
        tool_skill._replace(skill=hide(tool_skill.skill))
        for tool_skill in (*tools.skills, *tools.hidden)
    ]
    hidden = [
        tool_skill
        for tool_skill in tool_skills
        if tool_skill.skill.state != "active" or tool_skill.skill.ref in tools.refused
    ]
    refused = {
        tool_skill.skill.ref: tools.refused[tool_skill.skill.ref]
        for tool_skill in hidden
        if tool_skill.skill.state != "excluded" and tool_skill.skill.ref in tools.refused
    }
    return ToolSnapshot(offered, hidden, problems, refused)


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
    """Find the files that cannot be read as skills, in the order of the scan."""
    errors: dict[str, Problem] = {}
    for problem in problems:
        if problem.code.startswith("setting-"):
            continue  # of a settings file
        if problem.path and PROBLEMS[problem.code].severity == "error":
            errors.setdefault(problem.path, problem)
    if not errors:
        return []
    # The deepest folder wins: `.agents/skills` lies inside `.`.
    deepest_first = sorted(locations, key=lambda location: -len(location.path))
    broken: list[BrokenSkill] = []
    for path, problem in errors.items():
        folder, file = os.path.split(path)
        name = os.path.basename(folder) if file.lower() in _SKILL_FILE_NAMES else file
        sources = (location.source for location in deepest_first if is_inside(path, location.path))
        broken.append(BrokenSkill(name, next(sources, ""), problem))
    return broken
