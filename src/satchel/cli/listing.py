"""`satchel list`: which skills are here?

The fast lane and click both end in `show_list`, so they cannot differ. Nothing heavy is imported
here: this is the command whose start people wait for.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from satchel._fs import is_inside
from satchel._language import say
from satchel.cli.output import STATES, Screen, one_line
from satchel.skill.problems import PROBLEMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from satchel.facade import Satchel
    from satchel.library import Location, Snapshot
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem


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


def find_broken(snapshot: Snapshot, locations: Iterable[Location]) -> list[Broken]:
    """What is not listed because it cannot be read as a skill, in the order it was found."""
    if not snapshot.problems:
        return []
    errors: dict[str, Problem] = {}
    for problem in snapshot.problems:
        if problem.path and PROBLEMS[problem.code].severity == "error":
            errors.setdefault(problem.path, problem)
    # The deepest folder wins: `.agents/skills` lies inside `.`.
    places = sorted(locations, key=lambda location: -len(location.path)) if errors else []
    found: list[Broken] = []
    for path, problem in errors.items():
        folder, file = os.path.split(path)
        name = os.path.basename(folder) if file.lower() == "skill.md" else file
        inside = [item.source for item in places if is_inside(path, item.path)]
        found.append(Broken(name, inside[0] if inside else "", problem))
    return found


def show_list(
    satchel: Satchel, *, everything: bool = False, as_json: bool = False, colour: bool | None = None
) -> int:
    """Print the skills of a project on stdout and a summary on stderr.

    Args:
        satchel: The project.
        everything: Also the hidden ones.
        as_json: A JSON array instead of a table.
        colour: True or False forces it; None asks the terminal.
    """
    snapshot = satchel.library.snapshot()
    skills = [*snapshot.skills, *snapshot.hidden] if everything else snapshot.skills
    broken = find_broken(snapshot, satchel.library.locations)
    shown = broken if everything else []
    if as_json:
        from satchel.cli.output import write_json

        write_json([item.to_dict() for item in (*skills, *shown)])
        return 0
    if skills or shown:
        _table(Screen(sys.stdout, colour), skills, shown, states=everything)
    sys.stdout.flush()
    tail = _summary(snapshot, len(broken), everything=everything, policy=satchel.settings.trust)
    Screen(sys.stderr, colour).line(tail)
    return 0


def _table(
    screen: Screen, skills: Sequence[Skill], broken: Sequence[Broken], *, states: bool
) -> None:
    # The id says where a skill lies; it is worth a column only where it is not the name.
    ids = any(skill.id != skill.name for skill in skills)
    head = ["", say("name"), say("source"), say("description")]
    if ids:
        head.insert(2, say("id"))
    if states:
        head.insert(1, say("state"))
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for skill in skills:
        mark, colour = STATES[skill.state]
        if skill.state == "active" and skill.head.problems and _grave(skill.head.problems):
            mark, colour = "▲", "yellow"
        row = [mark, one_line(skill.name), skill.source, one_line(skill.description)]
        dim = "dim" if skill.state in ("shadowed", "excluded") else ""
        style = [colour, dim or "bold", "dim", dim]
        if ids:
            row.insert(2, one_line(skill.id) if skill.id != skill.name else "")
            style.insert(2, "dim")
        if states:
            row.insert(1, say(skill.state))
            style.insert(1, colour)
        rows.append(row)
        styles.append(style)
    mark, colour = STATES["broken"]
    for item in broken:
        row = [mark, say("broken"), one_line(item.name), item.source]
        rows.append([*row[:3], *([""] if ids else []), row[3], one_line(item.problem.message)])
        styles.append([colour, colour, "bold", *(["dim"] if ids else []), "dim"])
    screen.table(head, rows, styles)


def _grave(problems: Iterable[Problem]) -> int:
    """How many are errors or warnings; notes are for `satchel doctor`."""
    return sum(PROBLEMS[problem.code].severity != "note" for problem in problems)


def _summary(snapshot: Snapshot, broken: int, *, everything: bool, policy: str) -> str:
    count = len(snapshot.skills)
    parts = [say("1 skill") if count == 1 else say("{count} skills", count=count)]
    untrusted = sum(skill.state == "untrusted" for skill in snapshot.hidden)
    hidden = len(snapshot.hidden) - untrusted
    if hidden and everything:
        parts.append(say("{count} hidden", count=hidden))
    elif hidden:
        parts.append(say("{count} hidden (`satchel list --all`)", count=hidden))
    if untrusted and policy == "none":
        parts.append(say("{count} not offered (`trust` is `none`)", count=untrusted))
    elif untrusted:
        parts.append(say("{count} not trusted yet (`satchel trust`)", count=untrusted))
    problems = sum(PROBLEMS[item.code].severity == "warning" for item in snapshot.problems)
    problems += sum(_grave(skill.head.problems) for skill in snapshot.skills if skill.head.problems)
    problems += sum(_grave(skill.head.problems) for skill in snapshot.hidden if skill.head.problems)
    if broken and problems:
        parts.append(say("{count} broken", count=broken))
    elif broken:
        parts.append(say("{count} broken (`satchel doctor`)", count=broken))
    if problems == 1:
        parts.append(say("1 problem (`satchel doctor`)"))
    elif problems:
        parts.append(say("{count} problems (`satchel doctor`)", count=problems))
    text = say(", ").join(parts)
    if not count and not snapshot.hidden and not broken:
        text += say("; ") + say("run `satchel init` to write a first one")
    return text
