"""Protects files in a writable workspace that would run or be trusted later.

git runs what its configuration names, and Satchel trusts its settings, lockfiles and folders of
skills: a program that may write there would escape the sandbox with the user's next command.

What exists is read-only inside the sandbox, in either tier. What does not exist cannot be protected
without leaving something in the user's folder, so it is checked afterwards: what is new after a
call is renamed, and the result reports it. It is not deleted: the user may have created it
meanwhile. By then no process of the call is alive.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import read_plain
from satchel._unicode import replace_unprintable
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.runners.base import RunRequest

ALWAYS_PROTECTED = (".git", ".satchel", "satchel.toml")
"""Protected in every workspace; the rest comes with `ProgramPermissions.guard`."""
PROJECT_FILE = "pyproject.toml"
"""Protected when it holds settings of Satchel; otherwise it may be written."""
MAX_SEARCH_DEPTH = 4
"""Of the search for `.git` below the workspace."""
MAX_FOLDER_COUNT = 2_000
MAX_GIT_COUNT = 400
"""Each takes one or two mounts, and bubblewrap accepts 9,000 words."""
SKIPPED = frozenset(("node_modules", ".venv", ".git"))
_MAX_READ_BYTES = 1024 * 1024
_MAX_PATH_CHARS = 300
_MAX_NOTICES = 10
_FOLDER = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_PATH")
)


class ProtectedState(NamedTuple):
    """The state of a workspace before a call; every path is absolute and real."""

    workspace: str
    there: tuple[str, ...]
    """Read-only paths."""
    absent: tuple[str, ...]
    """Paths that must not appear."""
    links: tuple[tuple[str, str], ...] = ()
    """Links on the way to protected paths, and their targets: a mount cannot protect a link."""
    seen: frozenset[str] = frozenset()
    """Folders that were searched for a `.git`."""
    shut: frozenset[str] = frozenset()
    """Folders that could not be searched."""
    whole: bool = True
    """Whether the search was complete, to its depth."""
    project_file: bytes | None = None
    """The unprotected `pyproject.toml`; None when there is none, or it is protected."""


class _Search(NamedTuple):
    found: tuple[str, ...]
    seen: frozenset[str]
    shut: frozenset[str]
    whole: bool


def snapshot_protected(request: RunRequest) -> tuple[RunRequest, ProtectedState]:
    """The request with everything that is protected now, and the state to compare with later.

    A kept worker fits only while the same paths are protected: they are part of the permissions.
    """
    permissions = request.permissions
    found = find_protected(os.path.realpath(permissions.workspace), permissions.guard)
    return request._replace(permissions=permissions._replace(guard=found.there)), found


def find_protected(workspace: str, names: Iterable[str]) -> ProtectedState:
    """Find what is protected in a workspace."""
    paths = [os.path.join(workspace, name) for name in ALWAYS_PROTECTED]
    file = os.path.join(workspace, PROJECT_FILE)
    data = _read(file)
    free = not os.path.lexists(file) if data is None else not _may_hold_settings(data)
    if not free:
        paths.append(file)
    given = (*paths, *names)
    search = _find_git(workspace, frozenset(sort_paths(workspace, given)[0]))
    given = (*given, *search.found)
    there, absent, links = sort_paths(workspace, (*given, *filter(None, map(_git_folder, given))))
    return ProtectedState(
        workspace, there, absent, links, search.seen, search.shut, search.whole,
        data if free else None,
    )  # fmt: skip


def sort_paths(
    workspace: str, paths: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Sort paths in a workspace into existing and missing ones, and links on the way."""
    there: dict[str, None] = {}
    absent: dict[str, None] = {}
    links: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        if not path.startswith(workspace.rstrip("/") + "/"):
            if path == workspace:
                there[path] = None
            continue
        at = workspace
        for part in os.path.relpath(path, workspace).split("/"):
            at = os.path.join(at, part)
            try:
                if stat.S_ISLNK(os.lstat(at).st_mode):
                    links[at] = os.readlink(at)
                    real = os.path.realpath(path)
                    if real.startswith(workspace.rstrip("/") + "/"):
                        (there if os.path.lexists(real) else absent)[real] = None
                    break
            except OSError:
                absent[path] = None
                break
        else:
            there[path] = None
    return tuple(there), tuple(absent), tuple(links.items())


def restore_protected(before: ProtectedState) -> tuple[str, ...]:
    """Rename what appeared since, and restore links; returns a sentence about each."""
    notices: list[str] = []
    try:
        root = os.open(before.workspace, _FOLDER)
    except OSError:
        return ()  # the workspace itself is gone
    try:
        for path, target in before.links:
            if not _is_link(path, target):
                notices += _set_aside(root, before.workspace, path)
                with contextlib.suppress(OSError):
                    os.symlink(target, path)
                notices.append(say("files: the link `{path}` was changed; it was put back",
                                path=_shown(path)))  # fmt: skip
        for path in before.absent:
            notices += _set_aside(root, before.workspace, path)
        known = frozenset((*before.there, *(path for path, _ in before.links)))
        for path in _find_git(before.workspace, known, before).found:
            # After an incomplete search, an older one may be found only now.
            if before.whole or os.path.dirname(path) in before.seen:
                notices += _set_aside(root, before.workspace, path)
        notices += _restore_project_file(root, before)
    finally:
        os.close(root)
    if len(notices) > _MAX_NOTICES:
        more = len(notices) - _MAX_NOTICES
        notices[_MAX_NOTICES:] = [say("files: {count} more were set aside or put back", count=more)]
    return tuple(notices)


# --- git in subfolders --------------------------------------------------------------------


def _find_git(
    workspace: str, known: frozenset[str], before: ProtectedState | None = None
) -> _Search:
    """Find every unknown `.git`, shallow ones first, without following links.

    Args:
        workspace: Where to begin.
        known: Protected paths, which are not entered.
        before: The state before a call: what could be listed then is made listable again.
    """
    found: list[str] = []
    seen: list[str] = []
    shut: list[str] = []
    level = [workspace]
    for depth in range(MAX_SEARCH_DEPTH + 1):
        below: list[str] = []
        for folder in level:
            if len(seen) >= MAX_FOLDER_COUNT or len(found) >= MAX_GIT_COUNT:
                return _Search(tuple(found), frozenset(seen), frozenset(shut), whole=False)
            if before is not None and folder not in before.shut:
                _open_up(folder)
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if entry.path in known:
                            continue
                        if entry.name == ".git":
                            found.append(entry.path)
                        elif (
                            depth < MAX_SEARCH_DEPTH
                            and entry.name not in SKIPPED
                            and entry.is_dir(follow_symlinks=False)
                        ):
                            below.append(entry.path)
            except OSError:
                shut.append(folder)
            else:
                seen.append(folder)
        level = below
    return _Search(tuple(found), frozenset(seen), frozenset(shut), whole=True)


def _open_up(folder: str) -> None:
    """Restore the right to list a folder, which a program may have removed; git needs no list."""
    if os.access(folder, os.R_OK | os.X_OK):
        return
    with contextlib.suppress(OSError):
        at = os.open(folder, _FOLDER)
        try:
            _give_rights(at)
        finally:
            os.close(at)


def _give_rights(folder: int) -> None:
    os.chmod(f"/proc/self/fd/{folder}", os.fstat(folder).st_mode & 0o7777 | 0o700)


def _git_folder(path: str) -> str:
    """The repository that a `.git` file names; empty for any other path."""
    if not path.endswith("/.git") or not os.path.isfile(path):
        return ""
    key, _, place = (_read(path) or b"").partition(b":")
    if key != b"gitdir" or b"\0" in place:
        return ""
    return os.path.realpath(os.path.join(os.path.dirname(path), os.fsdecode(place.strip())))


# --- new paths ----------------------------------------------------------------------------


def _set_aside(root: int, workspace: str, path: str) -> list[str]:
    """Rename what is at a path, or the first link on the way to it.

    Step by step from the workspace, so that no link leads elsewhere.
    """
    parts = os.path.relpath(path, workspace).split("/")
    folder = os.dup(root)
    try:
        for at, part in enumerate(parts):
            aside = f"{part}.refused-{os.urandom(4).hex()}"
            if _step(folder, part, aside, last=at == len(parts) - 1):
                place = os.path.join(workspace, *parts[: at + 1])
                return [
                    say("files: `{path}` appeared; it was set aside as `{aside}`: git, skills and "
                        "settings in the workspace are not for tools to make",
                        path=_shown(place), aside=_shown(aside))
                ]  # fmt: skip
            below = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        return [
            say("files: `{path}` may have appeared and cannot be set aside: {reason}",
                path=_shown(path), reason=exc.strerror)
        ]  # fmt: skip
    finally:
        os.close(folder)
    return []


def _step(folder: int, name: str, aside: str, *, last: bool) -> bool:
    """Rename an entry if it is the last on the way or a link; whether it was renamed."""
    for again in (False, True):
        try:
            kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if not (last or stat.S_ISLNK(kind)):
                return False
            os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        except PermissionError:
            if again:
                raise
            # The program may have removed the user's own rights.
            _give_rights(folder)
        else:
            return True
    return False


def _shown(path: str) -> str:
    """An untrusted path as one line of printable characters."""
    plain = replace_unprintable(path, "?").replace("`", "?")
    return plain if len(plain) <= _MAX_PATH_CHARS else f"{plain[:_MAX_PATH_CHARS]}…"


def _is_link(path: str, target: str) -> bool:
    try:
        return os.readlink(path) == target
    except OSError:
        return False


def _restore_project_file(root: int, before: ProtectedState) -> list[str]:
    """Restore an unprotected `pyproject.toml` that now holds settings of Satchel."""
    path = os.path.join(before.workspace, PROJECT_FILE)
    if path in before.there or any(path == link for link, _ in before.links):
        return []
    data = _read(path)
    if not os.path.islink(path) and (data is None or not _may_hold_settings(data)):
        return []
    notices = _set_aside(root, before.workspace, path)
    if before.project_file is not None:
        made = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with (
            contextlib.suppress(OSError),
            open(os.open(PROJECT_FILE, made, 0o644, dir_fd=root), "wb") as file,
        ):
            file.write(before.project_file)
    return notices


def _read(path: str) -> bytes | None:
    try:
        return read_plain(path, _MAX_READ_BYTES)
    except OSError:
        return None


def _may_hold_settings(data: bytes) -> bool:
    """Whether it has a `[tool.satchel]`, or cannot be parsed."""
    if b"satchel" not in data:  # the settings loader makes the same check
        return False
    import tomllib

    try:
        table = cast("Any", tomllib.loads(data.decode())).get("tool", {})
    except (ValueError, RecursionError):
        return True
    return isinstance(table, dict) and "satchel" in table
