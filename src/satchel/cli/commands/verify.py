"""The command `verify`: compares installed skills with the lockfile, and records edits in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from satchel.cli.console import STATES, count_skills, one_line, plural, write_json
from satchel.cli.context import ProgressBar, command, short_path, skill_argument
from satchel.cli.options import flag_option, yes_option
from satchel.cli.plan_prompt import (
    confirm_and_apply,
    open_store,
    print_repairs,
    scope_option,
)
from satchel.errors import SatchelError
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.store.install_state import InstallState
    from satchel.store.store import Store

_STATE_MARKS = {
    "intact": ("●", "green"),
    "modified": STATES["modified"],
    "missing": ("✗", "red"),
    "unreadable": ("✗", "red"),
    "unlocked": ("○", "dim"),
}
"""State of an installed skill -> its mark and colour."""
_MAX_FILES_SHOWN = 20


@command(
    say("Compare installed skills with the lockfile, file by file."),
    "satchel verify",
    "satchel verify --accept pdf-forms",
    "satchel verify --revoked --json ~/projects/*",
)
@skill_argument("names", nargs=-1)
@flag_option("--strict", say("Warnings count as errors."))
@flag_option("--accept", say("Record your edits in the lockfile."))
@flag_option("--revoked", say("Ask the hubs what they revoked; the names are folders of projects."))
@yes_option()
@scope_option
def verify(
    context: CliContext,
    names: tuple[str, ...],
    strict: bool,
    accept: bool,
    revoked: bool,
    yes: bool,
    scope: str,
    as_json: bool,
) -> int:
    """Print a row for each skill, and the files that differ."""
    if revoked:
        return _show_revoked(context, names, scope, as_json=as_json)
    store = open_store(context, scope, names)
    if accept:
        return _record_edits(context, store, names, yes=yes, as_json=as_json)
    with ProgressBar(say("Checking")) as progress:
        states = store.verify(
            names, progress=lambda completed, total: progress("", completed, total)
        )
    print_repairs(context, store.repaired)
    deviating = [state for state in states if state.drifted]
    unlocked = [state for state in states if state.state == "unlocked"]
    if strict:
        deviating += unlocked
    if as_json:
        write_json({"intact": not deviating, "skills": [state.to_dict() for state in states]})
        return 1 if deviating else 0
    if not states:
        _print_none_installed(context, store)
        return 0
    _print_states(context, states)
    if deviating:
        _print_repair(context.err, deviating)
        return 1
    _print_counts(context.err, len(states) - len(unlocked), len(unlocked))
    return 0


def _print_counts(err: Screen, locked_count: int, unlocked_count: int) -> None:
    """Print how many skills match the lockfile, and how many it does not have."""
    if locked_count:
        text = say("{skills} match the lockfile", skills=count_skills(locked_count))
        if locked_count == 1:
            text = say("1 skill matches the lockfile")
        err.write(err.paint(text, "green") + "\n")
    if unlocked_count:
        err.line(plural(unlocked_count, say("unlocked"), say("unlocked")))


def _print_none_installed(context: CliContext, store: Store) -> None:
    text = say("`{path}` has no installed skills", path=short_path(store.scope.folder))
    context.err.line(text)
    if others := len(context.satchel.library.every()):
        text = say(
            "Not locked, in other folders: {skills}; `satchel install` locks what it adds",
            skills=count_skills(others),
        )
        context.err.line(text, indent=say("hint: "))


def _print_repair(err: Screen, deviating: Sequence[InstallState]) -> None:
    """Print how to keep or to undo the changes of installed skills."""
    modified = [state.id for state in deviating if state.state == "modified"]
    marked = [state.id for state in deviating if state.marked]
    if marked:
        text = say(
            "Edit the conflict marks, or take one side with `satchel update {name} --keep mine` or "
            "`--keep theirs`",
            name=one_line(marked[0]),
        )
        err.line(text, indent=say("hint: "))
    elif modified:
        text = say(
            "Record your edits with `satchel verify --accept {name}`, or restore what "
            "was locked with `satchel install --frozen`",
            name=one_line(modified[0]),
        )
        err.line(text, indent=say("hint: "))
    elif any(state.state == "missing" for state in deviating):
        err.line(say("Run `{command}`", command="satchel install"), indent=say("hint: "))


def _print_states(context: CliContext, states: list[InstallState]) -> None:
    out = context.out
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for state in states:
        mark, style = _STATE_MARKS[state.state]
        label = say(state.state)
        if state.revoked:
            mark, style, label = "✗", "red", say("revoked")
        rows.append([mark, one_line(state.id), label, _source_text(state)])
        styles.append([style, "bold", style])
    out.table(["", say("name"), say("state"), say("source")], rows, styles)
    for state in states:
        _print_files(context, state)
        for reason in filter(None, (state.reason, state.revoked)):
            out.line(f"{one_line(state.id)}: {one_line(reason)}", "red", indent="  ")


def _print_files(context: CliContext, state: InstallState) -> None:
    """Print the files of a skill that differ from the lockfile."""
    out = context.out
    for label, paths in (
        (say("changed"), state.changed),
        (say("added"), state.added),
        (say("removed"), state.removed),
        (say("generated"), state.generated),
        (say("conflict marks"), state.marked),
    ):
        for path in paths[:_MAX_FILES_SHOWN]:
            file = f"{one_line(state.id)}/{one_line(path)}"
            out.line(file, indent="  ", lead=[(label, "yellow"), (" ", "")])
        if len(paths) > _MAX_FILES_SHOWN:
            text = say("… and {count} more", count=len(paths) - _MAX_FILES_SHOWN)
            out.line(text, "dim", indent="  ")


def _source_text(state: InstallState) -> str:
    if state.entry is None:
        return ""
    source = state.entry.place
    revision = source.commit[:12] or source.ref
    path = f":{source.path}" if source.path else ""
    return one_line(f"{source.url}{'@' + revision if revision else ''}{path}")


def _show_revoked(context: CliContext, folders: Sequence[str], scope: str, *, as_json: bool) -> int:
    """Print the revoked skills of projects; a project that cannot be checked counts as one."""
    from satchel.satchel import Satchel

    rows: list[dict[str, str]] = []
    for folder in folders or [context.project]:
        project = os.path.abspath(os.path.expanduser(folder))
        try:
            store = Satchel.for_project(project).store("global" if scope == "user" else "project")
            revoked, lock = store.find_revoked(), store.lock()
        except SatchelError as exc:
            rows.append({"folder": project, "id": "", "source": "", "reason": exc.message})
            continue
        for skill_id, reason in revoked.items():
            source = f"{lock[skill_id].place.url}@{lock[skill_id].place.commit}"
            rows.append({"folder": project, "id": skill_id, "source": source, "reason": reason})
    if as_json:
        write_json(rows)
    for row in () if as_json else rows:
        text = " ".join(filter(None, (row["id"], row["source"])))
        context.out.line(one_line(f"{short_path(row['folder'])}: {text}"), "bold")
        context.out.line(one_line(row["reason"]), "red", indent="  ")
    if not rows and not as_json:
        context.err.line(say("No installed skill is revoked"), "green")
    return 1 if rows else 0


def _record_edits(
    context: CliContext, store: Store, names: Sequence[str], *, as_json: bool, **decision: Any
) -> int:
    """Record the current content in the lockfile."""
    with store.plan_lock(names) as plan:
        if not plan.steps:
            if as_json:
                write_json({**plan.to_dict(), "done": []})
            context.err.line(say("Nothing to do"))
            return 0
        return confirm_and_apply(context, store, plan, dry_run=False, as_json=as_json, **decision)
