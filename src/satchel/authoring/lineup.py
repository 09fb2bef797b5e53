"""Among whom must a skill be found? The offered ones, with the author's own in its place.

An author tests a skill before anybody trusts or installs it. So it stands in the line-up whatever
its state is, instead of the one that has its name now. Nothing of it is run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.errors import InvalidInput, NotFound, SkillBroken
from satchel.skill.load import load_document
from satchel.skill.model import Origin, Skill
from satchel.skill.tree import skill_file

if TYPE_CHECKING:
    from collections.abc import Sequence


def skill_at(folder: str) -> Skill:
    """The skill of a folder that no library knows.

    Raises:
        NotFound: it has no SKILL.md.
        SkillBroken: that is not a skill.
    """
    folder = os.path.abspath(folder)
    try:
        file = skill_file(os.listdir(folder))
    except OSError:
        file = ""
    if not file:
        raise NotFound(
            say("There is no SKILL.md in `{path}`", path=folder),
            say("Give the folder of a skill, or write one with `satchel new`"),
        )
    document = load_document(folder, file)
    if document.head is None:
        first = next(one for one in document.problems if one.severity == "error")
        raise SkillBroken(
            say(
                "`{name}` is not a skill yet: {problem}",
                name=os.path.basename(folder),
                problem=first.message,
            ),
            first.fix,
        )
    origin = Origin(os.path.dirname(folder), "extra", os.path.dirname(folder))
    return Skill(document.head, origin)


def line_up(offered: Sequence[Skill], skill: Skill) -> tuple[Skill, ...]:
    """The offered skills with this one among them, instead of those that have its name.

    Raises:
        InvalidInput: no words ever choose it.
    """
    if skill.is_tool:
        raise InvalidInput(
            say("`{name}` has tools and no instructions to choose", name=skill.name),
            say("Run its examples: `satchel test {name}`", name=skill.typed),
        )
    if not skill.for_model:
        raise InvalidInput(
            say("`{name}` is chosen by people alone: `disable-model-invocation`", name=skill.name),
            say("Remove that line from its SKILL.md to have models choose it"),
        )
    if any(one is skill for one in offered):
        return tuple(offered)
    active = skill._replace(state="active", winner="")
    others = (one for one in offered if one.name != skill.name and one.path != skill.path)
    return (*others, active)
