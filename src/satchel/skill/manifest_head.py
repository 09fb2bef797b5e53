"""A skill.yaml as the rest of Satchel sees a skill: a Head for lists and trust, a Document to show.

A folder that has a skill.yaml and no SKILL.md is a skill all the same: it can be listed, trusted,
locked, scanned and signed. It has no instructions, so no model can load it; its tools are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel.skill.manifest import FILE
from satchel.skill.manifest_read import read_manifest
from satchel.skill.model import Document, Head

if TYPE_CHECKING:
    from satchel.skill.manifest_read import Reading
    from satchel.skill.problems import Problem


def read_tool_head(
    data: bytes, skill_id: str, stamp: tuple[int, int, int]
) -> tuple[Head | None, tuple[Problem, ...]]:
    """The head of a skill.yaml, or the problems that say why there is none."""
    reading = read_manifest(data, skill_id.rpartition("/")[2])
    return tool_head(reading, data, skill_id, stamp), reading.problems


def tool_head(
    reading: Reading, data: bytes, skill_id: str, stamp: tuple[int, int, int]
) -> Head | None:
    """The head of what was read; None when it is no tool skill."""
    if reading.manifest is None:
        return None
    from hashlib import blake2b

    mtime, ctime, size = stamp
    extra: dict[str, Any] = {
        "tools": tuple(tool.name for tool in reading.manifest.tools),
        # All of it reaches a model or decides what the program may touch.
        "manifest": blake2b(data, digest_size=16).hexdigest(),
    }
    name = skill_id.rpartition("/")[2]
    return Head(
        name, reading.description, skill_id, FILE, mtime, ctime, size, extra, reading.problems
    )


def parse_tool_document(data: bytes, skill_id: str, stamp: tuple[int, int, int]) -> Document:
    """A skill.yaml read whole: its fields, and no body."""
    reading = read_manifest(data, skill_id.rpartition("/")[2])
    head = tool_head(reading, data, skill_id, stamp)
    return Document(reading.fields, reading.lines, "", reading.problems, head)
