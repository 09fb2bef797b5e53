"""Which skills do other agents have? link, agents."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from satchel._language import listed, say
from satchel.cli.output import one_line, width_of, write_json
from satchel.cli.session import command, complete_names, short_path
from satchel.cli.values import help_hint
from satchel.errors import InvalidInput, SatchelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

    from satchel.cli.output import Screen
    from satchel.cli.session import Session
    from satchel.skill.model import Skill
    from satchel.store.agents import Agent
    from satchel.store.link_book import How, LinkBook
    from satchel.store.links import Done, Links
    from satchel.store.visibility import Matrix, Row, Sight

_VIEWS = {
    "sees": ("●", "green"),
    "perhaps": ("◐", "yellow"),
    "hidden": ("✗", "red"),
    "absent": ("·", "dim"),
}


def _complete_agents(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from satchel.store.agents import all_agents

    return [
        CompletionItem(agent.id, help=agent.name)
        for agent in all_agents()
        if agent.id.startswith(incomplete)
    ]


# --- link ---------------------------------------------------------------------------------


@command(
    say("Put a skill where another agent looks for skills, or take it away again.")
    + "\n\n"
    + say(
        "By a symbolic link where the agent is known to follow one, else by a copy. Only skills "
        "that are offered here can be linked, and nothing is replaced that Satchel did not make."
    ),
    "satchel link code-review --agent claude-code",
    "satchel link --all --agent claude-code --agent copilot",
    "satchel link code-review --agent claude-code --remove",
    "satchel link --refresh",
)
@click.argument("name", required=False, shell_complete=complete_names)
@click.option(
    "--agent",
    "agents_",
    metavar="AGENT",
    multiple=True,
    shell_complete=_complete_agents,
    help=say("For whom: `satchel agents --all` lists them. May be given several times."),
)
@click.option("--all", "everything", is_flag=True, help=say("All skills that are offered here."))
@click.option("--copy", "how", flag_value="copy", help=say("Copy, whatever the agent follows."))
@click.option(
    "--symlink", "how", flag_value="symlink", help=say("Link, whatever the agent follows.")
)
@click.option("--user", is_flag=True, help=say("For all your projects, not only for this one."))
@click.option("--remove", is_flag=True, help=say("Take away what Satchel put there."))
@click.option(
    "--refresh", "again", is_flag=True, help=say("Bring copies up to date that are older.")
)
@click.option(
    "--yes", is_flag=True, help=say("Also replace what Satchel did not make; it is kept.")
)
def link(
    session: Session,
    name: str | None,
    agents_: tuple[str, ...],
    everything: bool,
    how: How | None,
    user: bool,
    remove: bool,
    again: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """One line a skill and agent; 1 when something was left alone that should have changed."""
    from satchel.store.agents import agent_named
    from satchel.store.links import Links

    satchel = session.satchel
    links = Links(satchel.settings, user=user, check=satchel.library.seals.check)
    if again:
        snapshot = satchel.library.snapshot()
        return _report(session, links.refresh(snapshot.get), links, as_json=as_json)
    if not agents_:
        raise InvalidInput(say("`{name}` is missing", name="--agent"), _hint())
    if (name is None) != everything:
        raise InvalidInput(say("Give the name of a skill, or `--all`"), _hint())
    chosen = [agent_named(one) for one in agents_]
    if remove:
        return _report(session, _remove(session, links, name, chosen, yes), links, as_json=as_json)
    skills = satchel.list_skills() if name is None else session.find(name)[:1]
    done: list[Done] = []
    for agent in chosen:
        for skill in skills:
            if name is None and skill.is_system:
                continue
            if yes and not as_json:
                _show_old(session, links, skill, agent)
            done.append(_try(links, skill, agent, how, yes=yes, alone=name is not None))
    return _report(session, done, links, as_json=as_json)


def _hint() -> str:
    return help_hint(click.get_current_context())


def _try(
    links: Links, skill: Skill, agent: Agent, how: How | None, *, yes: bool, alone: bool
) -> Done:
    """Link one skill; among many, one that cannot be linked must not stop the others."""
    from satchel.store.links import Done

    try:
        return links.link(skill, agent, how or "", replace=yes)
    except SatchelError as exc:
        if alone:
            raise
        return Done(skill.name, agent.id, links.place(agent), "refused", note=exc.message)


def _remove(
    session: Session, links: Links, name: str | None, agents: Sequence[Agent], yes: bool
) -> list[Done]:
    from satchel.store.links import Done

    snapshot = session.satchel.library.snapshot()
    done: list[Done] = []
    for agent in agents:
        names = (
            [
                os.path.basename(one.path)
                for one in links.records().values()
                if one.agent == agent.id
            ]
            if name is None
            else [name]
        )
        for one in names:
            found = snapshot.find(one)
            source = found[0].base_dir if found else ""
            folder = os.path.basename(links.target(found[0], agent)) if found else one
            try:
                done.append(links.unlink(folder, agent, source, replace=yes))
            except SatchelError as exc:
                if name is not None:
                    raise
                done.append(Done(one, agent.id, links.place(agent), "refused", note=exc.message))
    return done


def _show_old(session: Session, links: Links, skill: Skill, agent: Agent) -> None:
    """What `--yes` is about to replace."""
    target = links.target(skill, agent)
    if not os.path.lexists(target):
        return
    if os.path.islink(target):
        words = say("a link to `{path}`", path=one_line(os.readlink(target)))
    else:
        count = sum(len(files) for _, _, files in os.walk(target))
        words = say("1 file") if count == 1 else say("{count} files", count=count)
    session.err.line(
        say("There now: {path}, {what}", path=one_line(short_path(target)), what=words)
    )


def _report(session: Session, done: Sequence[Done], links: Links, *, as_json: bool) -> int:
    failed = any(one.action == "refused" for one in done)
    if as_json:
        write_json({"user": links.user, "links": [one._asdict() for one in done]})
        return int(failed)
    words = {
        "made": ("✓", "green", say("linked")),
        "replaced": ("✓", "green", say("replaced")),
        "refreshed": ("✓", "green", say("brought up to date")),
        "removed": ("✓", "green", say("removed")),
        "kept": ("·", "dim", say("up to date already")),
        "seen": ("·", "dim", say("the agent sees it already")),
        "refused": ("✗", "red", say("left alone")),
    }
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for one in done:
        mark, style, text = words[one.action]
        if one.action == "made" and one.how == "copy":
            text = say("copied")
        note = f" ({one_line(one.note)})" if one.note and one.action == "refused" else ""
        where = one_line(short_path(one.path))
        rows.append([mark, one_line(one.skill), one.agent, text + note, where])
        styles.append([style, "bold", "", style])
    if rows:
        head = ["", say("name"), say("agent"), say("what"), say("where")]
        session.out.table(head, rows, styles)
    else:
        session.err.line(say("Nothing to do: no skill is linked or offered here"))
    for one in done:
        if one.note and one.action != "refused":
            words_ = say("What was there is kept in {path}", path=one_line(short_path(one.note)))
            session.err.line(words_)
    return int(failed)


# --- agents -------------------------------------------------------------------------------


@command(
    say("Show which agents are used here, and which skills each of them sees.")
    + "\n\n"
    + say(
        "Satchel looks into the folders that an agent looks into, and knows what stands in its "
        "way. It starts no agent."
    ),
    "satchel agents",
    "satchel agents --all",
    "satchel agents --json",
)
@click.option("--all", "everything", is_flag=True, help=say("Also agents that are not used here."))
def agents(session: Session, everything: bool, as_json: bool) -> int:
    """The agents, then skills beside agents, then what to know about them."""
    from satchel.store.agents import user_home
    from satchel.store.link_book import LinkBook
    from satchel.store.visibility import visibility

    satchel = session.satchel
    home = user_home()
    known = [skill for skill in satchel.list_skills(hidden=True) if not skill.is_system]
    matrix = visibility(satchel.settings.project, home, known)
    books = [
        LinkBook(satchel.settings, user=user) for user in ((False, True) if home else (False,))
    ]
    old = _old_copies(session, books)
    if as_json:
        write_json(_as_json(matrix, old))
        return 0
    shown = [agent for agent in matrix.agents if everything or agent.id in matrix.here]
    if not shown:
        session.err.line(say("No other agent is used here"))
        session.err.line(say("Run `satchel agents --all` to see which ones are known"), "", "→ ")
        return 0
    _show_agents(session.out, matrix, shown)
    if matrix.rows:
        _show_matrix(session.out, matrix, shown)
        _show_notes(session, matrix, shown, old)
    else:
        session.err.line(say("There is no skill here"))
    return 0


def _old_copies(session: Session, books: Sequence[LinkBook]) -> list[tuple[str, str, str]]:
    """Copies that are not what they were made from: skill, agent, and how they stand."""
    from satchel.store.visibility import digest_of_skill

    snapshot = session.satchel.library.snapshot()
    found: list[tuple[str, str, str]] = []
    for book in books:
        for record in book.records().values():
            skill = snapshot.get(record.skill)
            state = book.state(record, digest_of_skill(skill)) if skill else "orphan"
            if state != "current":
                found.append((record.skill, record.agent, state))
    return found


def _show_agents(out: Screen, matrix: Matrix, shown: Sequence[Agent]) -> None:
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for agent in shown:
        here = agent.id in matrix.here
        count = sum(row.cells[agent.id].view in {"sees", "perhaps"} for row in matrix.rows)
        places = [*agent.project, *(f"~/{item}" for item in agent.user)]
        rows.append([
            agent.id,
            say("yes") if here else say("no"),
            str(count),
            ", ".join(places),
        ])  # fmt: skip
        styles.append(["bold" if here else "dim", "" if here else "dim"])
    out.table([say("agent"), say("used here"), say("skills"), say("looks in")], rows, styles)


def _show_matrix(out: Screen, matrix: Matrix, shown: Sequence[Agent]) -> None:
    """As many agents side by side as fit; the others in a further table below."""
    names = min(max(width_of(one_line(row.name)) for row in matrix.rows), 28)
    todo = list(shown)
    while todo:
        taken = [todo.pop(0)]
        used = names + 2 + len(taken[0].id)
        while todo and (not out.width or used + 2 + len(todo[0].id) <= out.width - 16):
            used += 2 + len(todo[0].id)
            taken.append(todo.pop(0))
        out.line()
        rows: list[list[str]] = []
        styles: list[list[str]] = []
        for row in matrix.rows:
            views = [_VIEWS[row.cells[agent.id].view] for agent in taken]
            rows.append([one_line(row.name), *(mark for mark, _ in views)])
            styles.append(["bold", *(style for _, style in views)])
        out.table([say("skill"), *(agent.id for agent in taken)], rows, styles)


def _show_notes(
    session: Session,
    matrix: Matrix,
    shown: Sequence[Agent],
    old: Sequence[tuple[str, str, str]],
) -> None:
    err = session.err
    err.line()
    legend = [
        f"● {say('sees it')}",
        f"◐ {say('perhaps')}",
        f"✗ {say('there, but not seen')}",
        f"· {say('not there')}",
    ]
    err.line("   ".join(legend), "dim")
    ours = {(skill, agent) for skill, agent, _ in old}
    for row in matrix.rows:
        for text, ids in _reasons(row, shown, ours).items():
            err.line(f"{one_line(row.name)}, {listed(ids)}{say(': ')}{text}", "", "  ")
    states = {
        "old": say("the copy is older than the skill"),
        "edited": say("what Satchel put there was changed"),
        "gone": say("what Satchel put there is gone"),
        "orphan": say("the skill is not offered here any more"),
    }
    for skill, agent, state in old:
        err.line(f"{one_line(skill)}, {agent}{say(': ')}{states[state]}", "yellow", "  ")
    if any(state in {"old", "gone"} for _, _, state in old):
        err.line(say("Run `satchel link --refresh` to bring copies up to date"), "", "→ ")
    lacking = any(row.state == "active" and _lacks(row, shown) for row in matrix.rows)
    if lacking:
        err.line(say("Run `satchel link NAME --agent AGENT` to put a skill there"), "", "→ ")


def _lacks(row: Row, shown: Sequence[Agent]) -> bool:
    return any(row.cells[agent.id].view == "absent" for agent in shown)


def _reasons(row: Row, shown: Sequence[Agent], ours: set[tuple[str, str]]) -> dict[str, list[str]]:
    """What there is to say about a skill -> the agents it is true for."""
    found: dict[str, list[str]] = {}
    for agent in shown:
        mine = (row.name, agent.id) in ours
        for text in _remarks(row, row.cells[agent.id], ours=mine):
            found.setdefault(text, []).append(agent.id)
    return found


def _remarks(row: Row, sight: Sight, *, ours: bool) -> list[str]:
    found = [sight.why] if sight.why else []
    if sight.view in {"sees", "perhaps"}:
        if row.state == "untrusted":
            found.append(say("reads it although you have not trusted it"))
        elif sight.kind == "other" and not ours:
            place = one_line(sight.place)
            found.append(say("has another one of that name, in `{place}`", place=place))
    return found


def _as_json(matrix: Matrix, old: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    return {
        "agents": [{**agent._asdict(), "here": agent.id in matrix.here} for agent in matrix.agents],
        "skills": [
            {
                "name": row.name,
                "state": row.state or None,
                "agents": {key: sight._asdict() for key, sight in row.cells.items()},
            }
            for row in matrix.rows
        ],
        "outdated": [
            {"skill": skill, "agent": agent, "state": state} for skill, agent, state in old
        ],
    }
