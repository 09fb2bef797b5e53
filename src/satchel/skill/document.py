"""Records of a parsed SKILL.md or skill.yaml.

A library of 100,000 skills keeps 100,000 headers in memory, so a header has only what lists need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.skill.problems import NO_PROBLEMS

if TYPE_CHECKING:
    from satchel.skill.problems import Problem

MANIFEST = "skill.yaml"
"""The file of a tool skill, beside a SKILL.md or instead of it."""


class SkillHeader(NamedTuple):
    """What a scan keeps of one SKILL.md."""

    name: str
    description: str
    id: str
    """The skill's folder, relative to its location, with `/`."""
    file: str
    """The file's name: `SKILL.md` or a case variant; `skill.yaml` for a tool skill."""
    mtime_ns: int
    ctime_ns: int
    size: int
    extra: dict[str, Any] | None = None
    """The fields of `fields.LISTED` that the file has, and as `requires` what it requires."""
    problems: tuple[Problem, ...] = NO_PROBLEMS

    @property
    def stamp(self) -> tuple[int, int, int]:
        """mtime, ctime and size of the file."""
        return self.mtime_ns, self.ctime_ns, self.size


class SkillDocument(NamedTuple):
    """A SKILL.md with its frontmatter, body and problems."""

    fields: dict[str, Any]
    """All keys of the frontmatter."""
    lines: dict[str, int]
    body: str
    problems: tuple[Problem, ...]
    head: SkillHeader | None
    """None when the file is no skill; `problems` has the reason."""
