"""Which skills are here is the user's business: add, remove, rename, undo."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import click

from satchel._language import listed, say
from satchel.cli.output import one_line, with_error, write_json
from satchel.cli.planning import decide_options, open_store, scope_option, settle, tell_repairs
from satchel.cli.session import command, complete_names
from satchel.errors import Incomplete, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.cli.session import Session
    from satchel.store.history import Entry, Undone


@command(
    say("Write a new, minimal skill."),
    "satchel add release-notes",
    'satchel add "Release Notes" --description "Writes release notes. Use when a version ships."',
    "satchel add 周报生成 --id weekly-report",
    more=say("Its folder is the name in lower case, with hyphens for everything odd."),
)
@click.argument("name")
@click.option("--id", "skill_id", default="", help=say("The folder's name; else the name's."))
@click.option("--description", default="", help=say("What it does and when to use it."))
@scope_option
@click.option("--dry-run", is_flag=True, help=say("Show what would change, and stop."))
def add(
    session: Session,
    name: str,
    skill_id: str,
    description: str,
    everywhere: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """The path on stdout."""
    store = open_store(session, everywhere=everywhere)
    _see_that_it_is_no_skill(name, store.scope.folder)
    with store.plan_add(name, description, skill_id=skill_id) as plan:
        if plan.steps[0].id not in (name, skill_id):
            session.err.line(say("The name became `{name}`", name=plan.steps[0].id), "yellow")
        return settle(session, store, plan, yes=True, dry_run=dry_run, as_json=as_json)


def _see_that_it_is_no_skill(name: str, folder: str) -> None:
    """Whoever names the folder of a skill wants that one, not an empty one of the same name.

    Raises:
        Refused: it is one. Where it is installed already, the store says so.
    """
    path = os.path.abspath(os.path.expanduser(name))
    if not name.strip() or os.path.dirname(path) == os.path.abspath(folder):
        return
    if os.path.isfile(os.path.join(path, "SKILL.md")):
        shown = one_line(name)
        raise Refused(
            say("`{path}` is a skill already, and `satchel add` writes an empty one", path=shown),
            say("Install it with `satchel import {path}`", path=shlex.quote(shown)),
        )


@command(
    say("Take skills of yours away; `satchel undo` brings them back."),
    "satchel remove release-notes",
    "satchel remove release-notes pdf-forms --yes",
)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_names)
@scope_option
@decide_options
def remove(
    session: Session,
    names: tuple[str, ...],
    everywhere: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Asks first."""
    store = open_store(session, everywhere=everywhere)
    with store.plan_remove(names) as plan:
        return settle(session, store, plan, yes=yes, dry_run=dry_run, as_json=as_json)


@command(
    say("Give a skill another name: its folder and its `name` field."),
    "satchel rename pdf-forms fill-pdf",
)
@click.argument("name", shell_complete=complete_names)
@click.argument("new")
@scope_option
@click.option("--dry-run", is_flag=True, help=say("Show what would change, and stop."))
def rename(
    session: Session, name: str, new: str, everywhere: bool, dry_run: bool, as_json: bool
) -> int:
    """Nothing is lost by it, so it does not ask."""
    store = open_store(session, everywhere=everywhere)
    with store.plan_rename(name, new) as plan:
        return settle(session, store, plan, yes=True, dry_run=dry_run, as_json=as_json)


@command(
    say("Bring back the skills and the lockfile as they were before the last change."),
    "satchel undo",
    "satchel undo --list",
    "satchel undo --redo",
)
@scope_option
@click.option("--redo", is_flag=True, help=say("Take the last undo back."))
@click.option("--list", "listing", is_flag=True, help=say("Show the changes that can be undone."))
def undo(session: Session, everywhere: bool, redo: bool, listing: bool, as_json: bool) -> int:
    """One step back at a time."""
    store = open_store(session, everywhere=everywhere)
    if listing:
        return _list_history(session, store.history(), as_json=as_json)
    try:
        done = store.undo(redo=redo)
    except Incomplete as exc:
        from satchel.store.history import Undone

        if isinstance(exc.receipt, Undone):  # it was made: that is told first
            _tell_undone(session, exc.receipt, redo=redo, as_json=as_json, failed=exc)
        raise
    _tell_undone(session, done, redo=redo, as_json=as_json)
    return 0


def _tell_undone(
    session: Session,
    done: Undone,
    *,
    redo: bool,
    as_json: bool,
    failed: Incomplete | None = None,
) -> None:
    if as_json:
        word = "redone" if redo else "undone"
        told = {"notes": list(done.notes), "repaired": list(done.repaired)}
        trouble = [line for line in done.trouble if line]
        made = {word: done.op, "skills": list(done.ids), "number": done.number}
        write_json(with_error({**made, **told, "trouble": trouble}, failed))
        return
    tell_repairs(session, done.repaired)
    names = listed(f"`{one_line(item)}`" for item in done.ids)
    err = session.err
    what = _doing(done.op)
    text = (
        say("Done again: {what} {names}", what=what, names=names)
        if redo
        else say("Undone: {what} {names}", what=what, names=names)
    )
    err.write(err.paint(text, "green") + "\n")
    for note in done.notes:
        err.line(one_line(note), "dim")


def _list_history(session: Session, entries: Sequence[Entry], *, as_json: bool) -> int:
    if as_json:
        write_json([entry._asdict() for entry in entries])
        return 0
    if not entries:
        session.err.line(say("Nothing was changed here yet"))
        return 0
    rows = [
        [str(entry.number), _when(entry.time), entry.op, became, one_line(entry.summary)]
        for entry, became in zip(entries, _became(entries), strict=True)
    ]
    head = ["", say("when"), say("what"), say("state"), say("which")]
    session.out.table(head, rows, [["dim", "dim", "bold"] for _ in rows])
    return 0


def _became(entries: Sequence[Entry]) -> Iterator[str]:
    """What became of each change, the newest first; one step back or forward is next."""
    words = {
        "done": say("done"),
        "undone": say("taken back"),
        "past": say("over"),
        "damaged": say("damaged"),
    }
    steps = {"done": say("undo is next"), "undone": say("redo is next")}
    for entry in entries:
        step = steps.pop(entry.state, "")
        # What was rebuilt is not taken back, and stands before all that is older.
        told = step if entry.op != "rebuild" else ""
        yield f"{words[entry.state]}{say(': ')}{told}" if told else words[entry.state]


def _when(time: str) -> str:
    """A time of the history, as people write it."""
    return time.replace("T", " ").removesuffix("Z")


def _doing(op: str) -> str:
    """What was undone, as a word in a sentence."""
    words = {
        "add": say("adding"),
        "import": say("importing"),
        "update": say("updating"),
        "remove": say("removing"),
        "rename": say("renaming"),
        "install": say("installing"),
        "lock": say("locking"),
        "edit": say("editing"),
        "rebuild": say("rebuilding"),
    }
    return words.get(op, op)
