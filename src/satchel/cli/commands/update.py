"""The command `update`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
)
@skill_argument("names", nargs=-1)
@flag_option("--discard-edits", say("Replace your edits by the source's version."))
@change_options
def update(
    context: CliContext,
    names: tuple[str, ...],
    discard_edits: bool,
    scope: str,
    **decision: Any,
) -> int:
    store = open_store(context, scope)
    with ProgressBar(say("Checking")) as progress:
        plan = store.plan_update(names, discard_edits=discard_edits, progress=progress)
    with plan:
        return confirm_and_apply(context, store, plan, **decision)
