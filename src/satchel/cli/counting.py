"""How many problems are there? Said in words, for the last line of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel._language import say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.skill.problems import Problem


def count_problems(problems: Iterable[Problem]) -> dict[str, int]:
    """How many of each severity."""
    counts = {"errors": 0, "warnings": 0, "notes": 0}
    for problem in problems:
        counts[problem.severity + "s"] += 1
    return counts


def counted(counts: dict[str, int]) -> str:
    """`1 error, 2 warnings`, or nothing."""
    errors, warnings, notes = counts["errors"], counts["warnings"], counts["notes"]
    parts: list[str] = []
    if errors:
        parts.append(say("1 error") if errors == 1 else say("{count} errors", count=errors))
    if warnings:
        parts.append(say("1 warning") if warnings == 1 else say("{count} warnings", count=warnings))
    if notes:
        parts.append(say("1 note") if notes == 1 else say("{count} notes", count=notes))
    return say(", ").join(parts)


def checked(files: int, counts: dict[str, int]) -> str:
    """The sentence that ends a report."""
    words = counted(counts) or say("no problems")
    if files == 1:
        return say("1 file checked: {words}", words=words)
    return say("{count} files checked: {words}", count=files, words=words)
