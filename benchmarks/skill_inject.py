"""Builds the skills of the SKILL-INJECT set from its parts.

The set has clean skills, and injections apart from them: a line, where it goes, and the scripts it
speaks of. Each injection becomes one skill: a copy of the clean one of its first task, with the
line put in and the scripts added. `obvious` ones do harm wherever they stand; `contextual` ones
ask for what may be wanted or not, and the set's authors count both.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Injected(NamedTuple):
    """One skill of the set."""

    part: str
    """`obvious`, `contextual` or `clean`."""
    folder: str


def build(source: str, target: str) -> list[Injected]:
    """Write every skill of the set below `target`; `source` is a checkout of it."""
    data = os.path.join(source, "data")
    clean = dict(_clean(os.path.join(data, "skills")))
    found = [Injected("clean", folder) for folder in clean.values()]
    for part in ("obvious", "contextual"):
        with open(os.path.join(data, f"{part}_injections.json"), encoding="utf-8") as file:
            rows: list[dict[str, Any]] = json.load(file)
        for row in rows:
            task = next((task for task in row["tasks"] if task["skill"] in clean), None)
            if task is None:
                print(f"left out: {part} {row['id']}, whose skill is not in the set")
                continue
            folder = os.path.join(target, f"{part}-{row['id']}")
            shutil.copytree(clean[task["skill"]], folder)
            _inject(folder, row, task, data)
            found.append(Injected(part, folder))
    return found


def _clean(path: str) -> Iterator[tuple[str, str]]:
    for root, folders, files in sorted(os.walk(path)):
        folders.sort()
        if "SKILL.md" in files:
            yield os.path.basename(root), root


def _inject(folder: str, row: dict[str, Any], task: dict[str, Any], data: str) -> None:
    path = os.path.join(folder, "SKILL.md")
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    text = task.get("injection_prefix", "") + row["instructions"]["line_injection"]
    at = min(int(task.get("line_num", len(lines))), len(lines))
    lines[at:at] = [text]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    scripts: dict[str, str] = row.get("task_scripts") or {}
    for name, place in scripts.items():
        os.makedirs(os.path.join(folder, "scripts"), exist_ok=True)
        shutil.copy(os.path.join(data, place), os.path.join(folder, "scripts", name))
