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
_MANY = 300
"""Folders in one place from which on not all of them are read for the sake of one skill."""


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


def sights(
    project: str,
    home: str,
    skill: Skill,
    namesakes: Iterable[Skill],
    roots: Iterable[str],
    agents: Sequence[Agent] | None = None,
) -> dict[str, Sight]:
    """How every agent has one skill, by the agent's id. The number of other skills costs nothing.

    Args:
        project: The project's folder.
        home: The user's; empty when there is none.
        skill: Which one.
        namesakes: What Satchel knows by its name, hidden ones included.
        roots: The folders that Satchel has read: nothing is read there again.
        agents: Whom to ask about; everybody on the list when None.
    """
    read = {os.path.realpath(root) for root in roots}
    mine = [one for one in namesakes if one.name == skill.name]
    contents: dict[str, tuple[list[_Entry], str]] = {}
    kinds: dict[str, Kind] = {}
    found: dict[str, Sight] = {}
    for agent in all_agents() if agents is None else agents:
        best = Sight("absent")
        for place in agent.places(project, home):
            if place.path not in contents:
                real = os.path.realpath(place.path)
                contents[place.path] = (
                    ([_entry(place.path, one) for one in mine if _root(one) == real], "")
                    if real in read
                    else _look_for(place.path, skill)
                )
            entries, partly = contents[place.path]
            if partly and best.view == "absent":
                best = best._replace(why=partly)
            for entry in entries:
                if entry.path not in kinds:
                    kinds[entry.path] = _kind(entry, skill)
                sight = _sight(agent, place, entry, None)._replace(kind=kinds[entry.path])
                # Which of two an agent takes is not known: its own folder is what we look for.
                rank = (_BEST.index(sight.view), sight.kind == "other")
                if rank < (_BEST.index(best.view), best.kind == "other"):
                    best = sight
        found[agent.id] = best
    return found


def _root(skill: Skill) -> str:
    return os.path.realpath(skill.origin.root)


def _look_for(path: str, skill: Skill) -> tuple[list[_Entry], str]:
    """What is called as a skill in a folder, and what there is to say about the look."""
    from satchel.library import Library, Location

    try:
        with os.scandir(path) as rows:
            many = any(at >= _MANY for at, _ in enumerate(rows))
    except OSError:
        return [], ""
    if not many:
        return [one for one in _look_into(path) if one.name == skill.name], ""
    found: list[_Entry] = []
    for folder in dict.fromkeys((skill.name, os.path.basename(skill.base_dir))):
        whole = os.path.join(path, folder)
        if os.path.dirname(os.path.normpath(whole)) != path or not os.path.isdir(whole):
            continue
        snapshot = Library([Location(whole, trusted=True, single=True)]).snapshot()
        every = (*snapshot.skills, *snapshot.hidden)
        same = (one for one in every if one.name == skill.name)
        found.extend(_entry(path, one)._replace(folder=folder) for one in same)
    return found, say("many skills are there: only folders of its name were looked into")


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
    return [_entry(path, skill) for skill in (*snapshot.skills, *snapshot.hidden)]


def _entry(path: str, skill: Skill) -> _Entry:
    first = os.path.join(path, skill.head.id.partition("/")[0])
    return _Entry(
        skill.head.id,
        skill.name,
        skill.description,
        os.path.realpath(skill.base_dir),
        skill.base_dir,
        os.path.islink(first) or os.path.islink(skill.base_dir),
    )
