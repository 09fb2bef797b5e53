"""The commands `mcp add`, `list` and `remove`: servers whose skills are used."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any, cast

import click

from satchel.cli.commands.mcp import own_skills, print_untrusted_count, tool_skills
from satchel.cli.console import one_line, plural, write_json
from satchel.cli.context import CliContext, command, no_such, short_path
from satchel.cli.options import cannot_combine, flag_option, missing, wrong_form
from satchel.errors import InvalidInput, SatchelError
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


@command(
    say("Remove a server and its cache."),
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
        context.err.line(say("Removed: {names}", names=name))
    return 0


@command(
    say("List the servers that you use, and their status."),
    "satchel mcp list",
    "satchel mcp list --check",
    name="list",
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=_complete_servers)
@flag_option("--check", say("Check which skills of this project can be served."))
def list_(context: CliContext, names: tuple[str, ...], check: bool, as_json: bool) -> int:
    if check:
        return _check_served(context, as_json=as_json)
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
            f"{one['skills']:,}",
            f"{one['offered']:,}",
            f"{one['blocked']:,}" if one["blocked"] else "",
            one_line(one["target"]),
        ]
        for one in records
    ]
    styles = [["green" if one["answers"] else "red", "bold"] for one in records]
    context.out.table(head, rows, styles)


def _check_served(context: CliContext, *, as_json: bool) -> int:
    from satchel.integrations.mcp.skill_resources import ManifestCache, SkillResources

    satchel = own_skills(context)
    library = satchel.library
    snapshot = library.snapshot()
    kept = [(one, one.state) for one in snapshot.hidden if one.state != "shadowed"]
    kept += [(one, "people-only") for one in snapshot.skills if not one.for_model]
    manifests = ManifestCache(library)
    served = SkillResources(library, manifests)
    good = [(path, one) for path, one in served.manifests(served.paths)]
    bad, tools = manifests.refused(), tool_skills(satchel)
    if as_json:
        write_json({
            "served": [{"path": path, "files": len(one.files)} for path, one in good],
            "tools": [{"name": one.skill.name, "tools": list(one.tools)} for one in tools],
            "unserved": [
                {"ref": one.skill.ref, "reason": one.reason, "fix": one.fix} for one in bad
            ],
            "kept_back": [{"ref": one.ref, "kind": kind} for one, kind in kept],
        })  # fmt: skip
        return 1 if bad else 0
    out = context.out
    for path, one in good:
        size = sum(item.size for item in one.files.values())
        files = plural(len(one.files), say("file"), say("files"))
        out.line(f"● {one_line(path)}  {files}, {size:,} B")
    for one in tools:
        count = plural(len(one.tools), say("tool"), say("tools"))
        out.line(f"● {one_line(one.skill.name)}  {count}")
    for one in bad:
        out.line(f"✗ {one_line(one.skill.name)}{say(': ')}{one_line(one.reason)}")
        out.line(one_line(one.fix), "dim", "  → ")
    for skill, kind in kept:
        words = say("for people only") if kind == "people-only" else say(kind)
        out.line(f"○ {one_line(skill.name)}{say(': ')}{words}")
    context.err.line(
        say("{passed} passed, {failed} failed", passed=len(good) + len(tools), failed=len(bad))
    )
    print_untrusted_count(context, satchel)
    return 1 if bad else 0


@command(
    say("Add an MCP server whose skills you want to use."),
    "satchel mcp add docs https://skills.example.com/mcp",
    "satchel mcp add docs https://skills.example.com/mcp --token-env DOCS_TOKEN",
    "satchel mcp add local -- uvx our-skills",
)
@click.argument("words", nargs=-1, metavar="NAME ADDRESS")
@click.option("--token-env", metavar="NAME", help=say("Environment variable with the token."))
@click.option("--header", "headers", multiple=True, metavar="NAME=VARIABLE",
              help=say("A header, and the variable with its value; repeatable."))  # fmt: skip
@click.option("--env", multiple=True, metavar="NAME",
              help=say("A variable to pass to the program; repeatable."))  # fmt: skip
@click.option("--skill", "unlisted", multiple=True, metavar="URI",
              help=say("A skill that the server does not list; repeatable."))  # fmt: skip
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
    pairs = dict(_pair(one) for one in headers)
    for key, value in (
        ("token", token_env), ("headers", pairs), ("env", env), ("skills", unlisted),
    ):  # fmt: skip
        if value:
            row[key] = list(value) if isinstance(value, tuple) else value
    config = context.satchel.settings.paths.config
    change_server(config, name, row)
    context.err.line(say("Written to {path}", path=short_path(config)))
    context.reopen()
    return show_servers(context, (name,), as_json=as_json)


def _pair(text: str) -> tuple[str, str]:
    name, mark, variable = text.partition("=")
    if not mark or not name or not variable:
        raise wrong_form("--header", "NAME=VARIABLE", text)
    return name, variable
