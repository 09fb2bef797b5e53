"""Applies accepted changes to a workspace: all or nothing, also when the host is killed.

    stage     new files are written whole to a folder `.satchel-change-…` of the workspace, and
              what the program wrote is removed
    compare   what would be replaced is as the program saw it, else `ChangeConflict`
    journal   the steps are on the disk, in the private folder of the run
    steps     each is one rename: what is replaced or deleted moves into the stage
    done      the journal says so, and the stage is removed

An error undoes the steps so far. After a crash `recover` finishes them, or undoes them where the
user changed something meanwhile. `change_steps` makes and undoes single steps.

Every path is walked from the opened workspace without following a link.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from satchel._fs import sync_folder, sync_tree, write_atomic
from satchel.i18n import Message, render
from satchel.runners import _supervisor
from satchel.runners.change_rules import STAGE_PREFIX, planted_repositories
from satchel.runners.change_steps import (
    ChangeConflict,
    JournalStep,
    Stepper,
    finish_steps,
    identify,
    is_missing,
    read_mode,
    stat_entry,
    sync_steps,
    undo_steps,
)
from satchel.runners.changes import FILE_FLAGS, FOLDER_FLAGS, EntryState, open_file, open_parent

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from satchel.runners.base import Change, WorkspaceState
    from satchel.runners.change_steps import EntryIdentity, StepKind

MAX_JOURNAL_AGE_S = 30 * 86_400
"""How long the journal of a missing workspace is kept."""
_CHUNK_BYTES = 1 << 20


def apply_changes(
    workspace: WorkspaceState,
    upper: str,
    journal: str,
    changes: Sequence[Change],
    known_entries: Mapping[str, EntryState],
    removed_folders: Collection[str],
) -> None:
    """Apply changes to a workspace, all or none.

    Args:
        workspace: The workspace as it was when the program started.
        upper: What the program wrote; it is removed once it is staged.
        journal: The path of the journal.
        changes: What to apply.
        known_entries: The entries that `changes` replace or delete, when the list was made.
        removed_folders: Folders to remove once they are empty, the deepest first.

    Raises:
        ChangeConflict: something differs from what the program saw.
        OSError: the workspace cannot be written. It is as before, unless the journal stays.
    """
    root = os.open(workspace.path, FOLDER_FLAGS)
    try:
        info = os.fstat(root)
        if (info.st_dev, info.st_ino) != (workspace.device, workspace.inode):
            raise ChangeConflict([workspace.path])
        conflicts = [
            change.path
            for change in changes
            if _has_conflict(root, change, known_entries, removed_folders, workspace.began_ns)
        ]
        if not conflicts:
            # Another proposal may have been applied since, with the other half of a repository.
            repositories = planted_repositories([change.path for change in changes], root)
            conflicts = [
                change.path
                for change in changes
                if "" in repositories or is_below_any(change.path, repositories)
            ]
        if conflicts:
            raise ChangeConflict(conflicts)
        _Transaction(root, workspace, journal).run(upper, changes, known_entries, removed_folders)
    finally:
        os.close(root)


def recover(journal: str) -> Message | None:
    """Finish or undo what a killed host was applying; returns what was done to the workspace.

    Raises:
        OSError: the workspace cannot be read or written; the journal stays.
    """
    try:
        with open(journal, encoding="utf-8") as file:
            record: dict[str, Any] = json.load(file)
        workspace, stage_name = record["workspace"], record["stage"]
        steps = [_parse_step(fields) for fields in record["steps"]]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        # A journal is replaced as a whole, so only a fault of the disk does this.
        text = "The record of interrupted changes is damaged: look for `{name}` in your workspace"
        return Message(text, name=f"{STAGE_PREFIX}*")
    loss = Message("Changes of a program in `{path}` were interrupted and are lost", path=workspace)
    try:
        root = os.open(workspace, FOLDER_FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        _keep_recent_journal(journal, workspace)
        return loss if steps else None
    try:
        # The name of the stage identifies the workspace: device numbers may change at a restart.
        try:
            stage = os.open(stage_name, FOLDER_FLAGS, dir_fd=root)
        except FileNotFoundError:
            info = os.fstat(root)
            if [info.st_dev, info.st_ino] != record["folder"]:
                _keep_recent_journal(journal, workspace)
            return loss if steps else None
        try:
            return _recover_steps(root, stage, journal, record=record, steps=steps)
        finally:
            os.close(stage)
    finally:
        os.close(root)


def _keep_recent_journal(journal: str, workspace: str) -> None:
    """Check that the journal of a missing workspace is old: its disk may not be mounted.

    Raises:
        FileNotFoundError: the journal stays.
    """
    if time.time() - os.stat(journal).st_mtime < MAX_JOURNAL_AGE_S:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), workspace)


def _recover_steps(
    root: int, stage: int, journal: str, record: dict[str, Any], steps: Sequence[JournalStep]
) -> Message | None:
    """Finish the steps; undo them where that is impossible."""
    workspace, stage_name = record["workspace"], record["stage"]
    stepper = Stepper(root, stage)
    is_whole = True
    text = "Changes of a program in `{path}` were interrupted; all of them are applied now"
    try:
        finish_steps(stepper, steps)
    except (ChangeConflict, OSError):
        is_whole = undo_steps(stepper, steps)
        text = (
            "Changes of a program in `{path}` were interrupted; they could not be finished and "
            "were undone"
        )
    if is_whole:
        sync_steps(root, steps)
        # If this is killed, too, the steps must not be repeated or undone: old files may be gone.
        write_atomic(journal, json.dumps({**record, "steps": []}).encode(), private=True)
        _remove_stage(root, stage_name)
        return Message(text, path=workspace) if steps else None
    return _leftovers_message(workspace, stage_name)


def _leftovers_message(workspace: str, stage_name: str) -> Message:
    return Message(
        "Applying changes was undone; files that could not be put back are in `{folder}`",
        folder=os.path.join(workspace, stage_name),
    )


def _parse_step(fields: list[Any]) -> JournalStep:
    """Make a step from its JSON form, whose fields are in the same order."""
    kind, path, name, new, old, mode = fields
    return JournalStep(
        kind=kind,
        path=path,
        name=name,
        new=cast("EntryIdentity | None", new and tuple(new)),
        old=cast("EntryIdentity | None", old and tuple(old)),
        mode=mode,
    )


# --- comparing ----------------------------------------------------------------------------


def _has_conflict(
    root: int,
    change: Change,
    known_entries: Mapping[str, EntryState],
    removed_folders: Collection[str],
    began_ns: int,
) -> bool:
    """Whether the user changed what a change is about since the program started."""
    try:
        info = stat_entry(root, change.path)
    except NotADirectoryError:
        # A link or file stands where a folder is needed: fine if the program removed it.
        return not is_below_any(change.path, known_entries)
    if change.kind == "created":
        if info is None:
            return False
        return not (stat.S_ISDIR(info.st_mode) and change.path in removed_folders)
    if info is None or info.st_ctime_ns > began_ns:
        return True
    return EntryState.of(info) != known_entries[change.path]


class _Transaction:
    """Applies changes once: stages, records and makes the steps."""

    def __init__(self, root: int, workspace: WorkspaceState, journal: str) -> None:
        self.root, self.workspace, self.journal = root, workspace, journal
        self.stage_name = f"{STAGE_PREFIX}{os.urandom(6).hex()}"

    def run(
        self,
        upper: str,
        changes: Sequence[Change],
        known_entries: Mapping[str, EntryState],
        removed_folders: Collection[str],
    ) -> None:
        """Apply changes; the arguments are those of `apply_changes`."""
        # Before the stage exists the journal names it, so that a crash leaves nothing behind.
        self._write_journal([])
        try:
            os.mkdir(self.stage_name, 0o700, dir_fd=self.root)
            stage = os.open(self.stage_name, FOLDER_FLAGS, dir_fd=self.root)
        except OSError:
            self._finish()
            raise
        try:
            try:
                steps = self._stage(stage, upper, changes, known_entries, removed_folders)
                # Once they are synced, too, files take up to a hundred times as long to unlink.
                _supervisor.remove(upper, None)
                sync_tree(f"/proc/self/fd/{stage}")
                sync_folder(f"/proc/self/fd/{self.root}")
                self._write_journal(steps)
            except BaseException:
                self._finish()
                raise
            self._make_steps(Stepper(self.root, stage), steps)
        finally:
            os.close(stage)

    def _make_steps(self, stepper: Stepper, steps: Sequence[JournalStep]) -> None:
        """Make all steps; an error undoes them."""
        begun_steps: list[JournalStep] = []
        try:
            for step in steps:
                begun_steps.append(step)  # before it is made: an error may come afterwards
                stepper.make(step)
            sync_steps(self.root, steps)
        except (OSError, ChangeConflict):
            is_whole = undo_steps(stepper, begun_steps)
            sync_steps(self.root, begun_steps)
            self._finish(keep_stage=not is_whole)
            if not is_whole:
                warning = _leftovers_message(self.workspace.path, self.stage_name)
                logging.getLogger("satchel").warning("%s", render(warning))
            raise
        with suppress(OSError):  # all is applied: the next run removes what is left
            self._finish()

    def _finish(self, *, keep_stage: bool = False) -> None:
        """Record that no step is open, and remove stage and journal."""
        self._write_journal([])
        if keep_stage or _remove_stage(self.root, self.stage_name):
            os.unlink(self.journal)

    def _write_journal(self, steps: Sequence[JournalStep]) -> None:
        record = {
            "workspace": self.workspace.path,
            "folder": [self.workspace.device, self.workspace.inode],
            "stage": self.stage_name,
            "steps": steps,
        }
        write_atomic(self.journal, json.dumps(record).encode(), private=True)

    def _stage(
        self,
        stage: int,
        upper: str,
        changes: Sequence[Change],
        known_entries: Mapping[str, EntryState],
        removed_folders: Collection[str],
    ) -> list[JournalStep]:
        """Write the new files, and list the steps in their order."""
        written = {change.path for change in changes if change.kind != "deleted"}
        parents = folders_above(written)
        early_takes: list[JournalStep] = []
        late_takes: list[JournalStep] = []
        puts: list[JournalStep] = []
        upper_root = os.open(upper, FOLDER_FLAGS)
        try:
            for number, change in enumerate(changes):
                name = str(number)
                old = known_entries[change.path][:3] if change.path in known_entries else None
                if change.kind == "deleted":
                    is_in_the_way = change.path in parents or is_below_any(change.path, written)
                    takes = early_takes if is_in_the_way else late_takes
                    takes.append(JournalStep("take", change.path, name, old=old))
                    continue
                new = _stage_entry(upper_root, stage, change, name, root=self.root)
                kind: StepKind = "put" if change.kind == "created" else "swap"
                puts.append(JournalStep(kind, change.path, name, new=new, old=old))
        finally:
            os.close(upper_root)
        emptied = folders_above(step.path for step in (*early_takes, *late_takes))
        removable = [path for path in removed_folders if path not in parents]
        early_removals, late_removals = self._plan_removals(removable, written, emptied)
        new_folders = self._plan_new_folders(parents, {step.path for step in early_takes})
        return [
            *early_takes, *early_removals, *new_folders, *puts, *late_takes, *late_removals
        ]  # fmt: skip

    def _plan_new_folders(
        self, paths: Iterable[str], replaced: Collection[str]
    ) -> list[JournalStep]:
        """Plan the folders that are missing, or in whose place something is taken."""
        return [
            JournalStep("mkdir", path)
            for path in sorted(paths)
            if path in replaced or is_missing(self.root, path)
        ]

    def _plan_removals(
        self, folders: Iterable[str], written: Collection[str], emptied: Collection[str]
    ) -> tuple[list[JournalStep], list[JournalStep]]:
        """Plan the removal of folders: of those in the way of written files, and of all others."""
        early: list[JournalStep] = []
        late: list[JournalStep] = []
        for path in folders:
            is_in_the_way = path in written or is_below_any(path, written)
            if is_in_the_way or path in emptied:
                step = JournalStep("rmdir", path, mode=read_mode(self.root, path))
                (early if is_in_the_way else late).append(step)
        return early, late


def folders_above(paths: Iterable[str]) -> set[str]:
    """Return all folders above paths."""
    folders: set[str] = set()
    for path in paths:
        while (path := os.path.dirname(path)) and path not in folders:
            folders.add(path)
    return folders


def is_below_any(path: str, folders: Collection[str]) -> bool:
    """Whether a path is below one of several folders."""
    parts = path.split("/")
    return any("/".join(parts[:count]) in folders for count in range(1, len(parts)))


def _stage_entry(upper: int, stage: int, change: Change, name: str, root: int) -> EntryIdentity:
    """Write a new file or link to the stage, and identify it."""
    if change.link:
        os.symlink(change.link, name, dir_fd=stage)
        return identify(os.stat(name, dir_fd=stage, follow_symlinks=False))
    folder = open_parent(upper, change.path)
    try:
        source = open_file(os.path.basename(change.path), folder)
    finally:
        os.close(folder)
    try:
        mode = 0o777 if change.executable else 0o666
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        target = os.open(name, flags, mode, dir_fd=stage)
        try:
            while data := os.read(source, _CHUNK_BYTES):
                view = memoryview(data)
                while view:
                    view = view[os.write(target, view) :]
            if change.kind == "changed":
                _copy_owner_and_mode(root, change, target)
            return identify(os.fstat(target))
        finally:
            os.close(target)
    finally:
        os.close(source)


def _copy_owner_and_mode(root: int, change: Change, target: int) -> None:
    info = stat_entry(root, change.path)
    if info is None or not stat.S_ISREG(info.st_mode):
        return
    with suppress(OSError):  # not readable, or a file system without attributes
        _copy_attributes(root, change.path, target)
    with suppress(PermissionError):  # only root can; the file is the user's own then
        target_info = os.fstat(target)
        if (target_info.st_uid, target_info.st_gid) != (info.st_uid, info.st_gid):
            os.fchown(target, info.st_uid, info.st_gid)
    mode = stat.S_IMODE(info.st_mode) & 0o777
    execute_bits = (mode & 0o444) >> 2  # for all who may read it
    os.fchmod(target, mode | execute_bits if change.executable else mode & ~0o111)


def _copy_attributes(root: int, path: str, target: int) -> None:
    """Copy the access list, without which the mode has another meaning, and the user's own."""
    folder = open_parent(root, path)
    try:
        file = os.open(os.path.basename(path), FILE_FLAGS, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        for name in os.listxattr(file):
            if name == "system.posix_acl_access" or name.startswith("user."):
                os.setxattr(target, name, os.getxattr(file, name))
    finally:
        os.close(file)


def _remove_stage(root: int, name: str) -> bool:
    return _supervisor.remove(f"/proc/self/fd/{root}/{name}", None)
