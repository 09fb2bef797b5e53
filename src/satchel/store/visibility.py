"""The skills that another agent sees, and what hides a skill from it.

Looks into the folders that agents look into, with what is known of how each of them does it
(`agents.toml`). No agent is started.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._language import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.skill.model import Skill
    from satchel.store.agents import Agent, Place

View = Literal["sees", "perhaps", "hidden", "absent"]
_BEST: tuple[View, ...] = ("sees", "perhaps", "hidden", "absent")


class Sight(NamedTuple):
    """One skill, as one agent has it."""

    view: View
    place: str = ""
    """The folder of the agent's that it is in."""
    path: str = ""
    kind: Literal["itself", "link", "other", ""] = ""
    """The skill's own folder, a link to it, or something else of the same name."""
    why: str = ""
    """What keeps the agent from it, or from a part of it."""


def sight_of(
    agent: Agent, project: str, home: str, skill: Skill, *, user: bool | None = None
) -> Sight:
    """How an agent has one skill. The number of other skills costs nothing.

    Args:
        agent: Which agent.
        project: The project's folder.
        home: The user's; empty when there is none.
        skill: Which skill.
        user: Only the folders of the user, or only those of the project; both when None.
    """
    best = Sight("absent")
    for place in agent.places(project, home):
        if user is not None and place.user is not user:
            continue
        for sight in _sights_in(agent, place, skill):
            rank = (_BEST.index(sight.view), sight.kind == "other")
            if rank < (_BEST.index(best.view), best.kind == "other"):
                best = sight
    return best


def _sights_in(agent: Agent, place: Place, skill: Skill) -> Iterator[Sight]:
    real, own = os.path.realpath(place.path), os.path.realpath(skill.base_dir)
    if own.startswith(real + os.sep):
        folder = os.path.relpath(own, real).replace(os.sep, "/")
        view, why = _hindrance(agent, folder, skill, link=False)
        yield Sight(view, place.label, os.path.join(place.path, folder), "itself", why)
    for name in {skill.name, os.path.basename(skill.base_dir)}:
        path = os.path.join(place.path, name)
        if os.path.dirname(os.path.normpath(path)) != place.path or not os.path.isdir(path):
            continue
        if os.path.realpath(path) == own:
            if os.path.islink(path):
                view, why = _hindrance(agent, name, skill, link=True)
                yield Sight(view, place.label, path, "link", why)
        elif name == skill.name and os.path.isfile(os.path.join(path, "SKILL.md")):
            yield Sight("sees", place.label, path, "other")


def skills_of(agent: Agent, project: str, home: str) -> dict[str, Sight]:
    """Every skill in the folders of an agent, by name, and whether it is seen."""
    from satchel.library import Library, Location

    found: dict[str, Sight] = {}
    for place in agent.places(project, home):
        if not os.path.isdir(place.path):
            continue
        snapshot = Library([Location(place.path, trusted=True)]).snapshot()
        for skill in (*snapshot.skills, *snapshot.hidden):
            first = os.path.join(place.path, skill.head.id.partition("/")[0])
            link = os.path.islink(first) or os.path.islink(skill.base_dir)
            view, why = _hindrance(agent, skill.head.id, skill, link=link)
            before = found.get(skill.name)
            if before is None or _BEST.index(view) < _BEST.index(before.view):
                found[skill.name] = Sight(view, place.label, skill.base_dir, why=why)
    return found


def _hindrance(agent: Agent, folder: str, skill: Skill, *, link: bool) -> tuple[View, str]:
    """What keeps an agent from a skill in `folder`, relative to where the agent looks."""
    if "/" in folder and not agent.nested:
        return "hidden", say("it lies in a folder within a folder")
    if agent.same_name and os.path.basename(folder) != skill.name:
        return "hidden", say("its folder is not called `{name}`", name=skill.name)
    if agent.limit and len(skill.description) > agent.limit:
        if agent.long == "refused":
            return "hidden", say(
                "its description is longer than {count} characters", count=agent.limit
            )
        return "sees", say("its description is cut after {count} characters", count=agent.limit)
    if link and agent.links != "yes":
        return "perhaps", say("it is a link, which may not be followed")
    return "sees", ""
