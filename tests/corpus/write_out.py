"""Writes real skills out as folders, so that they are read from a disk like anybody's.

Many authors chose the same name. Every row gets a folder of its own, and the frontmatter keeps the
name its author gave.
"""

from __future__ import annotations

import json
import os
from typing import Any

_HEAD = "---\nname: {name}\ndescription: {description}\n---\n\n{body}\n"


def pick(rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """So many rows, spread evenly: neighbours come from one repository and resemble each other."""
    step = max(1, len(rows) // count)
    return rows[::step][:count]


def write_out(rows: list[dict[str, Any]], folder: str) -> dict[str, str]:
    """Write the rows below `folder`: which folder has which name."""
    os.makedirs(folder)
    names: dict[str, str] = {}
    taken: set[str] = set()
    for row in rows:
        name = _folder(str(row["dir_name"]), str(row["id"]), taken)
        os.mkdir(os.path.join(folder, name))
        # A JSON string is a YAML string: whatever is in a description survives the way.
        text = _HEAD.format(
            name=json.dumps(row["name"]),
            description=json.dumps(row["description"]),
            body=row["body_head"],
        )
        with open(os.path.join(folder, name, "SKILL.md"), "wb") as file:
            file.write(text.encode("utf-8", "surrogatepass"))
        names[name] = str(row["name"])
    return names


def _folder(wanted: str, key: str, taken: set[str]) -> str:
    """The folder's own name for the first who has it; later ones carry the key of their row."""
    name = wanted.replace("/", "-").replace("\0", "").strip(". ")[:120] or "unnamed"
    if name.casefold() in taken:
        name = f"{name}--{key}"
    taken.add(name.casefold())
    return name
