"""What a library holds at one moment, immutable and cheap to share; and filters of skills."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import is_inside
from satchel.skill.problems import PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from satchel.library.locations import Location
    from satchel.skill.model import Head, Skill
    from satchel.skill.problems import Problem


class Filter(NamedTuple):
    """Keeps a skill when it matches `include` (if any), no `exclude`, and has a tag (if any)."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def compile(self) -> Sieve | None:
        """The filter made ready; None when it keeps everything."""
        return Sieve(self) if any(self) else None


class Sieve:
    """A filter made ready for many skills."""

    def __init__(self, wanted: Filter) -> None:
        self._include = _pattern(wanted.include)
        self._exclude = _pattern(wanted.exclude)
        self._tags = frozenset(tag.casefold() for tag in wanted.tags)

    def passes(self, *names: str) -> bool:
        """Whether something of these names that has no tags passes."""
        return not self._tags and self._matches(names)

    def _matches(self, names: tuple[str, ...]) -> bool:
        if self._exclude and any(map(self._exclude, names)):
            return False
        return not self._include or any(map(self._include, names))

    def keeps(self, head: Head) -> bool:
        """Whether the skill passes."""
        if not self._matches((head.name, head.id)):
            return False
        if self._tags:
            tags = (head.extra or {}).get("tags", ())
            return any(str(tag).casefold() in self._tags for tag in tags)
        return True


def unmatched(patterns: Iterable[str], heads: Iterable[Head]) -> list[str]:
    """The patterns that match neither name nor id of any skill."""
    left = {item: match for item in patterns if (match := _pattern((item,))) is not None}
    if left:
        for head in heads:
            for item in [one for one, match in left.items() if match(head.name) or match(head.id)]:
                del left[item]
            if not left:
                break
    return list(left)


def _pattern(patterns: tuple[str, ...]) -> Callable[[str], object] | None:
    if not patterns:
        return None
    import fnmatch
    from unicodedata import normalize

    match = re.compile("|".join(fnmatch.translate(normalize("NFC", one)) for one in patterns)).match
    # One name has two spellings where letters have accents.
    return lambda text: match(text if text.isascii() else normalize("NFC", text))


class Snapshot:
    """The skills of a library, frozen.

    `skills` are the offered ones, in the order of their locations and then of their ids. `hidden`
    are known but not offered: shadowed, untrusted, blocked or excluded. `problems` says why files
    are not skills and what else is odd.
    """

    def __init__(
        self,
        skills: Sequence[Skill],
        by_name: Mapping[str, Skill],
        hidden: Sequence[Skill],
        problems: Sequence[Problem],
    ) -> None:
        self.skills = skills
        self.hidden = hidden
        self.problems = problems
        self.withheld = tuple(
            skill.name for skill in skills if skill.head.extra and not skill.for_model
        )
        """Offered to people only, by their authors' `disable-model-invocation`."""
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

    @property
    def for_model(self) -> Sequence[Skill]:
        """What a model may load: always the same object, since detectors keep what they made of it.

        It is `skills` itself when nothing is withheld.
        """
        if self._for_model is None:
            self._for_model = (
                tuple(skill for skill in self.skills if skill.for_model)
                if self.withheld
                else self.skills
            )
        return self._for_model

    def get(self, name: str) -> Skill | None:
        """The offered skill of that name, in constant time."""
        return self._by_name.get(name)

    def by_ref(self, ref: str) -> Skill | None:
        """The very skill of a ref, offered or not, in constant time after the first question."""
        if self._by_place is None:
            # By label and id, which are there already: a text for each ref takes longer, and room.
            table: dict[str, dict[str, Skill]] = {}
            for skill in (*self.skills, *self.hidden):
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
        """All skills of that name, the offered one first."""
        if self._namesakes is None:
            table: dict[str, list[Skill]] = {}
            for skill in self.hidden:
                table.setdefault(skill.head.name, []).append(skill)
            self._namesakes = table
        offered = self._by_name.get(name)
        behind = self._namesakes.get(name, [])
        return [offered, *behind] if offered is not None else list(behind)

    def find(self, reference: str, *, hidden: bool = True) -> list[Skill]:
        """Skills by name, id, ref or path; offered ones first."""
        exact = self._by_name.get(reference)
        found = [exact] if exact is not None else []
        if self._by_id is None:
            # Built once, on the first question that a name alone does not answer.
            table: dict[str, list[Skill]] = {}
            for skill in (*self.skills, *self.hidden):
                for key in {skill.id, skill.ref, skill.name, skill.base_dir, skill.path}:
                    table.setdefault(key, []).append(skill)
            self._by_id = table
        keys = [reference, reference.rstrip("/")]
        if os.sep in reference or reference.startswith("."):
            keys.append(os.path.abspath(reference))
        for key in keys:
            for skill in self._by_id.get(key, ()):
                if skill not in found and (hidden or skill.state == "active"):
                    found.append(skill)
        return found

    @property
    def digest(self) -> str:
        """Changes exactly when what a model is told could change; the same in every process."""
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


class Broken(NamedTuple):
    """A file or folder that should be a skill and is none."""

    name: str
    """The folder's."""
    source: str
    problem: Problem
    """The first of its errors."""

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`: what is known of it, under the names a skill has."""
        return {
            "name": self.name,
            "description": "",
            "source": self.source,
            "state": "broken",
            "path": self.problem.path,
            "problems": [self.problem.to_dict()],
        }


def find_broken(problems: Sequence[Problem], locations: Iterable[Location]) -> list[Broken]:
    """What is not listed because it cannot be read as a skill, in the order it was found."""
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
    found: list[Broken] = []
    for path, problem in errors.items():
        folder, file = os.path.split(path)
        name = os.path.basename(folder) if file.lower() in {"skill.md", "skill.yaml"} else file
        inside = [item.source for item in places if is_inside(path, item.path)]
        found.append(Broken(name, inside[0] if inside else "", problem))
    return found
