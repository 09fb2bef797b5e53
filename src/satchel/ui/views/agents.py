"""Other agents that are used here: whether each has a skill, how, and what a switch would do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._language import say
from satchel.errors import AccessDenied, Conflict
from satchel.tools.frame import printable

if TYPE_CHECKING:
    from satchel.facade import Satchel
    from satchel.skill.model import Skill
    from satchel.store.agents import Agent
    from satchel.store.link_book import Record
    from satchel.store.links import Done, Links
    from satchel.store.visibility import Sight

Can = Literal["add", "remove", ""]


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
    can: Can
    """What a switch would do; empty when nothing can be done here."""
    fixed: str = ""
    """Why there is nothing to switch."""


class Agents(NamedTuple):
    """The agents used here, and one skill."""

    rows: tuple[AgentRow, ...]
    user: bool
    """For all projects of the user, not only for this one."""
    has_home: bool
    offered: bool
    """Only a skill that is offered here can be put anywhere."""
    regardless: int = 0
    """How many may read it although it is not trusted: no setting of Satchel's reaches them."""
    trouble: str = ""
    """Why nothing can be said or switched here."""
    hint: str = ""


class Outcome(NamedTuple):
    """What became of a switch."""

    agent: str
    words: str
    mood: str
    hint: str = ""
    can_replace: bool = False
    """Something of somebody else's is in the way: whoever says so replaces it, and it is kept."""
    remove: bool = False
    """It was to be taken away."""
    undo: bool = False
    """The opposite switch brings back what was."""


def agents_of(satchel: Satchel, skill: Skill, *, user: bool = False) -> Agents:
    """The agents that are used here or that Satchel gave the skill to, and how each has it.

    Args:
        satchel: Whose skills.
        skill: Which one.
        user: Switches are for all projects of the user.
    """
    from satchel.store.agents import all_agents, user_home
    from satchel.store.visibility import digest_of_skill, sights

    library, project, home = satchel.library, satchel.settings.project, user_home()
    user = user and bool(home)
    namesakes = library.named(skill.head.name)
    roots = [one.path for one in library.locations if not one.single and not one.origin.remote]
    seen = sights(project, home, skill, namesakes, roots)
    offered = skill.state == "active"
    try:
        links = _links(satchel, user=user)
    except AccessDenied as exc:  # the rest of the page has nothing to do with it
        return Agents((), user, bool(home), offered, 0, exc.message, exc.hint)
    records = {record.agent: record for record in links.records().values()
               if record.skill == skill.name}  # fmt: skip
    tree = digest_of_skill(skill) if records else ""
    rows: list[AgentRow] = []
    for agent in all_agents():
        record = records.get(agent.id)
        if record is None and not agent.is_here(project, home):
            continue
        state = links.state(record, tree) if record is not None else ""
        rows.append(_row(agent, seen[agent.id], record, state, links, skill, offered=offered))
    regardless = sum(row.has for row in rows) if skill.state == "untrusted" else 0
    return Agents(tuple(rows), user, bool(home), offered, regardless)


def switch(
    satchel: Satchel, skill: Skill, agent_id: str, *, user: bool, on: bool, replace: bool
) -> Outcome:
    """Put a skill where an agent looks, or take it away.

    Args:
        satchel: Whose skills.
        skill: Which one.
        agent_id: For whom.
        user: For all projects of the user.
        on: Put it there; else take it away.
        replace: Also replace what Satchel did not make; it is kept.

    Raises:
        SatchelError: it cannot be done; what is in the way is an outcome.
    """
    from satchel.store.agents import agent_named

    agent = agent_named(agent_id)
    links = _links(satchel, user=user)
    try:
        if on:
            done = links.link(skill, agent, replace=replace)
        else:
            folder = os.path.basename(links.target(skill, agent))
            done = links.unlink(folder, agent, skill.base_dir, replace=replace)
    except Conflict as exc:
        path = os.path.relpath(links.target(skill, agent), links.base)
        known = path in links.records()
        hint = say("What is there now is kept in the work area when you replace it")
        return Outcome(agent.id, exc.message, "warn", hint, on or known, not on)
    return _told(done, agent, replaced=done.action == "replaced")


def _links(satchel: Satchel, *, user: bool) -> Links:
    from satchel.store.links import Links

    return Links(satchel.settings, user=user, check=satchel.library.seals.check)


def _told(done: Done, agent: Agent, *, replaced: bool) -> Outcome:
    words = {
        "made": say("{agent} has it now, by a link", agent=agent.name)
        if done.how == "symlink"
        else say("{agent} has a copy of it now", agent=agent.name),
        "replaced": say("{agent} has it now instead of what was there", agent=agent.name),
        "refreshed": say("What {agent} has was brought up to date", agent=agent.name),
        "kept": say("{agent} had it already", agent=agent.name),
        "seen": say("{agent} looks into its own folder, and sees it there", agent=agent.name),
        "removed": say("{agent} has it no more", agent=agent.name),
    }[done.action]
    hint = ""
    if done.note:
        hint = say("What was there is kept in {path}", path=printable(done.note))
    undo = done.action in ("made", "removed") and not done.note and not replaced
    return Outcome(agent.id, words, "good", hint, remove=done.action == "removed", undo=undo)


def _row(
    agent: Agent,
    sight: Sight,
    record: Record | None,
    state: str,
    links: Links,
    skill: Skill,
    *,
    offered: bool,
) -> AgentRow:
    has = sight.view in ("sees", "perhaps") and sight.kind != "other"
    notes = [printable(sight.why)] if sight.why else []
    if has and skill.state == "untrusted":
        notes.append(say("reads it although you have not trusted it"))
    notes += _state_notes(state)
    if state == "old":  # an older copy of ours is another one only because it is older
        has = sight.view in ("sees", "perhaps")
    mood, mark = {
        "sees": ("good", "●"),
        "perhaps": ("warn", "◐"),
        "hidden": ("bad", "✗"),
        "absent": ("plain", "○"),
    }[sight.view]
    if (sight.kind == "other" and state != "old") or (has and skill.state == "untrusted"):
        mood, mark = "warn", "▲"
    can = _can(sight, record, state, links, skill, agent, offered=offered)
    return AgentRow(
        agent.id,
        agent.name,
        has,
        mood,
        mark,
        _how(sight, record, state),
        printable(sight.place) or _target(links, agent),
        tuple(notes),
        can,
        "" if can else _why_fixed(skill, has=has, offered=offered),
    )


def _why_fixed(skill: Skill, *, has: bool, offered: bool) -> str:
    if has:
        return say("It finds the skill by itself")
    if not offered:
        return say("It is not offered here")
    return say("It lies on a server") if skill.origin.remote else ""


def _how(sight: Sight, record: Record | None, state: str) -> str:
    if sight.view == "absent":
        return say("not there")
    if state == "old" or (record is not None and record.how == "copy" and sight.kind == "copy"):
        return say("by a copy that Satchel made")
    return {
        "itself": say("looks into its own folder"),
        "link": say("by a link"),
        "copy": say("by a copy"),
        "other": say("has another one of that name"),
        "": say("has one of that name"),
    }[sight.kind]


def _state_notes(state: str) -> list[str]:
    words = {
        "old": say("the copy is older than the skill"),
        "edited": say("what Satchel put there was changed"),
        "gone": say("what Satchel put there is gone"),
    }
    return [words[state]] if state in words else []


def _can(
    sight: Sight,
    record: Record | None,
    state: str,
    links: Links,
    skill: Skill,
    agent: Agent,
    *,
    offered: bool,
) -> Can:
    if record is not None and state in ("old", "current", "edited"):
        return "remove"
    target = links.target(skill, agent)
    if sight.kind == "link" and sight.path == target:
        return "remove"  # a link to it that somebody else made leads to the same place
    if sight.view in ("sees", "perhaps") and sight.kind in ("itself", "link", "copy"):
        return ""
    return "add" if offered and not skill.origin.remote else ""


def _target(links: Links, agent: Agent) -> str:
    folder = agent.user[0] if links.user else agent.project[0]
    return f"~/{folder}" if links.user else folder
