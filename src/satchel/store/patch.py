"""What would change, line by line, as a patch that a person or a program can read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from satchel.skill.tree import read_whole, seal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.skill.tree import Tree

_LONGEST = 1 << 20


def patch_of(before: Tree | None, after: Tree | None, name: str) -> str:
    """The difference of two versions, as a unified diff."""
    return "".join(_pieces(before, after, name))


def patch_one(before: Tree | None, after: Tree | None, path: str) -> str:
    """The same for a single file of them; empty when neither has it."""
    texts = [
        read_whole(tree, path)
        if tree is not None and any(file.path == path for file in tree.files)
        else None
        for tree in (before, after)
    ]
    was, will_be = (text is not None for text in texts)
    if not was and not will_be:
        return ""
    return "".join(_file(path, texts[0] or b"", texts[1] or b"", was, will_be))


def _pieces(before: Tree | None, after: Tree | None, name: str) -> Iterator[str]:
    trees = [before, after]
    old, new = (seal(tree).files if tree is not None else {} for tree in trees)
    for path in sorted({*old, *new}, key=os.fsencode):
        if old.get(path) == new.get(path):
            continue
        texts = [
            read_whole(tree, path) if tree is not None and path in marks else b""
            for tree, marks in zip(trees, (old, new), strict=True)
        ]
        yield from _file(f"{name}/{path}", texts[0], texts[1], path in old, path in new)


def _file(path: str, before: bytes, after: bytes, was: bool, will_be: bool) -> Iterator[str]:  # noqa: FBT001 - two of a kind
    from difflib import unified_diff

    first = f"a/{path}" if was else "/dev/null"
    second = f"b/{path}" if will_be else "/dev/null"
    if before == after:
        yield f"--- {first}\n+++ {second}\n# only the permission to execute changes\n"
        return
    if b"\0" in before + after or len(before) + len(after) > _LONGEST:
        yield f"--- {first}\n+++ {second}\n# binary: {len(before)} -> {len(after)} bytes\n"
        return
    lines = [text.decode("utf-8", "replace").splitlines(keepends=True) for text in (before, after)]
    for line in unified_diff(lines[0], lines[1], first, second):
        yield line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
