"""Private folders for the overlays of runs that may write, and the test of how they are mounted.

    <state>/overlays/<id>/upper     what the program wrote
                          work      the kernel's
                          scratch   the program's temporary files, and its home
                          lock      locked while the host that made the folder uses it
                          journal   while changes are applied: see `change_journal`

A host that is killed leaves its folder behind. `claim_leftovers` finds such folders by their free
locks; the next run that may write finishes their journals and removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel.errors import Refused, Unsandboxed
from satchel.i18n import join_names, say
from satchel.runners import _supervisor
from satchel.runners.base import (
    Overlay,
    Program,
    ProgramLimits,
    ProgramPermissions,
    WorkspaceState,
)
from satchel.runners.sandbox import sandboxed_launch
from satchel.runners.tiers import run

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from satchel.runners.base import Tier

MountedBy = Literal["launcher", "bwrap"]
JOURNAL_FILE = "journal"
_LOCK_FILE = "lock"
_FOLDERS_LOCK_FILE = ".lock"
"""Held while a folder is made or taken over, so that none is taken before it is locked."""
_APPLY_LOCK_FILE = ".apply"
_MAX_MOUNTS_NAMED = 5
_PROBE_SCRIPT = (
    "echo >new && rm old && rm -r folder && mkdir folder && echo >folder/new && echo done"
)


_cached_support: dict[tuple[Tier, str], OverlaySupport] = {}
"""What `probe_overlay` found, by tier and folder of state."""


class OverlayFolder:
    """A folder for one overlay; it belongs to the process that holds its lock."""

    def __init__(self, path: str, lock: int) -> None:
        self.path = path
        self.upper, self.work = os.path.join(path, "upper"), os.path.join(path, "work")
        self.journal = os.path.join(path, JOURNAL_FILE)
        self.scratch = os.path.join(path, "scratch")
        self._lock = lock
        self._pid = os.getpid()

    @classmethod
    def make(cls, state: str) -> OverlayFolder:
        """Create a folder below the user's folder of state.

        Raises:
            Refused: there is no such folder, or it cannot be written.
        """
        root = _overlays_folder(state)
        if not root:
            raise Refused(
                say("There is no folder for the changes that a program makes"),
                say("Set `HOME` or `XDG_STATE_HOME` to a folder that you may write"),
            )
        try:
            os.makedirs(root, mode=0o700, exist_ok=True)
            with _lock_folders(root):
                path = os.path.join(root, os.urandom(8).hex())
                os.mkdir(path, 0o700)
                folder = cls(path, _lock_folder(path, wait=True))
                for subfolder in (folder.upper, folder.work, folder.scratch):
                    os.mkdir(subfolder, 0o700)
        except OSError as exc:
            raise Refused(
                say("The folder `{path}` cannot be written: {reason}",
                    path=root, reason=exc.strerror or str(exc)),
                say("Set `HOME` or `XDG_STATE_HOME` to a folder that you may write"),
            ) from exc  # fmt: skip
        return folder

    def remove(self) -> None:
        """Remove the folder with everything in it; idempotent, and nothing in a forked process."""
        if self._lock < 0 or self._pid != os.getpid():
            return
        _supervisor.remove(self.path, None)
        os.close(self._lock)
        self._lock = -1

    def release(self) -> None:
        """Leave the folder to the next run, which finishes its journal."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def claim_leftovers(state: str) -> Iterator[OverlayFolder]:
    """Yield the folders of hosts that ended without removing them; each must be removed."""
    root = _overlays_folder(state)
    try:
        names = os.listdir(root) if root else []
    except OSError:
        return
    for name in names:
        path = os.path.join(root, name)
        if not name.startswith("."):
            try:
                with _lock_folders(root):
                    lock = _lock_folder(path, wait=False)
            except OSError:
                continue  # in use, or removed meanwhile
            yield OverlayFolder(path, lock)


@contextlib.contextmanager
def lock_workspaces(state: str) -> Generator[None]:
    """Hold the lock under which changes are applied: one run at a time."""
    lock = _open_lock(os.path.join(_overlays_folder(state), _APPLY_LOCK_FILE))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _overlays_folder(state: str) -> str:
    """The folder of all overlays; empty without a folder of state."""
    return os.path.join(state, "overlays") if state else ""


@contextlib.contextmanager
def _lock_folders(root: str) -> Generator[None]:
    """Hold the lock under which folders are made and taken over."""
    lock = _open_lock(os.path.join(root, _FOLDERS_LOCK_FILE))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _lock_folder(path: str, *, wait: bool) -> int:
    """Lock the folder of an overlay.

    Raises:
        OSError: another process holds the lock, unless `wait`.
    """
    lock = _open_lock(os.path.join(path, _LOCK_FILE))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(lock)
        raise
    return lock


def _open_lock(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


# --- the workspace ------------------------------------------------------------------------


def record_workspace(path: str) -> WorkspaceState:
    """Record the state of a workspace before a run.

    Raises:
        Refused: other file systems are mounted in it: in a user namespace the kernel permits no
            overlay then, since it would show what lies below them.
    """
    mounts = sorted(set(_iter_mounts_below(path)))
    if mounts:
        names = [f"`{os.path.relpath(mount, path)}`" for mount in mounts[:_MAX_MOUNTS_NAMED]]
        raise Refused(
            say("A program that may write needs a workspace without mounts. `{path}` has other "
                "file systems: {names}", path=path, names=join_names(names)),
            say("Unmount them, or work in a copy without mounts, such as one of `git worktree add`")
        )  # fmt: skip
    info = os.stat(path)
    return WorkspaceState(path, info.st_dev, info.st_ino, time.time_ns())


def _iter_mounts_below(folder: str) -> Iterator[str]:
    """Yield the mount points below a folder."""
    prefix = os.fsencode(folder.rstrip("/")) + b"/"
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            point = line.split(b" ", 5)[4]
            if b"\\" in point:
                point = point.decode("unicode_escape").encode("latin-1")
            if point.startswith(prefix):
                yield os.fsdecode(point)


# --- how it is mounted --------------------------------------------------------------------


class OverlaySupport(NamedTuple):
    """Whether and how overlays work in one tier."""

    mounted_by: MountedBy | None
    why: str = ""
    """The reason when they do not."""

    @property
    def hint(self) -> str:
        """What to do where they do not work."""
        return say("Install bubblewrap 0.11 or newer, or permit user namespaces; "
                   "`satchel config sandbox` tests it")  # fmt: skip


def probe_overlay(tier: Tier, state: str) -> OverlaySupport:
    """Find how overlays are mounted in a tier; tested once per process, with a program."""
    support = _cached_support.get((tier, state))
    if support is None:
        support = _cached_support[tier, state] = check_overlay(tier, state)
    return support


def check_overlay(tier: Tier, state: str) -> OverlaySupport:
    """Try every way of mounting in a tier.

    The launcher's way is first: it is the same in both tiers, and nothing is synced at its end.
    bubblewrap's also works where AppArmor lets only bubblewrap make user namespaces.
    """
    mounters: tuple[MountedBy, ...] = ("launcher", "bwrap") if tier == "bwrap" else ("launcher",)
    first_error = ""
    for mounted_by in mounters:
        error = _try_overlay(tier, state, mounted_by)
        if not error:
            return OverlaySupport(mounted_by)
        first_error = first_error or error
    return OverlaySupport(None, first_error)


def require_overlay(tier: Tier, state: str) -> MountedBy:
    """Return how overlays are mounted in a tier.

    Raises:
        Unsandboxed: neither way works here.
    """
    support = probe_overlay(tier, state)
    if support.mounted_by is None:
        raise Unsandboxed(
            say("A program that may write needs an overlay, which this system refuses: {reason}",
                reason=support.why),
            support.hint,
        )  # fmt: skip
    return support.mounted_by


def _try_overlay(tier: Tier, state: str, mounted_by: MountedBy) -> str:
    """Write in an overlay; returns why that failed."""
    try:
        folder = OverlayFolder.make(state)
    except Refused as exc:
        return exc.message
    try:
        workspace, skill = (os.path.join(folder.path, name) for name in ("workspace", "skill"))
        os.makedirs(os.path.join(workspace, "folder"))
        os.mkdir(skill)
        for name in ("old", "folder/old"):
            os.close(os.open(os.path.join(workspace, name), os.O_CREAT | os.O_WRONLY))
        launch = sandboxed_launch(
            Program(("/bin/sh", "-c", _PROBE_SCRIPT), skill, "sh"),
            ProgramPermissions(workspace, writable=True),
            ProgramLimits(),
            tier=tier,
            overlay=Overlay(
                workspace, folder.upper, folder.work, mounted_by, scratch=folder.scratch
            ),
        )
        error = run(launch)[1].partition("\n")[0]
        if not error and not _has_expected_entries(workspace, folder.upper):
            error = say("what a program wrote was not found")
    except (OSError, Refused) as exc:
        error = str(exc)
    finally:
        folder.remove()
    return error


def _has_expected_entries(workspace: str, upper: str) -> bool:
    """Whether the upper folder has what `_PROBE_SCRIPT` does, and the workspace is as before."""

    def is_whiteout(name: str) -> bool:
        info = os.lstat(os.path.join(upper, name))
        return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0

    return (
        sorted(os.listdir(workspace)) == ["folder", "old"]
        and sorted(os.listdir(upper)) == ["folder", "new", "old"]
        and is_whiteout("old")
        and os.listdir(os.path.join(upper, "folder")) == ["new"]
        and os.getxattr(os.path.join(upper, "folder"), "user.overlay.opaque") == b"y"
    )
