"""The command `undo`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.cli.console import one_line, write_json
from satchel.cli.context import command
from satchel.cli.options import flag_option
from satchel.cli.plan_prompt import SCOPE_NAMES, print_repairs, scope_option
from satchel.i18n import say
from satchel.presentation.change_words import join_ids, undo_sentence

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
    store = context.satchel.store_to_undo(SCOPE_NAMES[scope], redo=redo)
    if listing:
        return _list_history(context, store.history(), as_json=as_json)
    undone = store.undo(redo=redo)
    if as_json:
        write_json({
            "redone" if redo else "undone": undone.op,
            "skills": list(undone.ids),
            "number": undone.number,
            "notes": list(undone.notes),
            "repaired": list(undone.repaired),
            "trouble": [line for line in undone.trouble if line],
        })  # fmt: skip
        return 0
    print_repairs(context, undone.repaired)
    err = context.err
    err.write(err.paint(one_line(undo_sentence(undone, redo=redo)), "green") + "\n")
    for note in undone.notes:
        err.line(one_line(note), "dim")
    return 0


def _list_history(context: CliContext, entries: Sequence[HistoryEntry], *, as_json: bool) -> int:
    if as_json:
        write_json([entry._asdict() for entry in entries])
        return 0
    if not entries:
        context.err.line(say("No changes"))
        return 0
    from satchel.presentation.history import past_changes

    changes = past_changes(entries)
    rows = [
        [
            str(change.number),
            change.utc_time.removesuffix(" UTC"),
            change.action,
            change.state,
            join_ids(change.ids),
            "← `satchel undo`" if change.next_op == "undo" else "",
        ]
        for change in changes
    ]
    head = ["", say("when"), say("change"), say("state"), say("skills"), ""]
    context.out.table(head, rows, [["dim", "dim", "bold"] for _ in rows])
    return 0
