"""What is in a skill's folder and in no digest: repositories, empty folders, modes and times.

A change puts another folder in a skill's place. What is no part of the skill was not changed, so it
must not go into the history with the rest, where it would be forgotten after a while:

    a repository     stays in its place, whatever is put around it (`staying`)
    the looks        of a folder that is edited, renamed or updated are those it had (`take_after`)
    what is closed   to somebody is so after another folder came in its place (`no_wider`)

No link is followed, on either side.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.skill.tree import VERSION_CONTROL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


def staying(old: str, new: str) -> list[tuple[str, str]]:
    """The repositories of a folder that was replaced: where each is, and where it belongs.

    One that the new folder has itself, or has no folder for, goes with the old one.
    """
    found: list[tuple[str, str]] = []
    todo = [(old, new)] if _is_folder(old) and _is_folder(new) else []
    while todo:
        folder, place = todo.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    continue
                there = os.path.join(place, entry.name)
                if entry.name not in VERSION_CONTROL:
                    if _is_folder(there):
                        todo.append((entry.path, there))
                elif not os.path.lexists(there):
                    found.append((entry.path, there))
    return found


def holds_repository(folder: str) -> bool:
    """Whether there is a repository in a folder, at any depth."""
    return any(True for _ in _repositories(folder))


def gone_with(folder: str, new: str = "", *, by_undo: bool = False) -> tuple[str, ...]:
    """What else goes when a folder is removed, or replaced by a new one, in words for people.

    Args:
        folder: What goes.
        new: What comes instead.
        by_undo: It goes because something is undone, so it comes back when that is.
    """
    try:
        stays = {path for path, _ in staying(folder, new)} if new else set[str]()
        found = any(one not in stays for one in _repositories(folder))
    except OSError:  # nobody can look; that is no reason to keep it
        found = False
    if not found:
        return ()
    name = os.path.basename(folder)
    if by_undo:
        return (
            say("The folder of `{name}` holds a repository, which goes too, with all its commits. "
                "Redo brings it back, as long as the history keeps it", name=name),
        )  # fmt: skip
    return (
        say("The folder of `{name}` holds a repository, which goes too, with all its commits. Undo "
            "brings it back, as long as the history keeps it", name=name),
    )  # fmt: skip


def _repositories(folder: str) -> Iterator[str]:
    """Where the repositories of a folder are, at any depth."""
    todo = [folder] if _is_folder(folder) else []
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name in VERSION_CONTROL:
                        yield entry.path
                    else:
                        todo.append(entry.path)


def take_after(new: str, old: str, unchanged: Collection[str], path: str = "") -> None:
    """Give a staged folder the looks of the one that it is made from.

    Args:
        new: The staged folder.
        old: The folder that it is made from. It is only read.
        unchanged: Paths of files with the same content in both; they keep their times too.
        path: What `old` is called in `unchanged`, with a `/` behind it.
    """
    with os.scandir(old) as entries:
        for entry in entries:
            there = os.path.join(new, entry.name)
            if entry.is_dir(follow_symlinks=False):
                if entry.name in VERSION_CONTROL:
                    continue
                if not os.path.lexists(there) and _outlasts(entry.path):
                    os.mkdir(there)
                if _is_folder(there):
                    take_after(there, entry.path, unchanged, f"{path}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                if path + entry.name in unchanged:
                    known = entry.stat(follow_symlinks=False)
                    os.utime(there, ns=(known.st_atime_ns, known.st_mtime_ns))
                _same_mode(entry.path, there)
    # Last: a folder that may not be written could not be filled.
    known = os.lstat(old)
    wanted = stat.S_IMODE(known.st_mode)
    if not _same_group(known, new):
        wanted &= ~(stat.S_IRWXG | stat.S_ISGID)
    if stat.S_IMODE(os.lstat(new).st_mode) != wanted:
        os.chmod(new, wanted)


def _same_mode(old: str, new: str) -> None:
    """Who may read and write a file stays; nobody becomes somebody else by running it."""
    known = os.lstat(old)
    try:
        now = os.lstat(new).st_mode
    except FileNotFoundError:
        return
    # Whether it may be executed is part of the content, and decided.
    if not stat.S_ISREG(now) or (known.st_mode ^ now) & 0o100:
        return
    wanted = known.st_mode & 0o777
    if not _same_group(known, new):
        wanted &= ~stat.S_IRWXG
    if wanted != stat.S_IMODE(now):
        os.chmod(new, wanted)


def no_wider(new: str, old: str) -> None:
    """Open a staged folder to nobody to whom the one in whose place it comes is closed.

    What is there may be somebody else's doing, so that nothing else is taken from it.
    """
    with os.scandir(new) as entries:
        for entry in entries:
            there = os.path.join(old, entry.name)
            if entry.is_file(follow_symlinks=False):
                _narrow(entry.path, there)
            elif entry.is_dir(follow_symlinks=False) and _is_folder(there):
                no_wider(entry.path, there)
    _narrow(new, old)


def _narrow(new: str, old: str) -> None:
    try:
        known = os.lstat(old)
    except OSError:  # nothing is there, or nobody may look
        return
    if stat.S_ISLNK(known.st_mode):
        return
    now = stat.S_IMODE(os.lstat(new).st_mode)
    wanted = now & (known.st_mode | stat.S_IRWXU)
    if not _same_group(known, new):
        wanted &= ~stat.S_IRWXG
    if wanted != now:
        os.chmod(new, wanted)


def _same_group(known: os.stat_result, new: str) -> bool:
    """Give a path of ours the group that another has; False: then no group may have its rights."""
    if os.lstat(new).st_gid == known.st_gid:
        return True
    try:
        os.chown(new, -1, known.st_gid, follow_symlinks=False)
    except (OSError, AttributeError):  # a group that this user is not in; a system without groups
        return False
    return True


def _outlasts(folder: str) -> bool:
    """Whether a folder stays without a file of the skill: it is empty, or has a repository.

    One whose files are gone goes with them.
    """
    empty, todo = True, [folder]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    empty = False
                elif entry.name in VERSION_CONTROL:
                    return True
                else:
                    todo.append(entry.path)
    return empty


def _is_folder(path: str) -> bool:
    """Whether there is a folder itself, not a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
