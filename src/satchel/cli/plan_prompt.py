"""Shows a plan, asks for confirmation, applies it and prints the result.

Every command that changes skills ends with `confirm_and_apply`.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING

import click

from satchel.cli.console import error_dict, one_line, plural, write_json
from satchel.cli.context import confirm
from satchel.cli.options import OneOf, dry_run_option, flag_option, yes_option
from satchel.errors import Incomplete, Refused, SatchelError
from satchel.i18n import say
from satchel.presentation.change_words import names_of, request_lines
from satchel.skill.problems import PROBLEMS
from satchel.store.plan import patch_of, verdict_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.presentation.changes import StepShown
    from satchel.store.plan import ChangePlan, ChangeStep, Kind
    from satchel.store.store import Receipt, Store

_MARKS: dict[Kind, tuple[str, str]] = {
    "add": ("+", "green"),
    "replace": ("~", "yellow"),
    "remove": ("-", "red"),
    "same": ("=", "dim"),
    "refused": ("✗", "red"),
}
_COLOURS = {"good": "green", "info": "cyan", "warn": "yellow", "bad": "red"}
RISK = say("Install what the scan blocked; the reason is recorded.")
_MAX_STEPS_SHOWN = 8
"""Larger plans are shown as counts, and the skills that need attention."""


def decide_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of every command that changes skills."""
    return dry_run_option()(yes_option()(function))


def change_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of the commands that install skills."""
    function = scope_option(decide_options(function))
    words = say("Grant the tools that the skills request in `allowed-tools`.")
    function = flag_option("--grant-tools", words)(function)
    return click.option("--accept-risk", metavar="WHY", default="", help=RISK)(function)


def scope_option(function: Callable[..., int]) -> Callable[..., int]:
    """Add `--scope`."""
    return click.option(
        "--scope",
        type=OneOf(["project", "user"]),
        default="project",
        help=say("`project` (default), or `user`: for all your projects."),
    )(function)


def open_store(session: CliContext, scope: str) -> Store:
    """Return the store of the project, or of the user."""
    return session.satchel.store("global" if scope == "user" else "project")


def confirm_and_apply(
    session: CliContext,
    store: Store,
    plan: ChangePlan,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    accept_risk: str = "",
    grant_tools: bool = False,
) -> int:
    """Show a plan, ask, apply it; returns the exit code.

    `yes` asks nothing and grants nothing; `accept_risk` is the reason to install blocked skills;
    `grant_tools` grants the tools that they request.
    """
    try:
        return _confirm_and_apply(
            session,
            store,
            plan,
            yes=yes,
            dry_run=dry_run,
            as_json=as_json,
            accept_risk=accept_risk,
            grant_tools=grant_tools,
        )
    except SatchelError as exc:
        if as_json:
            # A script needs the findings and the reason, not only an exit code. After an
            # incomplete change, which has been made, nothing is said about `done`.
            record = {**plan.to_dict(), "error": error_dict(exc)}
            write_json(record if isinstance(exc, Incomplete) else {**record, "done": []})
        raise


def _confirm_and_apply(
    session: CliContext,
    store: Store,
    plan: ChangePlan,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    accept_risk: str,
    grant_tools: bool,
) -> int:
    from satchel.presentation.changes import reason_to_confirm

    refused = plan.of_kind("refused")
    if len(refused) == len(plan.steps) == 1 and refused[0].error is not None:
        raise refused[0].error
    print_repairs(session, plan.stage.repaired)
    if not as_json:
        print_plan(session, plan)
    if dry_run:
        if as_json:
            write_json({**plan.to_dict(), "dry_run": True})
        else:
            _show_diff(session, plan)
        return 1 if refused or (plan.blocked and not accept_risk) else 0
    reason = "" if yes else reason_to_confirm(plan, accept_risk)
    if reason and not ask(session, one_line(reason)):
        session.err.line(say("Nothing was changed"))
        return 0
    asking = _requesting(store, plan)
    if asking and not (grant_tools or yes or as_json) and sys.stdin.isatty():
        names = _names(asking)
        question = say("Let {names} call the requested tools without approval?", names=names)
        grant_tools = confirm(session, question)
    receipt = store.apply(plan, accept_risk=accept_risk, grant_tools=grant_tools)
    if as_json:
        done = [step.id for step in receipt.done]
        write_json({**plan.to_dict(), "number": receipt.number, "done": done})
    else:
        print_receipt(session, plan, receipt)
    if asking and not grant_tools:
        print_ungranted(session, f"satchel trust {asking[0].id} --grant-tools")
    put = [step.id for step in receipt.done if step.kind in ("add", "replace")]
    print_shadowed(session, [plan.scope.target(skill_id) for skill_id in put])
    return 1 if refused or receipt.left else 0


def print_ungranted(session: CliContext, command: str) -> None:
    """Print that requested tools are not granted, and the command that grants them."""
    session.err.line(
        say("The requested tools still need approval; `{command}` grants them", command=command)
    )


def _requesting(store: Store, plan: ChangePlan) -> list[ChangeStep]:
    """The steps with requests for tools that are not granted."""
    return [
        step
        for step in plan.changes
        if step.difference.requests
        and step.after is not None
        and not store.trust.has_tool_grant(plan.scope.target(step.id), step.after.tree)
    ]


def ask(session: CliContext, reason: str) -> bool:
    """Ask on the terminal until the answer is valid.

    Raises:
        Refused: stdin is not a terminal.
    """
    if not sys.stdin.isatty():
        raise Refused(reason, say("Not a terminal; pass `--yes` to confirm"))
    return confirm(session, f"{reason}{say('. ')}{say('Continue?')}")


def _names(steps: Sequence[ChangeStep]) -> str:
    return names_of([one_line(step.id) for step in steps])


# --- showing ------------------------------------------------------------------------------


def print_plan(session: CliContext, plan: ChangePlan) -> None:
    """Print the plan on stderr; of a large one only counts, and the steps to look at."""
    from satchel.presentation.changes import has_findings, has_new_powers, show_step

    err = session.err
    large = len(plan.changes) + len(plan.of_kind("refused")) > _MAX_STEPS_SHOWN
    if large:
        _print_count(err, plan, "add", say("new"))
        _print_count(err, plan, "replace", say("changed"))
        _print_count(err, plan, "remove", say("removed"))
        _print_count(err, plan, "refused", say("refused"))
        verdicts = Counter(step.report.verdict for step in plan.changes if step.report is not None)
        words = [(count, verdict_words(one)) for one, count in sorted(verdicts.items())]
        if words:
            counts = ", ".join(plural(count, word, word) for count, word in words)
            err.line(say("Scan: {counts}", counts=counts))
    if len(plan.steps) > _MAX_STEPS_SHOWN:
        _print_count(err, plan, "same", say("as they are"))
    for at, step in enumerate(plan.steps):
        shown = len(plan.steps) <= _MAX_STEPS_SHOWN if step.kind == "same" else not large
        notable = step.kind != "same" and (has_findings(step) or has_new_powers(step))
        if shown or notable or step.kind == "refused":
            print_step(err, show_step(plan, at), short=large)
    if large:
        asking = [step for step in plan.changes if step.difference.requests]
        for line in request_lines([(step.id, step.difference.requests) for step in asking]):
            err.line(one_line(line), "yellow")
    for note in dict.fromkeys(note for step in plan.changes for note in step.notes if large):
        err.line(one_line(note), "dim", "  · ")


def _print_count(err: Screen, plan: ChangePlan, kind: Kind, word: str) -> None:
    if count := len(plan.of_kind(kind)):
        mark, style = _MARKS[kind]
        err.line(plural(count, word, word), "", "", None, [(mark, style), (" ", "")])


def print_step(err: Screen, step: StepShown, *, short: bool = False) -> None:
    """Print one step."""
    mark, style = _MARKS[step.kind]
    about = step.words if step.kind == "same" and not step.notes else one_line(step.about)
    lead = [(mark, style), (" ", ""), (one_line(step.id), "bold"), ("  ", "")]
    err.line(about, "dim", "", "  ", lead)
    if step.error:
        err.line(one_line(step.error), "", "    ")
    if step.hint:
        err.line(say("hint: ") + one_line(step.hint), "dim", "    ")
    if not short:
        if step.description and step.kind == "add":
            err.line(one_line(step.description), "", "    ")
        _show_difference(err, step)
        for note in step.notes:
            err.line(one_line(note), "dim", "    · ")
    _show_scan(err, step)


def _show_difference(err: Screen, step: StepShown) -> None:
    for row in (*step.file_rows, *step.rows):
        shown = ", ".join(map(one_line, row.items))
        if row.more:
            shown = say("{names} and {count} more", names=shown, count=row.more)
        err.line(shown, "", "    ", "      ", [(row.title, _COLOURS[row.tone]), (": ", "")])
    for key, before, after in step.fields:
        err.line(f"{one_line(before) or '—'} → {one_line(after) or '—'}", "", "    ", "      ",
                 [(one_line(key), "cyan"), (": ", "")])  # fmt: skip


def _show_scan(err: Screen, step: StepShown) -> None:
    if not step.verdict:
        return
    lead = [(say("scan: "), ""), (step.verdict_words, _COLOURS[step.verdict_tone])]
    err.line("", "", "    ", None, lead)
    for finding in step.findings:
        lead = [(finding.mark, _COLOURS[finding.tone]), (" ", ""), (finding.rule, "bold")]
        text = f"{one_line(finding.where)}  {finding.what}"
        err.line(text, "", "      ", "        ", [*lead, ("  ", "")])
    for path, reason in step.unscanned:
        what = say("not scanned: {path} ({reason})", path=one_line(path), reason=one_line(reason))
        err.line(what, "dim", "      ")


def _show_diff(session: CliContext, plan: ChangePlan) -> None:
    """Print the changed lines as a patch on stdout."""
    from satchel.presentation.changes import step_trees

    for step in plan.of_kind("replace"):
        session.out.data(patch_of(*step_trees(plan, step), step.id))


def _left_words(plan: ChangePlan, receipt: Receipt) -> str:
    names = _names(receipt.left)
    if plan.op == "lock":  # installed already: `trust` accepts the risk
        fix = say(PROBLEMS["blocked"].fix, name=receipt.left[0].id)
        return say(". ").join((say("Blocked by the scan: {names}", names=names), fix))
    return say("Blocked: {names}; `--accept-risk WHY` installs it anyway", names=names)


def print_receipt(session: CliContext, plan: ChangePlan, receipt: Receipt) -> None:
    """Print the result: paths on stdout, messages on stderr."""
    from satchel.presentation.changes import result_words

    printed = plan.stage.repaired  # printed before the plan
    print_repairs(session, [text for text in receipt.repaired if text not in printed])
    for step in receipt.done:
        if step.kind in ("add", "replace"):
            session.out.data(os.path.join(plan.scope.folder, step.id))
    err = session.err  # flushes the paths above
    if receipt.left:
        err.line(_left_words(plan, receipt), "red")
    if refused := plan.of_kind("refused"):
        err.line(say("Skipped: {names}", names=_names(refused)), "yellow")
    if not receipt.done:
        if not refused:
            err.line(say("Nothing to do"))
        return
    for words in result_words(plan, receipt):
        err.write(err.paint(one_line(words), "green") + "\n")
    for note in receipt.notes:
        err.line(one_line(note), "yellow")
    if plan.op == "import" and plan.scope.name != "global":
        places = [step.after.place for step in receipt.done if step.after is not None]
        if far := next((one.url for one in places if os.path.isabs(one.url)), ""):
            text = say("The lockfile names a path of this machine: {path}", path=far)
            err.line(one_line(text), "yellow")
    if plan.op != "lock" and receipt.number:
        scope = " --scope user" if plan.scope.name == "global" else ""
        err.line(say("Undo with `{command}`", command=f"satchel undo{scope}"), "dim")


def print_shadowed(session: CliContext, folders: Sequence[str]) -> None:
    """Report skills of these folders that are shadowed, and those that they shadow."""
    if not folders:
        return
    every = session.satchel.refresh().every()
    here = {skill.ref: skill for skill in every if skill.base_dir in folders}
    for skill in every:
        if skill.state == "shadowed" and (skill.ref in here or skill.shadowed_by in here):
            text = say("`{ref}` is hidden by `{winner}`", ref=skill.ref, winner=skill.shadowed_by)
            session.err.line(one_line(text), "yellow")


def print_repairs(session: CliContext, repaired: Sequence[str]) -> None:
    """Report what was left by an interrupted command and has been completed."""
    err = session.err
    for text in repaired:
        err.line(one_line(text), "", "", None, [(say("repaired: "), "yellow")])
