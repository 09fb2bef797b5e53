"""How is a change shown before it is made, and who says yes?

`settle` is what every command that changes skills ends with: show the plan, ask where something
would be lost or looks odd, carry it out, and say what was done.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from satchel._language import render, say
from satchel.cli.output import SEVERITIES, one_line, told_error, write_json
from satchel.cli.session import yes_or_no
from satchel.errors import Incomplete, Refused, SatchelError
from satchel.presentation import about_step, difference_rows, names_of
from satchel.store.plan import verdict_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from satchel.cli.output import Screen
    from satchel.cli.session import Session
    from satchel.store.plan import Difference, Kind, Plan, Step
    from satchel.store.store import Receipt, Store

_MARKS: dict[Kind, tuple[str, str]] = {
    "add": ("+", "green"),
    "replace": ("~", "yellow"),
    "remove": ("-", "red"),
    "same": ("=", "dim"),
    "refused": ("✗", "red"),
}
_VERDICTS = {"blocked": "red", "review": "yellow", "incomplete": "yellow", "no findings": "green"}
RISK = say("Install what the scan blocked, and write this reason into the lockfile.")
_FEW = 8
"""So many skills are shown one by one; more are a table of counts and what needs a look."""
_FILES = 12
_NOTES = 12


def decide_options(function: Callable[..., int]) -> Callable[..., int]:
    """The options of every command that changes skills."""
    for option in (
        click.option("--dry-run", is_flag=True, help=say("Show what would change, and stop.")),
        click.option("--yes", is_flag=True, help=say("Do not ask.")),
    ):
        function = option(function)
    return function


def scope_option(function: Callable[..., int]) -> Callable[..., int]:
    """`--global`, for the user's own skills of every project."""
    words = say("Your own skills for all projects (`~/.config/agents/skills`), not this project's.")
    return click.option("--global", "everywhere", is_flag=True, help=words)(function)


def open_store(session: Session, *, everywhere: bool) -> Store:
    """The store of the project, or of the user."""
    return session.satchel.store("global" if everywhere else "project")


def settle(
    session: Session,
    store: Store,
    plan: Plan,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    accept_risk: str = "",
) -> int:
    """Show a plan, ask, carry it out; returns the exit code.

    Args:
        session: This run.
        store: Carries it out.
        plan: What to do.
        yes: Nobody needs to be asked.
        dry_run: Only show it.
        as_json: For scripts.
        accept_risk: Why blocked skills are installed all the same.
    """
    try:
        return _settle(
            session, store, plan, yes=yes, dry_run=dry_run, as_json=as_json, accept_risk=accept_risk
        )
    except SatchelError as exc:
        # What was made is told as made, whatever could not be done after it.
        from satchel.store.store import Receipt

        made = exc.receipt if isinstance(exc, Incomplete) else None
        receipt = made if isinstance(made, Receipt) else None
        if as_json:
            # A script gets the findings and the reason, not only an exit code.
            write_json({**plan.to_dict(), **_made(receipt), "error": told_error(exc)})
        elif receipt is not None:
            tell_receipt(session, plan, receipt)
        raise


def _made(receipt: Receipt | None) -> dict[str, object]:
    """What was done, for scripts."""
    if receipt is None:
        return {"done": []}
    return {"number": receipt.number, "done": [step.id for step in receipt.done]}


def _settle(
    session: Session,
    store: Store,
    plan: Plan,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    accept_risk: str,
) -> int:
    refused = plan.of_kind("refused")
    if len(refused) == len(plan.steps) == 1 and refused[0].error is not None:
        raise refused[0].error
    tell_repairs(session, plan.stage.notes)
    if not as_json:
        show_plan(session, plan)
        _tell_engines(session, plan)
    if dry_run:
        if as_json:
            write_json({**plan.to_dict(), "dry_run": True})
        else:
            _show_diff(session, plan)
        return 1 if refused or (plan.blocked and not accept_risk) else 0
    reason = "" if yes else _reason_to_ask(plan, accept_risk)
    if reason and not ask(session, reason, say("Go on?")):
        session.err.line(say("Nothing was changed"))
        return 0
    receipt = store.carry_out(plan, accept_risk=accept_risk)
    if as_json:
        write_json({**plan.to_dict(), **_made(receipt)})
    else:
        tell_receipt(session, plan, receipt)
    put = [step.id for step in receipt.done if step.kind in ("add", "replace")]
    tell_hidden(session, [plan.scope.target(skill_id) for skill_id in put])
    return 1 if refused or receipt.left else 0


def _reason_to_ask(plan: Plan, accept_risk: str) -> str:
    """Why a person should decide; nothing when there is no reason."""
    changes = [step for step in plan.changes if accept_risk or not step.blocked]
    if plan.op == "rename" or not changes:
        return ""
    if plan.op == "lock":
        return say("{names} will be locked as on the disk now", names=_names(changes))
    if plan.blocked and accept_risk:
        return say("The scan blocks {names}", names=_names(plan.blocked))
    lost = [step for step in changes if step.kind == "replace"]
    gone = [step for step in changes if step.kind == "remove"]
    odd = [
        step for step in changes if step.report is not None and step.report.verdict != "no findings"
    ]
    if gone and plan.op == "remove":
        return say("{names} will be removed", names=_names(gone))
    edited = [
        step
        for step in lost
        if step.before is not None and step.was != step.before.tree and not step.difference.kept
    ]
    if edited:
        return say("Edits in {names} will be replaced", names=_names(edited))
    if lost:
        return (
            say("{names} will be updated", names=_names(lost))
            if plan.op == "update"
            else say("{names} will be overwritten", names=_names(lost))
        )
    if odd:
        return say("The scan wants a person to look at {names}", names=_names(odd))
    return ""


def ask(session: Session, reason: str, question: str, hint: str = "") -> bool:
    """Ask on the terminal, until the answer is one.

    Raises:
        Refused: nobody is there to answer.
    """
    if not sys.stdin.isatty():
        raise Refused(
            say("{reason}, and nobody is there to ask", reason=reason),
            hint or say("Look at it with `--dry-run`, then give `--yes`"),
        )
    return yes_or_no(session, f"{reason}. {question}")


def _names(steps: Sequence[Step]) -> str:
    return names_of([one_line(step.id) for step in steps])


# --- showing ------------------------------------------------------------------------------


def show_plan(session: Session, plan: Plan) -> None:
    """The plan on stderr."""
    err = session.err
    if len(plan.changes) + len(plan.of_kind("refused")) <= _FEW:
        few = len(plan.steps) <= _FEW
        for step in plan.steps:
            if step.kind != "same" or few:
                show_step(err, step)
        if not few:
            _count(err, plan, "same", say("as they are"))
        return
    _count(err, plan, "add", say("new"))
    _count(err, plan, "replace", say("changed"))
    _count(err, plan, "remove", say("removed"))
    _count(err, plan, "same", say("as they are"))
    _count(err, plan, "refused", say("refused"))
    _show_verdicts(err, plan)
    _show_refused(err, plan.of_kind("refused"))
    for step in plan.changes:
        if _wants_a_look(step):
            show_step(err, step, short=step.kind == "add")
    notes = list(dict.fromkeys(note for step in plan.changes for note in step.notes))
    for note in notes[:_NOTES]:
        err.line(one_line(note), "dim", "  · ")
    if len(notes) > _NOTES:
        err.line(say("and {count} more", count=len(notes) - _NOTES), "dim", "  · ")


def _tell_engines(session: Session, plan: Plan) -> None:
    """A scan without YARA looks for less, and says so; not of a skill that we wrote ourselves."""
    if plan.op == "add":
        return
    reports = [step.report for step in plan.changes if step.report is not None]
    if reports and not any("yara" in report.engines for report in reports):
        install = 'pip install "satchel[scan]"'
        words = say("YARA rules were not used; `{command}` brings them", command=install)
        session.err.line(words, "dim")


def _count(err: Screen, plan: Plan, kind: Kind, word: str) -> None:
    if count := len(plan.of_kind(kind)):
        mark, style = _MARKS[kind]
        err.line(f"{count} {word}", "", "", None, [(mark, style), (" ", "")])


def _show_verdicts(err: Screen, plan: Plan) -> None:
    verdicts: dict[str, int] = {}
    for step in plan.changes:
        if step.report is not None:
            verdicts[step.report.verdict] = verdicts.get(step.report.verdict, 0) + 1
    said = [f"{verdict_words(verdict)} {count}" for verdict, count in sorted(verdicts.items())]
    if said:
        err.line(say("Scan: {counts}", counts=", ".join(said)))


def _wants_a_look(step: Step) -> bool:
    """What a person should know before saying yes is shown, however many there are."""
    difference = step.difference
    new = difference.programs or difference.hosts or difference.secrets or difference.kept
    new = new or difference.powers
    odd = step.report is not None and step.report.verdict != "no findings"
    return odd or bool(step.kind == "replace" and new)


def _show_refused(err: Screen, steps: Sequence[Step]) -> None:
    """Refusals by their remedy: the same words thirty times would hide the others."""
    groups: dict[str, list[Step]] = {}
    for step in steps:
        groups.setdefault(step.error.hint if step.error is not None else "", []).append(step)
    mark, style = _MARKS["refused"]
    for hint, members in groups.items():
        err.line(_names(members), "", "", "  ", [(mark, style), (" ", "")])
        error = members[0].error
        if error is not None:
            err.line(one_line(error.message), "", "    ")
        if hint:
            err.line(say("hint: ") + one_line(hint), "dim", "    ")


def show_step(err: Screen, step: Step, *, short: bool = False) -> None:
    """One skill of a plan."""
    mark, style = _MARKS[step.kind]
    about = one_line(about_step(step))
    if step.kind == "same" and not step.notes:
        about = say("nothing new")
    err.line(
        about, "dim", "", "  ", [(mark, style), (" ", ""), (one_line(step.id), "bold"), ("  ", "")]
    )
    if step.error is not None:
        err.line(one_line(step.error.message), "", "    ")
        if step.error.hint:
            err.line(say("hint: ") + one_line(step.error.hint), "dim", "    ")
    if step.description and step.kind == "add" and not short:
        err.line(one_line(step.description), "", "    ")
    if not short:
        _show_difference(err, step.difference)
        for note in step.notes:
            err.line(one_line(note), "dim", "    · ")
    _show_scan(err, step)


def _show_difference(err: Screen, difference: Difference) -> None:
    rows = (
        (say("new files"), difference.added, "green"),
        (say("changed files"), difference.changed, "yellow"),
        (say("removed files"), difference.removed, "red"),
        *difference_rows(difference),
    )
    for title, items, tone in rows:
        if items:
            style = {"info": "cyan", "warn": "yellow"}.get(tone, tone)
            shown = ", ".join(map(one_line, items[:_FILES]))
            if len(items) > _FILES:
                shown = say("{names} and {count} more", names=shown, count=len(items) - _FILES)
            err.line(shown, "", "    ", "      ", [(title, style), (": ", "")])
    for key, before, after in difference.fields:
        err.line(f"{one_line(before) or '—'} → {one_line(after) or '—'}", "", "    ", "      ",
                 [(one_line(key), "cyan"), (": ", "")])  # fmt: skip


def _show_scan(err: Screen, step: Step) -> None:
    report = step.report
    if report is None or step.kind == "same":
        return
    style = _VERDICTS[report.verdict]
    err.line("", "", "    ", None, [(say("scan: "), ""), (verdict_words(report.verdict), style)])
    for finding in report.findings:
        if finding.severity == "note":
            continue
        severity = "error" if finding.severity == "block" else "warning"
        mark, colour = SEVERITIES[severity]
        where = one_line(finding.path) + (f":{finding.line}" if finding.line else "")
        err.line(f"{where}  {say(finding.about.what)}", "", "      ", "        ",
                 [(mark, colour), (" ", ""), (finding.rule, "bold"), ("  ", "")])  # fmt: skip
    for path, reason in report.unscanned:
        what = say(
            "not scanned: {path} ({reason})", path=one_line(path), reason=one_line(render(reason))
        )
        err.line(what, "dim", "      ")


def _show_diff(session: Session, plan: Plan) -> None:
    """The lines that would change, as a patch on stdout."""
    from satchel.skill.tree import FolderTree
    from satchel.store.plan import patch_of

    for step in plan.of_kind("replace"):
        old = step.old or FolderTree(plan.scope.target(step.id))
        session.out.data(patch_of(old, FolderTree(step.staged), step.id))


def tell_receipt(session: Session, plan: Plan, receipt: Receipt) -> None:
    """What was done: paths on stdout, words on stderr."""
    told = plan.stage.notes  # before the plan was shown
    tell_repairs(session, [text for text in receipt.repaired if text not in told])
    for step in receipt.done:
        if step.kind in ("add", "replace"):
            session.out.data(os.path.join(plan.scope.folder, step.id))
    err = session.err  # only now: it flushes the paths above
    if receipt.left:
        names = _names(receipt.left)
        err.line(say("Left out, because the scan blocked it: {names}", names=names), "red")
        err.line(say("To install it all the same, give `--accept-risk WHY`"), "", say("hint: "))
    if refused := plan.of_kind("refused"):
        err.line(say("Skipped: {names}", names=_names(refused)), "yellow")
    if not receipt.done:
        if not refused:
            err.line(say("Nothing to do"))
        return
    err.write(err.paint(_done(plan, receipt), "green") + "\n")
    for note in receipt.notes:
        err.line(one_line(note), "yellow")
    if plan.op != "lock" and receipt.number:
        everywhere = plan.scope.name == "global"
        undo = "satchel undo --global" if everywhere else "satchel undo"
        err.line(say("`{command}` takes it back", command=undo), "dim")


def _done(plan: Plan, receipt: Receipt) -> str:
    if plan.op == "import":
        return "\n".join(_imported(receipt))
    names = _names([step for step in receipt.done if plan.op != "rename" or step.kind == "add"])
    return {
        "add": say("Added: {names}", names=names),
        "remove": say("Removed: {names}", names=names),
        "update": say("Updated: {names}", names=names),
        "install": say("Installed: {names}", names=names),
        "lock": say("Locked: {names}", names=names),
        "rename": say("Renamed: {old} to {names}", names=names,
                      old=_names([step for step in receipt.done if step.kind == "remove"])),
    }[plan.op]  # fmt: skip


def _imported(receipt: Receipt) -> Iterable[str]:
    """What is new, and what took the place of something."""
    if new := [step for step in receipt.done if step.kind != "replace"]:
        yield say("Imported: {names}", names=_names(new))
    if old := [step for step in receipt.done if step.kind == "replace"]:
        yield say("Replaced: {names}", names=_names(old))


def tell_hidden(session: Session, folders: Sequence[str]) -> None:
    """Name the skills of these folders that another one hides, and those that they hide."""
    if not folders:
        return
    library = session.satchel.library
    library.tools(refresh=True)
    every = library.every()
    here = {skill.ref: skill for skill in every if skill.base_dir in folders}
    for skill in every:
        if skill.state == "shadowed" and (skill.ref in here or skill.winner in here):
            text = say("`{ref}` is hidden by `{winner}`", ref=skill.ref, winner=skill.winner)
            session.err.line(one_line(text), "yellow")


def tell_repairs(session: Session, repaired: Sequence[str]) -> None:
    """What an interrupted command had left to do."""
    err = session.err
    for text in repaired:
        err.line(one_line(text), "", "", None, [(say("repaired: "), "yellow")])
