"""The command `undo`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.cli.console import one_line, write_json
from satchel.cli.context import command
from satchel.cli.options import flag_option
from satchel.cli.plan_prompt import open_store, print_repairs, scope_option
from satchel.i18n import say
from satchel.presentation.change_words import names_of, undone_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.context import CliContext
    from satchel.store.undo import HistoryEntry


@command(
    say("Undo the last change of skills."),
    "satchel undo",
    "satchel undo --list",
    "satchel undo --redo",
)
@scope_option
@flag_option("--redo", say("Redo the last undone change."))
@flag_option("--list", say("Show the changes that can be undone."), "listing")
def undo(context: CliContext, scope: str, redo: bool, listing: bool, as_json: bool) -> int:
    store = open_store(context, scope)
    if listing:
        return _list_history(context, store.history(), as_json=as_json)
    done = store.undo(redo=redo)
    if as_json:
        write_json({
            "redone" if redo else "undone": done.op,
            "skills": list(done.ids),
            "number": done.number,
            "notes": list(done.notes),
            "repaired": list(done.repaired),
            "trouble": [line for line in done.trouble if line],
        })  # fmt: skip
        return 0
    print_repairs(context, done.repaired)
    err = context.err
    err.write(err.paint(one_line(undone_words(done, redo=redo)), "green") + "\n")
    for note in done.notes:
        err.line(one_line(note), "dim")
    return 0


def _list_history(context: CliContext, entries: Sequence[HistoryEntry], *, as_json: bool) -> int:
    if as_json:
        write_json([entry._asdict() for entry in entries])
        return 0
    if not entries:
        context.err.line(say("No changes"))
        return 0
    from satchel.presentation.changes import past_changes

    changes = past_changes(entries)
    rows = [
        [
            str(one.number),
            one.exact.removesuffix(" UTC"),
            one.what,
            one.state,
            names_of(one.ids),
            "← `satchel undo`" if one.can == "undo" else "",
        ]
        for one in changes
    ]
    head = ["", say("when"), say("change"), say("state"), say("skills"), ""]
    context.out.table(head, rows, [["dim", "dim", "bold"] for _ in rows])
    return 0
