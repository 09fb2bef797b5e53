"""Diffs of files, line by line, for a page."""

from __future__ import annotations

import re
from difflib import unified_diff
from typing import Literal, NamedTuple

from satchel.i18n import say

MAX_DIFF_LINES = 2_000
_HUNK_HEADER = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_BINARY_SIZES = re.compile(r"binary: (\d+) -> (\d+) bytes")


class DiffLine(NamedTuple):
    """One line of a diff."""

    kind: Literal["same", "add", "del", "hunk", "note"]
    old_number: str
    """The number of the line in the old file; empty when it is not part of it."""
    new_number: str
    text: str


class Diff(NamedTuple):
    """The diff of one file."""

    path: str
    lines: tuple[DiffLine, ...]
    hidden_count: int


def diff_of_texts(path: str, before: str, after: str) -> Diff:
    """Return the diff of two versions of a text."""
    lines = unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="")
    return parse_diff(path, "\n".join(lines))


def parse_diff(path: str, patch: str) -> Diff:
    """Return the diff in a unified diff, with numbered lines."""
    rows: list[DiffLine] = []
    old = new = 0
    lines = patch.split("\n")
    if patch.startswith("--- "):  # the names of both files
        lines = lines[2:]
    for line in lines:
        if header := _HUNK_HEADER.match(line):
            old, new = int(header[1]), int(header[2])
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
            rows.append(DiffLine("note", "", "", _translate_note(line.lstrip("#\\ "))))
    return Diff(path, tuple(rows[:MAX_DIFF_LINES]), max(0, len(rows) - MAX_DIFF_LINES))


def _translate_note(text: str) -> str:
    """Return a line of the diff that is no line of the file, in the user's language."""
    if sizes := _BINARY_SIZES.fullmatch(text):
        return f"{sizes[1]} → {sizes[2]} bytes"
    if text in ("No newline at end of file", "only the permission to execute changes"):
        return say(text)
    return text
