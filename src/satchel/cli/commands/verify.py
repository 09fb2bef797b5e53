"""The command `verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel.cli.console import count_skills, one_line, plural, write_json
from satchel.cli.context import ProgressBar, command, short_path, skill_argument
from satchel.cli.options import flag_option, yes_option
from satchel.cli.plan_prompt import confirm_and_apply, open_store, scope_option
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.context import CliContext
    from satchel.store.install_state import InstallState
    from satchel.store.store import Store

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
    "satchel verify --strict --json",
    "satchel verify --accept pdf-forms",
)
@skill_argument("names", nargs=-1)
@flag_option("--strict", say("Warnings count as errors."))
@flag_option("--accept", say("Record your edits in the lockfile."))
@yes_option()
@scope_option
def verify(
    session: CliContext,
    names: tuple[str, ...],
    strict: bool,
    accept: bool,
    yes: bool,
    scope: str,
    as_json: bool,
) -> int:
    """Print a row for each skill, and the files that differ."""
    store = open_store(session, scope)
    if accept:
        return _accept(session, store, names, yes=yes, as_json=as_json)
    with ProgressBar(say("Checking")) as progress:
        found = store.verify(names, progress=lambda done, total: progress("", done, total))
    drifted = [item for item in found if item.drifted]
    loose = [item for item in found if item.state == "unlocked"]
    if strict:
        drifted += loose
    if as_json:
        write_json({"intact": not drifted, "skills": [item.to_dict() for item in found]})
        return 1 if drifted else 0
    if not found:
        session.err.line(
            say("`{path}` has no installed skills", path=short_path(store.scope.folder))
        )
        if others := len(session.satchel.library.every()):
            skills = count_skills(others)
            text = say(
                "Not locked, in other folders: {skills}; `satchel install` locks what it adds",
                skills=skills,
            )
            session.err.line(text, "", say("hint: "))
        return 0
    _show(session, found)
    err = session.err
    if drifted:
        modified = [item.id for item in drifted if item.state == "modified"]
        missing = any(item.state == "missing" for item in drifted)
        if modified:
            err.line(
                say("Record your edits with `satchel verify --accept {name}`, or restore what "
                    "was locked with `satchel install --frozen`",
                    name=one_line(modified[0])), "", say("hint: "))  # fmt: skip
        elif missing:
            err.line(say("Run `{command}`", command="satchel install"), "", say("hint: "))
        return 1
    locked = len(found) - len(loose)
    if locked:
        text = say("{skills} match the lockfile", skills=count_skills(locked))
        if locked == 1:
            text = say("1 skill matches the lockfile")
        err.write(err.paint(text, "green") + "\n")
    if loose:
        err.line(plural(len(loose), say("unlocked"), say("unlocked")))
    return 0


def _show(session: CliContext, found: list[InstallState]) -> None:
    out = session.out
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for item in found:
        mark, style = _STATES[item.state]
        rows.append([mark, one_line(item.id), say(item.state), _signed(item), _source(item)])
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
                out.line(
                    say("… and {count} more", count=len(paths) - _MAX_FILES_SHOWN), "dim", "  "
                )
        if item.reason:
            out.line(one_line(item.reason), "red", "  ")


def _signed(item: InstallState) -> str:
    if item.signature == "unsigned":
        return ""
    words = {"invalid": say("invalid signature"), "unknown-signer": say("unknown signer")}
    return words.get(item.signature) or one_line(item.signer)


def _source(item: InstallState) -> str:
    if item.entry is None:
        return ""
    place = item.entry.place
    at = place.commit[:12] or place.ref
    path = f":{place.path}" if place.path else ""
    return one_line(f"{place.url}{'@' + at if at else ''}{path}")


def _accept(
    session: CliContext, store: Store, names: Sequence[str], *, as_json: bool, **decision: Any
) -> int:
    """Record the current content in the lockfile."""
    with store.plan_lock(names) as plan:
        if not plan.steps:
            if as_json:
                write_json({**plan.to_dict(), "done": []})
            session.err.line(say("Nothing to do"))
            return 0
        return confirm_and_apply(session, store, plan, dry_run=False, as_json=as_json, **decision)
