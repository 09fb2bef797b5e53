"""How do other programs get these skills, and we theirs? mcp."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from satchel._language import say
from satchel.cli.output import one_line, write_json
from satchel.cli.session import command
from satchel.cli.values import OneOf, WholeNumber, help_hint
from satchel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Generator

    from satchel.cli.session import Session
    from satchel.facade import Satchel
    from satchel.integrations.mcp.over_http import Web

CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode", "codex", "gemini")
PORT = 8765
HOSTING = ("add", "list", "remove", "copy")
"""What is about the servers that give us skills, in `servers`."""
ACTIONS = ("serve", "check", "install", "uninstall", *HOSTING)
_WEB = ("host", "port", "token_file", "clients", "issuer", "audience", "jwks", "scopes", "names")
"""What only counts over HTTP."""
_BELONGS = {
    **dict.fromkeys((*_WEB, "http", "no_tools"), ("serve",)),
    "token_env": ("serve", "add"),
    **dict.fromkeys(("client", "where", "dry_run", "yes"), ("install", "uninstall")),
    **dict.fromkeys(("headers", "env", "unlisted"), ("add",)),
    "to": ("copy",),
}
"""Option -> the actions that it belongs to. With another one it would change nothing."""


@command(
    say("Give your skills to any program that speaks MCP.")
    + "\n\n"
    + say(
        "`serve` speaks on stdin and stdout, or with `--http` over the network; `check` says which "
        "skills can be served; `install` and `uninstall` change the configuration of another "
        "program, and show what would change first."
    )
    + "\n\n"
    + say(
        "The other way round, `add NAME ADDRESS` (or a command after `--`), `list` and `remove` "
        "say from which servers you take skills; `copy SKILL` makes one of theirs your own."
    ),
    "satchel mcp",
    "satchel mcp check",
    "satchel mcp install --client claude-code",
    "satchel mcp serve --http --token-env SKILLS_TOKEN",
    "satchel mcp add docs https://skills.example.com/mcp",
    "satchel mcp add local -- uvx our-skills",
    "satchel mcp list",
    more=say("Nothing is open to other machines unless `--host` says so and a token is asked for."),
)
@click.argument("action", type=OneOf(ACTIONS), default="serve")
@click.argument("words", nargs=-1)
@click.option("--http", is_flag=True, help=say("serve: over HTTP instead of stdin and stdout."))
@click.option("--host", default="127.0.0.1", help=say("serve: the address to listen on."))
@click.option(
    "--port",
    type=WholeNumber(),
    default=PORT,
    show_default=True,
    help=say("serve: the port; 0 takes a free one."),
)
@click.option(
    "--token-env", metavar="NAME", help=say("serve, add: the variable that has the token.")
)
@click.option("--token-file", metavar="FILE", help=say("serve: the file that has the token."))
@click.option("--clients", metavar="FILE", help=say("serve: who may have what, as TOML."))
@click.option("--issuer", metavar="URL", help=say("serve: the OAuth server whose tokens count."))
@click.option("--audience", metavar="URL", help=say("serve: for whom its tokens must be."))
@click.option("--jwks", metavar="URL", help=say("serve: where its public keys are."))
@click.option(
    "--oauth-scope", "scopes", multiple=True, help=say("serve: a scope a token must have.")
)
@click.option("--name", "names", multiple=True, metavar="HOST", help=say("serve: a further name."))
@click.option("--no-tools", is_flag=True, help=say("serve: the extension and prompts only."))
@click.option("--client", type=OneOf(CLIENTS), help=say("install: which program."))
@click.option(
    "--scope",
    "where",
    type=OneOf(["user", "project"]),
    help=say("install: for all your projects, or for this one."),
)
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VARIABLE", help=say("add: a header.")
)
@click.option(
    "--env", multiple=True, metavar="NAME", help=say("add: a variable that the command may see.")
)
@click.option(
    "--skill", "unlisted", multiple=True, metavar="URI", help=say("add: one it does not list.")
)
@click.option("--to", metavar="DIR", help=say("copy: the folder to make."))
@click.option("--dry-run", is_flag=True, help=say("install: only show what would change."))
@click.option("--yes", is_flag=True, help=say("install: change it without asking."))
def mcp(
    session: Session,
    action: str,
    http: bool,
    host: str,
    port: int,
    token_env: str | None,
    token_file: str | None,
    clients: str | None,
    issuer: str | None,
    audience: str | None,
    jwks: str | None,
    scopes: tuple[str, ...],
    names: tuple[str, ...],
    no_tools: bool,
    client: str | None,
    where: str | None,
    words: tuple[str, ...],
    headers: tuple[str, ...],
    env: tuple[str, ...],
    unlisted: tuple[str, ...],
    to: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """The protocol on stdout; words for people on stderr."""
    _refuse_strangers(action, http=http)
    if action in HOSTING:
        from satchel.cli import servers

        if action == "add":
            return servers.add_server(
                session, words, token=token_env, headers=headers, env=env, skills=unlisted,
                as_json=as_json,
            )  # fmt: skip
        if action == "copy":
            return servers.copy_skill(session, words, to=to, as_json=as_json)
        act = servers.show_servers if action == "list" else servers.remove_server
        return act(session, words, as_json=as_json)
    if words:
        raise InvalidInput(
            say("`{command}` does not take `{words}`", command=f"satchel mcp {action}",
                words=" ".join(words)),
            help_hint(click.get_current_context()),
        )  # fmt: skip
    if action in {"install", "uninstall"}:
        if client is None:
            raise InvalidInput(
                say("Which program? Give `--client`"), help_hint(click.get_current_context())
            )
        from satchel.cli.connecting import connect, disconnect

        change = connect if action == "install" else disconnect
        return change(session, client, where, dry_run=dry_run, yes=yes, as_json=as_json)
    if action == "check":
        return _check(session, as_json=as_json)
    from satchel._optional import require

    require("mcp", "mcp")
    if not http:
        return _stdio(session, tools=not no_tools)
    from satchel.integrations.mcp.access import others_can_read, read_clients
    from satchel.integrations.mcp.issuer import OAuth
    from satchel.integrations.mcp.over_http import Web

    if (issuer is None) != (audience is None):
        raise InvalidInput(
            say("`--issuer` and `--audience` belong together"),
            help_hint(click.get_current_context()),
        )
    web = Web(
        host,
        port,
        token_env or "",
        token_file or "",
        tuple(read_clients(clients)) if clients else (),
        OAuth(issuer, audience, jwks or "", scopes) if issuer and audience else None,
        names,
    )
    for path in filter(None, (web.token_file, *(one.file for one in web.clients))):
        if others_can_read(path):
            session.err.line(
                say("Others on this machine can read the token in `{path}`", path=one_line(path))
            )
            step = say("Run `{command}`", command=f"chmod 600 {one_line(path)}")
            session.err.line(step, "", "→ ")
    return _http(session, web, tools=not no_tools)


def _stdio(session: Session, *, tools: bool) -> int:
    from satchel.integrations.mcp import serve_stdio

    if sys.stdin.isatty():
        session.err.line(say("A program is meant to speak here, not a person: end it with Ctrl-C"))
        session.err.line(say("Run `satchel mcp install --client NAME`"), "", "→ ")
    with _ending(_own(session)) as satchel:
        serve_stdio(satchel, tools=tools)
    return 0


def _http(session: Session, web: Web, *, tools: bool) -> int:
    from satchel.integrations.mcp import serve_http

    with _ending(_own(session)) as satchel:
        web = web._replace(started=partial(_told, session, satchel))
        serve_http(satchel, web, tools=tools)
    return 0


def _refuse_strangers(action: str, *, http: bool) -> None:
    """Whoever gives an option expects something of it."""
    context = click.get_current_context()
    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        if name not in _BELONGS or source is not click.core.ParameterSource.COMMANDLINE:
            continue
        if action not in _BELONGS[name]:
            raise InvalidInput(
                say("`{command}` does not take `{words}`", command=f"satchel mcp {action}",
                    words=option.opts[0]),
                say("It belongs to `{command}`", command=f"satchel mcp {_BELONGS[name][0]}"),
            )  # fmt: skip
        if action == "serve" and not http and name in (*_WEB, "token_env"):
            raise InvalidInput(
                say("`{option}` is only for a server over HTTP", option=option.opts[0]),
                say("Give `{option}` too", option="--http"),
            )


def _own(session: Session) -> Satchel:
    """The project's skills without those of servers: they are not ours to hand on.

    A server that asked the servers which are set could be asked by itself.
    """
    from satchel._project import library_for
    from satchel.facade import Satchel
    from satchel.settings import SERVER

    settings = session.satchel.settings
    near = tuple(one for one in settings.locations if not one.startswith(SERVER))
    if not settings.servers and len(near) == len(settings.locations):
        session.satchel.patience = 0.0
        return session.satchel
    session.err.line(say("Skills of other servers are left out: clients can connect to those"))
    settings = settings._replace(servers={}, locations=near)
    return Satchel(library_for(settings), settings)


@contextmanager
def _ending(satchel: Satchel) -> Generator[Satchel]:
    """Programs of skills and connections end with the server, whatever ends it."""
    import signal

    def end(*_: object) -> None:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield satchel
    finally:
        signal.signal(signal.SIGTERM, before)
        satchel.close()


def _told(session: Session, satchel: Satchel, url: str) -> None:
    count = len(satchel.library.snapshot())
    err = session.err
    err.line(say("{count} skills at {url}", count=count, url=url), "bold")
    err.line(say("End it with Ctrl-C"), "dim")
    err.stream.flush()


def _check(session: Session, *, as_json: bool) -> int:
    """Read every skill as a client would; those that are left out, with the reason."""
    from satchel.integrations.mcp.served import Manifests, Served

    library = _own(session).library
    manifests = Manifests(library)
    served = Served(library, manifests)
    good = [(path, one) for path, one in served.manifests(served.paths)]
    bad = manifests.refused()
    if as_json:
        write_json(
            {
                "served": [{"path": path, "files": len(one.files)} for path, one in good],
                "unserved": [
                    {"ref": one.skill.ref, "reason": one.reason, "fix": one.fix} for one in bad
                ],
            }
        )
        return 1 if bad else 0
    for path, one in good:
        size = sum(item.size for item in one.files.values())
        count = len(one.files)
        words = (
            say("1 file, {size} bytes", size=size)
            if count == 1
            else say("{files} files, {size} bytes", files=count, size=size)
        )
        session.out.line(f"● {one_line(path)}  {words}")
    for one in bad:
        session.out.line(f"✗ {one_line(one.skill.name)}: {one_line(one.reason)}")
        session.out.line(one_line(one.fix), "dim", "  → ")
    words = say("{good} skills can be served, {bad} cannot", good=len(good), bad=len(bad))
    session.err.line(words)
    return 1 if bad else 0
