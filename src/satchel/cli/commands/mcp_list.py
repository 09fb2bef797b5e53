"""The commands `mcp add`, `list` and `remove`: servers whose skills are used."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any, cast

import click

from satchel.cli.console import one_line, write_json
from satchel.cli.context import command, no_such, short_path
from satchel.cli.options import cannot_combine, missing
from satchel.errors import InvalidInput
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.context import CliContext
    from satchel.library.remote.source import McpSupplier
    from satchel.library.served_skills import ServedSkills
    from satchel.skill.model import Skill


@command(say("Remove a server and its cache."), "satchel mcp remove docs")
@click.argument("name")
def remove(context: CliContext, name: str, as_json: bool) -> int:
    from satchel.library.remote.config import change_server
    from satchel.library.remote.source import delete_cache

    satchel = context.satchel
    folders = [
        served.location.path for served in _find_served(context) if served.supplier.label == name
    ]
    change_server(satchel.settings.paths.config, name, None)
    satchel.library.close()  # a listing that arrives later would be cached again
    for folder in folders:
        delete_cache(folder)
    if as_json:
        write_json({"removed": name})
    else:
        context.err.line(say("Removed: {names}", names=name))
    return 0


@command(say("List the servers that you use, and their status."), "satchel mcp list", name="list")
@click.argument("names", nargs=-1, metavar="[NAME]...")
def list_(context: CliContext, names: tuple[str, ...], as_json: bool) -> int:
    return show_servers(context, names, as_json=as_json)


def show_servers(context: CliContext, names: Sequence[str], *, as_json: bool) -> int:
    """Refresh and print all servers, or the named ones."""
    from satchel._optional import require

    servers = _find_named(context, names)
    with context.err.waiting(say("Reading skills…")):
        if servers:
            require("mcp", "mcp")
        for served in servers:
            cast("McpSupplier", served.supplier).refresh()
    snapshot = context.satchel.library.refresh()
    records = [_server_to_dict(served, [*snapshot.skills, *snapshot.hidden]) for served in servers]
    problems = [
        problem
        for problem in context.satchel.library.snapshot().problems
        if problem.code.startswith(("server-", "served-"))
    ]
    has_failed = any(not record["answers"] for record in records)
    if as_json:
        write_json({"servers": records, "problems": [problem.to_dict() for problem in problems]})
        return 1 if has_failed else 0
    if not records:
        context.err.line(say("No servers. Add one: `satchel mcp add docs https://…`"))
    else:
        _print_table(context, records)
    from satchel.cli.commands.show import show_problems

    show_problems(context.err, problems, "")
    return 1 if has_failed else 0


def _find_named(context: CliContext, names: Sequence[str]) -> list[ServedSkills]:
    servers = _find_served(context)
    labels = {served.supplier.label for served in servers}
    for name in names:
        if name not in labels:
            raise no_such(say("server"), name, labels, "satchel mcp list")
    return [served for served in servers if not names or served.supplier.label in names]


def _find_served(context: CliContext) -> list[ServedSkills]:
    library = context.satchel.library
    servers = [library.served_skills_at(location.path) for location in library.locations]
    return [served for served in servers if served is not None]


def _server_to_dict(served: ServedSkills, skills: Sequence[Skill]) -> dict[str, Any]:
    supplier = cast("McpSupplier", served.supplier)
    served_skills = [skill for skill in skills if skill.origin.root == served.location.path]
    problems = supplier.listing().problems
    failures = [
        problem for problem in problems if problem.code in ("server-unreachable", "server-stale")
    ]
    listed = (
        time.strftime("%Y-%m-%d %H:%M", time.localtime(supplier.received_at))
        if supplier.received_at
        else None
    )
    return {
        "name": supplier.label,
        "target": supplier.server.target,
        "answers": not failures,
        "reason": failures[0].values["reason"] if failures else None,
        "listed": listed,
        "skills": len(served_skills),
        "offered": sum(skill.state == "active" for skill in served_skills),
        "blocked": sum(skill.state == "blocked" for skill in served_skills),
        "shadowed": sum(skill.state == "shadowed" for skill in served_skills),
    }


def _print_table(context: CliContext, records: Sequence[dict[str, Any]]) -> None:
    titles = ["", say("name"), say("skills"), say("offered"), say("blocked"), say("address")]
    rows = [
        [
            "●" if record["answers"] else "○",
            one_line(record["name"]),
            f"{record['skills']:,}",
            f"{record['offered']:,}",
            f"{record['blocked']:,}" if record["blocked"] else "",
            one_line(record["target"]),
        ]
        for record in records
    ]
    styles = [["green" if record["answers"] else "red", "bold"] for record in records]
    context.out.table(titles, rows, styles)


@command(
    say("Add an MCP server whose skills you want to use."),
    "satchel mcp add docs https://skills.example.com/mcp",
    "satchel mcp add docs https://skills.example.com/mcp --token-env DOCS_TOKEN",
    "satchel mcp add local -- uvx our-skills",
)
@click.argument("words", nargs=-1, metavar="NAME ADDRESS")
@click.option("--token-env", metavar="NAME", help=say("Environment variable with the token."))
@click.option("--env", multiple=True, metavar="NAME",
              help=say("A variable to pass to the program; repeatable."))  # fmt: skip
def add(
    context: CliContext,
    words: tuple[str, ...],
    token_env: str | None,
    env: tuple[str, ...],
    as_json: bool,
) -> int:
    from satchel.library.remote.config import change_server

    if len(words) < 2:
        raise missing("ADDRESS" if words else "NAME")
    name, target = words[0], words[1]
    server: dict[str, Any] = {}
    if "://" in target:
        if len(words) > 2:
            raise cannot_combine(*words[1:])
        server["address"] = target
    elif shutil.which(target) is None:
        raise InvalidInput(
            say("`{name}` is neither an address nor a program", name=one_line(target))
        )
    else:
        server["command"] = list(words[1:])
    if token_env:
        server["token"] = token_env
    if env:
        server["env"] = list(env)
    config = context.satchel.settings.paths.config
    change_server(config, name, server)
    context.err.line(say("Written to {path}", path=short_path(config)))
    context.reopen()
    return show_servers(context, (name,), as_json=as_json)
