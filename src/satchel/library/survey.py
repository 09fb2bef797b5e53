"""Has anything in a skill's folder changed? Asked at every load, so it must cost next to nothing.

One pass over the folder's entries, and of each file what the operating system notes when it is
touched. Content is not read: as long as two surveys are equal, what was read before still stands.
"""

from __future__ import annotations

import os

from satchel._fs import RACY_NS
from satchel.errors import SkillBroken
from satchel.skill.tree import LIMITS, VERSION_CONTROL

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
