"""How does a text change, line by line? A patch, as records with the numbers of its lines."""

from __future__ import annotations

from typing import Literal, NamedTuple

from satchel._language import say

LINES = 2_000
"""Lines of a difference that are shown."""


class DiffLine(NamedTuple):
    """One line of a difference."""

    kind: Literal["same", "add", "del", "hunk", "note"]
    old: str
    new: str
    text: str


class Diff(NamedTuple):
    """How one file would change."""

    path: str
    lines: tuple[DiffLine, ...]
    more: int


def diff_of_texts(path: str, before: str, after: str) -> Diff:
    """The difference of two versions of a text."""
    from difflib import unified_diff

    lines = unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="")
    return diff_lines(path, "\n".join(lines))


def diff_lines(path: str, patch: str) -> Diff:
    """A unified diff with the numbers of its lines."""
    import re

    rows: list[DiffLine] = []
    old = new = 0
    lines = patch.split("\n")
    for line in lines[2:] if patch.startswith("--- ") else lines:
        if found := re.match(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@", line):
            old, new = int(found[1]), int(found[2])
            rows.append(DiffLine("hunk", "", "", line))
        elif line.startswith("+"):
            rows.append(DiffLine("add", "", str(new), line[1:]))
            new += 1
        elif line.startswith("-"):
            rows.append(DiffLine("del", str(old), "", line[1:]))
            old += 1
        elif line.startswith(" "):
            rows.append(DiffLine("same", str(old), str(new), line[1:]))
            old, new = old + 1, new + 1
        elif line:
            rows.append(DiffLine("note", "", "", _note_words(line.lstrip("#\\ "))))
    return Diff(path, tuple(rows[:LINES]), max(0, len(rows) - LINES))


def _note_words(text: str) -> str:
    """What a patch says about itself, in the reader's language."""
    import re

    if found := re.fullmatch(r"binary: (\d+) -> (\d+) bytes", text):
        return say("no text: {before} → {after} bytes", before=found[1], after=found[2])
    if text in ("No newline at end of file", "only the permission to execute changes"):
        return say(text)
    return text
