"""How is another program told of this server? Shown first, then written, with a copy kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from satchel._language import say
from satchel.cli.output import clean, write_json
from satchel.cli.session import short_path, yes_or_no
from satchel.errors import Refused

if TYPE_CHECKING:
    from satchel.cli.session import Session
    from satchel.integrations.mcp.setup import Change, Scope

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def connect(
    session: Session, client: str, where: str | None, *, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """`satchel mcp install`."""
    from satchel._optional import require
    from satchel.integrations.mcp.setup import plan_install

    require("mcp", "mcp")  # else the program would start something that cannot run
    change = plan_install(client, cast("Scope | None", where), session.project)
    done = say("{program} has the skills from its next start on", program=change.program.title)
    same = say("{program} has this server already", program=change.program.title)
    return _make(session, change, (done, same), dry_run=dry_run, yes=yes, as_json=as_json)


def disconnect(
    session: Session, client: str, where: str | None, *, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """`satchel mcp uninstall`."""
    from satchel.integrations.mcp.setup import plan_uninstall

    change = plan_uninstall(client, cast("Scope | None", where), session.project)
    done = say("{program} no longer has this server", program=change.program.title)
    same = say("{program} does not have this server", program=change.program.title)
    return _make(session, change, (done, same), dry_run=dry_run, yes=yes, as_json=as_json)


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

    from satchel.integrations.mcp.setup import write

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
    copy = write(change)
    if as_json:
        write_json({"path": change.path, "changed": True, "backup": copy or None})
        return 0
    session.err.line(f"✓ {done}", "green")
    if copy:
        session.err.line(say("The file as it was: `{path}`", path=short_path(copy)), "dim")
    return 0
