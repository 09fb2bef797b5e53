"""Sentences about changes and problems, shared by terminal and browser.

Text of skills is not escaped here: each renderer does that itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from satchel.i18n import join_names, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.store.plan import ChangeStep, Difference
    from satchel.store.undo import Undone


def names_of(ids: Sequence[str]) -> str:
    """Join ids for a sentence."""
    names = [f"`{one}`" for one in ids]
    if len(names) > 5:
        return say("{names} and {count} more", names=join_names(names[:4]), count=len(names) - 4)
    return join_names(names)


def about_step(step: ChangeStep) -> str:
    """Return files, programs, licence and signer of a skill to be installed; empty for others."""
    if step.tree_digest is None or step.kind in ("same", "remove", "refused"):
        return ""
    count = len(step.tree_digest.files)
    parts = [say("1 file") if count == 1 else say("{count} files", count=count)]
    if step.report is not None and step.report.inventory.programs:
        count = len(step.report.inventory.programs)
        parts.append(say("1 program") if count == 1 else say("{count} programs", count=count))
    if step.after is not None:
        parts.append(step.after.licence or say("no licence named"))
        if step.after.signer:
            parts.append(say("signed by {who}", who=step.after.signer))
    return join_names(parts)


def file_difference_rows(
    difference: Difference,
) -> Iterator[tuple[str, Sequence[str], Literal["good", "warn", "bad"]]]:
    """Yield title, paths and tone of each kind of file change."""
    yield say("new files"), difference.added, "good"
    yield say("changed files"), difference.changed, "warn"
    yield say("removed files"), difference.removed, "bad"


def difference_rows(
    difference: Difference,
) -> Iterator[tuple[str, Sequence[str], Literal["warn"]]]:
    """Yield title, items and tone of each difference beside files."""
    from satchel.store.plan import power_words

    yield say("programs new or changed"), difference.programs, "warn"
    yield say("new hosts"), difference.hosts, "warn"
    yield say("new secrets"), difference.secrets, "warn"
    yield say("its program may"), [power_words(one) for one in difference.powers], "warn"
    yield say("requests without approval"), difference.requests, "warn"


_MAX_REQUESTS_SHOWN = 20


def request_lines(requests: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Yield sentences about requested tools: each skill, and of many skills each tool.

    Args:
        requests: Names of skills with the patterns of their `allowed-tools`.
    """
    for name, tools in requests[:_MAX_REQUESTS_SHOWN]:
        shown = join_names(f"`{pattern}`" for pattern in tools)
        yield say("`{name}` requests without approval: {tools}", name=name, tools=shown)
    if more := requests[_MAX_REQUESTS_SHOWN:]:
        tools = dict.fromkeys(pattern for _, patterns in more for pattern in patterns)
        shown = join_names(f"`{pattern}`" for pattern in tools)
        yield say("{count} more skills request: {tools}", count=len(more), tools=shown)


def change_word(op: str) -> str:
    """Return the word for a kind of change."""
    return {
        "add": say("adding"),
        "import": say("installing"),
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
    """Return the sentence about an undo or redo."""
    given = {"what": change_word(undone.op), "names": names_of(undone.ids)}
    return (
        say("Done again: {what} {names}", **given)
        if redo
        else say("Undone: {what} {names}", **given)
    )


def history_words() -> dict[str, str]:
    """Return the label of each state in the history."""
    return {
        "done": say("Done"),
        "undone": say("Undone"),
        "past": say("Done"),
        "damaged": say("damaged"),
    }


def counted(errors: int, warnings: int, notes: int) -> str:
    """Return `1 error, 2 warnings`, or an empty text."""
    parts: list[str] = []
    if errors:
        parts.append(say("1 error") if errors == 1 else say("{count} errors", count=f"{errors:,}"))
    if warnings:
        many = say("{count} warnings", count=f"{warnings:,}")
        parts.append(say("1 warning") if warnings == 1 else many)
    if notes:
        parts.append(say("1 note") if notes == 1 else say("{count} notes", count=f"{notes:,}"))
    return say(", ").join(parts)
