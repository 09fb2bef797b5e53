"""Has anything in a skill's folder changed? Asked at every load, so it must cost next to nothing.

One pass over the folder's entries, and of each file what the operating system notes when it is
touched. Content is not read: as long as two surveys are equal, what was read before still stands.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import RACY_NS
from satchel.errors import SkillBroken
from satchel.skill.tree import LIMITS, VERSION_CONTROL

if TYPE_CHECKING:
    from satchel.skill.tree import Seal

Row = tuple[str, int, int, int, int, int]
"""Path, time of change, of the inode's change, size, inode and mode."""
Survey = list[Row]


def survey(root: str, only: frozenset[str] | None = None) -> Survey:
    """Every file below a folder with its stamps, sorted. Folders show by what is in them.

    Args:
        root: The folder.
        only: Names right below it that count; everything when None.

    Raises:
        SkillBroken: there are more files than a skill may have.
        OSError: it cannot be read.
    """
    rows: Survey = []
    todo = [""]
    folders = 0
    for prefix in todo:  # grows while it is walked
        with os.scandir(f"{root}/{prefix}") as entries:
            for entry in entries:
                name = entry.name
                if only is not None and not prefix and name not in only:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if name not in VERSION_CONTROL:
                        todo.append(f"{prefix}{name}/")
                    continue
                info = entry.stat(follow_symlinks=False)
                rows.append((
                    prefix + name,
                    info.st_mtime_ns,
                    info.st_ctime_ns,
                    info.st_size,
                    info.st_ino,
                    info.st_mode,
                ))  # fmt: skip
        folders += 1
        if len(rows) > LIMITS.files or folders > LIMITS.files + 1:
            raise SkillBroken(
                f"`{os.path.basename(root)}` has more than {LIMITS.files} files or folders",
                "Remove what the skill does not need",
            )
    rows.sort()
    return rows


def is_settled(rows: Survey, began: int) -> bool:
    """Whether nothing was touched so shortly before `began` that a further change might not show.

    Args:
        rows: What was seen.
        began: When the survey began, in nanoseconds.
    """
    limit = began - RACY_NS
    return all(row[2] <= limit for row in rows)


class Sealed(NamedTuple):
    """A folder that was verified; the very same object as long as nothing in it changes."""

    path: str
    """The folder as it was asked for: the skill's, or that of the locked skill around it."""
    real: str
    only: frozenset[str] | None
    seal: Seal
    rows: Survey

    def holds(self, real: str, digest: str) -> bool:
        """Whether a file, by its real path, is part of it with this content.

        Args:
            real: The real path of a regular file.
            digest: The hexadecimal SHA-256 of what was read of it.
        """
        return self.has(os.path.relpath(real, self.real).replace(os.sep, "/"), digest)

    def has(self, path: str, digest: str) -> bool:
        """The same by the path below the folder, with `/`."""
        mark = self.seal.files.get(path, "")
        if mark.startswith("link:"):
            real = os.path.realpath(os.path.join(self.path, path))
            path = os.path.relpath(real, self.real).replace(os.sep, "/")
            mark = self.seal.files.get(path, "")
        return mark.removesuffix(" x") == f"sha256:{digest}"
