"""The command group `mcp`, with `serve` and `install`."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import click

from satchel._fs import is_inside
from satchel._optional import must_be_installed, require
from satchel.cli.console import clean, count_skills, write_json
from satchel.cli.context import closed_at_exit, command, confirm_change, group, short_path
from satchel.cli.options import (
    OneOf,
    cannot_combine,
    dry_run_option,
    flag_option,
    needs,
    server_options,
    yes_option,
)
from satchel.i18n import render, say
from satchel.integrations.mcp import serve_http, serve_stdio

if TYPE_CHECKING:
    from satchel.cli.context import CliContext
    from satchel.integrations.mcp.client_config import ConfigChange, Scope
    from satchel.integrations.mcp.http import Web
    from satchel.library.tool_skills import ToolSkill
    from satchel.satchel import Satchel

_DEFAULT_PORT = 8765
_STDIO_OPTIONS = ("http", "no_tools", "scripts")
"""Options of `serve` that also apply without `--http`."""
CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode", "codex", "gemini")
_INSTALL_COMMAND = 'uv tool install "satchel[mcp]"'
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


mcp = group(
    "mcp",
    say("Serve skills over MCP, or use skills of MCP servers."),
    "satchel mcp install claude-code",
    "satchel mcp serve --http",
    "satchel mcp add docs https://skills.example.com/mcp",
    modules={
        "serve": "commands.mcp:serve",
        "install": "commands.mcp:install",
        "add": "commands.mcp_list:add",
        "list": "commands.mcp_list:list_",
        "remove": "commands.mcp_list:remove",
    },
    synonyms={
        "start": "serve",
        "run": "serve",
        "check": "list",
        "copy": "satchel install mcp:SERVER/NAME",
        "uninstall": "install --remove",
        "ls": "list",
        "rm": "remove",
        "delete": "remove",
    },
)


@command(
    say("Serve the skills of this project over stdin and stdout, or HTTP."),
    "satchel mcp serve --http",
    "satchel mcp serve --http --token-env SKILLS_TOKEN",
    json=False,
)
@flag_option("--no-tools", say("Without tools: only the Skills extension and prompts."))
@flag_option("--scripts", say("With `RunScript`, for scripts of loaded skills; not over HTTP."))
@flag_option("--http", say("Serve over HTTP."))
@server_options(_DEFAULT_PORT)
@click.option("--token-env", metavar="NAME", help=say("Environment variable with the token."))
@flag_option("--no-token", say("No token: every user of this machine can connect."))
def serve(
    context: CliContext,
    no_tools: bool,
    scripts: bool,
    http: bool,
    host: str,
    port: int,
    names: tuple[str, ...],
    token_env: str | None,
    no_token: bool,
) -> int:
    if not http:
        _refuse_web_options()
    require("mcp", "mcp")
    if not http:
        return _serve_stdio(context, tools=not no_tools, scripts=scripts)
    from satchel.integrations.mcp.http import Web

    if scripts:
        raise cannot_combine("--scripts", "--http")
    if no_token and token_env:
        raise cannot_combine("--no-token", "--token-env")
    web = Web(host, port, token_env or "", names, open=no_token)
    return _serve_http(context, web, tools=not no_tools)


def _serve_stdio(context: CliContext, *, tools: bool, scripts: bool) -> int:
    if sys.stdin.isatty():
        context.err.line(say("Waiting for a client on stdin; see `satchel mcp install`"))
    with closed_at_exit(open_without_servers(context)) as satchel:
        print_untrusted_count(context, satchel)
        serve_stdio(satchel, tools=tools, scripts=scripts)
    return 0


def _serve_http(context: CliContext, web: Web, *, tools: bool) -> int:
    with closed_at_exit(open_without_servers(context)) as satchel:
        web = web._replace(started=partial(_print_started, context, satchel))
        serve_http(satchel, web, tools=tools)
    return 0


def _refuse_web_options() -> None:
    ctx = click.get_current_context()
    for option in ctx.command.params:
        name = option.name or ""
        source = ctx.get_parameter_source(name)
        is_given = source is click.core.ParameterSource.COMMANDLINE and option.expose_value
        if is_given and name not in _STDIO_OPTIONS:
            raise needs(option.opts[0], "--http")


def open_without_servers(context: CliContext, *, announce: bool = True) -> Satchel:
    """The project without the skills of servers, which clients can connect to themselves.

    This also prevents a server from connecting to itself. With `announce`, the omission is printed.
    """
    from satchel.project import library_for
    from satchel.satchel import Satchel

    settings = context.satchel.settings
    if not settings.servers:
        context.satchel.index_wait_s = 0.0
        return context.satchel
    if announce:
        context.err.line(say("Skills of other servers are not served"))
    settings = settings._replace(servers={})
    return Satchel(library_for(settings), settings)


def _print_started(context: CliContext, satchel: Satchel, url: str, token: str) -> None:
    err, snapshot = context.err, satchel.library.snapshot()
    skills = count_skills(len(snapshot.for_model) + len(tool_skills(satchel)))
    err.line(say("{skills} at {url}", skills=skills, url=url), "bold")
    if token:
        err.line(say("Clients need this header; `--token-env` keeps a token of your own:"))
        err.write(f"Authorization: Bearer {token}\n")
    print_untrusted_count(context, satchel)
    err.line(say("{key} ends it", key="Ctrl-C"), "dim")
    err.stream.flush()


def tool_skills(satchel: Satchel) -> list[ToolSkill]:
    """The offered skills that have tools and no instructions."""
    return [tool_skill for tool_skill in satchel.library.tools().skills if tool_skill.skill.is_tool]


def print_untrusted_count(context: CliContext, satchel: Satchel) -> None:
    """Print how many skills are hidden from clients because their folder is untrusted."""
    if line := satchel.library.untrusted_notice():
        context.err.line(render(line))


@command(
    say("Add this server to another program's configuration, or remove it.")
    + f"\n\nCLIENT: {', '.join(CLIENTS)}",
    "satchel mcp install claude-code",
    "satchel mcp install cursor --scope user --dry-run",
    "satchel mcp install cursor --remove",
)
@click.argument("client", type=OneOf(CLIENTS), metavar="CLIENT")
@click.option(
    "--scope",
    type=OneOf(["project", "user"]),
    help=say("Default: `project` for `claude-code` and `vscode`, `user` for the others."),
)
@flag_option("--remove", say("Remove it instead."))
@dry_run_option()
@yes_option()
def install(
    context: CliContext, client: str, scope: str | None, remove: bool, **decision: Any
) -> int:
    from satchel.integrations.mcp.client_config import plan

    if not remove:
        must_be_installed("mcp", "mcp")  # else the program would start a server that cannot run
    change = plan(client, cast("Scope | None", scope), context.project, remove=remove)
    status = _apply_change(context, change, **decision)
    if remove:
        return status
    if not decision["dry_run"]:
        _warn_about_path(context, change)
    print_untrusted_count(context, open_without_servers(context, announce=False))
    return status


def _warn_about_path(context: CliContext, change: ConfigChange) -> None:
    """Warn when `satchel` is not on the PATH; a project's configuration has no absolute path."""
    if change.scope == "user":
        return
    program_path = shutil.which("satchel")
    is_in_environment = (
        sys.prefix != sys.base_prefix and program_path and is_inside(program_path, sys.prefix)
    )
    if program_path is None or is_in_environment:
        text = say(
            "{program} must find `satchel` on the PATH: run `{command}`, or pass `--scope user`",
            program=change.client.title,
            command=_INSTALL_COMMAND,
        )
        context.err.line(text, "yellow")


def _apply_change(
    context: CliContext, change: ConfigChange, *, dry_run: bool, yes: bool, as_json: bool
) -> int:
    from satchel.integrations.mcp.client_config import apply

    if not change.is_needed:
        if as_json:
            write_json({"path": change.path, "changed": False, "backup": None})
        else:
            context.err.line(say("Nothing to do"))
        return 0
    lines = change.diff_lines(short_path(change.path))
    if not as_json:
        out = context.out
        for line in lines:  # not wrapped: these are lines of a file
            out.write(out.paint(clean(line, keep="\t"), _DIFF_STYLES.get(line[:1], "")) + "\n")
    if dry_run:
        if as_json:
            write_json({"path": change.path, "changed": False, "difference": lines})
        return 0
    if not yes and not confirm_change(context, say("Continue?"), as_json=as_json):
        context.err.line(say("Nothing was changed"))
        return 0
    backup = apply(change, context.project)
    if as_json:
        write_json({"path": change.path, "changed": True, "backup": backup or None})
        return 0
    context.err.line(say("Written to {path}", path=short_path(change.path)), "green")
    if backup:
        context.err.line(say("The file as it was: `{path}`", path=short_path(backup)), "dim")
    return 0
