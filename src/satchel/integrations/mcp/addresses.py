"""Which address has a file of a skill, and which file does an address mean?

    skill://pdf/SKILL.md              the skill `pdf`
    skill://pdf/references/forms.md   a file of it
    skill://pdf/templates             a folder of it
    skill://pdf/tables/SKILL.md       a skill `tables` that lies in the folder of `pdf`

An address is only ever looked up in a table of what is served; no path is made from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.skill.model import Skill

SCHEME = "skill://"
_LONGEST = 4_096
"""Characters of an address that are looked at."""


def address(*parts: str) -> str:
    """The address of a path: a skill's, then a file's below it."""
    return SCHEME + quote("/".join(part for part in parts if part), safe="/")


def segments(uri: str) -> tuple[str, ...]:
    """The names in an address, decoded once; nothing when it is none of ours.

    A step up, an empty step, a separator that was hidden in an encoding, a query: none of these is
    ever an address of a skill.
    """
    if len(uri) > _LONGEST or uri[: len(SCHEME)].lower() != SCHEME:
        return ()
    found: list[str] = []
    for raw in uri[len(SCHEME) :].split("/"):
        try:
            name = unquote(raw, errors="strict")
        except UnicodeDecodeError:
            return ()
        if name in {"", ".", ".."} or not name.isprintable() or not {"/", "\\"}.isdisjoint(name):
            return ()
        if "?" in raw or "#" in raw:
            return ()
        found.append(name)
    return tuple(found)


def skill_paths(skills: Iterable[Skill]) -> dict[str, Skill]:
    """The path of each skill, in order: its name, after the path of a skill that it lies in.

    Names are unique among offered skills, so a path is too. A name that nobody may publish has no
    path of its own; the files may still be those of a skill around it.
    """
    skills = list(skills)
    by_folder = {(skill.origin.root, skill.head.id): skill for skill in skills}
    paths: dict[str, Skill] = {}
    for skill in skills:
        paths.setdefault(_path(skill, by_folder), skill)
    return dict(sorted(paths.items()))


def _path(skill: Skill, by_folder: dict[tuple[str, str], Skill]) -> str:
    folder, _, last = skill.head.id.rpartition("/")
    while folder and last == skill.name:
        around = by_folder.get((skill.origin.root, folder))
        if around is not None:
            return f"{_path(around, by_folder)}{skill.head.id[len(folder) :]}"
        folder = folder.rpartition("/")[0]
    return skill.name
