"""The commands `mcp add`, `list`, `remove` and `copy`: skills of MCP servers."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Any, cast

import click

from satchel.cli.console import one_line, write_json
from satchel.cli.context import CliContext, command, completions, short_path
from satchel.cli.options import help_hint
from satchel.errors import Conflict, InvalidInput, NotFound, Refused, SatchelError
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

    from satchel.library.remote.source import McpSupplier
    from satchel.library.served_skills import ServedSkills
    from satchel.skill.model import Skill


def _complete_servers(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    context = ctx.find_object(CliContext) or CliContext()
    try:
        names = sorted(context.satchel.settings.servers)
    except SatchelError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _complete_served(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return completions(ctx, incomplete, lambda _, skill: bool(skill.origin.remote))


@command(
    say("Take skills from a server: at an address, or a program that is started for it.")
    + "\n\n"
    + say("The command of a program stands after `--`, in place of ADDRESS.")
    + "\n\n"
    + say(
        "The server is written into your own configuration, then asked what it has. Its skills "
        "are offered at once; every file is scanned when it is fetched."
    ),
    "satchel mcp add docs https://skills.example.com/mcp",
    "satchel mcp add docs https://skills.example.com/mcp --token-env DOCS_TOKEN",
    "satchel mcp add local -- uvx our-skills",
)
@click.argument("words", nargs=-1, metavar="NAME ADDRESS")
@click.option("--token-env", metavar="NAME", help=say("The variable that has the token."))
@click.option("--header", "headers", multiple=True, metavar="NAME=VARIABLE",
              help=say("A further header, and the variable that has its value."))  # fmt: skip
@click.option("--env", multiple=True, metavar="NAME",
              help=say("A variable that the program may see."))  # fmt: skip
@click.option("--skill", "unlisted", multiple=True, metavar="URI",
              help=say("A skill that the server does not list."))  # fmt: skip
def add(
    context: CliContext,
    words: tuple[str, ...],
    token_env: str | None,
    headers: tuple[str, ...],
    env: tuple[str, ...],
    unlisted: tuple[str, ...],
    as_json: bool,
) -> int:
    from satchel.library.remote.config import change_server

    if len(words) < 2:
        raise InvalidInput(
            say("A name and an address, or a name and a command, are needed"),
            say("Run `satchel mcp add docs https://skills.example.com/mcp`"),
        )
    name, first = words[0], words[1]
    row: dict[str, Any] = {}
    if "://" in first:
        if len(words) > 2:
            raise InvalidInput(
                say("After the address comes nothing more"),
                help_hint(click.get_current_context()),
            )
        row["address"] = first
    elif _lacks_scheme(first):
        raise InvalidInput(
            say("`{name}` is no address, and no such program is here", name=one_line(first)),
            say("Write `https://{name}`, or the whole path of a program", name=one_line(first)),
        )
    elif shutil.which(first) is None:
        raise InvalidInput(
            say("There is no program `{name}`, so no server was added", name=one_line(first)),
            say("Install it, or give its whole path; an address begins with `https://`"),
        )
    else:
        row["command"] = list(words[1:])
    pairs = dict(_pair(one) for one in headers)
    for key, value in (
        ("token", token_env), ("headers", pairs), ("env", env), ("skills", unlisted),
    ):  # fmt: skip
        if value:
            row[key] = list(value) if isinstance(value, tuple) else value
    config = context.satchel.settings.paths.config
    change_server(config, name, row)
    context.err.line(say("Added to {path}", path=short_path(config)))
    context.reopen()
    return _show(context, (name,), as_json=as_json)


def _lacks_scheme(word: str) -> bool:
    """Whether a word is an address without `https://`: it looks like a host, and is no program."""
    host = word.partition("/")[0].partition(":")[0]
    named = "." in host.strip(".") and not word.startswith((".", "/", "~"))
    return (named or host == "localhost") and shutil.which(word) is None


@command(
    say("Forget a server and what was kept of it."),
    "satchel mcp remove docs",
)
@click.argument("name", shell_complete=_complete_servers)
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
        context.err.line(say("`{name}` is removed, with what was kept of it", name=name))
    return 0


@command(
    say("Ask the servers that you take skills from, and say how each stands."),
    "satchel mcp list",
    "satchel mcp list docs",
    "satchel mcp list --json",
    name="list",
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=_complete_servers)
def list_(context: CliContext, names: tuple[str, ...], as_json: bool) -> int:
    return _show(context, names, as_json=as_json)


def _show(context: CliContext, names: Sequence[str], *, as_json: bool) -> int:
    """Refresh and print all servers, or the named ones."""
    from satchel._optional import require

    supplies = _supplies(context)
    known = {one.supplier.label for one in supplies}
    for name in names:
        if name not in known:
            raise NotFound(
                say("There is no server `{name}`", name=one_line(name)),
                say("Add it: `satchel mcp add {name} https://…`", name=one_line(name)),
            )
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
        context.err.line(say("No server is set. Add one: `satchel mcp add docs https://…`"))
    else:
        _table(context, records)
    from satchel.cli.commands.show import show_problems

    show_problems(context.err, problems, "")
    return 1 if failed else 0


@command(
    say("Make a skill of a server your own: a folder with all its files, each compared."),
    "satchel mcp copy pdf-forms",
    "satchel mcp copy pdf-forms --to skills/pdf-forms",
    more=say("That does not install it: look at it, then run `satchel import FOLDER`."),
)
@click.argument("name", metavar="SKILL", shell_complete=_complete_served)
@click.option(
    "--to", metavar="DIR", help=say("The folder to make, named as the skill unless given.")
)
def copy(context: CliContext, name: str, to: str | None, as_json: bool) -> int:
    found = [skill for skill in context.find(name) if skill.origin.remote]
    if not found:
        raise Refused(
            say("`{name}` lies here already", name=one_line(name)),
            say("Run `satchel show {name}` to see where", name=one_line(name)),
        )
    skill = found[0]
    library = context.satchel.library
    supply = library.supply_of(skill)
    target = os.path.abspath(os.path.expanduser(to or skill.name))
    if os.path.lexists(target):
        raise Conflict(
            say("`{path}` is there already", path=short_path(target)),
            say("Give another folder with `--to`"),
        )
    assert supply is not None  # noqa: S101 - the skill is of a server
    contents = {path: supply.fetch_verified(skill, path) for path in supply.files_of(skill)}
    supply.document(skill)  # raises when its frontmatter differs from the listing
    from satchel._fs import write_atomic

    for path, data in contents.items():
        write_atomic(os.path.join(target, path), data)
    if as_json:
        write_json({"name": skill.name, "origin": skill.origin.remote, "folder": target,
                    "files": sorted(contents)})  # fmt: skip
        return 0
    context.out.data(target + "\n")
    context.err.line(
        say("A copy, not installed yet. Look at it, then run `satchel import {path}`",
            path=short_path(target))
    )  # fmt: skip
    return 0


def _supplies(context: CliContext) -> list[ServedSkills]:
    from satchel.library.remote.source import McpSupplier

    library = context.satchel.library
    found = [library.supply_at(location.path) for location in library.locations]
    return [one for one in found if one is not None and isinstance(one.supplier, McpSupplier)]


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
            str(one["skills"]),
            str(one["offered"]),
            str(one["blocked"]),
            one_line(one["target"]),
        ]
        for one in records
    ]
    styles = [["green" if one["answers"] else "red", "bold"] for one in records]
    context.out.table(head, rows, styles)


def _pair(text: str) -> tuple[str, str]:
    name, mark, variable = text.partition("=")
    if not mark or not name or not variable:
        raise InvalidInput(
            say("`{text}` is no header", text=one_line(text)),
            say("Write NAME=VARIABLE: the variable holds the value"),
        )
    return name, variable
