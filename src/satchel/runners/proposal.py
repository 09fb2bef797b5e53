"""The proposed changes of one run: shown, applied or discarded.

A run that may write makes a proposal (`WritableRun`): before it starts the workspace is looked at
and the private folder made; after its last process is gone the changes are listed. The receiver of
an `OverlayProposal` applies accepted changes or discards all; what is never decided is discarded
with it.
"""

from __future__ import annotations

import difflib
import filecmp
import logging
import os
import stat
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING

from satchel._fs import is_inside
from satchel._unicode import INVISIBLE, replace_unprintable
from satchel.i18n import Message, render
from satchel.runners.base import ApplyResult, Overlay
from satchel.runners.change_journal import (
    ChangeConflict,
    apply_changes,
    folders_above,
    is_below_any,
    recover,
)
from satchel.runners.change_rules import ChangeRules, consent_targets
from satchel.runners.changes import (
    FILE_FLAGS,
    FOLDER_FLAGS,
    list_changes,
    open_file,
    open_parent,
)
from satchel.runners.overlay import (
    OverlayFolder,
    claim_leftovers,
    lock_workspaces,
    record_workspace,
    require_overlay,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from satchel.runners.base import (
        Change,
        ProgramLimits,
        RefusedChange,
        RunRequest,
        Tier,
        WorkspaceState,
    )
    from satchel.runners.changes import ChangeList

_MAX_DIFF_BYTES = 256 * 1024
"""Of a file that is compared line by line."""
_MAX_DIFF_LINES = 2_000
"""Of each side, between the first and the last difference: the comparison is quadratic."""
_MAX_DIFF_CHARS = 20_000


class OverlayProposal:
    """Changes that a program proposes to a workspace."""

    def __init__(
        self,
        workspace: WorkspaceState,
        overlay_folder: OverlayFolder,
        change_list: ChangeList,
        state_folder: str,
    ) -> None:
        self.changes: tuple[Change, ...] = change_list.changes
        self.refused: tuple[RefusedChange, ...] = change_list.refused
        """What is never applied."""
        scratch = overlay_folder.scratch
        self.scratch_files: tuple[str, ...] = tuple(
            sorted(os.path.relpath(path, scratch) for path in _iter_files(scratch))
        )
        self.empty_folders: tuple[str, ...] = change_list.empty_folders
        self._workspace = workspace
        self._folder = overlay_folder
        self._change_list = change_list
        self._state_folder = state_folder

    def __bool__(self) -> bool:
        """Whether the program changed anything."""
        return bool(self.changes or self.refused)

    @property
    def permitted(self) -> tuple[Change, ...]:
        """The changes that need no consent of their own."""
        return tuple(change for change in self.changes if not change.needs_consent)

    def diff(self, change: Change) -> str:
        """Make a unified diff of a text; empty for a link, and for what is binary or too long."""
        if change.link:
            return ""
        try:
            old = self._read(self._workspace.path, change) if change.kind != "created" else b""
            new = self._read(self._folder.upper, change) if change.kind != "deleted" else b""
        except OSError:
            return ""
        return _make_diff(old, new, change.path)

    def apply(self, changes: Iterable[Change]) -> ApplyResult:
        """Apply accepted changes, all or none, and discard the others."""
        changes_by_path = {change.path: change for change in self.changes}
        accepted = [
            changes_by_path[change.path] for change in changes if change.path in changes_by_path
        ]
        kept_paths = self._find_moved_files(accepted)
        accepted = [change for change in accepted if change.path not in kept_paths]
        try:
            if not accepted:
                return ApplyResult(kept=kept_paths)
            with lock_workspaces(self._state_folder):
                apply_changes(
                    self._workspace,
                    self._folder.upper,
                    self._folder.journal,
                    changes=accepted,
                    known_entries=self._change_list.replaced_entries,
                    removed_folders=self._change_list.removed_folders,
                )
        except ChangeConflict as exc:
            return ApplyResult(conflicts=exc.paths)
        except OSError as exc:
            return ApplyResult(trouble=exc.strerror or str(exc))
        finally:
            self.discard()
        return ApplyResult(tuple(accepted), kept=kept_paths)

    def _find_moved_files(self, accepted: Sequence[Change]) -> tuple[str, ...]:
        """Find deleted files that the program moved to where nothing is applied.

        After `mv a b`, with `b` refused, `a` is not deleted either: its content would be lost.
        """
        accepted_paths = {change.path for change in accepted}
        discarded = [change.path for change in self.changes if change.path not in accepted_paths]
        copies = self._group_by_size([*discarded, *(change.path for change in self.refused)])
        written = {change.path for change in accepted if change.kind != "deleted"}
        parents = folders_above(written)
        moved_paths: list[str] = []
        for change in accepted:
            if change.kind != "deleted" or not change.old_size:
                continue
            is_in_the_way = change.path in parents or is_below_any(change.path, written)
            candidates = copies.get(change.old_size, ())
            if not is_in_the_way and self._has_same_content(change.path, candidates):
                moved_paths.append(change.path)
        return tuple(moved_paths)

    def _group_by_size(self, paths: Iterable[str]) -> dict[int, list[str]]:
        """Group the regular files that the program wrote at these paths and below by size."""
        files: dict[int, list[str]] = {}
        for path in paths:
            written_path = os.path.join(self._folder.upper, path)
            for file in (written_path, *_iter_files(written_path, include_hidden=True)):
                with suppress(OSError):
                    info = os.lstat(file)
                    if stat.S_ISREG(info.st_mode):
                        files.setdefault(info.st_size, []).append(file)
        return files

    def _has_same_content(self, path: str, copies: Iterable[str]) -> bool:
        """Whether a file of the workspace has the content of one of the copies."""
        original = os.path.join(self._workspace.path, path)
        try:
            return any(filecmp.cmp(original, copy, shallow=False) for copy in copies)
        except OSError:
            return True  # in doubt it is kept

    def discard(self) -> None:
        """Remove what the program wrote; idempotent."""
        if os.path.exists(self._folder.journal):
            self._folder.release()
        else:
            self._folder.remove()

    def _read(self, root: str, change: Change) -> bytes:
        root_fd = os.open(root, FOLDER_FLAGS)
        try:
            parent_fd = open_parent(root_fd, change.path)
        finally:
            os.close(root_fd)
        try:
            name = os.path.basename(change.path)
            if root == self._folder.upper:
                file_fd = open_file(name, parent_fd)
            else:
                file_fd = os.open(name, FILE_FLAGS, dir_fd=parent_fd)
        finally:
            os.close(parent_fd)
        with open(file_fd, "rb") as stream:
            return stream.read(_MAX_DIFF_BYTES + 1)

    def __del__(self) -> None:
        with suppress(Exception):
            self.discard()


class WritableRun:
    """The workspace of one run that may write."""

    def __init__(self, request: RunRequest, tier: Tier, state: str) -> None:
        """Prepare the overlay.

        Raises:
            Unsandboxed: there are no overlays on this system.
            Refused: the workspace contains mounts, or there is no folder for the changes.
        """
        for message in finish_interrupted(state):
            logging.getLogger("satchel").warning("%s", render(message))
        mounted_by = require_overlay(tier, state)
        path = os.path.realpath(request.permissions.workspace)
        self._request, self._state = request, state
        self._workspace = record_workspace(path)
        self._folder = OverlayFolder.make(state)
        self.is_lost = False
        """Whether processes may be left that still write."""
        folder = self._folder
        self.overlay = Overlay(path, folder.upper, folder.work, mounted_by, scratch=folder.scratch)

    def proposal(self, limits: ProgramLimits) -> OverlayProposal | None:
        """List the changes, once the last process is gone; None when there are too many.

        Raises:
            OSError: they cannot be read.
        """
        workspace_path = self._workspace.path
        protected = _iter_protected_paths(workspace_path, self._request)
        rules = ChangeRules(protected, consent_targets(workspace_path))
        workspace_fd = os.open(workspace_path, FOLDER_FLAGS)
        try:
            upper_fd = os.open(self._folder.upper, FOLDER_FLAGS)
            try:
                change_list = list_changes(
                    upper_fd,
                    workspace_fd,
                    rules,
                    max_entries=limits.changes,
                    max_bytes=limits.written,
                )
            finally:
                os.close(upper_fd)
        finally:
            os.close(workspace_fd)
        if change_list.is_too_large:
            return None
        return OverlayProposal(self._workspace, self._folder, change_list, self._state)

    def discard(self) -> None:
        """Remove the folder of a run without a proposal."""
        self._folder.remove()


def finish_interrupted(state: str) -> list[Message]:
    """Finish what killed hosts were applying, and remove their folders; returns what was done."""
    messages: list[Message] = []
    for folder in claim_leftovers(state):
        try:
            with lock_workspaces(state):
                message = recover(folder.journal)
        except OSError as exc:
            folder.release()  # tried again by the next run
            reason = exc.strerror or str(exc)
            text = "Changes of a program to files were interrupted and cannot be finished: {reason}"
            messages.append(Message(text, reason=f"{reason}: {exc.filename}"))
            continue
        if message is not None:
            messages.append(message)
        folder.remove()
    return messages


def _iter_files(folder: str, *, include_hidden: bool = False) -> Iterator[str]:
    """Yield the files below a folder; hidden ones are caches and settings."""
    for parent, folders, names in os.walk(folder):
        if not include_hidden:
            folders[:] = (name for name in folders if not name.startswith((".", "__pycache__")))
        for name in names:
            path = os.path.join(parent, name)
            if (include_hidden or not name.startswith(".")) and not os.path.islink(path):
                yield path


def _iter_protected_paths(workspace: str, request: RunRequest) -> Iterator[str]:
    """Yield the protected paths of a request, relative to the workspace."""
    for path in (*request.protected, request.program.folder):
        for spelling in (path, os.path.realpath(path)):
            if spelling != workspace and is_inside(spelling, workspace):
                yield os.path.relpath(spelling, workspace)


def _make_diff(old: bytes, new: bytes, path: str) -> str:
    """Make a unified diff of two texts for people; empty when one is binary or too long.

    Characters that could trick a terminal or the eye are replaced.
    """
    if max(len(old), len(new)) > _MAX_DIFF_BYTES or b"\0" in old or b"\0" in new:
        return ""
    try:
        old_lines, new_lines = (_split_lines(data.decode()) for data in (old, new))
    except UnicodeDecodeError:
        return ""
    equal_lines = takewhile(
        lambda pair: pair[0] == pair[1], zip(old_lines, new_lines, strict=False)
    )
    equal_count = sum(1 for _ in equal_lines)
    if max(len(old_lines), len(new_lines)) - equal_count > _MAX_DIFF_LINES:
        return ""
    text = "\n".join(difflib.unified_diff(old_lines, new_lines, path, path, lineterm=""))
    if len(text) > _MAX_DIFF_CHARS:
        text = text[:_MAX_DIFF_CHARS].rpartition("\n")[0] + "\n…"
    return text


def _split_lines(text: str) -> list[str]:
    if not text:
        return []
    lines = INVISIBLE.sub("\0", text.replace("\t", "    ")).removesuffix("\n").split("\n")
    return [replace_unprintable(line, "\N{REPLACEMENT CHARACTER}") for line in lines]
