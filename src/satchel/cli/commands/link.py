"""The commands `link` and `agents`: skills in the folders of other agents."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from satchel.cli.console import one_line, write_json
from satchel.cli.context import command, short_path, skill_argument
from satchel.cli.options import all_option, cannot_combine, flag_option, missing
from satchel.cli.plan_prompt import scope_option
from satchel.errors import SatchelError
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.context import CliContext
    from satchel.skill.model import Skill
    from satchel.store.agents import LinkResult, Links, SkillAgent


@command(
    say("Link skills into another agent's folder."),
    "satchel link code-review --agent claude-code",
    "satchel link --all --agent claude-code --agent copilot",
    "satchel link code-review --agent claude-code --remove",
)
@skill_argument(required=False)
@click.option(
    "--agent",
    "agents_",
    metavar="AGENT",
    multiple=True,
    help=say("The agent, see `satchel agents --all`; repeatable."),
)
@all_option(say("All skills."))
@scope_option
@flag_option("--remove", say("Remove it instead."))
def link(
    context: CliContext,
    name: str | None,
    agents_: tuple[str, ...],
    everything: bool,
    scope: str,
    remove: bool,
    as_json: bool,
) -> int:
    from satchel.store.agents import Links, agent_named

    satchel = context.satchel
    links = Links(satchel.settings, user=scope == "user", check=satchel.library.integrity.check)
    if not agents_:
        raise missing("--agent")
    if remove and everything:
        raise cannot_combine("--all", "--remove")
    if (name is None) != everything:
        raise cannot_combine("NAME", "--all")
    chosen = [agent_named(one) for one in agents_]
    if remove and name is not None:
        done = [_unlink(context, links, name, agent) for agent in chosen]
        return _report(context, done, links, as_json=as_json)
    every = satchel.list_skills() if name is None else context.find(name)[:1]
    skills = [one for one in every if name is not None or not one.is_system]
    done = [
        _link(links, skill, agent, alone=name is not None) for agent in chosen for skill in skills
    ]
    return _report(context, done, links, as_json=as_json)


def _link(links: Links, skill: Skill, agent: SkillAgent, *, alone: bool) -> LinkResult:
    """Link one skill; an error is a result unless it is the only skill."""
    from satchel.store.agents import LinkResult

    try:
        return links.link(skill, agent)
    except SatchelError as exc:
        if alone:
            raise
        return LinkResult(skill.name, agent.id, links.place(agent), "refused", exc.message)


def _unlink(context: CliContext, links: Links, name: str, agent: SkillAgent) -> LinkResult:
    """Remove the link of a skill, also of one that is gone."""
    found = context.satchel.library.snapshot().find(name)
    folder = os.path.basename(links.target(found[0], agent)) if found else name
    return links.unlink(folder, agent, found[0].base_dir if found else "")


def _report(context: CliContext, done: Sequence[LinkResult], links: Links, *, as_json: bool) -> int:
    failed = any(one.action == "refused" for one in done)
    if as_json:
        write_json({"user": links.user, "links": [one._asdict() for one in done]})
        return int(failed)
    words = {
        "made": ("✓", "green", say("linked")),
        "removed": ("✓", "green", say("removed")),
        "kept": ("·", "dim", say("linked")),
        "seen": ("·", "dim", say("the agent sees it already")),
        "refused": ("✗", "red", say("left alone")),
    }
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for one in done:
        mark, style, text = words[one.action]
        note = f" ({one_line(one.note)})" if one.note else ""
        where = one_line(short_path(one.path))
        rows.append([mark, one_line(one.skill), one.agent, text + note, where])
        styles.append([style, "bold", "", style])
    if rows:
        head = ["", say("name"), say("agent"), say("what"), say("where")]
        context.out.table(head, rows, styles)
    else:
        context.err.line(say("Nothing to do"))
    return int(failed)


@command(
    say("Show other agents and the skills that they see."),
    "satchel agents",
    "satchel agents --all",
)
@all_option(say("Also agents that are not used here."))
def agents(context: CliContext, everything: bool, as_json: bool) -> int:
    from satchel.store.agents import all_agents, skills_of, user_home

    satchel, home = context.satchel, user_home()
    project = satchel.settings.project
    here = {agent.id for agent in all_agents() if agent.is_here(project, home)}
    shown = [agent for agent in all_agents() if everything or agent.id in here]
    seen = {agent.id: skills_of(agent, project, home) for agent in shown}
    if as_json:
        write_json({
            "agents": [
                {
                    **agent._asdict(),
                    "here": agent.id in here,
                    "skills": seen[agent.id],
                }
                for agent in shown
            ]
        })  # fmt: skip
        return 0
    if not shown:
        context.err.line(say("No other agent is used here"))
        context.err.line(say("Run `{command}`", command="satchel agents --all"), "", "→ ")
        return 0
    rows: list[list[str]] = []
    for agent in shown:
        places = [*agent.project, *(f"~/{item}" for item in agent.user)]
        used = say("yes") if agent.id in here else say("no")
        rows.append([agent.id, used, f"{len(seen[agent.id]):,}", ", ".join(places)])
    head = [say("agent"), say("used here"), say("skills"), say("looks in")]
    context.out.table(head, rows, [["bold" if row[0] in here else "dim"] for row in rows])
    untrusted = {one.name for one in satchel.list_skills(hidden=True) if one.state == "untrusted"}
    for agent in shown:
        for name in untrusted & set(seen[agent.id]):
            text = say("sees it although it is not trusted here")
            context.err.line(f"{one_line(name)}, {agent.id}{say(': ')}{text}", "", "  ")
    context.err.line(say("Run `{command}`", command="satchel link NAME --agent AGENT"), "", "→ ")
    return 0
