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
from satchel.cli.context import confirm, short_path
from satchel.cli.options import OneOf, dry_run_option, flag_option, yes_option
from satchel.errors import Incomplete, InvalidInput, Refused, SatchelError
from satchel.i18n import join_names, say
from satchel.presentation.change_words import join_ids, request_lines
from satchel.skill.problems import PROBLEMS
from satchel.store.patch import tree_patch
from satchel.store.plan import verdict_label

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.presentation.changes import StepShown
    from satchel.store.plan import ChangePlan, ChangeStep, Kind
    from satchel.store.store import Store
    from satchel.store.transaction import Receipt
    from satchel.store.workdir import Name

_STEP_MARKS: dict[Kind, tuple[str, str]] = {
    "add": ("+", "green"),
    "replace": ("~", "yellow"),
    "remove": ("-", "red"),
    "same": ("=", "dim"),
    "refused": ("✗", "red"),
}
_TONE_COLOURS = {"good": "green", "info": "cyan", "warn": "yellow", "bad": "red"}
RISK_HELP = say("Install what the scan blocked; the reason is recorded.")
SCOPE_NAMES: dict[str, Name] = {"project": "project", "user": "global"}
"""Value of `--scope` -> the name of the scope."""
_MAX_STEPS_SHOWN = 8
"""Larger plans are shown as counts, and the skills that need attention."""


def decide_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of every command that changes skills."""
    return dry_run_option()(yes_option()(function))


def change_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of the commands that install skills."""
    function = scope_option(decide_options(function))
    help_text = say("Grant the tools that the skills request in `allowed-tools`.")
    function = flag_option("--grant-tools", help_text)(function)
    return click.option("--accept-risk", metavar="WHY", default="", help=RISK_HELP)(function)


def scope_option(function: Callable[..., int]) -> Callable[..., int]:
    """Add `--scope`."""
    return click.option(
        "--scope",
        type=OneOf(["project", "user"]),
        default="project",
        help=say("`project` (default), or `user`: for all your projects."),
    )(function)


def open_store(context: CliContext, scope: str, names: Sequence[str] = ()) -> Store:
    """Return the store of the project or of the user, or that which has the named skills.

    Raises:
        InvalidInput: they lie in different folders.
    """
    satchel, scope_name = context.satchel, SCOPE_NAMES[scope]
    stores = {
        store.scope.folder: store
        for store in [satchel.store_with(name, scope_name) for name in names]
    }
    if len(stores) > 1:
        raise InvalidInput(
            say("The named skills lie in different folders: {names}",
                names=join_names(f"`{one_line(short_path(folder))}`" for folder in stores)),
            say("Name those of one folder at a time"),
        )  # fmt: skip
    return next(iter(stores.values()), satchel.store(scope_name))


def confirm_and_apply(
    context: CliContext,
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

    Args:
        context: The context of this run.
        store: The store that made the plan.
        plan: The changes.
        yes: Ask nothing, and grant nothing.
        dry_run: Only show what would change.
        as_json: Print the plan and the result as JSON.
        accept_risk: The reason to install blocked skills.
        grant_tools: Grant the tools that the skills request.
    """
    try:
        return _confirm_and_apply(
            context,
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
    context: CliContext,
    store: Store,
    plan: ChangePlan,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    accept_risk: str,
    grant_tools: bool,
) -> int:
    refused = plan.of_kind("refused")
    if len(plan.steps) == 1:
        _raise_refusal(refused)
    print_repairs(context, plan.stage.repaired)
    if not as_json:
        print_plan(context, plan)
    if dry_run:
        return _print_dry_run(context, plan, accept_risk=accept_risk, as_json=as_json)
    if not yes and not _is_confirmed(context, plan, accept_risk):
        context.err.line(say("Nothing was changed"))
        return 0
    requesting = _find_tool_requests(store, plan)
    if requesting and not (grant_tools or yes or as_json):
        grant_tools = _ask_to_grant(context, requesting)
    receipt = store.apply(plan, accept_risk=accept_risk, grant_tools=grant_tools)
    if as_json:
        write_json({**plan.to_dict(), "number": receipt.number, "done": _ids(receipt.done)})
    else:
        print_receipt(context, plan, receipt)
    if requesting and not grant_tools:
        print_ungranted(context, f"satchel trust {requesting[0].id} --grant-tools")
    print_shadowed(context, _installed_folders(plan, receipt))
    return 1 if refused or receipt.left else 0


def _raise_refusal(refused: Sequence[ChangeStep]) -> None:
    for step in refused:
        if step.error is not None:
            raise step.error


def _is_confirmed(context: CliContext, plan: ChangePlan, accept_risk: str) -> bool:
    """Ask, if the plan needs a confirmation."""
    from satchel.presentation.changes import reason_to_confirm

    reason = reason_to_confirm(plan, accept_risk)
    return not reason or ask(context, one_line(reason))


def _print_dry_run(
    context: CliContext, plan: ChangePlan, *, accept_risk: str, as_json: bool
) -> int:
    """Print what a change would do; returns the exit code."""
    if as_json:
        write_json({**plan.to_dict(), "dry_run": True})
    else:
        _print_diff(context, plan)
    is_blocked = bool(plan.blocked) and not accept_risk
    return 1 if plan.of_kind("refused") or is_blocked else 0


def _ids(steps: Sequence[ChangeStep]) -> list[str]:
    return [step.id for step in steps]


def _ask_to_grant(context: CliContext, steps: Sequence[ChangeStep]) -> bool:
    """Ask whether to grant requested tools; without a terminal they are not granted."""
    if not sys.stdin.isatty():
        return False
    names = _names(steps)
    question = say("Let {names} call the requested tools without approval?", names=names)
    return confirm(context, question)


def _installed_folders(plan: ChangePlan, receipt: Receipt) -> list[str]:
    steps = [step for step in receipt.done if step.kind in ("add", "replace")]
    return [plan.scope.target(step.id) for step in steps]


def print_ungranted(context: CliContext, command: str) -> None:
    """Print that requested tools are not granted, and the command that grants them."""
    context.err.line(
        say("The requested tools still need approval; `{command}` grants them", command=command)
    )


def _find_tool_requests(store: Store, plan: ChangePlan) -> list[ChangeStep]:
    """Return the steps with requests for tools that are not granted."""
    return [
        step
        for step in plan.changes
        if step.difference.requests
        and step.after is not None
        and not store.trust.has_tool_grant(plan.scope.target(step.id), step.after.tree)
    ]


def ask(context: CliContext, reason: str) -> bool:
    """Ask on the terminal until the answer is valid.

    Raises:
        Refused: stdin is not a terminal.
    """
    if not sys.stdin.isatty():
        raise Refused(reason, say("Not a terminal; pass `--yes` to confirm"))
    return confirm(context, f"{reason}{say('. ')}{say('Continue?')}")


def _names(steps: Sequence[ChangeStep]) -> str:
    return join_ids([one_line(step.id) for step in steps])


# --- showing ------------------------------------------------------------------------------


def print_plan(context: CliContext, plan: ChangePlan) -> None:
    """Print the plan on stderr; of a large one only counts, and the steps to look at."""
    from satchel.presentation.changes import has_findings, has_new_powers, show_step

    err = context.err
    is_large = len(plan.changes) + len(plan.of_kind("refused")) > _MAX_STEPS_SHOWN
    if is_large:
        _print_counts(err, plan)
    if len(plan.steps) > _MAX_STEPS_SHOWN:
        _print_count(err, plan, "same", say("as they are"))
    for index, step in enumerate(plan.steps):
        is_shown = len(plan.steps) <= _MAX_STEPS_SHOWN if step.kind == "same" else not is_large
        is_notable = step.kind != "same" and (has_findings(step) or has_new_powers(step))
        if is_shown or is_notable or step.kind == "refused":
            print_step(err, show_step(plan, index), is_short=is_large)
    if is_large:
        _print_requests_and_notes(err, plan)


def _print_counts(err: Screen, plan: ChangePlan) -> None:
    """Print the number of steps of each kind, and of each verdict."""
    _print_count(err, plan, "add", say("new"))
    _print_count(err, plan, "replace", say("changed"))
    _print_count(err, plan, "remove", say("removed"))
    _print_count(err, plan, "refused", say("refused"))
    verdicts = Counter(step.report.verdict for step in plan.changes if step.report is not None)
    labels = [(count, verdict_label(verdict)) for verdict, count in sorted(verdicts.items())]
    if labels:
        counts = ", ".join(plural(count, label, label) for count, label in labels)
        err.line(say("Scan: {counts}", counts=counts))


def _print_requests_and_notes(err: Screen, plan: ChangePlan) -> None:
    requesting = [step for step in plan.changes if step.difference.requests]
    for line in request_lines([(step.id, step.difference.requests) for step in requesting]):
        err.line(one_line(line), "yellow")
    for note in dict.fromkeys(note for step in plan.changes for note in step.notes):
        err.line(one_line(note), "dim", indent="  · ")


def _print_count(err: Screen, plan: ChangePlan, kind: Kind, word: str) -> None:
    if count := len(plan.of_kind(kind)):
        mark, style = _STEP_MARKS[kind]
        err.line(plural(count, word, word), lead=[(mark, style), (" ", "")])


def print_step(err: Screen, step: StepShown, *, is_short: bool = False) -> None:
    """Print one step."""
    mark, style = _STEP_MARKS[step.kind]
    summary = step.label if step.kind == "same" and not step.notes else one_line(step.summary)
    lead = [(mark, style), (" ", ""), (one_line(step.id), "bold"), ("  ", "")]
    err.line(summary, "dim", hang="  ", lead=lead)
    if step.error:
        err.line(one_line(step.error), indent="    ")
    if step.hint:
        err.line(say("hint: ") + one_line(step.hint), "dim", indent="    ")
    if not is_short:
        if step.description and step.kind == "add":
            err.line(one_line(step.description), indent="    ")
        _print_difference(err, step)
        for note in step.notes:
            err.line(one_line(note), "dim", indent="    · ")
    _print_scan(err, step)


def _print_difference(err: Screen, step: StepShown) -> None:
    for row in (*step.file_rows, *step.rows):
        names = ", ".join(map(one_line, row.items))
        if row.hidden_count:
            names = say("{names} and {count} more", names=names, count=row.hidden_count)
        err.line(
            names,
            indent="    ",
            hang="      ",
            lead=[(row.title, _TONE_COLOURS[row.tone]), (": ", "")],
        )
    for key, before, after in step.fields:
        values = f"{one_line(before) or '—'} → {one_line(after) or '—'}"
        lead = [(one_line(key), "cyan"), (": ", "")]
        err.line(values, indent="    ", hang="      ", lead=lead)


def _print_scan(err: Screen, step: StepShown) -> None:
    if not step.verdict:
        return
    lead = [(say("scan: "), ""), (step.verdict_label, _TONE_COLOURS[step.verdict_tone])]
    err.line("", indent="    ", lead=lead)
    for finding in step.findings:
        lead = [(finding.symbol, _TONE_COLOURS[finding.tone]), (" ", ""), (finding.rule, "bold")]
        text = f"{one_line(finding.location)}  {finding.message}"
        err.line(text, indent="      ", hang="        ", lead=[*lead, ("  ", "")])
    for path, reason in step.unscanned:
        message = say(
            "not scanned: {path} ({reason})", path=one_line(path), reason=one_line(reason)
        )
        err.line(message, "dim", indent="      ")


def _print_diff(context: CliContext, plan: ChangePlan) -> None:
    """Print the changed lines as a patch on stdout."""
    from satchel.presentation.changes import step_trees

    for step in plan.of_kind("replace"):
        context.out.data(tree_patch(*step_trees(plan, step), step.id))


def _blocked_text(plan: ChangePlan, receipt: Receipt) -> str:
    """Return which skills the scan blocked, and how to accept them."""
    names = _names(receipt.left)
    if plan.op == "lock":  # installed already: `trust` accepts the risk
        fix = say(PROBLEMS["blocked"].fix, name=receipt.left[0].id)
        return say(". ").join((say("Blocked by the scan: {names}", names=names), fix))
    return say("Blocked: {names}; `--accept-risk WHY` installs it anyway", names=names)


def print_receipt(context: CliContext, plan: ChangePlan, receipt: Receipt) -> None:
    """Print the result: paths on stdout, messages on stderr."""
    from satchel.presentation.changes import result_sentences

    printed_repairs = plan.stage.repaired  # printed before the plan
    print_repairs(context, [text for text in receipt.repaired if text not in printed_repairs])
    for folder in _installed_folders(plan, receipt):
        context.out.data(folder)
    err = context.err  # flushes the paths above
    if receipt.left:
        err.line(_blocked_text(plan, receipt), "red")
    if refused := plan.of_kind("refused"):
        err.line(say("Skipped: {names}", names=_names(refused)), "yellow")
    if not receipt.done:
        if not refused:
            err.line(say("Nothing to do"))
        return
    for result_text in result_sentences(plan, receipt):
        err.write(err.paint(one_line(result_text), "green") + "\n")
    for note in receipt.notes:
        err.line(one_line(note), "yellow")
    if plan.op == "import" and plan.scope.name != "global":
        _warn_about_local_source(err, receipt)
    if plan.op != "lock" and receipt.number:
        scope = " --scope user" if plan.scope.name == "global" else ""
        err.line(say("Undo with `{command}`", command=f"satchel undo{scope}"), "dim")


def _warn_about_local_source(err: Screen, receipt: Receipt) -> None:
    """Warn when the lockfile of a project names a path that other machines do not have."""
    sources = [step.after.place for step in receipt.done if step.after is not None]
    local_paths = [source.url for source in sources if os.path.isabs(source.url)]
    if local_paths:
        text = say("The lockfile names a path of this machine: {path}", path=local_paths[0])
        err.line(one_line(text), "yellow")


def print_shadowed(context: CliContext, folders: Sequence[str]) -> None:
    """Report skills of these folders that are shadowed, and those that they shadow."""
    if not folders:
        return
    skills = context.satchel.refresh().every()
    installed_refs = {skill.ref for skill in skills if skill.base_dir in folders}
    for skill in skills:
        is_affected = skill.ref in installed_refs or skill.shadowed_by in installed_refs
        if skill.state == "shadowed" and is_affected:
            text = say("`{ref}` is hidden by `{winner}`", ref=skill.ref, winner=skill.shadowed_by)
            context.err.line(one_line(text), "yellow")


def print_repairs(context: CliContext, repaired: Sequence[str]) -> None:
    """Report what was left by an interrupted command and has been completed."""
    err = context.err
    for text in repaired:
        err.line(one_line(text), lead=[(say("repaired: "), "yellow")])
