"""The command `update`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel.cli.context import ProgressBar, command, skill_argument
from satchel.cli.options import flag_option
from satchel.cli.plan_prompt import change_options, confirm_and_apply, open_store
from satchel.i18n import say

if TYPE_CHECKING:
    from satchel.cli.context import CliContext


@command(
    say("Update installed skills; edited ones are left alone."),
    "satchel update",
    "satchel update pdf-forms --dry-run",
    "satchel update pdf-forms --ref v3",
)
@skill_argument("names", nargs=-1)
@click.option(
    "--ref", default="", help=say("Branch, tag or commit of a repository; version in a hub.")
)
@flag_option("--discard-edits", say("Replace your edits by the source's version."))
@change_options
def update(
    context: CliContext,
    names: tuple[str, ...],
    ref: str,
    discard_edits: bool,
    scope: str,
    **decision: Any,
) -> int:
    store = open_store(context, scope)
    with ProgressBar(say("Checking")) as progress:
        plan = store.plan_update(names, ref=ref, discard_edits=discard_edits, progress=progress)
    with plan:
        return confirm_and_apply(context, store, plan, **decision)
