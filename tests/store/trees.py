"""Trees that several tests of the store share."""

from __future__ import annotations

import os

from satchel.skill.file_tree import MemoryTree

SKILL = b"---\nname: good\ndescription: Helps.\n---\n\nDo it.\n"
CONTENT = {
    "SKILL.md": SKILL,
    "references/a long name that does not fit into a hundred bytes " + "x" * 120 + ".md": b"long",
    "references/größe-日本.md": "größe".encode(),
    "scripts/run.sh": b"#!/bin/sh\necho ok\n",
    "assets/empty": b"",
    "assets/large.bin": bytes(range(256)) * 2000,
}
PROGRAMS = frozenset(("scripts/run.sh",))


def good_tree() -> MemoryTree:
    return MemoryTree(CONTENT, PROGRAMS)


def write_folder(folder: str | os.PathLike[str]) -> str:
    """The same tree on disk."""
    for path, data in CONTENT.items():
        full = os.path.join(folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as stream:
            stream.write(data)
        os.chmod(full, 0o755 if path in PROGRAMS else 0o644)
    return os.fspath(folder)
