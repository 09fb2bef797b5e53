"""The command `link`: skills in the folders of other agents."""

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
    from collections.abc import Collection, Mapping, Sequence

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
    "agent_names",
    metavar="AGENT",
    multiple=True,
    help=say("The agent, see `satchel link --list`; repeatable."),
)
@all_option(say("All skills."))
@scope_option
@flag_option("--remove", say("Remove it instead."))
@flag_option("--list", say("Show other agents and the skills that they see."), "listing")
def link(
    context: CliContext,
    name: str | None,
    agent_names: tuple[str, ...],
    everything: bool,
    scope: str,
    remove: bool,
    listing: bool,
    as_json: bool,
) -> int:
    if listing:
        return _print_agents(context, as_json=as_json)
    from satchel.store.agents import Links, agent_named

    satchel = context.satchel
    links = Links(satchel.settings, user=scope == "user", check=satchel.library.integrity.check)
    if not agent_names:
        raise missing("--agent")
    if remove and everything:
        raise cannot_combine("--all", "--remove")
    if (name is None) != everything:
        raise cannot_combine("NAME", "--all")
    agents = [agent_named(agent_name) for agent_name in agent_names]
    if remove and name is not None:
        results = [_unlink(context, links, name, agent) for agent in agents]
        return _print_results(context, results, links, as_json=as_json)
    if name is not None:
        skills = context.find(name)[:1]
    else:
        skills = [skill for skill in satchel.list_skills() if not skill.is_system]
    results = [
        _link(links, skill, agent, raises=name is not None) for agent in agents for skill in skills
    ]
    return _print_results(context, results, links, as_json=as_json)


def _link(links: Links, skill: Skill, agent: SkillAgent, *, raises: bool) -> LinkResult:
    """Link one skill; an error is a result unless `raises`."""
    from satchel.store.agents import LinkResult

    try:
        return links.link(skill, agent)
    except SatchelError as exc:
        if raises:
            raise
        return LinkResult(skill.name, agent.id, links.place(agent), "refused", exc.message)


def _unlink(context: CliContext, links: Links, name: str, agent: SkillAgent) -> LinkResult:
    """Remove the link of a skill, also of one that is gone."""
    skills = context.satchel.library.snapshot().find(name)
    folder = os.path.basename(links.target(skills[0], agent)) if skills else name
    return links.unlink(folder, agent, skills[0].base_dir if skills else "")


def _print_results(
    context: CliContext, results: Sequence[LinkResult], links: Links, *, as_json: bool
) -> int:
    has_failed = any(result.action == "refused" for result in results)
    if as_json:
        write_json({"user": links.user, "links": [result._asdict() for result in results]})
        return int(has_failed)
    labels = {
        "made": ("✓", "green", say("linked")),
        "removed": ("✓", "green", say("removed")),
        "kept": ("·", "dim", say("linked")),
        "seen": ("·", "dim", say("the agent sees it already")),
        "refused": ("✗", "red", say("left alone")),
    }
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for result in results:
        mark, style, text = labels[result.action]
        note = f" ({one_line(result.note)})" if result.note else ""
        location = one_line(short_path(result.path))
        rows.append([mark, one_line(result.skill), result.agent, text + note, location])
        styles.append([style, "bold", "", style])
    if rows:
        titles = ["", say("name"), say("agent"), say("what"), say("where")]
        context.out.table(titles, rows, styles)
    else:
        context.err.line(say("Nothing to do"))
    return int(has_failed)


def _print_agents(context: CliContext, *, as_json: bool) -> int:
    """Print the agents, those that are used here first, and the skills that they see."""
    from satchel.store.agents import all_agents, skills_of, user_home

    project, home = context.satchel.settings.project, user_home()
    used = [agent for agent in all_agents() if agent.is_here(project, home)]
    agents = [*used, *(agent for agent in all_agents() if agent not in used)]
    known: dict[str, dict[str, str]] = {}
    visible_skills = {agent.id: skills_of(agent, project, home, known) for agent in agents}
    if as_json:
        records = [
            {**agent._asdict(), "here": agent in used, "skills": visible_skills[agent.id]}
            for agent in agents
        ]
        write_json({"agents": records})
        return 0
    rows = [
        [
            agent.id,
            say("yes") if agent in used else say("no"),
            f"{len(visible_skills[agent.id]):,}",
            ", ".join([*agent.project, *(f"~/{folder}" for folder in agent.user)]),
        ]
        for agent in agents
    ]
    titles = [say("agent"), say("used here"), say("skills"), say("looks in")]
    styles = [["bold" if agent in used else "dim"] for agent in agents]
    context.out.table(titles, rows, styles)
    _warn_about_untrusted(context, visible_skills)
    return 0


def _warn_about_untrusted(
    context: CliContext, visible_skills: Mapping[str, Collection[str]]
) -> None:
    """Warn about untrusted skills that other agents see; the mapping has their names by agent."""
    skills = context.satchel.list_skills(hidden=True)
    untrusted = {skill.name for skill in skills if skill.state == "untrusted"}
    for agent_id, names in visible_skills.items():
        for name in untrusted.intersection(names):
            text = say("sees it although it is not trusted here")
            context.err.line(f"{one_line(name)}, {agent_id}{say(': ')}{text}", indent="  ")
