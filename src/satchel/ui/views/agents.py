"""Other agents that are used here: whether each has a skill, how, and what a switch would do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._language import say
from satchel.errors import Conflict
from satchel.tools.frame import printable

if TYPE_CHECKING:
    from satchel.facade import Satchel
    from satchel.skill.model import Skill
    from satchel.store.agents import Agent, Sight
    from satchel.store.links import Links

_KEPT_BACK = ("untrusted", "blocked")


class AgentRow(NamedTuple):
    """One agent and one skill."""

    id: str
    name: str
    has: bool
    mood: str
    mark: str
    words: str
    """How it has it."""
    place: str
    notes: tuple[str, ...]
    can: Literal["add", "remove", ""]
    """What a switch would do; empty when nothing can be done here."""
    fixed: str = ""
    """Why there is nothing to switch."""


class Agents(NamedTuple):
    """The agents that are used here and one skill."""

    rows: tuple[AgentRow, ...]
    user: bool
    """For all projects of the user, not only for this one."""
    has_home: bool
    offered: bool
    """Only a skill that is offered here can be put anywhere."""
    regardless: int = 0
    """How many may read it although it is not trusted or blocked: no setting of Satchel's reaches
    them."""


class Outcome(NamedTuple):
    """The outcome of a switch."""

    agent: str
    words: str
    mood: str
    hint: str = ""
    remove: bool = False
    """It was to be taken away."""
    undo: bool = False
    """The opposite switch brings back what was."""


def agents_of(satchel: Satchel, skill: Skill, *, user: bool = False) -> Agents:
    """The agents that are used here, and how each has a skill.

    Args:
        satchel: Whose skills.
        skill: Which one.
        user: Switches are for all projects of the user.
    """
    from satchel.store.agents import all_agents, sight_of, user_home

    project, home = satchel.settings.project, user_home()
    user = user and bool(home)
    links = _links(satchel, user=user)
    rows = tuple(
        _row(agent, sight_of(agent, project, home, skill), links, skill)
        for agent in all_agents()
        if agent.is_here(project, home)
    )
    regardless = sum(row.has for row in rows) if skill.state in _KEPT_BACK else 0
    return Agents(rows, user, bool(home), skill.state == "active", regardless)


def switch(satchel: Satchel, skill: Skill, agent_id: str, *, user: bool, on: bool) -> Outcome:
    """Put a skill where an agent looks, or take it away.

    Args:
        satchel: Whose skills.
        skill: Which one.
        agent_id: For whom.
        user: For all projects of the user.
        on: Put it there; else take it away.

    Raises:
        SatchelError: it cannot be done; what is in the way is an outcome.
    """
    from satchel.store.agents import agent_named

    agent = agent_named(agent_id)
    links = _links(satchel, user=user)
    try:
        if on:
            done = links.link(skill, agent)
        else:
            folder = os.path.basename(links.target(skill, agent))
            done = links.unlink(folder, agent, skill.base_dir)
    except Conflict as exc:
        return Outcome(agent.id, exc.message, "warn", exc.hint, remove=not on)
    words = {
        "made": say("{agent} has it now, by a link", agent=agent.name),
        "kept": say("{agent} had it already", agent=agent.name),
        "seen": say("{agent} looks into its own folder, and sees it there", agent=agent.name),
        "removed": say("{agent} has it no more", agent=agent.name),
    }[done.action]
    undo = done.action in ("made", "removed")
    return Outcome(agent.id, words, "good", remove=done.action == "removed", undo=undo)


def _links(satchel: Satchel, *, user: bool) -> Links:
    from satchel.store.links import Links

    return Links(satchel.settings, user=user, check=satchel.library.seals.check)


def _row(agent: Agent, sight: Sight, links: Links, skill: Skill) -> AgentRow:
    has = sight.view in ("sees", "perhaps") and sight.kind != "other"
    notes = [printable(sight.why)] if sight.why else []
    mood, mark = {
        "sees": ("good", "●"),
        "perhaps": ("warn", "◐"),
        "hidden": ("bad", "✗"),
        "absent": ("plain", "○"),
    }[sight.view]
    if has and skill.state in _KEPT_BACK:
        notes.append(say("reads it although it is not offered here"))
    if sight.kind == "other" or (has and skill.state in _KEPT_BACK):
        mood, mark = "warn", "▲"
    words = {
        "itself": say("looks into its own folder"),
        "link": say("by a link"),
        "other": say("has another one of that name"),
        "": say("not there"),
    }[sight.kind]
    offered = skill.state == "active"
    can: Literal["add", "remove", ""] = ""
    if sight.kind == "link" and sight.path == links.target(skill, agent):
        can = "remove"
    elif not has and offered and not skill.origin.remote:
        can = "add"
    place = printable(sight.place) or (f"~/{agent.user[0]}" if links.user else agent.project[0])
    fixed = "" if can else _why_fixed(skill, has=has, offered=offered)
    return AgentRow(agent.id, agent.name, has, mood, mark, words, place, tuple(notes), can, fixed)


def _why_fixed(skill: Skill, *, has: bool, offered: bool) -> str:
    if has:
        return say("It finds the skill by itself")
    if not offered:
        return say("It is not offered here")
    return say("It lies on a server") if skill.origin.remote else ""
