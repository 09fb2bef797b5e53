"""Staging folders, in which new skills are written before a transaction moves them into place.

    stage/<tx>/new/<id>/   the new skill
    stage/<tx>.alive       locked by the process that owns the staging folder

A staging folder is on the file system of the skills, so that a rename moves a skill into place.
One whose `alive` file is not locked belongs to a dead process and may be deleted.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel._fs import check_lock_file, locked
from satchel.errors import Conflict
from satchel.i18n import say
from satchel.library.fingerprint import list_stamps
from satchel.library.lockfile import check_id
from satchel.skill.file_tree import LIMITS, FolderTree, TreeDigest, digest_of
from satchel.store.archive.rules import refuse
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.trees import PathState, has_changed
from satchel.store.workdir import prepare_scope

if TYPE_CHECKING:
    from typing import Self

    from satchel.skill.file_tree import Tree, TreeFile
    from satchel.store.workdir import Scope

_CREATE_FLAGS = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_BINARY", 0)
)


class StagingFolder:
    """A staging folder of this process. Closing it, or leaving its context, deletes it."""

    def __init__(self, scope: Scope) -> None:
        """Create an empty staging folder.

        Raises:
            AccessDenied: a link in the scope leads elsewhere.
            Refused: it cannot be created.
        """
        self.scope = scope
        self._written: dict[str, PathState] = {}
        self.repaired: tuple[str, ...] = ()
        """What recovery did before."""
        with disk_errors_as_refusal(scope.work):
            prepare_scope(scope)
            self.path = scope.part("stage", f"{os.getpid():x}-{os.urandom(6).hex()}")
            self._alive = locked(self.path + ".alive", private=False)
            # Locked before it exists, so that it never looks abandoned.
            self._alive.__enter__()
            try:
                os.makedirs(os.path.join(self.path, "new"))
            except OSError:
                self._release()
                raise
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete what is left in it. What cannot be deleted goes with the next command."""
        if self._open:
            remove_tree(self.path)
        self.detach()

    def detach(self) -> None:
        """Release the staging folder without deleting it: a journal on the disk needs it."""
        if self._open:
            self._open = False
            self._release()

    def _release(self) -> None:
        with suppress(OSError):
            os.unlink(self.path + ".alive")
        with suppress(OSError):
            self._alive.__exit__(None, None, None)

    def folder(self, skill_id: str) -> str:
        """The folder of one staged skill."""
        path = os.path.join(self.path, "new", check_id(skill_id))
        with disk_errors_as_refusal(path):
            os.makedirs(path, exist_ok=True)
        return path

    def write_tree(self, skill_id: str, tree: Tree, mode_source: str = "") -> TreeDigest:
        """Write a skill's files; the digest is computed while they are written.

        Args:
            skill_id: The folder's name.
            tree: The files.
            mode_source: The folder that it replaces or derives from; its mode bits are not widened.

        Raises:
            Unsafe: a path leads elsewhere, two paths are one file here, or it is too large.
            Refused: it cannot be written.
        """
        folder = self.folder(skill_id)
        with disk_errors_as_refusal(folder):
            existing_names = os.listdir(folder)
        if existing_names:
            raise Conflict(
                say("`{path}` exists already", path=skill_id), say("Choose another name")
            )
        try:
            with disk_errors_as_refusal(folder):
                file_digests = dict(sorted(_write_files(folder, tree).items()))
                if mode_source:
                    _restrict_modes(folder, mode_source)
                FolderTree(folder)  # refuses links that lead outside
                tree_digest = TreeDigest(digest_of(file_digests), file_digests)
                self._written[skill_id] = PathState(
                    tree_digest.digest, tree_digest, list_stamps(folder)
                )
        except BaseException:
            remove_tree(folder)
            raise
        return tree_digest

    def has_changed(self, skill_id: str, digest: str) -> bool:
        """Whether a staged skill is not what `write_tree` wrote, and so not what was scanned."""
        written = self._written.get(skill_id, PathState(digest))
        return written.digest != digest or has_changed(self.folder(skill_id), written)


def _write_files(folder: str, tree: Tree) -> dict[str, str]:
    """Write the files below `folder`; returns their digests as in `TreeDigest.files`."""
    file_digests: dict[str, str] = {}
    made_folders = {""}
    remaining_bytes = LIMITS.size
    # Links last, so that no file is written through one.
    for file in sorted(tree.files, key=lambda file: file.mode == "link"):
        _make_parents(folder, file, made_folders)
        path = os.path.join(folder, file.path)
        if file.mode == "link":
            link_target = b"".join(tree.chunks(file.path))
            os.symlink(link_target, os.fsencode(path))
            file_digests[file.path] = "link:" + os.fsdecode(link_target)
            continue
        mode = 0o755 if file.mode == "program" else 0o644
        file_hash = hashlib.sha256()
        try:
            descriptor = os.open(path, _CREATE_FLAGS, mode)
        except FileExistsError as exc:
            raise refuse("case-conflict", file.path) from exc
        with os.fdopen(descriptor, "wb", buffering=0) as stream:
            for chunk in tree.chunks(file.path):
                remaining_bytes -= len(chunk)
                if remaining_bytes < 0:
                    raise refuse("too-large", file.path, f"{LIMITS.size >> 20} MiB")
                file_hash.update(chunk)
                unwritten = memoryview(chunk)
                while unwritten:
                    unwritten = unwritten[stream.write(unwritten) :]
            if hasattr(os, "fchmod"):
                os.fchmod(descriptor, mode)  # regardless of the umask
        file_digests[file.path] = f"sha256:{file_hash.hexdigest()}" + (
            " x" if mode == 0o755 else ""
        )
    return file_digests


def _restrict_modes(new_folder: str, old_folder: str) -> None:
    """Remove mode bits from staged paths that the paths which they replace do not have."""
    with os.scandir(new_folder) as entries:
        for entry in entries:
            old_path = os.path.join(old_folder, entry.name)
            if entry.is_dir(follow_symlinks=False) and not os.path.islink(old_path):
                _restrict_modes(entry.path, old_path)
            elif entry.is_file(follow_symlinks=False):
                _restrict_mode(entry.path, old_path)
    _restrict_mode(new_folder, old_folder)


def _restrict_mode(new_path: str, old_path: str) -> None:
    try:
        old_mode = os.lstat(old_path).st_mode
    except OSError:
        return
    new_mode = stat.S_IMODE(os.lstat(new_path).st_mode)
    if not stat.S_ISLNK(old_mode) and new_mode & ~(old_mode | stat.S_IRWXU):
        os.chmod(new_path, new_mode & (old_mode | stat.S_IRWXU))


def _make_parents(folder: str, file: TreeFile, made_folders: set[str]) -> None:
    parts = file.path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts) or os.path.isabs(file.path):
        raise refuse("path-escapes", file.path)
    parent = ""
    for part in parts[:-1]:
        parent = f"{parent}/{part}" if parent else part
        if parent not in made_folders:
            path = os.path.join(folder, parent)
            os.mkdir(path)
            os.chmod(path, 0o755)  # noqa: S103 - a skill is for everyone who may see the project
            made_folders.add(parent)


def remove_stale_stages(scope: Scope) -> bool:
    """Delete the staging folders of dead processes; True when there were any."""
    from filelock import FileLock, Timeout

    has_stale = False
    names = {name.removesuffix(".alive") for name in os.listdir(scope.part("stage"))}
    for name in sorted(names):
        path = scope.part("stage", name)
        try:
            check_lock_file(path + ".alive")
            with FileLock(path + ".alive", timeout=0, blocking=False, thread_local=False):
                has_stale = True
                remove_tree(path)
                os.unlink(path + ".alive")
        except (Timeout, OSError):  # in use, deleted meanwhile, or Windows
            continue
    return has_stale


def remove_tree(path: str) -> bool:
    """Delete a path without following links; True when nothing is left."""
    with suppress(OSError):  # `ignore_errors` does not cover all
        if os.path.islink(path) or not os.path.isdir(path):
            os.unlink(path)
        else:
            shutil.rmtree(path, ignore_errors=True)
            if os.path.lexists(path):
                _make_writable(path)
                shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)


def _make_writable(path: str) -> None:
    """Make protected folders writable: entries cannot be deleted from one that is not."""
    os.chmod(path, 0o700)
    for folder, folder_names, _ in os.walk(path):
        for name in folder_names:
            path_below = os.path.join(folder, name)
            if not os.path.islink(path_below):
                os.chmod(path_below, 0o700)
