"""Words about changes and problems that the terminal and the browser share.

Text of skills is not made safe here: each of them has its own way to show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from satchel._language import listed, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.store.history import Undone
    from satchel.store.plan import Difference, Step


def names_of(ids: Sequence[str]) -> str:
    """Some ids in a sentence."""
    names = [f"`{one}`" for one in ids]
    if len(names) > 5:
        return say("{names} and {count} more", names=listed(names[:4]), count=len(names) - 4)
    return listed(names)


def about_step(step: Step) -> str:
    """Files, programs, licence and signer of a skill that comes; empty for others."""
    if step.seal is None or step.kind in ("same", "remove", "refused"):
        return ""
    count = len(step.seal.files)
    parts = [say("1 file") if count == 1 else say("{count} files", count=count)]
    if step.report is not None and step.report.inventory.programs:
        count = len(step.report.inventory.programs)
        parts.append(say("1 program") if count == 1 else say("{count} programs", count=count))
    if step.after is not None:
        parts.append(step.after.licence or say("no licence named"))
        if step.after.signer:
            parts.append(say("signed by {who}", who=step.after.signer))
    return listed(parts)


def difference_rows(
    difference: Difference,
) -> Iterator[tuple[str, Sequence[str], Literal["info", "warn"]]]:
    """What an update brings, beside files: a title, the items, and how much it matters."""
    from satchel.store.plan import power_words

    yield say("your edits kept in"), difference.kept, "info"
    yield say("programs new or changed"), difference.programs, "warn"
    yield say("new hosts"), difference.hosts, "warn"
    yield say("new secrets"), difference.secrets, "warn"
    yield say("its program may"), [power_words(one) for one in difference.powers], "warn"


def change_word(op: str) -> str:
    """A kind of change, as a word in a sentence."""
    return {
        "add": say("adding"),
        "import": say("importing"),
        "update": say("updating"),
        "remove": say("removing"),
        "rename": say("renaming"),
        "install": say("installing"),
        "lock": say("locking"),
        "edit": say("editing"),
        "rebuild": say("rebuilding"),
        "undo": say("undoing"),
        "redo": say("doing again"),
    }.get(op, op)


def undone_words(undone: Undone, *, redo: bool) -> str:
    """What was taken back, or done again."""
    given = {"what": change_word(undone.op), "names": names_of(undone.ids)}
    return (
        say("Done again: {what} {names}", **given)
        if redo
        else say("Undone: {what} {names}", **given)
    )


def history_words() -> dict[str, str]:
    """State of a change of the past -> what it is called."""
    return {
        "done": say("done"),
        "undone": say("taken back"),
        "past": say("over"),
        "damaged": say("damaged"),
    }


def counted(errors: int, warnings: int, notes: int) -> str:
    """`1 error, 2 warnings`, or nothing."""
    parts: list[str] = []
    if errors:
        parts.append(say("1 error") if errors == 1 else say("{count} errors", count=f"{errors:,}"))
    if warnings:
        many = say("{count} warnings", count=f"{warnings:,}")
        parts.append(say("1 warning") if warnings == 1 else many)
    if notes:
        parts.append(say("1 note") if notes == 1 else say("{count} notes", count=f"{notes:,}"))
    return say(", ").join(parts)
