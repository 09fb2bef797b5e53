"""What in a writable workspace stays as it is? What somebody runs or believes later.

git runs what its configuration says, Satchel believes its settings, lockfiles and the folders with
skills: a program that may write there would leave the sandbox with the user's next command.

What exists is read-only inside the sandbox, however it is held. What does not exist cannot be held
without leaving something behind in the user's folder, so that is looked at twice: what was not
there before a call, and is after it, is set aside under another name, and the result says so. It is
not deleted: the user may have made it meanwhile. Nobody of the call is alive by then.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import read_plain
from satchel._language import say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.runners.base import RunRequest

FIXED = (".git", ".satchel", "satchel.toml")
"""Guarded in every workspace; the rest comes with `Powers.guard`."""
PROJECT_FILE = "pyproject.toml"
"""Guarded when it holds settings of Satchel; any other may be written."""
DEPTH = 4
"""How many folders below the workspace a `.git` is looked for."""
FOLDERS = 2_000
GITS = 400
"""Each is a mount or two, and bubblewrap takes 9,000 words."""
SKIPPED = frozenset(("node_modules", ".venv", ".git"))
_LARGEST = 1024 * 1024
_LONGEST = 300
_MOST = 10
_FOLDER = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_PATH")
)


class Guarded(NamedTuple):
    """The state of a workspace before a call; every path is absolute and real."""

    workspace: str
    there: tuple[str, ...]
    """What is read-only."""
    absent: tuple[str, ...]
    """What must not appear."""
    links: tuple[tuple[str, str], ...] = ()
    """Links on the way to what is guarded, and what they say: a mount cannot hold a link."""
    seen: frozenset[str] = frozenset()
    """Folders that were searched for a `.git`."""
    shut: frozenset[str] = frozenset()
    """Folders that could not be."""
    whole: bool = True
    """Whether that were all, to the depth that is searched."""
    project_file: bytes | None = None
    """The `pyproject.toml` that may be written; None when there is none, or it is guarded."""


class _Search(NamedTuple):
    """What a search for `.git` found, and where it looked."""

    found: tuple[str, ...]
    seen: frozenset[str]
    shut: frozenset[str]
    whole: bool


def settle(request: RunRequest) -> tuple[RunRequest, Guarded]:
    """The request with everything that is guarded now, and the state to compare with later.

    What is kept from an earlier call fits only while the same is guarded: the powers say it.
    """
    powers = request.powers
    found = look(os.path.realpath(powers.workspace), powers.guard)
    return request._replace(powers=powers._replace(guard=found.there)), found


def look(workspace: str, names: Iterable[str]) -> Guarded:
    """What is guarded in a workspace.

    Args:
        workspace: The real path of the folder.
        names: Absolute paths, there or not; those outside of it are left alone.
    """
    paths = [os.path.join(workspace, name) for name in FIXED]
    file = os.path.join(workspace, PROJECT_FILE)
    data = _read(file)
    free = not os.path.lexists(file) if data is None else not _may_hold_settings(data)
    if not free:
        paths.append(file)
    given = (*paths, *names)
    search = _find_git(workspace, frozenset(resolve(workspace, given)[0]))
    given = (*given, *search.found)
    there, absent, links = resolve(workspace, (*given, *filter(None, map(_git_folder, given))))
    return Guarded(
        workspace, there, absent, links, search.seen, search.shut, search.whole,
        data if free else None,
    )  # fmt: skip


def resolve(
    workspace: str, paths: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Which of some paths in a workspace are there, which are not, and links on the way."""
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


def put_right(before: Guarded) -> tuple[str, ...]:
    """Set aside what appeared since, put links back; a sentence about each."""
    told: list[str] = []
    try:
        root = os.open(before.workspace, _FOLDER)
    except OSError:
        return ()  # it is gone itself
    try:
        for path, said in before.links:
            if not _is_link(path, said):
                told += _set_aside(root, before.workspace, path)
                with contextlib.suppress(OSError):
                    os.symlink(said, path)
                told.append(say("files: the link `{path}` was changed; it was put back",
                                path=_shown(path)))  # fmt: skip
        for path in before.absent:
            told += _set_aside(root, before.workspace, path)
        known = frozenset((*before.there, *(path for path, _ in before.links)))
        for path in _find_git(before.workspace, known, before).found:
            # Where not everything was searched before, something may come to light only now.
            if before.whole or os.path.dirname(path) in before.seen:
                told += _set_aside(root, before.workspace, path)
        told += _put_project_file_right(root, before)
    finally:
        os.close(root)
    if len(told) > _MOST:
        more = len(told) - _MOST
        told[_MOST:] = [say("files: {count} more were set aside or put back", count=more)]
    return tuple(told)


# --- git in subfolders --------------------------------------------------------------------


def _find_git(workspace: str, known: frozenset[str], before: Guarded | None = None) -> _Search:
    """Look for every `.git` that is not known yet; shallow ones first, no link is followed.

    Args:
        workspace: Where to begin.
        known: What is guarded: it is not entered.
        before: The state before a call: what could be listed then is made so again.
    """
    found: list[str] = []
    seen: list[str] = []
    shut: list[str] = []
    level = [workspace]
    for depth in range(DEPTH + 1):
        below: list[str] = []
        for folder in level:
            if len(seen) >= FOLDERS or len(found) >= GITS:
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
                            depth < DEPTH
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
    """A program may have taken the user's right to list a folder that git can still enter."""
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
    """Where a `.git` that is a file says the repository is; nothing for any other path."""
    if not path.endswith("/.git") or not os.path.isfile(path):
        return ""
    told, _, place = (_read(path) or b"").partition(b":")
    if told != b"gitdir" or b"\0" in place:
        return ""
    return os.path.realpath(os.path.join(os.path.dirname(path), os.fsdecode(place.strip())))


# --- what appeared ------------------------------------------------------------------------


def _set_aside(root: int, workspace: str, path: str) -> list[str]:
    """Give another name to what is at a path, or to the first link on the way to it.

    Step by step from the workspace, so that no link leads anywhere else.
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
    """Rename an entry of a folder when it is the last on the way or a link; whether it was done."""
    for again in (False, True):
        try:
            kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if not (last or stat.S_ISLNK(kind)):
                return False
            os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        except PermissionError:
            if again:
                raise
            # The program may have taken the user's own rights away.
            _give_rights(folder)
        else:
            return True
    return False


def _shown(path: str) -> str:
    """A path that a stranger may have chosen, as one line of plain characters."""
    plain = "".join(char if char.isprintable() and char != "`" else "?" for char in path)
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}…"


def _is_link(path: str, said: str) -> bool:
    try:
        return os.readlink(path) == said
    except OSError:
        return False


def _put_project_file_right(root: int, before: Guarded) -> list[str]:
    """A `pyproject.toml` that was free to be written holds no settings of Satchel afterwards."""
    path = os.path.join(before.workspace, PROJECT_FILE)
    if path in before.there or any(path == link for link, _ in before.links):
        return []
    data = _read(path)
    if not os.path.islink(path) and (data is None or not _may_hold_settings(data)):
        return []
    told = _set_aside(root, before.workspace, path)
    if before.project_file is not None:
        made = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with (
            contextlib.suppress(OSError),
            open(os.open(PROJECT_FILE, made, 0o644, dir_fd=root), "wb") as file,
        ):
            file.write(before.project_file)
    return told


def _read(path: str) -> bytes | None:
    """A small plain file; nothing when it is anything else."""
    try:
        return read_plain(path, _LARGEST)
    except OSError:
        return None


def _may_hold_settings(data: bytes) -> bool:
    """Whether it has a `[tool.satchel]`, or cannot be read well enough to say no."""
    if b"satchel" not in data:  # whoever reads the settings looks no closer either
        return False
    import tomllib

    try:
        table = cast("Any", tomllib.loads(data.decode())).get("tool", {})
    except (ValueError, RecursionError):
        return True
    return isinstance(table, dict) and "satchel" in table
