"""The command group `mcp`, with `serve`, `check`, `install` and `uninstall`.

`mcp_servers` has the commands about skills of other servers.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from satchel.cli.console import clean, one_line, write_json
from satchel.cli.context import closed_at_exit, command, confirm_change, group, short_path
from satchel.cli.options import OneOf, WholeNumber, dry_run_option, flag_option, help_hint
from satchel.errors import InvalidInput
from satchel.i18n import listed, render, say
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.cli.context import CliContext
    from satchel.integrations.mcp.client_config import ConfigChange, Scope
    from satchel.integrations.mcp.http import Web
    from satchel.library import Snapshot
    from satchel.satchel import Satchel
    from satchel.skill.model import Skill

_DEFAULT_PORT = 8765
_STDIO_OPTIONS = ("http", "no_tools")
"""Options of `serve` that also apply without `--http`."""
_OAUTH_OPTIONS = ("jwks", "scopes")


@group(
    say("Give your skills to any program that speaks MCP, or take skills from MCP servers."),
    "satchel mcp install claude-code",
    "satchel mcp check",
    "satchel mcp serve --http",
    "satchel mcp add docs https://skills.example.com/mcp",
    modules={
        "install": "commands.mcp:install",
        "uninstall": "commands.mcp:uninstall",
        "serve": "commands.mcp:serve",
        "check": "commands.mcp:check",
        "add": "commands.mcp_servers:add",
        "list": "commands.mcp_servers:list_",
        "remove": "commands.mcp_servers:remove",
        "copy": "commands.mcp_servers:copy",
    },
    headings={
        "install": say("Your skills for other programs"),
        "add": say("Skills of other servers for you"),
    },
    more=say(
        "A program that starts `satchel mcp` without a command is served on stdin and stdout; a "
        "person is shown this."
    ),
)
def mcp(context: CliContext) -> int:
    """Serve on stdin without a command; show the help on a terminal."""
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is not None:
        return 0
    if sys.stdin.isatty():
        click.echo(ctx.get_help())
        return 0
    return _stdio(context, tools=True)


mcp.synonyms = {
    "start": "serve", "run": "serve", "server": "serve", "setup": "install", "connect": "install",
    "disconnect": "uninstall", "ls": "list", "servers": "list", "rm": "remove", "delete": "remove",
}  # fmt: skip


@command(
    say("Serve the skills of this project on stdin and stdout, or over HTTP.")
    + "\n\n"
    + say(
        "Over HTTP clients need a token: the one that is printed at the start, or your own. "
        "Nothing is open to other machines unless `--host` says so."
    ),
    "satchel mcp serve",
    "satchel mcp serve --http",
    "satchel mcp serve --http --token-env SKILLS_TOKEN",
    json=False,
)
@flag_option("--no-tools", say("The Skills extension and prompts only."))
@flag_option("--http", say("Over HTTP instead of stdin and stdout."))
@click.option(
    "--host", default="127.0.0.1", help=say("The address to listen on, 127.0.0.1 unless given.")
)
@click.option(
    "--port",
    type=WholeNumber(most=65_535),
    default=_DEFAULT_PORT,
    help=say("The port, 8765 unless given; 0 takes a free one."),
)
@click.option("--name", "names", multiple=True, metavar="HOST",
              help=say("A further name under which clients reach it."))  # fmt: skip
@click.option("--token-env", metavar="NAME", help=say("The variable that has the token."))
@click.option("--token-file", metavar="FILE", help=say("The file that has the token."))
@flag_option("--no-token", say("Ask for no token: every user of this machine can connect."))
@click.option("--clients", metavar="FILE", help=say("Who may have what, as TOML."))
@click.option("--issuer", metavar="URL", help=say("The OAuth server whose tokens count."))
@click.option("--audience", metavar="URL", help=say("For whom its tokens must be."))
@click.option("--jwks", metavar="URL", help=say("Where its public keys are."))
@click.option("--oauth-scope", "scopes", multiple=True, help=say("A scope a token must have."))
def serve(
    context: CliContext,
    no_tools: bool,
    http: bool,
    host: str,
    port: int,
    names: tuple[str, ...],
    token_env: str | None,
    token_file: str | None,
    no_token: bool,
    clients: str | None,
    issuer: str | None,
    audience: str | None,
    jwks: str | None,
    scopes: tuple[str, ...],
) -> int:
    from satchel._optional import require

    if not http:
        _refuse_web_options()
    require("mcp", "mcp")
    if not http:
        return _stdio(context, tools=not no_tools)
    from satchel.integrations.mcp.http import OAuth, Web, others_can_read, read_clients

    if (issuer is None) != (audience is None):
        raise InvalidInput(
            say("`--issuer` and `--audience` belong together"),
            help_hint(click.get_current_context()),
        )
    if issuer is None:
        _refuse_oauth_options()
    if no_token and (token_env or token_file or clients or issuer):
        raise InvalidInput(
            say("`--no-token` asks for no token, and another option for one"),
            say("Leave one of them out"),
        )
    web = Web(
        host,
        port,
        token_env or "",
        token_file or "",
        tuple(read_clients(clients)) if clients else (),
        OAuth(issuer, audience, jwks or "", scopes) if issuer and audience else None,
        names,
        open=no_token,
    )
    for path in filter(None, (web.token_file, *(one.file for one in web.clients))):
        if others_can_read(path):
            context.err.line(
                say("Others on this machine can read the token in `{path}`", path=one_line(path))
            )
            step = say("Run `{command}`", command=f"chmod 600 {one_line(path)}")
            context.err.line(step, "", "→ ")
    return _http(context, web, tools=not no_tools)


def _stdio(context: CliContext, *, tools: bool) -> int:
    from satchel.integrations.mcp import serve_stdio

    if sys.stdin.isatty():
        context.err.line(say("A program is meant to speak here, not a person: end it with Ctrl-C"))
        context.err.line(say("Run `satchel mcp install`"), "", "→ ")
    with closed_at_exit(own_skills(context)) as satchel:
        print_untrusted_count(context, satchel)
        serve_stdio(satchel, tools=tools)
    return 0


def _http(context: CliContext, web: Web, *, tools: bool) -> int:
    from satchel.integrations.mcp import serve_http

    with closed_at_exit(own_skills(context)) as satchel:
        web = web._replace(started=partial(_print_started, context, satchel))
        serve_http(satchel, web, tools=tools)
    return 0


def _refuse_web_options() -> None:
    ctx = click.get_current_context()
    for option in ctx.command.params:
        name = option.name or ""
        source = ctx.get_parameter_source(name)
        given = source is click.core.ParameterSource.COMMANDLINE and option.expose_value
        if given and name not in _STDIO_OPTIONS:
            raise InvalidInput(
                say("`{option}` is only for a server over HTTP", option=option.opts[0]),
                say("Give `{option}` too", option="--http"),
            )


def _refuse_oauth_options() -> None:
    ctx = click.get_current_context()
    for option in ctx.command.params:
        if option.name in _OAUTH_OPTIONS and ctx.params.get(option.name):
            raise InvalidInput(
                say("`{option}` needs `--issuer`: nobody would be asked for a token",
                    option=option.opts[0]),
                say("Give `--issuer` and `--audience`"),
            )  # fmt: skip


def own_skills(context: CliContext, *, announce: bool = True) -> Satchel:
    """The project without the skills of servers, which clients can connect to themselves.

    This also prevents a server from connecting to itself. With `announce`, the omission is printed.
    """
    from satchel.project import library_for
    from satchel.satchel import Satchel
    from satchel.settings import SERVER

    settings = context.satchel.settings
    near = tuple(one for one in settings.locations if not one.startswith(SERVER))
    if not settings.servers and len(near) == len(settings.locations):
        context.satchel.index_wait_s = 0.0
        return context.satchel
    if announce:
        context.err.line(say("Skills of other servers are left out: clients can connect to those"))
    settings = settings._replace(servers={}, locations=near)
    return Satchel(library_for(settings), settings)


def _print_started(context: CliContext, satchel: Satchel, url: str, token: str) -> None:
    count = len(satchel.library.snapshot().for_model)
    err = context.err
    message = say("{count} skills at {url}", count=count, url=url)
    err.line(say("1 skill at {url}", url=url) if count == 1 else message, "bold")
    if token:
        err.line(say("Clients need this header; `--token-env` keeps a token of your own:"))
        err.write(f"Authorization: Bearer {token}\n")
    print_untrusted_count(context, satchel)
    err.line(say("End it with Ctrl-C"), "dim")
    err.stream.flush()


def print_untrusted_count(context: CliContext, satchel: Satchel) -> None:
    """Print how many skills are hidden from clients because their folder is untrusted."""
    if line := satchel.library.untrusted_notice():
        context.err.line(render(line))


class _UnservedSkill(NamedTuple):
    skill: Skill
    kind: str
    """`untrusted`, `blocked`, `people-only` or `excluded`."""
    reason: str
    fix: str


def _valid_but_unserved(snapshot: Snapshot) -> list[_UnservedSkill]:
    rows: list[_UnservedSkill] = []
    for skill in snapshot.hidden:
        if skill.state == "untrusted":
            step = say("Run `{command}`", command="satchel trust")
            rows.append(_UnservedSkill(skill, "untrusted", say("it is not trusted yet"), step))
        elif skill.state == "blocked":
            problem = Problem("blocked", values={"name": skill.typed})
            rows.append(_UnservedSkill(skill, "blocked", say("the scan blocks it"), problem.fix))
        elif skill.state == "excluded":
            step = say("Change the settings `include`, `exclude` and `tags` if it is wanted")
            rows.append(_UnservedSkill(skill, "excluded", say("your settings leave it out"), step))
    for skill in snapshot.skills:
        if not skill.for_model:
            reason = say("only people may load it: it is a prompt, and no skill in the list")
            rows.append(_UnservedSkill(skill, "people-only", reason, ""))
    return rows


@command(
    say("Say which skills of this project can be served, and why others cannot."),
    "satchel mcp check",
    "satchel mcp check --json",
)
def check(context: CliContext, as_json: bool) -> int:
    from satchel.integrations.mcp.skill_resources import ManifestCache, SkillResources

    satchel = own_skills(context)
    library = satchel.library
    kept = _valid_but_unserved(library.snapshot())
    manifests = ManifestCache(library)
    served = SkillResources(library, manifests)
    good = [(path, one) for path, one in served.manifests(served.paths)]
    bad = manifests.refused()
    if as_json:
        write_json(
            {
                "served": [{"path": path, "files": len(one.files)} for path, one in good],
                "unserved": [
                    {"ref": one.skill.ref, "reason": one.reason, "fix": one.fix} for one in bad
                ],
                "kept_back": [
                    {"ref": one.skill.ref, "kind": one.kind, "reason": one.reason, "fix": one.fix}
                    for one in kept
                ],
            }
        )
        return 1 if bad else 0
    # Built-in skills are always served and need no row.
    own = [(path, one) for path, one in good if one.skill.origin.source != "builtin"]
    for path, one in own:
        size = sum(item.size for item in one.files.values())
        count = len(one.files)
        message = (
            say("1 file, {size} bytes", size=size)
            if count == 1
            else say("{files} files, {size} bytes", files=count, size=size)
        )
        context.out.line(f"● {one_line(path)}  {message}")
    for one in bad:
        context.out.line(f"✗ {one_line(one.skill.name)}: {one_line(one.reason)}")
        context.out.line(one_line(one.fix), "dim", "  → ")
    for one in kept:
        context.out.line(f"○ {one_line(one.skill.name)}: {one_line(one.reason)}")
        if one.fix:
            context.out.line(one_line(one.fix), "dim", "  → ")
    message = say("{good} skills can be served, {bad} cannot", good=len(own), bad=len(bad))
    if len(own) == 1:
        message = say("1 skill can be served, {bad} cannot", bad=len(bad))
    context.err.line(message)
    print_untrusted_count(context, satchel)
    if len(own) < len(good):
        count = len(good) - len(own)
        more = say("The {count} that come with Satchel can be, too", count=count)
        if count == 1:
            more = say("The one that comes with Satchel can be, too")
        context.err.line(more, "dim")
    return 1 if bad else 0


CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode", "codex", "gemini")
_INSTALL_COMMAND = 'uv tool install "satchel[mcp]"'
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_OPTIONS = (
    click.argument("client", type=OneOf(CLIENTS), required=False, metavar="CLIENT"),
    click.option(
        "--client", "named", type=OneOf(CLIENTS), metavar="CLIENT",
        help=say("Another way to give CLIENT."),
    ),
    click.option(
        "--scope", "where", type=OneOf(["user", "project"]),
        help=say(
            "Your own configuration, or this project's. Unless given: `project` for "
            "`claude-code` and `vscode`, `user` for the others."
        ),
    ),
    dry_run_option(),
    click.option("--yes", is_flag=True, help=say("Change it without asking.")),
)  # fmt: skip


def _options(function: Callable[..., int]) -> Callable[..., int]:
    """The options of both commands."""
    for one in reversed(_OPTIONS):
        function = one(function)
    return function


@command(
    say("Tell another program of this server, so that it has your skills.")
    + "\n\n"
    + say(
        "CLIENT is one of {clients}. What would change in its configuration is shown first.",
        clients=listed(f"`{one}`" for one in CLIENTS),
    ),
    "satchel mcp install claude-code",
    "satchel mcp install cursor --scope user --dry-run",
)
@_options
def install(
    context: CliContext, client: str | None, named: str | None, where: str | None, **decision: Any
) -> int:
    from satchel._optional import require
    from satchel.integrations.mcp.client_config import plan

    name = _one_client(client, named)
    require("mcp", "mcp")  # else the program would start a server that cannot run
    change = plan(name, cast("Scope | None", where), context.project)
    done = say("{program} has the skills from its next start on", program=change.program.title)
    same = say("{program} has this server already", program=change.program.title)
    status = _change(context, change, (done, same), **decision)
    if not decision["dry_run"]:
        _warn_about_path(context, change)
    print_untrusted_count(context, own_skills(context, announce=False))
    return status


@command(
    say("Take this server out of another program's configuration again.")
    + "\n\n"
    + say(
        "CLIENT is one of {clients}. What would change in its configuration is shown first.",
        clients=listed(f"`{one}`" for one in CLIENTS),
    ),
    "satchel mcp uninstall claude-code",
    "satchel mcp uninstall cursor --scope user --dry-run",
)
@_options
def uninstall(
    context: CliContext, client: str | None, named: str | None, where: str | None, **decision: Any
) -> int:
    from satchel.integrations.mcp.client_config import plan

    name = _one_client(client, named)
    change = plan(name, cast("Scope | None", where), context.project, remove=True)
    done = say("{program} no longer has this server", program=change.program.title)
    same = say("{program} does not have this server", program=change.program.title)
    return _change(context, change, (done, same), **decision)


def _warn_about_path(context: CliContext, change: ConfigChange) -> None:
    """Warn when `satchel` is not on the PATH; a project's configuration has no absolute path."""
    import shutil
    import sys

    from satchel._fs import is_inside

    if change.scope == "user":
        return
    found = shutil.which("satchel")
    values = {"program": change.program.title, "command": _INSTALL_COMMAND}
    if found is None:
        text = say(
            "`satchel` is not on the PATH, and {program} has to find it there: run `{command}`, or "
            "give `--scope user`, which writes the whole path",
            **values,
        )
    elif sys.prefix != sys.base_prefix and is_inside(found, sys.prefix):
        text = say(
            "`satchel` is on the PATH only while this virtual environment is active, and {program} "
            "has to find it: run `{command}`, or give `--scope user`, which writes the whole path",
            **values,
        )
    else:
        return
    context.err.line(text, "yellow")


def _one_client(client: str | None, named: str | None) -> str:
    """The program to configure, from the argument or the option."""
    path = click.get_current_context().command_path
    if client is not None and named is not None and client != named:
        raise InvalidInput(
            say("`{one}` and `{two}` are two programs", one=client, two=named),
            say("Run `{command}`", command=f"{path} {client}"),
        )
    found = client or named
    if found is None:
        words = listed(f"`{one}`" for one in CLIENTS)
        raise InvalidInput(
            say("Which program? One of {words}", words=words),
            say("Run `{command}`", command=f"{path} claude-code"),
        )
    return found


def _change(
    context: CliContext,
    change: ConfigChange,
    messages: tuple[str, str],
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    from satchel.integrations.mcp.client_config import apply

    done, same = messages
    if not change.needed:
        if as_json:
            write_json({"path": change.path, "changed": False, "backup": None})
        else:
            context.err.line(same)
        return 0
    lines = change.difference(short_path(change.path))
    if not as_json:
        out = context.out
        for line in lines:  # not wrapped: these are lines of a file
            out.write(out.paint(clean(line, keep="\t"), _COLOURS.get(line[:1], "")) + "\n")
    if dry_run:
        if as_json:
            write_json({"path": change.path, "changed": False, "difference": lines})
        return 0
    question = say("Write this to `{path}`?", path=short_path(change.path))
    if not yes and not confirm_change(context, question, as_json=as_json):
        context.err.line(say("Nothing was changed"))
        return 0
    copy = apply(change, context.project)
    if as_json:
        write_json({"path": change.path, "changed": True, "backup": copy or None})
        return 0
    context.err.line(f"✓ {done}", "green")
    if copy:
        context.err.line(say("The file as it was: `{path}`", path=short_path(copy)), "dim")
    return 0
