"""Unified diffs of two versions of a skill, for the terminal and the browser."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from satchel.skill.file_tree import read_whole
from satchel.store.trees import digest_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.skill.file_tree import Tree

_MAX_DIFF_BYTES = 1 << 20


def tree_patch(old_tree: Tree | None, new_tree: Tree | None, folder: str) -> str:
    """Return a unified diff of two versions, with the paths below `folder`."""
    old_digests = digest_tree(old_tree).files if old_tree is not None else {}
    new_digests = digest_tree(new_tree).files if new_tree is not None else {}
    lines: list[str] = []
    for path in sorted({*old_digests, *new_digests}, key=os.fsencode):
        if old_digests.get(path) == new_digests.get(path):
            continue
        old = read_whole(old_tree, path) if old_tree is not None and path in old_digests else None
        new = read_whole(new_tree, path) if new_tree is not None and path in new_digests else None
        lines += _diff_lines(f"{folder}/{path}", old, new)
    return "".join(lines)


def file_patch(old_tree: Tree | None, new_tree: Tree | None, path: str) -> str:
    """Return a unified diff of one file; empty when neither version has it."""
    old, new = _read_file(old_tree, path), _read_file(new_tree, path)
    return "" if old is None and new is None else "".join(_diff_lines(path, old, new))


def _read_file(tree: Tree | None, path: str) -> bytes | None:
    if tree is None or all(file.path != path for file in tree.files):
        return None
    return read_whole(tree, path)


def _diff_lines(path: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    """Yield the lines of a file's diff; None stands for a missing file."""
    from difflib import unified_diff

    old_path = "/dev/null" if old is None else f"a/{path}"
    new_path = "/dev/null" if new is None else f"b/{path}"
    old, new = old or b"", new or b""
    if old == new:
        yield f"--- {old_path}\n+++ {new_path}\n# only the permission to execute changes\n"
        return
    if b"\0" in old + new or len(old) + len(new) > _MAX_DIFF_BYTES:
        yield f"--- {old_path}\n+++ {new_path}\n# binary: {len(old)} -> {len(new)} bytes\n"
        return
    old_lines, new_lines = (
        content.decode("utf-8", "replace").splitlines(keepends=True) for content in (old, new)
    )
    for line in unified_diff(old_lines, new_lines, old_path, new_path):
        yield line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
