"""The changes that a program made in an overlay: the upper folder as a list.

The upper folder holds new and changed files whole, whiteouts (devices 0:0) for what was deleted,
and `user.overlay.opaque` on folders that replace another. A renamed folder is a deletion and a
creation. Folders appear through the files in them; modes of folders, owners, times and extended
attributes are not changes.

Nothing here follows a link: every entry is looked up by name in an opened folder.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from satchel.i18n import Message
from satchel.runners._supervisor import MAX_DEPTH
from satchel.runners.base import Change, RefusedChange
from satchel.runners.change_rules import (
    PROJECT_FILE,
    mode_refusal,
    planted_repositories,
    settings_refusal,
)

if TYPE_CHECKING:
    from satchel.runners.change_rules import ChangeRules

_MAX_PROJECT_FILE_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 20
_CLOEXEC_NOFOLLOW = os.O_CLOEXEC | os.O_NOFOLLOW
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | _CLOEXEC_NOFOLLOW
FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | _CLOEXEC_NOFOLLOW


class EntryState(NamedTuple):
    """What identifies the content of a file or link without reading it."""

    inode: int
    size: int
    changed_ns: int
    """Time of the last change of its content."""
    mode: int

    @classmethod
    def of(cls, info: os.stat_result) -> EntryState:
        """The state of an entry."""
        return cls(info.st_ino, info.st_size, info.st_mtime_ns, info.st_mode)


class ChangeList(NamedTuple):
    """Everything that a program changed."""

    changes: tuple[Change, ...]
    """By path."""
    refused: tuple[RefusedChange, ...]
    replaced_entries: dict[str, EntryState]
    """The entries of the workspace that would be replaced or deleted."""
    removed_folders: tuple[str, ...] = ()
    """Folders that the program deleted; the deepest first."""
    empty_folders: tuple[str, ...] = ()
    """New folders without files; they are not made."""
    is_too_large: bool = False
    """Whether there was more than a list may hold; then it is empty."""


class _TooLarge(Exception):
    """There are more changes than a list may hold."""


def list_changes(
    upper: int, workspace: int, rules: ChangeRules, *, max_entries: int, max_bytes: int
) -> ChangeList:
    """List what an upper folder changes in a workspace; both are opened folders.

    Raises:
        OSError: one of them cannot be read.
    """
    walk = _Walk(rules, max_entries, max_bytes)
    try:
        walk.list_folder(upper, workspace, "", replaced=False, depth=0)
    except _TooLarge:
        return ChangeList((), (), {}, is_too_large=True)
    for folder, reason in planted_repositories(walk.changes, workspace).items():
        prefix = f"{folder}/" if folder else ""
        paths = [path for path in walk.changes if path.startswith(prefix)]
        for path in paths:
            del walk.changes[path]
        if paths:
            walk.refuse(folder or paths[0], reason)
    return ChangeList(
        changes=tuple(walk.changes[path] for path in sorted(walk.changes)),
        refused=tuple(RefusedChange(path, walk.refused[path]) for path in sorted(walk.refused)),
        replaced_entries=walk.replaced_entries,
        removed_folders=tuple(walk.removed_folders),
        empty_folders=tuple(walk.empty_folders),
    )


class _Walk:
    """Walks the upper folder beside the workspace, and collects what differs."""

    def __init__(self, rules: ChangeRules, max_entries: int, max_bytes: int) -> None:
        self.rules = rules
        self.entries_left, self.bytes_left = max_entries, max_bytes
        self.changes: dict[str, Change] = {}
        self.refused: dict[str, Message] = {}
        self.replaced_entries: dict[str, EntryState] = {}
        self.removed_folders: list[str] = []
        self.empty_folders: list[str] = []

    def refuse(self, path: str, reason: Message) -> None:
        self.refused.setdefault(path, reason)

    def list_folder(
        self, upper: int, lower: int | None, path: str, *, replaced: bool, depth: int
    ) -> None:
        """List the changes in a folder of the upper layer.

        Args:
            upper: The opened folder.
            lower: The folder of the workspace at the same path, if there is one.
            path: The path of both.
            replaced: Whether the upper one hides what the lower one holds.
            depth: The number of folders above.
        """
        names = sorted(os.listdir(upper))
        if lower is None and not names:
            self.empty_folders.append(path)
        for name in names:
            self._count_entry(depth)
            entry_path = f"{path}/{name}" if path else name
            self._list_entry(upper, lower, entry_path, replaced=replaced, depth=depth)
        if replaced and lower is not None:
            for name in sorted(set(os.listdir(lower)) - set(names)):
                self._list_deletion(lower, f"{path}/{name}", depth)

    def _list_entry(
        self, upper: int, lower: int | None, path: str, *, replaced: bool, depth: int
    ) -> None:
        name = os.path.basename(path)
        if reason := self.rules.refusal(path):
            if not _is_refreshed_index(upper, lower, name):
                self.refuse(path, reason)
            return
        new = os.stat(name, dir_fd=upper, follow_symlinks=False)
        old = _stat_entry(lower, name)
        if stat.S_ISCHR(new.st_mode) and new.st_rdev == 0:
            if old is not None and lower is not None:
                self._list_deletion(lower, path, depth)
        elif stat.S_ISDIR(new.st_mode):
            self._list_subfolder(upper, lower, path, old, replaced=replaced, depth=depth)
        elif reason := mode_refusal(new.st_mode) or self.rules.file_refusal(path):
            self.refuse(path, reason)
        else:
            if lower is not None and old is not None and stat.S_ISDIR(old.st_mode):
                self._list_deletion(lower, path, depth)
                if any(other.startswith(f"{path}/") for other in self.refused):
                    self.refuse(path, Message("the folder in its place stays"))
                    return
                old = None
            self._list_file(upper, lower, path, new=new, old=old)

    def _list_subfolder(
        self,
        upper: int,
        lower: int | None,
        path: str,
        old: os.stat_result | None,
        *,
        replaced: bool,
        depth: int,
    ) -> None:
        """List a folder of the upper layer, which may replace something else."""
        name = os.path.basename(path)
        is_folder = old is not None and stat.S_ISDIR(old.st_mode)
        if lower is not None and old is not None and not is_folder:
            self._list_deletion(lower, path, depth)
        upper_folder = open_folder(name, upper)
        try:
            lower_folder = open_folder(name, lower) if is_folder and lower is not None else None
            try:
                hides_lower = replaced or (lower_folder is not None and _is_opaque(upper_folder))
                self.list_folder(
                    upper_folder, lower_folder, path, replaced=hides_lower, depth=depth + 1
                )
            finally:
                if lower_folder is not None:
                    os.close(lower_folder)
        finally:
            os.close(upper_folder)

    def _list_file(
        self,
        upper: int,
        lower: int | None,
        path: str,
        new: os.stat_result,
        old: os.stat_result | None,
    ) -> None:
        name = os.path.basename(path)
        self.bytes_left -= new.st_size
        if self.bytes_left < 0:
            raise _TooLarge
        link = ""
        if stat.S_ISLNK(new.st_mode):
            link = os.readlink(name, dir_fd=upper)
            if reason := self.rules.link_refusal(path, link):
                self.refuse(path, reason)
                return
        if (
            lower is not None
            and old is not None
            and _is_unchanged(upper, lower, name, new=new, old=old)
        ):
            return
        if reason := _settings_refusal(upper, lower, path):
            self.refuse(path, reason)
            return
        if old is not None:
            self.replaced_entries[path] = EntryState.of(old)
        self.changes[path] = Change(
            path,
            "created" if old is None else "changed",
            None if old is None else old.st_size,
            new.st_size,
            executable=_is_executable(new) and not link,
            link=link,
            needs_consent=self.rules.needs_consent(path),
            was_executable=old is not None and stat.S_ISREG(old.st_mode) and _is_executable(old),
        )

    def _list_deletion(self, lower: int, path: str, depth: int) -> None:
        """List what is deleted in the workspace: a file, or everything in a folder."""
        name = os.path.basename(path)
        self._count_entry(depth)
        if reason := self.rules.refusal(path):
            self.refuse(path, reason)
            return
        old = _stat_entry(lower, name)
        if old is None:
            return
        if not stat.S_ISDIR(old.st_mode):
            if not (stat.S_ISREG(old.st_mode) or stat.S_ISLNK(old.st_mode)):
                self.refuse(path, Message("it is neither a file nor a link"))
                return
            if reason := _settings_refusal(None, lower, path):
                self.refuse(path, reason)
                return
            self.replaced_entries[path] = EntryState.of(old)
            self.changes[path] = Change(
                path, "deleted", old.st_size, needs_consent=self.rules.needs_consent(path)
            )
            return
        try:
            folder = os.open(name, FOLDER_FLAGS, dir_fd=lower)
        except PermissionError:
            self.refuse(path, Message("it cannot be read"))
            return
        try:
            for entry in sorted(os.listdir(folder)):
                self._list_deletion(folder, f"{path}/{entry}", depth + 1)
        finally:
            os.close(folder)
        self.removed_folders.append(path)

    def _count_entry(self, depth: int) -> None:
        self.entries_left -= 1
        if self.entries_left < 0 or depth > MAX_DEPTH:
            raise _TooLarge


def open_folder(name: str, folder: int) -> int:
    """Open a folder of the upper layer, even if its program took away the rights to it."""
    opened = _open_written(name, folder, FOLDER_FLAGS, 0o700)
    if os.fstat(opened).st_mode & 0o700 != 0o700:
        os.fchmod(opened, 0o700)
    return opened


def open_file(name: str, folder: int) -> int:
    """Open a file of the upper layer, even if its program took away the right to read it."""
    return _open_written(name, folder, FILE_FLAGS, 0o600)


def _open_written(name: str, folder: int, flags: int, mode: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        os.chmod(name, mode, dir_fd=folder)  # no process can make it a link any more
        return os.open(name, flags, dir_fd=folder)


def open_parent(root: int, path: str) -> int:
    """Open the folder of a path below an opened folder, without following links.

    Raises:
        OSError: a folder on the way is missing, or is a link.
    """
    folder = os.dup(root)
    for part in path.split("/")[:-1]:
        try:
            subfolder = os.open(part, FOLDER_FLAGS | os.O_PATH, dir_fd=folder)
        finally:
            os.close(folder)
        folder = subfolder
    return folder


def _stat_entry(folder: int | None, name: str) -> os.stat_result | None:
    """Return what is in a folder under a name; None when nothing is, or without a folder."""
    if folder is None:
        return None
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_opaque(folder: int) -> bool:
    """Whether a folder of the upper layer hides what the workspace has in its place."""
    try:
        return os.getxattr(folder, "user.overlay.opaque") == b"y"
    except OSError:
        return False


def _is_refreshed_index(upper: int, lower: int | None, name: str) -> bool:
    """Whether git, as in `git status`, only noted in its index how files look.

    Nothing of it is applied in any case. After more than that an index mostly has another size.
    """
    if name != ".git" or lower is None:
        return False
    try:
        repository = os.open(name, FOLDER_FLAGS, dir_fd=upper)
    except OSError:
        return False
    try:
        names = os.listdir(repository)
        if _is_opaque(repository) or not {"index", "index.lock"}.issuperset(names):
            return False
        old, new = _stat_entry(lower, ".git/index"), _stat_entry(repository, "index")
        if new is None:
            return True
        return stat.S_ISREG(new.st_mode) and old is not None and old.st_size == new.st_size
    finally:
        os.close(repository)


def _is_executable(info: os.stat_result) -> bool:
    """Whether the owner may execute a file."""
    return bool(info.st_mode & 0o100)


def _is_unchanged(
    upper: int, lower: int, name: str, new: os.stat_result, old: os.stat_result
) -> bool:
    """Whether an entry has the same type, content and executable bit in both layers."""
    if stat.S_IFMT(new.st_mode) != stat.S_IFMT(old.st_mode) or new.st_size != old.st_size:
        return False
    if stat.S_ISLNK(new.st_mode):
        return os.readlink(name, dir_fd=upper) == os.readlink(name, dir_fd=lower)
    if _is_executable(new) != _is_executable(old):
        return False
    upper_file = open_file(name, upper)
    try:
        try:
            lower_file = os.open(name, FILE_FLAGS, dir_fd=lower)
        except PermissionError:
            return False
        try:
            while chunk := os.read(upper_file, _CHUNK_BYTES):
                if chunk != _read_exactly(lower_file, len(chunk)):
                    return False
        finally:
            os.close(lower_file)
    finally:
        os.close(upper_file)
    return True


def _read_exactly(file: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (chunk := os.read(file, size - len(data))):
        data += chunk
    return data


def _settings_refusal(upper: int | None, lower: int | None, path: str) -> Message | None:
    name = os.path.basename(path)
    if name != PROJECT_FILE:
        return None
    return settings_refusal(path, old=_read_file(lower, name), new=_read_file(upper, name))


def _read_file(folder: int | None, name: str) -> bytes | None:
    """Read the content of a small file; None when there is none, or it is a link."""
    if folder is None:
        return None
    try:
        file = os.open(name, FILE_FLAGS, dir_fd=folder)
    except OSError:
        return None
    try:
        return _read_exactly(file, _MAX_PROJECT_FILE_BYTES + 1)
    finally:
        os.close(file)
