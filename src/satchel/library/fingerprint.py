"""Change detection for skill folders.

A survey lists the file stamps of a folder without reading contents: while two surveys are equal,
nothing changed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import RACY_NS
from satchel.errors import Changed, SkillBroken
from satchel.i18n import Message

if TYPE_CHECKING:
    from satchel.skill.file_tree import TreeDigest
    from satchel.skill.model import Skill


class FileStamps(NamedTuple):
    """A file of a folder, with the values that a change of the file alters."""

    path: str
    """Below the folder, with `/`."""
    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int
    mode: int


Survey = list[FileStamps]


def list_stamps(root: str, top_names: frozenset[str] | None = None) -> Survey:
    """List the files below a folder with their stamps, sorted; empty folders are ignored.

    Args:
        root: The folder.
        top_names: Names directly below it to include; everything when None.

    Raises:
        SkillBroken: there are more files than a skill may have.
        OSError: it cannot be read.
    """
    from satchel.skill.file_tree import LIMITS, VERSION_CONTROL  # `list` does without

    survey: Survey = []
    folders = [""]
    for folder in folders:  # grows while it is walked
        with os.scandir(f"{root}/{folder}") as entries:
            for entry in entries:
                name = entry.name
                if top_names is not None and not folder and name not in top_names:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if folder or name not in VERSION_CONTROL:
                        folders.append(f"{folder}{name}/")
                    continue
                info = entry.stat(follow_symlinks=False)
                survey.append(
                    FileStamps(
                        folder + name,
                        info.st_mtime_ns,
                        info.st_ctime_ns,
                        info.st_size,
                        info.st_ino,
                        info.st_mode,
                    )
                )
        if len(survey) > LIMITS.files or len(folders) > LIMITS.files + 1:
            raise SkillBroken(
                f"`{os.path.basename(root)}` has more than {LIMITS.files} files or folders",
                "Remove what the skill does not need",
            )
    survey.sort()
    return survey


def is_settled(survey: Survey, start_ns: int) -> bool:
    """Whether any later change would alter the stamps: no file is too recent.

    Args:
        survey: The survey.
        start_ns: When the survey began, in nanoseconds.
    """
    limit = start_ns - RACY_NS
    return all(file.ctime_ns <= limit for file in survey)


class VerifiedFolder(NamedTuple):
    """A verified folder; the same object while nothing in it changes."""

    path: str
    real_path: str
    top_names: frozenset[str] | None
    """Names directly in the folder that belong to the skill; everything when None."""
    tree: TreeDigest
    survey: Survey

    def has_real_path(self, real_path: str, digest: str) -> bool:
        """Whether a file, by its real path, is part of the folder with this content.

        Args:
            real_path: The real path of a regular file.
            digest: Hexadecimal SHA-256 of the bytes read.
        """
        return self.has(self._relative_path(real_path), digest)

    def has(self, path: str, digest: str) -> bool:
        """As `has_real_path`, by the path below the folder, with `/`."""
        file_digest = self.tree.files.get(path, "")
        if file_digest.startswith("link:"):
            real_path = os.path.realpath(os.path.join(self.path, path))
            file_digest = self.tree.files.get(self._relative_path(real_path), "")
        return file_digest.removesuffix(" x") == f"sha256:{digest}"

    def has_content(self, path: str, data: bytes) -> bool:
        """As `has`, for the whole content of a file."""
        from hashlib import sha256

        return self.has(path, sha256(data).hexdigest())

    def _relative_path(self, real_path: str) -> str:
        return os.path.relpath(real_path, self.real_path).replace(os.sep, "/")


def changed_error(skill: Skill) -> Changed:
    """The error for a skill that changed while it was used."""
    return Changed(
        Message("The skill `{name}` changed meanwhile", name=skill.name), Message("Try again")
    )
