"""Documentation tables of the launch plans of scripts."""

from __future__ import annotations

from typing import Any

Rows = list[list[str]]
_SOURCES = ("pep723", "requirements", "package.json")


def script_plans(kept: dict[str, Any]) -> Rows:
    """How many scripts have a launch plan, and where their packages are named."""
    rows = [["", "files", "with a plan", "packages declared", "inferred", "none needed"]]
    languages: dict[str, dict[str, int]] = dict(kept["languages"])
    together: dict[str, int] = {}
    for counts in languages.values():
        for source, count in counts.items():
            together[source] = together.get(source, 0) + count
    for name, counts in {**languages, "together": together}.items():
        total = sum(counts.values())
        planned = total - counts.get("refused", 0)
        declared = sum(counts.get(source, 0) for source in _SOURCES)
        rows.append([
            name, f"{total:,}", f"{planned:,} ({planned / total:.1%})", f"{declared:,}",
            f"{counts.get('inferred', 0):,}", f"{counts.get('none', 0):,}",
        ])  # fmt: skip
    return rows


def script_refusals(kept: dict[str, Any]) -> Rows:
    """Why the others have none."""
    return [["refused because", "files"], *([why, str(n)] for why, n in kept["reasons"].items())]
