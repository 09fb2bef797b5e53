"""How is another program told of this server? Shown first, then written, with a copy kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from satchel._language import listed, say
from satchel.cli.output import clean, write_json
from satchel.cli.session import command, short_path, yes_or_no
from satchel.cli.values import OneOf
from satchel.errors import InvalidInput, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.cli.session import Session
    from satchel.integrations.mcp.setup import Change, Scope

CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode", "codex", "gemini")
_FOR_ALL = 'uv tool install "satchel[mcp]"'
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
    click.option("--dry-run", is_flag=True, help=say("Show what would change, and stop.")),
    click.option("--yes", is_flag=True, help=say("Change it without asking.")),
)  # fmt: skip


def _options(function: Callable[..., int]) -> Callable[..., int]:
    """What `install` and `uninstall` both take."""
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
    session: Session,
    client: str | None,
    named: str | None,
    where: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """The difference on stdout."""
    from satchel._optional import require
    from satchel.integrations.mcp.setup import plan

    name = _one_client(client, named)
    require("mcp", "mcp")  # else the program would start something that cannot run
    change = plan(name, cast("Scope | None", where), session.project)
    done = say("{program} has the skills from its next start on", program=change.program.title)
    same = say("{program} has this server already", program=change.program.title)
    status = _make(session, change, (done, same), dry_run=dry_run, yes=yes, as_json=as_json)
    if not dry_run:
        _warn_of_path(session, change)
    from satchel.cli.serving import own_skills, tell_waiting

    tell_waiting(session, own_skills(session, tell=False))
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
    session: Session,
    client: str | None,
    named: str | None,
    where: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """The difference on stdout."""
    from satchel.integrations.mcp.setup import plan

    name = _one_client(client, named)
    change = plan(name, cast("Scope | None", where), session.project, remove=True)
    done = say("{program} no longer has this server", program=change.program.title)
    same = say("{program} does not have this server", program=change.program.title)
    return _make(session, change, (done, same), dry_run=dry_run, yes=yes, as_json=as_json)


def _warn_of_path(session: Session, change: Change) -> None:
    """A shared file names no path: then the program must find `satchel` by itself."""
    import shutil
    import sys

    from satchel._fs import is_inside

    if change.scope == "user":
        return
    found = shutil.which("satchel")
    values = {"program": change.program.title, "command": _FOR_ALL}
    if found is None:
        told = say(
            "`satchel` is not on the PATH, and {program} has to find it there: run `{command}`, or "
            "give `--scope user`, which writes the whole path",
            **values,
        )
    elif sys.prefix != sys.base_prefix and is_inside(found, sys.prefix):
        told = say(
            "`satchel` is on the PATH only while this virtual environment is active, and {program} "
            "has to find it: run `{command}`, or give `--scope user`, which writes the whole path",
            **values,
        )
    else:
        return
    session.err.line(told, "yellow")


def _one_client(client: str | None, named: str | None) -> str:
    """The program that is meant, given as a word or as an option."""
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


def _make(
    session: Session,
    change: Change,
    words: tuple[str, str],
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    import sys

    from satchel.integrations.mcp.setup import apply

    done, same = words
    if not change.needed:
        if as_json:
            write_json({"path": change.path, "changed": False, "backup": None})
        else:
            session.err.line(same)
        return 0
    lines = change.difference(short_path(change.path))
    if not as_json:
        out = session.out
        for line in lines:  # whole lines, since they are those of a file
            out.write(out.paint(clean(line, keep="\t"), _COLOURS.get(line[:1], "")) + "\n")
    if dry_run:
        if as_json:
            write_json({"path": change.path, "changed": False, "difference": lines})
        return 0
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise Refused(
                say("Nobody is there to be asked"), say("Give `--yes`, or `--dry-run` to look")
            )
        if not yes_or_no(session, say("Write this to `{path}`?", path=short_path(change.path))):
            session.err.line(say("Nothing was changed"))
            return 0
    copy = apply(change, session.project)
    if as_json:
        write_json({"path": change.path, "changed": True, "backup": copy or None})
        return 0
    session.err.line(f"✓ {done}", "green")
    if copy:
        session.err.line(say("The file as it was: `{path}`", path=short_path(copy)), "dim")
    return 0
