"""Which agent sees which skill, and if not, why?

Looks into the folders that agents look into, with what is known of how each of them does it
(`agents.toml`). It starts no agent: what an agent really does is for the agent to say.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._language import say
from satchel.errors import SatchelError
from satchel.library.seal import clean_seal, tree_of
from satchel.skill.tree import FolderTree
from satchel.store.agents import all_agents

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.skill.model import Skill
    from satchel.store.agents import Agent, Place

View = Literal["sees", "perhaps", "hidden", "absent"]
Kind = Literal["itself", "link", "copy", "other", ""]
"""What the agent has: the skill's own folder, a link to it, the same files, or something else of
the same name. Empty for what Satchel does not know."""
_BEST: tuple[View, ...] = ("sees", "perhaps", "hidden", "absent")


class Hindrance(NamedTuple):
    """What keeps an agent from a skill that is there, or from a part of it."""

    code: Literal["nested", "link", "name", "description", "cut"]
    text: str
    hides: bool = True
    """False: only perhaps, or only in part."""


class Sight(NamedTuple):
    """One skill, as one agent has it."""

    view: View
    place: str = ""
    """The folder of the agent's that it is in."""
    path: str = ""
    kind: Kind = ""
    why: str = ""
    """What keeps the agent from it, or from a part of it."""


class Row(NamedTuple):
    """One skill and all agents."""

    name: str
    state: str
    """As Satchel has it: `active`, `untrusted`, …; empty when it does not know the skill."""
    cells: dict[str, Sight]
    """By the agent's id."""


class Matrix(NamedTuple):
    """All skills and all agents."""

    agents: tuple[Agent, ...]
    here: frozenset[str]
    """Agents that seem to be used in this project or by this user."""
    rows: tuple[Row, ...]


class _Entry(NamedTuple):
    """A skill in a folder of an agent's."""

    folder: str
    """Relative to the place."""
    name: str
    description: str
    real: str
    path: str
    link: bool


def visibility(
    project: str, home: str, skills: Iterable[Skill], agents: Sequence[Agent] | None = None
) -> Matrix:
    """Which agent sees which skill.

    Args:
        project: The project's folder.
        home: The user's; empty when there is none.
        skills: What Satchel knows, hidden ones included.
        agents: Whom to ask about; everybody on the list when None.
    """
    asked = all_agents() if agents is None else tuple(agents)
    contents: dict[str, list[_Entry]] = {}
    known: dict[str, Skill] = {}
    for skill in skills:
        known.setdefault(skill.name, skill)
        if skill.state == "active":
            known[skill.name] = skill
    cells: dict[str, dict[str, Sight]] = {name: {} for name in known}
    for agent in asked:
        for place in agent.places(project, home):
            if place.path not in contents:
                contents[place.path] = _look_into(place.path)
            for entry in contents[place.path]:
                mine = cells.setdefault(entry.name, {})
                sight = _sight(agent, place, entry, known.get(entry.name))
                before = mine.get(agent.id)
                if before is None or _BEST.index(sight.view) < _BEST.index(before.view):
                    mine[agent.id] = sight
    rows = tuple(
        Row(
            name,
            known[name].state if name in known else "",
            {agent.id: mine.get(agent.id) or Sight("absent") for agent in asked},
        )
        for name, mine in sorted(cells.items())
    )
    here = frozenset(agent.id for agent in asked if agent.is_here(project, home))
    return Matrix(asked, here, rows)


def hindrance(
    agent: Agent, folder: str, name: str, description: str, *, link: bool
) -> Hindrance | None:
    """What keeps an agent from a skill in `folder`, relative to where the agent looks."""
    if "/" in folder and not agent.nested:
        return Hindrance("nested", say("it lies in a folder within a folder"))
    if agent.same_name and os.path.basename(folder) != name:
        return Hindrance("name", say("its folder is not called `{name}`", name=name))
    if agent.limit and len(description) > agent.limit:
        if agent.long == "refused":
            text = say("its description is longer than {count} characters", count=agent.limit)
            return Hindrance("description", text)
        text = say("its description is cut after {count} characters", count=agent.limit)
        return Hindrance("cut", text, hides=False)
    if link and agent.links != "yes":
        return Hindrance("link", say("it is a link, which may not be followed"), hides=False)
    return None


def _sight(agent: Agent, place: Place, entry: _Entry, skill: Skill | None) -> Sight:
    why = hindrance(agent, entry.folder, entry.name, entry.description, link=entry.link)
    view: View = "sees"
    if why is not None:
        view = "hidden" if why.hides else "sees" if why.code == "cut" else "perhaps"
    kind = _kind(entry, skill) if skill is not None else ""
    return Sight(view, place.label, entry.path, kind, why.text if why else "")


def _kind(entry: _Entry, skill: Skill) -> Kind:
    if entry.real == os.path.realpath(skill.base_dir):
        return "link" if entry.link else "itself"
    mine = digest_of_skill(skill)
    return "copy" if mine and mine == digest_of_folder(entry.path) else "other"


def digest_of_skill(skill: Skill) -> str:
    """The digest of what is a skill, without what running it left; empty when it is unreadable."""
    try:
        return clean_seal(tree_of(skill)).digest
    except (SatchelError, OSError):
        return ""


def digest_of_folder(folder: str) -> str:
    """The same of a copy, all of which is the skill."""
    try:
        return clean_seal(FolderTree(folder)).digest
    except (SatchelError, OSError):
        return ""


def _look_into(path: str) -> list[_Entry]:
    """The skills in a folder, read as Satchel reads them; nothing of it is offered to anybody."""
    from satchel.library import Library, Location

    if not os.path.isdir(path):
        return []
    snapshot = Library([Location(path, trusted=True)]).snapshot()
    found: list[_Entry] = []
    for skill in (*snapshot.skills, *snapshot.hidden):
        first = os.path.join(path, skill.head.id.partition("/")[0])
        found.append(
            _Entry(
                skill.head.id,
                skill.name,
                skill.description,
                os.path.realpath(skill.base_dir),
                skill.base_dir,
                os.path.islink(first) or os.path.islink(skill.base_dir),
            )
        )
    return found
