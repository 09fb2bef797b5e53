"""The command `list --locations`: the searched folders, in order of precedence."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel.cli.console import one_line, write_json
from satchel.i18n import say
from satchel.library.locations import is_of_agents, source_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.context import CliContext
    from satchel.library import Location
    from satchel.skill.model import Skill

_TRUST_LABELS = {True: "yes", False: "no", None: "ask"}
_FILE_NAMES = ("SKILL.md", "skill.md")


def show_locations(context: CliContext, *, as_json: bool) -> int:
    """Print the locations."""
    satchel = context.satchel
    skills = satchel.library.every()
    locations = [_ListedLocation.of(location, skills) for location in satchel.library.locations]
    if as_json:
        records = [location._asdict() for location in locations]
        write_json({"project": satchel.settings.project, "locations": records})
        return 0
    _print_table(context, [location for location in locations if location.is_shown])
    context.print_root()
    return 0


class _ListedLocation(NamedTuple):
    """A location with the number of its skills; the fields are those of `--json`."""

    label: str
    """The name that is shown, such as `.agents/skills`; of a server, its name."""
    path: str
    source: str
    """Whose it is, such as `project` or `global`."""
    single: bool
    """Whether the folder itself is one skill."""
    exists: bool
    skills: int
    """Number of skills, hidden ones included."""
    untrusted: int
    """Number of skills that are not trusted."""
    trusted: str
    """`yes`, `no`, or `ask`: each skill is decided by itself."""
    writable: bool

    @classmethod
    def of(cls, location: Location, all_skills: Sequence[Skill]) -> _ListedLocation:
        """Count the skills of a location."""
        skills = [
            skill
            for skill in all_skills
            if skill.origin.root == location.path and skill.origin.label == location.name
        ]
        exists = _exists(location)
        return cls(
            label=location.name,
            path=location.path,
            source=location.source,
            single=location.single,
            exists=exists,
            skills=len(skills),
            untrusted=sum(skill.state == "untrusted" for skill in skills),
            trusted=_TRUST_LABELS[location.trusted],
            writable=location.writable and (not exists or os.access(location.path, os.W_OK)),
        )

    @property
    def is_shown(self) -> bool:
        """Whether the table has it: folders of other agents only where they exist."""
        return self.exists or not is_of_agents(self.label)


def _exists(location: Location) -> bool:
    """Whether there is something to read; a server's location has no folder."""
    if location.single:
        return any(os.path.exists(os.path.join(location.path, name)) for name in _FILE_NAMES)
    return location.supplier is not None or os.path.isdir(location.path)


def _print_table(context: CliContext, locations: Sequence[_ListedLocation]) -> None:
    titles = ["", say("location"), say("source"), say("skills"), say("trusted")]
    rows = [_row_cells(position, location) for position, location in enumerate(locations, 1)]
    context.out.table(titles, rows, [_row_styles(location) for location in locations])


def _row_cells(position: int, location: _ListedLocation) -> list[str]:
    file_suffix = "/SKILL.md" if location.single else ""
    return [
        str(position),
        one_line(location.label) + file_suffix,
        source_words(location.source),
        f"{location.skills:,}" if location.exists else say("none"),
        _trust_label(location) if location.exists else "",
    ]


def _row_styles(location: _ListedLocation) -> list[str]:
    dim = "" if location.exists else "dim"
    trust_style = "yellow" if location.untrusted else dim
    return ["dim", dim or "bold", dim, dim, trust_style]


def _trust_label(location: _ListedLocation) -> str:
    """Return whether the skills are trusted, or how many of them are."""
    if location.trusted != "ask":
        return say("yes") if location.trusted == "yes" else say("no")
    if not location.untrusted:
        return say("yes") if location.skills else say("ask")
    trusted = location.skills - location.untrusted
    return say("{count} of {total}", count=trusted, total=location.skills)
