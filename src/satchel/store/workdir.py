"""Scopes, and their work folder `.satchel` with its owner.

    R/skills/<id>/     the skills
    R/satchel.lock     the lockfile
    R/.satchel/        work folder: owner, lock, stage/, journal.json, history/, base/, trash/

R is `.agents` of a project, or `~/.config/agents` for all projects.

`.satchel/owner` holds the places where this user's Satchel used the work folder: an id derived from
the user's key and the real path (`library/ownership.py`), then the path. A work folder that was
moved or copied has an id that fits another path: it is adopted by adding this place, and history
entries that were signed at any of its places count. Content is compared with the signed digests
when it is restored, trust is kept elsewhere by path, and a journal counts only where it was signed.

A work folder without a fitting id came with a project or belongs to another user. It is ignored:
readers see an empty history, and every change is refused until it is renamed. A scope without
`marks` is not checked, which tests use.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._fs import is_really_inside, is_wrong_kind, make_folders, read_plain, write_atomic
from satchel.errors import AccessDenied, Refused
from satchel.i18n import say
from satchel.library.locations import global_folder, user_folder
from satchel.library.lockfile import lock_path
from satchel.library.ownership import key_path, load_or_create_key, owner_id, read_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from satchel.library.locations import Location
    from satchel.settings import Settings
    from satchel.skill.model import Skill


Name = Literal["project", "global"]
WORK = ".satchel"
PARTS = ("stage", "history", "base", "trash")
"""The folders of a work folder."""
LOCK_TIMEOUT_S = 60.0
_WORK_FILES = ("owner", "lock", "journal.json", "entry.new", ".gitignore")
OWNER_FILE = "owner"
_MAX_OWNER_BYTES = 256 * 1024
_MAX_OWNED_PATHS = 16
_UNOWNED_FILES = re.compile(r"lock|\.gitignore|\.(?:\.gitignore|owner)\.[0-9]+\.[0-9a-f]{8}")
"""Files without meaning, which may exist before the owner is written."""


class Scope(NamedTuple):
    """A folder of skills that Satchel writes to: that of a project, or that of the user."""

    name: Name
    """`project`, or `global` for that of the user."""
    folder: str
    """The folder with the skills, absolute."""
    boundary: str = ""
    """The project's folder, which no link may lead out of. Empty for the user's own scope."""
    marks: str = ""
    """The path of the user's key (`library/ownership.py`); empty disables the owner check."""

    @property
    def root(self) -> str:
        """The folder that contains the skills, the lockfile and the work folder."""
        return os.path.dirname(self.folder)

    @property
    def lock(self) -> str:
        """The path of the lockfile."""
        return lock_path(self.folder)

    @property
    def work(self) -> str:
        """The path of the work folder."""
        return os.path.join(self.root, WORK)

    def target(self, skill_id: str) -> str:
        """The path of a skill.

        Args:
            skill_id: The id of the skill.
        """
        return os.path.join(self.folder, skill_id)

    def part(self, *names: str) -> str:
        """A path in the work folder."""
        return os.path.join(self.work, *names)


def scope_of(settings: Settings, name: Name, agent: str = "") -> Scope:
    """The scope of that name; with `agent` its folder for that agent, such as `.claude/skills`.

    Raises:
        AccessDenied: a link in it leads out of the project.
    """
    if name == "project":
        project = os.path.abspath(settings.project)
        folder = os.path.join(project, f".{agent}", "skills") if agent else user_folder(settings)
        scope = Scope(name, folder, project, key_path(settings.paths.state))
    else:
        folder = global_folder()
        if folder and agent:
            folder = os.path.join(os.path.expanduser("~"), f".{agent}", "skills")
        if not folder:
            raise AccessDenied(say("There is no home folder"), say("Set `HOME` or `SATCHEL_HOME`"))
        scope = Scope(name, folder, marks=key_path(settings.paths.state))
    check_location(scope)
    return scope


def find_agent_scopes(settings: Settings, locations: Iterable[Location]) -> Iterator[Scope]:
    """The folders of other agents, and those of levels of the repository, that exist."""
    main_folders = (user_folder(settings), global_folder())
    for location in locations:
        if location.path in main_folders or not location.is_changeable:
            continue
        name: Name = "project" if location.boundary else "global"
        scope = Scope(name, location.path, location.boundary, key_path(settings.paths.state))
        with suppress(AccessDenied):  # reported when it is read
            check_location(scope)
            if os.path.isdir(scope.folder):
                yield scope


def check_scope(scope: Scope) -> None:
    """Refuse a scope with links that lead elsewhere: a project may have brought them.

    Raises:
        AccessDenied: there is a link, or a file in place of a folder or the reverse.
    """
    check_location(scope)
    for name in PARTS:
        _check_type(scope.part(name), stat.S_ISDIR)
    for name in _WORK_FILES:
        _check_type(scope.part(name), stat.S_ISREG)


def check_location(scope: Scope) -> None:
    """The part of `check_scope` that needs no work folder."""
    if scope.boundary:
        for path in (scope.root, scope.folder):
            if not is_really_inside(path, scope.boundary):
                raise AccessDenied(
                    say("`{path}` leads outside the project", path=path),
                    say("Replace the link by a copy"),
                )
    _check_type(scope.work, stat.S_ISDIR)


def _check_type(path: str, has_type: Callable[[int], bool]) -> None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # missing, or unreadable: the code that needs it reports that
        return
    if stat.S_ISLNK(mode) or not has_type(mode):
        raise AccessDenied(
            say("`{path}` is not what Satchel puts there", path=path), say("Move it elsewhere")
        )


def scope_name_of(settings: Settings, skill: Skill) -> Name:
    """The name of the scope that contains a skill.

    Raises:
        Refused: it ships with a product, or lies where Satchel does not write.
    """
    check_changeable(skill)
    name = _scope_at(settings, skill)
    if name is None:
        raise not_ours(skill)
    return name


def check_changeable(skill: Skill) -> None:
    """Refuse a skill that no store changes, wherever it lies.

    Raises:
        Refused: it ships with a product or package, is served, or lies inside another folder.
    """
    if skill.is_system or skill.origin.remote or not skill.origin.writable:
        raise not_ours(skill)
    if "/" in skill.head.id or not skill.head.id:
        raise not_ours(skill)


def not_ours(skill: Skill) -> Refused:
    """The refusal to change a skill that Satchel does not manage."""
    location_label = skill.origin.label if "/" not in skill.head.id else skill.head.id
    return Refused(
        say("`{name}` is in `{place}`, which Satchel does not write to",
            name=skill.name, place=location_label),
        say("Change it there, or exclude it with the setting `exclude`"),
    )  # fmt: skip


def _scope_at(settings: Settings, skill: Skill) -> Name | None:
    folders: tuple[tuple[Name, str], ...] = (
        ("project", user_folder(settings)),
        ("global", global_folder()),
    )
    real = os.path.realpath(skill.origin.root)
    for name, folder in folders:
        if folder and os.path.realpath(folder) == real:
            return name
    return None


def is_ours(scope: Scope) -> bool:
    """Whether this user's Satchel made the work folder, here or elsewhere; for readers.

    Raises:
        OSError: the owner cannot be read.
    """
    return not scope.marks or bool(find_owned_paths(scope))


def is_moved(scope: Scope) -> bool:
    """Whether the work folder was moved or copied here and is not adopted yet.

    Raises:
        OSError: the owner cannot be read.
    """
    owned_paths = find_owned_paths(scope)
    return bool(owned_paths) and os.path.realpath(scope.work) not in owned_paths


def find_owned_paths(scope: Scope) -> list[str]:
    """The real paths where this user's Satchel used the work folder, the latest last.

    Raises:
        OSError: the owner cannot be read.
    """
    key = read_key(scope.marks) if scope.marks else b""
    return _read_owned_paths(scope, key) if key else []


def _read_owned_paths(scope: Scope, key: bytes) -> list[str]:
    work_path = os.path.realpath(scope.work)
    paths: list[str] = []
    for line in _owner_lines(scope):
        owner, _, text = line.partition(" ")
        try:
            path = json.loads(text) if text else work_path  # up to 0.2 there was no path
            if isinstance(path, str) and owner_id(key, path) == owner:
                paths.append(path)
        except (ValueError, RecursionError):  # damaged; a path with an impossible character
            continue
    return paths


def claim_work_folder(scope: Scope) -> str:
    """Check the owner of the work folder, set it in an unused one, or adopt a moved one.

    Returns:
        What was adopted, for the user; empty when nothing was.

    Raises:
        AccessDenied: it belongs to another owner.
        OSError: it cannot be read or written.
    """
    if not scope.marks:
        return ""
    key, work_path = load_or_create_key(scope.marks), os.path.realpath(scope.work)
    owned_paths = _read_owned_paths(scope, key)
    if work_path in owned_paths and any(" " in line for line in _owner_lines(scope)):
        return ""
    # Read again: another process of this user may have written it meanwhile.
    if (
        not owned_paths
        and not _is_unused(scope)
        and not (owned_paths := _read_owned_paths(scope, key))
    ):
        move = shlex.join(["mv", scope.work, f"{scope.work}-old"])
        raise AccessDenied(
            say("`{path}` holds the history of changes, and another user made it or it came with "
                "the project; nothing was changed", path=scope.work),
            say("Run `{command}` and try again. Your skills stay; changes that were made before "
                "can then not be undone from here", command=move),
        )  # fmt: skip
    make_folders(scope.work)
    recorded = [*(path for path in owned_paths if path != work_path), work_path][-_MAX_OWNED_PATHS:]
    lines = [f"{owner_id(key, path)} {json.dumps(path)}\n" for path in recorded]
    write_atomic(scope.part(OWNER_FILE), "".join(lines).encode())
    if not owned_paths or work_path in owned_paths:
        return ""
    return say("This project was moved or copied from `{path}`; its history of changes was "
               "adopted and `satchel undo` works here", path=owned_paths[-1])  # fmt: skip


def _owner_lines(scope: Scope) -> list[str]:
    """The lines of the owner file."""
    try:
        data = read_plain(scope.part(OWNER_FILE), _MAX_OWNER_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        if is_wrong_kind(exc):
            return []
        raise
    return data.decode("ascii", "replace").splitlines()


def _is_unused(scope: Scope) -> bool:
    try:
        return all(_UNOWNED_FILES.fullmatch(name) for name in os.listdir(scope.work))
    except FileNotFoundError:
        return True


def prepare_scope(scope: Scope) -> str:
    """Create the work folder where it is missing; returns what was adopted, for the user.

    Raises:
        AccessDenied: a link in the scope leads elsewhere, or it belongs to another owner.
        OSError: it cannot be created.
    """
    check_location(scope)
    adoption_note = claim_work_folder(scope)
    check_scope(scope)
    ignore_file = scope.part(".gitignore")
    if not (os.path.isfile(ignore_file) and all(os.path.isdir(scope.part(name)) for name in PARTS)):
        for name in PARTS:
            make_folders(scope.part(name))
        if not os.path.isfile(ignore_file):
            write_atomic(ignore_file, b"*\n")
    return adoption_note
