"""Writes reproducible archives of skills.

Files are stored, not compressed: two builds of zlib compress the same text to different bytes, and
skills are small. Names are sorted, times and modes fixed. `store.archive` reads such an archive
with the same tree digest.
"""

from __future__ import annotations

import os
from hashlib import file_digest
from typing import TYPE_CHECKING, NamedTuple
from zipfile import ZipFile, ZipInfo

from satchel.errors import InvalidInput
from satchel.i18n import say
from satchel.store.archive.rules import check_path, refuse, shown
from satchel.store.sources.base import subtree

if TYPE_CHECKING:
    from typing import IO

    from satchel.skill.file_tree import Tree


class Exported(NamedTuple):
    """A written archive."""

    path: str
    size: int
    digest: str
    """`sha256:…` of the archive itself."""
    notes: tuple[str, ...] = ()
    """Files that were left out, and links that became copies."""


def write_archive(tree: Tree, target: str, *, prefix: str = "") -> Exported:
    """Write a tree as `.zip`, and hash the archive.

    Args:
        tree: The files; links become copies.
        target: The archive. It is replaced atomically.
        prefix: A folder to put everything in, such as the skill's id.

    Raises:
        InvalidInput: the name has another ending.
        Unsafe: a file has a name that no reader should accept.
        OSError: it cannot be written.
    """
    target = os.path.abspath(target)
    notes = pack_tree(tree, target, prefix=prefix)
    with open(target, "rb") as stream:
        digest = file_digest(stream, "sha256").hexdigest()
        return Exported(target, stream.tell(), f"sha256:{digest}", notes)


def pack_tree(tree: Tree, target: str, *, prefix: str = "") -> tuple[str, ...]:
    """`write_archive` without hashing the archive; returns notes."""
    if not target.lower().endswith((".zip", ".skill")):
        raise InvalidInput(
            say("`{path}` must end in `.zip`", path=shown(target)), say("Choose another name")
        )
    if prefix:
        check_path(prefix)
        prefix += "/"
    checked_tree = subtree(tree)
    temporary = f"{target}.{os.getpid()}.{os.urandom(4).hex()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(temporary, flags | getattr(os, "O_BINARY", 0), 0o644)
    try:
        with os.fdopen(descriptor, "w+b") as stream:
            _write_zip(stream, checked_tree, prefix)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    return checked_tree.notes


def _write_zip(stream: IO[bytes], tree: Tree, prefix: str) -> None:
    with ZipFile(stream, "w") as archive:
        for file in tree.files:
            info = ZipInfo(prefix + file.path)  # stored, on the first day that a zip can hold
            info.create_system = 3  # Unix, so that the executable bit counts
            info.external_attr = (0o100755 if file.mode == "program" else 0o100644) << 16
            with archive.open(info, "w") as entry:
                size = sum(entry.write(chunk) for chunk in tree.chunks(file.path))
            if size != file.size:
                raise refuse("changed-while-read", file.path)
