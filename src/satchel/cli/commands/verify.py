"""`satchel verify`, `satchel lock` and `satchel export`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import click

from satchel.cli.console import one_line, with_error, write_json
from satchel.cli.context import command, complete_names, short_path
from satchel.cli.options import AnyPath
from satchel.cli.plan_prompt import (
    RISK,
    ask,
    confirm_and_apply,
    decide_options,
    open_store,
    scope_option,
)
from satchel.cli.progress import ProgressBar
from satchel.errors import Incomplete, NotFound
from satchel.i18n import listed, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.context import CliContext
    from satchel.store.tree_merge import InstallState

_STATES = {
    "intact": ("●", "green"),
    "modified": ("▲", "yellow"),
    "missing": ("✗", "red"),
    "unreadable": ("✗", "red"),
    "unlocked": ("○", "dim"),
}
_MAX_FILES_SHOWN = 20


@command(
    say("Compare installed skills with the lockfile, file by file."),
    "satchel verify",
    "satchel verify pdf-forms",
    "satchel verify --json",
    more=say("Exit code 1 when anything is not as it was locked."),
)
@click.argument("names", nargs=-1, shell_complete=complete_names)
@click.option(
    "--strict", is_flag=True, help=say("Skills that are not in the lockfile are wrong, too.")
)
@scope_option
def verify(
    session: CliContext, names: tuple[str, ...], strict: bool, everywhere: bool, as_json: bool
) -> int:
    """Print a row for each skill, and the files that differ."""
    store = open_store(session, everywhere=everywhere)
    with ProgressBar(say("Reading skills")) as progress:
        found = store.verify(names, progress=lambda done, total: progress("", done, total))
    drifted = [item for item in found if item.drifted]
    loose = [item for item in found if item.state == "unlocked"]
    if strict:
        drifted += loose
    if as_json:
        write_json({"intact": not drifted, "skills": [item.to_dict() for item in found]})
        return 1 if drifted else 0
    if not found:
        session.err.line(say("Nothing is installed here"))
        return 0
    _show(session, found)
    err = session.err
    if drifted:
        modified = [item.id for item in drifted if item.state == "modified"]
        missing = any(item.state == "missing" for item in drifted)
        if modified:
            err.line(
                say("Yours? `satchel lock {name}` records the edits. Not yours? "
                    "`satchel install --frozen` brings back what was locked",
                    name=one_line(modified[0])), "", say("hint: "))  # fmt: skip
        elif missing:
            err.line(say("`satchel install` brings back what is missing"), "", say("hint: "))
        return 1
    locked = len(found) - len(loose)
    text = (
        say("1 skill is as it was locked")
        if locked == 1
        else say("{count} skills are as they were locked", count=locked)
    )
    err.write(err.paint(text, "green") + "\n")
    if loose:
        err.line(say("{count} not in the lockfile", count=len(loose)))
    return 0


def _show(session: CliContext, found: list[InstallState]) -> None:
    out = session.out
    words = {
        "intact": say("intact"),
        "modified": say("modified"),
        "missing": say("missing"),
        "unreadable": say("unreadable"),
        "unlocked": say("unlocked"),
    }
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for item in found:
        mark, style = _STATES[item.state]
        rows.append([mark, one_line(item.id), words[item.state], _signed(item), _source(item)])
        styles.append([style, "bold", style, "red" if item.signature == "invalid" else ""])
    out.table(["", say("name"), say("state"), say("signed by"), say("source")], rows, styles)
    for item in found:
        for word, paths in (
            (say("changed"), item.changed),
            (say("added"), item.added),
            (say("removed"), item.removed),
            (say("generated"), item.generated),
        ):
            for path in paths[:_MAX_FILES_SHOWN]:
                out.line(
                    f"{one_line(item.id)}/{one_line(path)}",
                    "",
                    "  ",
                    None,
                    [(word, "yellow"), (" ", "")],
                )
            if len(paths) > _MAX_FILES_SHOWN:
                out.line(say("and {count} more", count=len(paths) - _MAX_FILES_SHOWN), "dim", "  ")
        if item.reason:
            out.line(one_line(item.reason), "red", "  ")


def _signed(item: InstallState) -> str:
    if item.signature == "unsigned":
        return "—"
    words = {"invalid": say("wrong signature"), "unknown-signer": say("somebody unknown")}
    return words.get(item.signature) or one_line(item.signer)


def _source(item: InstallState) -> str:
    if item.entry is None:
        return say("not in the lockfile")
    place = item.entry.place
    at = place.commit[:12] or place.ref
    path = f":{place.path}" if place.path else ""
    return one_line(f"{place.url}{'@' + at if at else ''}{path}")


@command(
    say("Record edits of yours in the lockfile: what is on disk now is what is locked."),
    "satchel lock pdf-forms",
    "satchel lock --rebuild",
    more=say("The next update merges them with what is new."),
)
@click.argument("names", nargs=-1, shell_complete=complete_names)
@click.option(
    "--rebuild",
    is_flag=True,
    help=say("Write a damaged lockfile anew from its sound entries and what is installed."),
)
@click.option("--accept-risk", metavar="WHY", default="", help=RISK)
@scope_option
@decide_options
def lock(
    session: CliContext,
    names: tuple[str, ...],
    rebuild: bool,
    accept_risk: str,
    everywhere: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Record the current content; only imported skills have lock entries."""
    store = open_store(session, everywhere=everywhere)
    if rebuild:
        kept, lost = store.rebuild_lock(dry_run=True)
        if dry_run:
            _print_rebuilt(session, kept, lost, as_json=as_json, dry_run=True)
            return 0
        reason = say("{names} will no longer be locked, which cannot be undone",
                     names=_names_of(lost))  # fmt: skip
        if lost and not yes and not ask(session, reason, say("Go on?")):
            session.err.line(say("Nothing was changed"))
            return 0
        try:
            _print_rebuilt(session, *store.rebuild_lock(), as_json=as_json)
        except Incomplete as exc:
            kept, lost = cast("tuple[list[str], list[str]]", exc.receipt)
            _print_rebuilt(session, kept, lost, as_json=as_json, failed=exc)
            raise
        return 0
    with store.plan_lock(names) as plan:
        if not plan.steps:
            if as_json:
                write_json({**plan.to_dict(), "done": []})
            session.err.line(say("Nothing to record: everything is as it was locked"))
            return 0
        return confirm_and_apply(
            session, store, plan, yes=yes, dry_run=dry_run, as_json=as_json, accept_risk=accept_risk
        )


def _names_of(ids: Sequence[str]) -> str:
    return listed(f"`{one_line(item)}`" for item in ids)


def _print_rebuilt(
    session: CliContext,
    kept: Sequence[str],
    lost: Sequence[str],
    *,
    as_json: bool,
    dry_run: bool = False,
    failed: Incomplete | None = None,
) -> None:
    if as_json:
        made = {"kept": list(kept), "lost": list(lost)}
        write_json(with_error({**made, "dry_run": True} if dry_run else made, failed))
        return
    err = session.err
    err.line(
        say("Entries that would be kept: {count}", count=len(kept))
        if dry_run
        else say("The lockfile was written anew: {count} entries kept", count=len(kept))
    )
    if lost:
        err.line(say("Sources lost: {names}", names=_names_of(lost)), "yellow")
        err.line(say("Import them again to have them locked"), "", say("hint: "))


@command(
    say("Write a skill into an archive that is the same, byte for byte, wherever it is made."),
    "satchel export pdf-forms",
    "satchel export pdf-forms --output pdf-forms.tar.gz",
)
@click.argument("name", shell_complete=complete_names)
@click.option(
    "--output", type=AnyPath(dir_okay=False), help=say("The file; `NAME.zip` here by default.")
)
@click.option("--yes", is_flag=True, help=say("Overwrite the file without asking."))
def export(session: CliContext, name: str, output: str | None, yes: bool, as_json: bool) -> int:
    """Write an archive of any skill of the library."""
    from satchel.library.integrity import tree_of
    from satchel.skill.file_tree import seal
    from satchel.store.disk_errors import disk_errors_as_refusal
    from satchel.store.export import write_archive
    from satchel.store.sources import subtree

    skill = session.find(name)[0]
    target = os.path.abspath(output or f"{os.path.basename(skill.base_dir)}.zip")
    if os.path.isdir(target):
        target = os.path.join(target, f"{os.path.basename(skill.base_dir)}.zip")
    if not os.path.isdir(os.path.dirname(target)):
        raise NotFound(
            say("There is no folder `{path}`", path=one_line(os.path.dirname(target))),
            say("Make it, or give another file with `--output`"),
        )
    if os.path.exists(target) and not yes:
        reason = say("`{path}` exists", path=one_line(short_path(target)))
        hint = say("Give another file with `--output`, or `--yes`")
        if not ask(session, reason, say("Overwrite it?"), hint):
            session.err.line(say("Nothing was changed"))
            return 0
    with disk_errors_as_refusal(target):
        tree = subtree(tree_of(skill))
        made = write_archive(tree, target, prefix=os.path.basename(skill.base_dir))
    for note in (*tree.notes, *made.notes):
        session.err.line(one_line(note))
    if as_json:
        write_json({"path": target, "tree": seal(tree).digest})
    else:
        session.out.data(target)
    return 0
