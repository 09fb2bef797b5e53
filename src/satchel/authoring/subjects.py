"""Which skills have trigger tests, and can their prompts be run?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel._language import say
from satchel.authoring.triggers import strangers
from satchel.skill.problems import Problem
from satchel.skill.triggers import has_triggers, load_triggers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.skill import Skill
    from satchel.skill.triggers import Triggers

    Subject = tuple[Skill, Triggers]

OTHERS = ("builtin", "system", "global")
"""Places whose skills are not the project's."""
_NEAR = 0.6
"""How alike two names are, one of which may be a slip for the other."""


def subjects(skills: Iterable[Skill], *, everything: bool = False) -> list[Subject]:
    """The skills that a prompt can choose and that have a file with prompts.

    Args:
        skills: All that is known.
        everything: Also those that are not the project's.
    """
    every = [
        skill
        for skill in skills
        if (everything or skill.source not in OTHERS)
        and skill.for_model
        and not skill.is_tool
        and skill.state in ("active", "untrusted")
        and not skill.origin.remote
        and has_triggers(skill.base_dir)
    ]
    read = [(skill, load_triggers(skill.base_dir)) for skill in every]
    return [(skill, triggers) for skill, triggers in read if triggers is not None]


def with_known_names(found: Sequence[Subject], skills: Iterable[Skill]) -> list[Subject]:
    """The same, where an `instead` that names nobody is a problem of its file.

    Args:
        found: Skills with their prompts.
        skills: All that is known.
    """
    from difflib import get_close_matches

    names = {skill.name for skill in skills}
    names.update(skill.name for skill, _ in found)
    checked: list[Subject] = []
    for skill, triggers in found:
        problems = list(triggers.problems)
        for prompt in strangers(triggers.prompts, names):
            near = get_close_matches(prompt.instead, sorted(names), 1, cutoff=_NEAR)
            better = f"`{near[0]}`" if near else say("a name that `satchel list` shows")
            values = {"name": prompt.instead, "better": better}
            problem = Problem("triggers-instead", triggers.path, prompt.line, values=values)
            problems.append(problem)
        problems.sort(key=lambda problem: problem.line)
        checked.append((skill, triggers._replace(problems=tuple(problems))))
    return checked
