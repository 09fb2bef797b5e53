"""The commands `update` and `diff`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from satchel.cli.console import clean, write_json
from satchel.cli.context import ProgressBar, command, skill_argument
from satchel.cli.options import OneOf, cannot_combine, flag_option
from satchel.cli.plan_prompt import (
    change_options,
    confirm_and_apply,
    open_store,
    print_step,
    scope_option,
)
from satchel.errors import EditConflict
from satchel.i18n import say

if TYPE_CHECKING:
    from satchel.cli.context import CliContext
    from satchel.store.merge import Side
    from satchel.store.plan import ChangePlan

_ANSWERS: dict[str, Side] = {"m": "mine", "t": "theirs", "b": "both"}


@command(
    say("Update installed skills, and merge your edits."),
    "satchel update",
    "satchel update pdf-forms --dry-run",
    "satchel update pdf-forms --keep mine",
)
@skill_argument("names", nargs=-1)
@flag_option("--discard-edits", say("Replace your edits by the source's version."))
@click.option(
    "--keep",
    type=OneOf(["mine", "theirs", "both"]),
    help=say("Where you and the source changed the same lines; `both` leaves conflict marks."),
)
@change_options
def update(
    context: CliContext,
    names: tuple[str, ...],
    discard_edits: bool,
    keep: Side | None,
    scope: str,
    **decision: Any,
) -> int:
    if discard_edits and keep:
        raise cannot_combine("--discard-edits", "--keep")
    store = open_store(context, scope, names)
    with ProgressBar(say("Checking")) as progress:
        plan = store.plan_update(names, discard_edits=discard_edits, keep=keep, progress=progress)
    with plan:
        is_asked = not (decision["yes"] or decision["dry_run"] or decision["as_json"])
        sides = _ask_for_sides(context, plan) if is_asked and sys.stdin.isatty() else {}
        if not sides:
            return confirm_and_apply(context, store, plan, **decision)
    with store.plan_update(names, keep=sides) as merged_plan:
        return confirm_and_apply(context, store, merged_plan, **decision)


def _ask_for_sides(context: CliContext, plan: ChangePlan) -> dict[str, Side]:
    """Show the conflicts of each skill and ask which side to keep; none for an empty answer."""
    from satchel.presentation.changes import show_step

    sides: dict[str, Side] = {}
    for index, step in enumerate(plan.steps):
        if not isinstance(step.error, EditConflict):
            continue
        print_step(context.err, show_step(plan, index)._replace(hint=""))
        for line in step.error.marked.splitlines():
            context.err.write(f"      {clean(line)}\n")
        question = say("Keep mine, theirs, both with marks to edit, or leave it? [m/t/b/N]")
        context.err.write(f"{question} ")
        context.err.stream.flush()
        answer = sys.stdin.readline().strip().lower()[:1]
        if answer in _ANSWERS:
            sides[step.id] = _ANSWERS[answer]
    return sides


@command(
    say("Show your edits of a skill, and what an update brings."),
    "satchel diff pdf-forms",
)
@skill_argument()
@scope_option
def diff(context: CliContext, name: str, scope: str, as_json: bool) -> int:
    store = open_store(context, scope, [name])
    patches = store.diff(name)
    if as_json:
        write_json(patches._asdict())
        return 0
    for title, patch in (
        (say("Your edits"), patches.edits),
        (say("What an update would bring"), patches.upstream),
    ):
        context.err.line(title, "bold")
        if patch:
            context.out.data(patch)
        else:
            context.err.line(say("nothing"), "dim", indent="  ")
        context.out.stream.flush()
    return 0
