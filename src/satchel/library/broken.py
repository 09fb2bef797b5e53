"""Which files should be skills and are none? What every list of everything shows beside skills."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import is_inside
from satchel.skill.problems import PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.library.locations import Location
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


def find_broken(problems: Sequence[Problem], locations: Iterable[Location]) -> list[Broken]:
    """What is not listed because it cannot be read as a skill, in the order it was found."""
    if not problems:
        return []
    errors: dict[str, Problem] = {}
    for problem in problems:
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
