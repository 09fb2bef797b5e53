"""Single steps of applying changes to a workspace: made, undone and repeated.

Which steps were made shows in the files themselves: each is identified by inode, size and time. So
a step can be repeated after a crash. Every path is walked from the opened workspace without
following a link. `change_journal` is the only caller.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._fs import exchange, sync_folder
from satchel.runners.changes import open_parent

if TYPE_CHECKING:
    from collections.abc import Sequence

StepKind = Literal["put", "swap", "take", "mkdir", "rmdir"]
EntryIdentity = tuple[int, int, int]
"""Inode, size and time of the last change of the content."""


class ChangeConflict(Exception):
    """The user changed something since the program started; nothing was applied."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(", ".join(paths))
        self.paths = tuple(paths)


class JournalStep(NamedTuple):
    """One step of applying."""

    kind: StepKind
    """`put` creates, `swap` replaces and `take` deletes a file or link; folders are made and
    removed."""
    path: str
    name: str = ""
    """Of its file in the stage: the new one, for `take` the old one."""
    new: EntryIdentity | None = None
    """Of the file or link that is put at the path."""
    old: EntryIdentity | None = None
    """Of the one that is there."""
    mode: int = 0
    """Of a removed folder."""


class Stepper:
    """Makes and undoes single steps; every one can be repeated."""

    def __init__(self, root: int, stage: int) -> None:
        self.root, self.stage = root, stage

    def make(self, step: JournalStep) -> None:
        """Make a step.

        Raises:
            ChangeConflict: something else is there than when the journal was written.
            OSError: it cannot be made.
        """
        folder = open_parent(self.root, step.path)
        name = os.path.basename(step.path)
        try:
            match step.kind:
                case "put":
                    self._put(step.name, folder, name, step)
                case "swap":
                    self._swap(folder, name, step)
                case "take":
                    self._take(folder, name, step)
                case "mkdir":
                    os.mkdir(name, dir_fd=folder)
                case "rmdir":
                    with suppress(OSError):  # something is in it that the program did not see
                        os.rmdir(name, dir_fd=folder)
        finally:
            os.close(folder)

    def undo(self, step: JournalStep) -> None:
        """Undo a step that was made; what the user changed since stays.

        Raises:
            ChangeConflict: something else is where the old entry was.
        """
        try:
            folder = open_parent(self.root, step.path)
        except (FileNotFoundError, NotADirectoryError):
            return
        name = os.path.basename(step.path)
        try:
            present = find_identity(folder, name)
            staged = find_identity(self.stage, step.name)
            match step.kind:
                case "put":
                    if present == step.new:
                        os.unlink(name, dir_fd=folder)
                case "swap":
                    if present == step.new and staged == step.old:
                        self._exchange(step.name, folder, name)
                    elif self._find_moved(step) == step.old:
                        self._put_back(step, folder, present)
                case "take":
                    if present is None and staged == step.old:
                        self._put(step.name, folder, name, step)
                case "mkdir":
                    with suppress(OSError):
                        os.rmdir(name, dir_fd=folder)
                case "rmdir":
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
                        os.chmod(name, step.mode, dir_fd=folder)
        finally:
            os.close(folder)

    def _put_back(self, step: JournalStep, folder: int, present: EntryIdentity | None) -> None:
        """Put the old entry, which `_swap` moved into the stage, back to its path."""
        name = os.path.basename(step.path)
        if present is None:
            self._put(_moved_name(step), folder, name, step)
        elif present == step.new:
            os.replace(_moved_name(step), name, src_dir_fd=self.stage, dst_dir_fd=folder)

    def find_state(self, step: JournalStep) -> Literal["made", "open", "lost"]:
        """Find whether a step was made, can be made, or is about something that is gone."""
        staged = find_identity(self.stage, step.name)
        try:
            info = stat_entry(self.root, step.path)
        except NotADirectoryError:
            info = None
        present = identify(info) if info is not None else None
        match step.kind:
            case "put":
                is_made = present == step.new
                can_be_made = present is None and staged == step.new
            case "swap":
                is_made = present == step.new
                can_be_made = staged == step.new and self._has_old_entry(step, present)
            case "take":
                is_made = present is None or staged == step.old
                can_be_made = present == step.old
            case "mkdir":
                is_made, can_be_made = present is not None, True
            case "rmdir":
                is_made, can_be_made = present is None, True
        if is_made:
            return "made"
        return "open" if can_be_made else "lost"

    def _has_old_entry(self, step: JournalStep, present: EntryIdentity | None) -> bool:
        """Whether the entry that a step replaces is at its path, or was moved into the stage."""
        return present == step.old or (present is None and self._find_moved(step) == step.old)

    def _find_moved(self, step: JournalStep) -> EntryIdentity | None:
        return find_identity(self.stage, _moved_name(step))

    def _put(self, staged_name: str, folder: int, name: str, step: JournalStep) -> None:
        """Move a file or link out of the stage to a path where nothing is."""
        try:
            os.link(
                staged_name, name, src_dir_fd=self.stage, dst_dir_fd=folder, follow_symlinks=False
            )
        except FileExistsError as exc:
            raise ChangeConflict([step.path]) from exc
        except OSError:  # some file systems have no links
            if find_identity(folder, name) is not None:
                raise ChangeConflict([step.path]) from None
            os.rename(staged_name, name, src_dir_fd=self.stage, dst_dir_fd=folder)
        else:
            os.unlink(staged_name, dir_fd=self.stage)

    def _swap(self, folder: int, name: str, step: JournalStep) -> None:
        """Exchange what is at a path with the new entry in the stage."""
        if find_identity(folder, name) is not None and self._exchange(step.name, folder, name):
            if find_identity(self.stage, step.name) != step.old:
                self._exchange(step.name, folder, name)
                raise ChangeConflict([step.path])
            return
        # Without an atomic exchange the file is missing for a moment, but never incomplete.
        self._take(folder, name, step._replace(name=_moved_name(step)))
        self._put(step.name, folder, name, step)

    def _exchange(self, staged_name: str, folder: int, name: str) -> bool:
        """Exchange two entries atomically; False where the file system cannot."""
        staged_path = f"/proc/self/fd/{self.stage}/{staged_name}"
        return exchange(staged_path, f"/proc/self/fd/{folder}/{name}")

    def _take(self, folder: int, name: str, step: JournalStep) -> None:
        """Move what is at a path into the stage."""
        if find_identity(folder, name) is None and find_identity(self.stage, step.name) == step.old:
            return
        try:
            os.rename(name, step.name, src_dir_fd=folder, dst_dir_fd=self.stage)
        except FileNotFoundError as exc:
            raise ChangeConflict([step.path]) from exc
        if find_identity(self.stage, step.name) != step.old:
            self._put(step.name, folder, name, step)
            raise ChangeConflict([step.path])


def _moved_name(step: JournalStep) -> str:
    """The name in the stage of what a `swap` without an atomic exchange moved out of its way."""
    return f"{step.name}-old"


def find_identity(folder: int, name: str) -> EntryIdentity | None:
    """Identify an entry of an opened folder; None when it is missing, or the name is empty."""
    if not name:
        return None
    try:
        return identify(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return None


def sync_steps(root: int, steps: Sequence[JournalStep]) -> None:
    """Put the folders in which steps were made on the disk."""
    for path in {os.path.dirname(step.path) for step in steps}:
        with suppress(FileNotFoundError, NotADirectoryError):
            folder = open_parent(root, f"{path}/." if path else ".")
            try:
                sync_folder(f"/proc/self/fd/{folder}")
            finally:
                os.close(folder)


def finish_steps(stepper: Stepper, steps: Sequence[JournalStep]) -> None:
    """Make the steps that are open.

    Raises:
        ChangeConflict: the user changed something meanwhile.
        OSError: a step cannot be made.
    """
    removed_folders = {step.path for step in steps if step.kind == "rmdir"}
    for step in steps:
        if stepper.find_state(step) == "lost" and step.path not in removed_folders:
            raise ChangeConflict([step.path])
    for step in steps:
        # Looked up again: an earlier step may have made way.
        if stepper.find_state(step) != "made":
            stepper.make(step)


def undo_steps(stepper: Stepper, steps: Sequence[JournalStep]) -> bool:
    """Undo steps, the last first; False when something of the stage could not be put back."""
    is_whole = True
    for step in reversed(steps):
        try:
            stepper.undo(step)
        except ChangeConflict:
            is_whole = False
    return is_whole


# --- entries ------------------------------------------------------------------------------


def stat_entry(root: int, path: str) -> os.stat_result | None:
    """Return what is at a path; None when it or a folder above is missing.

    Raises:
        NotADirectoryError: something above is no folder.
    """
    try:
        folder = open_parent(root, path)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise NotADirectoryError(path) from exc
    try:
        return os.stat(os.path.basename(path), dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    finally:
        os.close(folder)


def identify(info: os.stat_result) -> EntryIdentity:
    """Identify an entry by what `stat` says."""
    return info.st_ino, info.st_size, info.st_mtime_ns


def is_missing(root: int, path: str) -> bool:
    """Whether nothing is at a path."""
    try:
        return stat_entry(root, path) is None
    except NotADirectoryError:
        return True


def read_mode(root: int, path: str) -> int:
    """Read the mode of a folder; that of new folders when it is missing."""
    try:
        info = stat_entry(root, path)
    except NotADirectoryError:
        info = None
    return stat.S_IMODE(info.st_mode) if info is not None else 0o755
