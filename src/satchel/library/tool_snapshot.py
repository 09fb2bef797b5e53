"""The tool skills of a library at one moment: which are offered, which are not, and why."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.errors import SatchelError
    from satchel.skill.manifest import Manifest, ToolDecl
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem


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
