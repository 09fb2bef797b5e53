"""How do other programs get these skills, and we theirs? mcp, with serve and check.

`connecting` has `install` and `uninstall`; `servers` has what is about servers that give us skills.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from satchel._language import render, say
from satchel.cli.output import one_line, write_json
from satchel.cli.session import command, group
from satchel.cli.values import WholeNumber, help_hint
from satchel.errors import InvalidInput
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Generator

    from satchel.cli.session import Session
    from satchel.facade import Satchel
    from satchel.integrations.mcp.over_http import Web
    from satchel.library import Snapshot
    from satchel.skill.model import Skill

PORT = 8765
_ANYWHERE = ("http", "no_tools")
"""Options of `serve` that count on stdin and stdout, too."""
_OF_ISSUER = ("jwks", "scopes")
"""Options that say something of the tokens of an OAuth server."""


@group(
    say("Give your skills to any program that speaks MCP, or take skills from MCP servers."),
    "satchel mcp install claude-code",
    "satchel mcp check",
    "satchel mcp serve --http",
    "satchel mcp add docs https://skills.example.com/mcp",
    places={
        "install": "connecting:install",
        "uninstall": "connecting:uninstall",
        "serve": "serving:serve",
        "check": "serving:check",
        "add": "servers:add",
        "list": "servers:list_",
        "remove": "servers:remove",
        "copy": "servers:copy",
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
def mcp(session: Session) -> int:
    """Without a command: programs speak on stdin, people look for help."""
    context = click.get_current_context()
    if context.invoked_subcommand is not None:
        return 0
    if sys.stdin.isatty():
        click.echo(context.get_help())
        return 0
    return _stdio(session, tools=True)


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
@click.option("--no-tools", is_flag=True, help=say("The Skills extension and prompts only."))
@click.option("--http", is_flag=True, help=say("Over HTTP instead of stdin and stdout."))
@click.option(
    "--host", default="127.0.0.1", help=say("The address to listen on, 127.0.0.1 unless given.")
)
@click.option(
    "--port", type=WholeNumber(most=65_535), default=PORT,
    help=say("The port, 8765 unless given; 0 takes a free one."),
)  # fmt: skip
@click.option("--name", "names", multiple=True, metavar="HOST",
              help=say("A further name under which clients reach it."))  # fmt: skip
@click.option("--token-env", metavar="NAME", help=say("The variable that has the token."))
@click.option("--token-file", metavar="FILE", help=say("The file that has the token."))
@click.option(
    "--no-token", is_flag=True,
    help=say("Ask for no token: every user of this machine can connect."),
)  # fmt: skip
@click.option("--clients", metavar="FILE", help=say("Who may have what, as TOML."))
@click.option("--issuer", metavar="URL", help=say("The OAuth server whose tokens count."))
@click.option("--audience", metavar="URL", help=say("For whom its tokens must be."))
@click.option("--jwks", metavar="URL", help=say("Where its public keys are."))
@click.option("--oauth-scope", "scopes", multiple=True, help=say("A scope a token must have."))
def serve(
    session: Session,
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
    """The protocol on stdout; words for people on stderr."""
    from satchel._optional import require

    if not http:
        _refuse_web_options()
    require("mcp", "mcp")
    if not http:
        return _stdio(session, tools=not no_tools)
    from satchel.integrations.mcp.over_http import OAuth, Web, others_can_read, read_clients

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
        session.err.line(say("Run `satchel mcp install`"), "", "→ ")
    with _ending(own_skills(session)) as satchel:
        tell_waiting(session, satchel)
        serve_stdio(satchel, tools=tools)
    return 0


def _http(session: Session, web: Web, *, tools: bool) -> int:
    from satchel.integrations.mcp import serve_http

    with _ending(own_skills(session)) as satchel:
        web = web._replace(started=partial(_told, session, satchel))
        serve_http(satchel, web, tools=tools)
    return 0


def _refuse_web_options() -> None:
    """Whoever gives an option expects something of it."""
    context = click.get_current_context()
    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        given = source is click.core.ParameterSource.COMMANDLINE and option.expose_value
        if given and name not in _ANYWHERE:
            raise InvalidInput(
                say("`{option}` is only for a server over HTTP", option=option.opts[0]),
                say("Give `{option}` too", option="--http"),
            )


def _refuse_oauth_options() -> None:
    """What narrows whose tokens count does nothing where no tokens of an issuer count."""
    context = click.get_current_context()
    for option in context.command.params:
        if option.name in _OF_ISSUER and context.params.get(option.name):
            raise InvalidInput(
                say("`{option}` needs `--issuer`: nobody would be asked for a token",
                    option=option.opts[0]),
                say("Give `--issuer` and `--audience`"),
            )  # fmt: skip


def own_skills(session: Session, *, tell: bool = True) -> Satchel:
    """The project's skills without those of servers: they are not ours to hand on.

    A server that asked the servers which are set could be asked by itself.

    Args:
        session: Who asks.
        tell: Say that those of servers are left out.
    """
    from satchel._project import library_for
    from satchel.facade import Satchel
    from satchel.settings import SERVER

    settings = session.satchel.settings
    near = tuple(one for one in settings.locations if not one.startswith(SERVER))
    if not settings.servers and len(near) == len(settings.locations):
        session.satchel.patience = 0.0
        return session.satchel
    if tell:
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


def _told(session: Session, satchel: Satchel, url: str, token: str) -> None:
    count = len(satchel.library.snapshot().for_model)
    err = session.err
    words = say("{count} skills at {url}", count=count, url=url)
    err.line(say("1 skill at {url}", url=url) if count == 1 else words, "bold")
    if token:
        err.line(say("Clients need this header; `--token-env` keeps a token of your own:"))
        err.write(f"Authorization: Bearer {token}\n")
    tell_waiting(session, satchel)
    err.line(say("End it with Ctrl-C"), "dim")
    err.stream.flush()


def tell_waiting(session: Session, satchel: Satchel) -> None:
    """Print how many skills no client sees because their folder is not trusted."""
    if line := satchel.library.waiting_line():
        session.err.line(render(line))


class _Kept(NamedTuple):
    """A skill that is known here and that clients do not get as a skill."""

    skill: Skill
    kind: str
    """`untrusted`, `blocked`, `people-only` or `excluded`."""
    reason: str
    fix: str


def _kept_back(look: Snapshot) -> list[_Kept]:
    """What no client gets, though nothing is wrong with it."""
    rows: list[_Kept] = []
    for skill in look.hidden:
        if skill.state == "untrusted":
            step = say("Run `{command}`", command="satchel trust")
            rows.append(_Kept(skill, "untrusted", say("it is not trusted yet"), step))
        elif skill.state == "blocked":
            problem = Problem("blocked", values={"name": skill.typed})
            rows.append(_Kept(skill, "blocked", say("the scan blocks it"), problem.fix))
        elif skill.state == "excluded":
            step = say("Change the settings `include`, `exclude` and `tags` if it is wanted")
            rows.append(_Kept(skill, "excluded", say("your settings leave it out"), step))
    for skill in look.skills:
        if not skill.for_model:
            reason = say("only people may load it: it is a prompt, and no skill in the list")
            rows.append(_Kept(skill, "people-only", reason, ""))
    return rows


@command(
    say("Say which skills of this project can be served, and why others cannot."),
    "satchel mcp check",
    "satchel mcp check --json",
)
def check(session: Session, as_json: bool) -> int:
    """Read every skill as a client would; those that are left out, with the reason."""
    from satchel.integrations.mcp.served import Manifests, Served

    satchel = own_skills(session)
    library = satchel.library
    kept = _kept_back(library.snapshot())
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
                "kept_back": [
                    {"ref": one.skill.ref, "kind": one.kind, "reason": one.reason, "fix": one.fix}
                    for one in kept
                ],
            }
        )
        return 1 if bad else 0
    # What comes with Satchel is served wherever it runs: nobody has to look at that.
    own = [(path, one) for path, one in good if one.skill.origin.source != "builtin"]
    for path, one in own:
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
    for one in kept:
        session.out.line(f"○ {one_line(one.skill.name)}: {one_line(one.reason)}")
        if one.fix:
            session.out.line(one_line(one.fix), "dim", "  → ")
    words = say("{good} skills can be served, {bad} cannot", good=len(own), bad=len(bad))
    if len(own) == 1:
        words = say("1 skill can be served, {bad} cannot", bad=len(bad))
    session.err.line(words)
    tell_waiting(session, satchel)
    if len(own) < len(good):
        count = len(good) - len(own)
        more = say("The {count} that come with Satchel can be, too", count=count)
        if count == 1:
            more = say("The one that comes with Satchel can be, too")
        session.err.line(more, "dim")
    return 1 if bad else 0
