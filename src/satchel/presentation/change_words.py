"""Sentences about changes and problems, shared by terminal and browser.

Text of skills is not escaped here: each renderer does that itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from satchel.i18n import join_names, say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from satchel.store.plan import ChangeStep, Difference
    from satchel.store.undo import Undone

_MAX_IDS_SHOWN = 4
_MAX_REQUESTS_SHOWN = 20
_MAX_PATTERNS_SHOWN = 12


def join_ids(ids: Sequence[str]) -> str:
    """Join the ids of skills for a sentence."""
    names = [f"`{skill_id}`" for skill_id in ids]
    if len(names) > _MAX_IDS_SHOWN + 1:
        shown, hidden_count = join_names(names[:_MAX_IDS_SHOWN]), len(names) - _MAX_IDS_SHOWN
        return say("{names} and {count} more", names=shown, count=hidden_count)
    return join_names(names)


def step_summary(step: ChangeStep) -> str:
    """Return files, programs and licence of a skill to be installed; empty for others."""
    if step.tree_digest is None or step.kind in ("same", "remove", "refused"):
        return ""
    count = len(step.tree_digest.files)
    facts = [say("1 file") if count == 1 else say("{count} files", count=count)]
    if step.report is not None and step.report.inventory.programs:
        count = len(step.report.inventory.programs)
        facts.append(say("1 program") if count == 1 else say("{count} programs", count=count))
    if step.after is not None:
        facts.append(step.after.licence or say("no licence named"))
    return join_names(facts)


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
    from satchel.store.plan import permission_label

    yield say("programs new or changed"), difference.programs, "warn"
    yield say("new hosts"), difference.hosts, "warn"
    yield say("new secrets"), difference.secrets, "warn"
    yield say("its program may"), [permission_label(power) for power in difference.powers], "warn"
    yield say("requests without approval"), difference.requests, "warn"


def request_lines(requests: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Yield sentences about requested tools: one for each skill, and one for many further skills.

    Args:
        requests: Names of skills with the patterns of their `allowed-tools`.
    """
    for name, tools in requests[:_MAX_REQUESTS_SHOWN]:
        tool_names = _join_patterns(tools)
        yield say("`{name}` requests without approval: {tools}", name=name, tools=tool_names)
    if hidden := requests[_MAX_REQUESTS_SHOWN:]:
        tools = dict.fromkeys(pattern for _, patterns in hidden for pattern in patterns)
        tool_names = _join_patterns(tools)
        yield say("{count} more skills request: {tools}", count=len(hidden), tools=tool_names)


def _join_patterns(patterns: Iterable[str]) -> str:
    """Join the first patterns for a sentence: shells first, then whole tools, then the others."""
    ordered = sorted(patterns, key=lambda pattern: (not pattern.startswith("Bash"), "(" in pattern))
    names = [f"`{pattern}`" for pattern in ordered]
    if hidden := names[_MAX_PATTERNS_SHOWN:]:
        summary = say("{count} more (`allowed-tools` in `SKILL.md`)", count=len(hidden))
        names[_MAX_PATTERNS_SHOWN:] = [summary]
    return join_names(names)


def change_label(op: str) -> str:
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


def undo_sentence(undone: Undone, *, redo: bool) -> str:
    """Return the sentence about an undo or redo."""
    placeholders = {"what": change_label(undone.op), "names": join_ids(undone.ids)}
    if redo:
        return say("Done again: {what} {names}", **placeholders)
    return say("Undone: {what} {names}", **placeholders)


def history_state_labels() -> dict[str, str]:
    """Return the label of each state in the history."""
    return {
        "done": say("Done"),
        "undone": say("Undone"),
        "past": say("Done"),
        "damaged": say("damaged"),
    }


def problem_counts(errors: int, warnings: int, notes: int) -> str:
    """Return `1 error, 2 warnings`, or an empty text."""
    counts: list[str] = []
    if errors:
        counts.append(say("1 error") if errors == 1 else say("{count} errors", count=f"{errors:,}"))
    if warnings:
        plural = say("{count} warnings", count=f"{warnings:,}")
        counts.append(say("1 warning") if warnings == 1 else plural)
    if notes:
        counts.append(say("1 note") if notes == 1 else say("{count} notes", count=f"{notes:,}"))
    return say(", ").join(counts)
