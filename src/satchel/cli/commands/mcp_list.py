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


@command(
    say("Remove a server and its cache."),
    "satchel mcp remove docs",
)
@click.argument("name")
def remove(context: CliContext, name: str, as_json: bool) -> int:
    from satchel.library.remote.config import change_server
    from satchel.library.remote.source import delete_cache

    satchel = context.satchel
    folders = [one.location.path for one in _supplies(context) if one.supplier.label == name]
    change_server(satchel.settings.paths.config, name, None)
    satchel.library.close()  # a listing that arrives later would be cached again
    for folder in folders:
        delete_cache(folder)
    if as_json:
        write_json({"removed": name})
    else:
        context.err.line(say("Removed: {names}", names=name))
    return 0


@command(
    say("List the servers that you use, and their status."),
    "satchel mcp list",
    name="list",
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def list_(context: CliContext, names: tuple[str, ...], as_json: bool) -> int:
    return show_servers(context, names, as_json=as_json)


def show_servers(context: CliContext, names: Sequence[str], *, as_json: bool) -> int:
    """Refresh and print all servers, or the named ones."""
    from satchel._optional import require

    supplies = _supplies(context)
    known = {one.supplier.label for one in supplies}
    for name in names:
        if name not in known:
            raise no_such(say("server"), name, known, "satchel mcp list")
    if supplies:
        require("mcp", "mcp")
    chosen = [one for one in supplies if not names or one.supplier.label in names]
    for one in chosen:
        cast("McpSupplier", one.supplier).refresh()
    snapshot = context.satchel.library.refresh()
    records = [_record(one, [*snapshot.skills, *snapshot.hidden]) for one in chosen]
    problems = [
        one
        for one in context.satchel.library.snapshot().problems
        if one.code.startswith(("server-", "served-"))
    ]
    failed = any(not record["answers"] for record in records)
    if as_json:
        write_json({"servers": records, "problems": [one.to_dict() for one in problems]})
        return 1 if failed else 0
    if not records:
        context.err.line(say("No servers. Add one: `satchel mcp add docs https://…`"))
    else:
        _table(context, records)
    from satchel.cli.commands.show import show_problems

    show_problems(context.err, problems, "")
    return 1 if failed else 0


def _supplies(context: CliContext) -> list[ServedSkills]:
    library = context.satchel.library
    found = [library.supply_at(location.path) for location in library.locations]
    return [one for one in found if one is not None]


def _record(supply: ServedSkills, skills: Sequence[Skill]) -> dict[str, Any]:
    supplier = cast("McpSupplier", supply.supplier)
    here = [skill for skill in skills if skill.origin.root == supply.location.path]
    problems = supplier.listing().problems
    silent = [one for one in problems if one.code in ("server-unreachable", "server-stale")]
    listed = time.strftime("%Y-%m-%d %H:%M", time.localtime(supplier.at)) if supplier.at else None
    return {
        "name": supplier.label,
        "target": supplier.server.target,
        "answers": not silent,
        "reason": silent[0].values["reason"] if silent else None,
        "listed": listed,
        "skills": len(here),
        "offered": sum(skill.state == "active" for skill in here),
        "blocked": sum(skill.state == "blocked" for skill in here),
        "shadowed": sum(skill.state == "shadowed" for skill in here),
    }


def _table(context: CliContext, records: Sequence[dict[str, Any]]) -> None:
    head = ["", say("name"), say("skills"), say("offered"), say("blocked"), say("address")]
    rows = [
        [
            "●" if one["answers"] else "○",
            one_line(one["name"]),
            f"{one['skills']:,}",
            f"{one['offered']:,}",
            f"{one['blocked']:,}" if one["blocked"] else "",
            one_line(one["target"]),
        ]
        for one in records
    ]
    styles = [["green" if one["answers"] else "red", "bold"] for one in records]
    context.out.table(head, rows, styles)


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
    name, first = words[0], words[1]
    row: dict[str, Any] = {}
    if "://" in first:
        if len(words) > 2:
            raise cannot_combine(*words[1:])
        row["address"] = first
    elif shutil.which(first) is None:
        raise InvalidInput(
            say("`{name}` is neither an address nor a program", name=one_line(first))
        )
    else:
        row["command"] = list(words[1:])
    if token_env:
        row["token"] = token_env
    if env:
        row["env"] = list(env)
    config = context.satchel.settings.paths.config
    change_server(config, name, row)
    context.err.line(say("Written to {path}", path=short_path(config)))
    context.reopen()
    return show_servers(context, (name,), as_json=as_json)
