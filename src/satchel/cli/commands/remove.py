"""The commands `remove` and `rename`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel.cli.context import command, skill_argument
from satchel.cli.plan_prompt import confirm_and_apply, decide_options, open_store, scope_option
from satchel.errors import NotFound
from satchel.i18n import say

if TYPE_CHECKING:
    from satchel.cli.context import CliContext


@command(
    say("Remove skills; `satchel undo` restores them."),
    "satchel remove release-notes",
    "satchel remove release-notes pdf-forms --yes",
)
@skill_argument("names", nargs=-1, required=True)
@scope_option
@decide_options
def remove(context: CliContext, names: tuple[str, ...], scope: str, **decision: Any) -> int:
    store = open_store(context, scope, names)
    try:
        plan = store.plan_remove(names)
    except NotFound:
        for name in names:
            context.find(name)  # its error suggests similar names
        raise
    with plan:
        return confirm_and_apply(context, store, plan, **decision)


@command(
    say("Rename a skill: its folder and its `name` field."),
    "satchel rename pdf-forms fill-pdf",
)
@skill_argument()
@click.argument("new")
@scope_option
def rename(context: CliContext, name: str, new: str, scope: str, as_json: bool) -> int:
    store = open_store(context, scope, (name,))
    with store.plan_rename(name, new) as plan:
        return confirm_and_apply(context, store, plan, yes=True, dry_run=False, as_json=as_json)
