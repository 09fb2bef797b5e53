"""Finds what lies in a location and looks like a skill, but is none.

Only `doctor` and `why` ask: a folder without a `SKILL.md` costs every other command nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.library.shelf import Shelf

_DOCUMENTS = frozenset((
    "agents", "changelog", "claude", "contributing", "index", "licence", "license", "readme",
))  # fmt: skip
"""Markdown files that belong beside skills."""


def find_strays(shelf: Shelf) -> Iterator[Problem]:
    """Folders that hold no skill, and Markdown files that lie beside the folders of skills."""
    if shelf.location.single or shelf.location.supplier is not None:
        return
    skills = {*shelf.heads, *shelf.broken}
    skills |= {one for one in shelf.folders if one and _has_manifest(shelf.path_of(one))}
    groups = {above for one in skills for above in _above(one)}
    for folder in sorted(shelf.folders):
        name = folder.rpartition("/")[2]
        if folder in skills or name.startswith(".") or any(one in skills for one in _above(folder)):
            continue
        if folder and folder not in groups:
            if folder.rpartition("/")[0] in groups | {""}:
                yield Problem("folder-without-skill", shelf.path_of(folder))
            continue
        for file in _markdown(shelf.path_of(folder)):
            stem = os.path.splitext(file)[0]
            values = {"folder": "NAME" if stem.lower() == "skill" else stem}
            yield Problem("loose-file", os.path.join(shelf.path_of(folder), file), values=values)


def _has_manifest(path: str) -> bool:
    return any(os.path.lexists(f"{path}/{name}") for name in ("skill.yaml", "skill.yml"))


def _markdown(path: str) -> list[str]:
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return []  # reported by the walk
    return [
        name
        for name in names
        if name.lower().endswith(".md")
        and not name.startswith(".")
        and os.path.splitext(name)[0].lower() not in _DOCUMENTS
        and os.path.isfile(os.path.join(path, name))
    ]


def _above(folder: str) -> Iterator[str]:
    while "/" in folder:
        folder = folder.rpartition("/")[0]
        yield folder
