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

import os
import re
import stat
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._fs import is_really_inside, is_wrong_kind, make_folders, read_plain, write_atomic
from satchel.errors import AccessDenied, Refused
from satchel.i18n import say
from satchel.library.locations import global_folder, user_folder
from satchel.library.lockfile import lock_path
from satchel.library.ownership import key_path, load_or_create_key, owner_id, read_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.settings import Settings
    from satchel.skill.model import Skill


Name = Literal["project", "global"]
WORK = ".satchel"
PARTS = ("stage", "history", "base", "trash")
"""The folders of a work folder."""
LOCK_TIMEOUT_S = 60.0
_WORK_FILES = ("owner", "lock", "journal.json", "entry.new", ".gitignore")


class Scope(NamedTuple):
    """A folder of skills that Satchel writes to."""

    name: Name
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
        """The path of a skill."""
        return os.path.join(self.folder, skill_id)

    def part(self, *names: str) -> str:
        """A path in the work folder."""
        return os.path.join(self.work, *names)


def scope_of(settings: Settings, name: Name) -> Scope:
    """The scope of that name.

    Raises:
        AccessDenied: a link in it leads out of the project.
    """
    if name == "project":
        project = os.path.abspath(settings.project)
        scope = Scope(name, user_folder(settings), project, key_path(settings.paths.state))
    else:
        folder = global_folder()
        if not folder:
            raise AccessDenied(say("There is no home folder"), say("Set `HOME` or `SATCHEL_HOME`"))
        scope = Scope(name, folder, marks=key_path(settings.paths.state))
    check_places(scope)
    return scope


def check_scope(scope: Scope) -> None:
    """Refuse a scope with links that lead elsewhere: a project may have brought them.

    Raises:
        AccessDenied: there is a link, or a file in place of a folder or the reverse.
    """
    check_places(scope)
    for name in PARTS:
        _check_kind(scope.part(name), stat.S_ISDIR)
    for name in _WORK_FILES:
        _check_kind(scope.part(name), stat.S_ISREG)


def check_places(scope: Scope) -> None:
    """The part of `check_scope` that needs no work folder."""
    if scope.boundary:
        for path in (scope.root, scope.folder):
            if not is_really_inside(path, scope.boundary):
                raise AccessDenied(
                    say("`{path}` leads outside the project", path=path),
                    say("Replace the link by a copy"),
                )
    _check_kind(scope.work, stat.S_ISDIR)


def _check_kind(path: str, is_kind: Callable[[int], bool]) -> None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # missing, or unreadable: the code that needs it reports that
        return
    if stat.S_ISLNK(mode) or not is_kind(mode):
        raise AccessDenied(
            say("`{path}` is not what Satchel puts there", path=path), say("Move it elsewhere")
        )


def scope_name_of(settings: Settings, skill: Skill) -> Name:
    """The name of the scope that contains a skill.

    Raises:
        Refused: it ships with a product, or lies where Satchel does not write.
    """
    name = _scope_at(settings, skill)
    if name is None or skill.is_system or skill.origin.remote or not skill.origin.writable:
        raise not_ours(skill)
    if "/" in skill.head.id or not skill.head.id:
        raise not_ours(skill)
    return name


def not_ours(skill: Skill) -> Refused:
    """The refusal to change a skill that Satchel does not manage."""
    place = skill.origin.label if "/" not in skill.head.id else skill.head.id
    return Refused(
        say("`{name}` is in `{place}`, which Satchel does not write to",
            name=skill.name, place=place),
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


OWNER_FILE = "owner"
_MAX_OWNER_BYTES = 256 * 1024
_MAX_PLACES = 16
_UNOWNED_FILES = re.compile(r"lock|\.gitignore|\.(?:\.gitignore|owner)\.[0-9]+\.[0-9a-f]{8}")
"""Files without meaning, which may exist before the owner is written."""


def is_ours(scope: Scope) -> bool:
    """Whether this user's Satchel made the work folder, here or elsewhere; for readers.

    Raises:
        OSError: the owner cannot be read.
    """
    return not scope.marks or bool(places_of(scope))


def is_moved(scope: Scope) -> bool:
    """Whether the work folder was moved or copied here and is not adopted yet.

    Raises:
        OSError: the owner cannot be read.
    """
    places = places_of(scope)
    return bool(places) and os.path.realpath(scope.work) not in places


def places_of(scope: Scope) -> list[str]:
    """The real paths where this user's Satchel used the work folder, the latest last.

    Raises:
        OSError: the owner cannot be read.
    """
    key = read_key(scope.marks) if scope.marks else b""
    return _places(scope, key) if key else []


def _places(scope: Scope, key: bytes) -> list[str]:
    import json

    here = os.path.realpath(scope.work)
    places: list[str] = []
    for line in _owner_lines(scope):
        owner, _, text = line.partition(" ")
        try:
            place = json.loads(text) if text else here  # up to 0.2 there was no path
            if isinstance(place, str) and owner_id(key, place) == owner:
                places.append(place)
        except (ValueError, RecursionError):  # damaged; a path with an impossible character
            continue
    return places


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
    import json

    key, here = load_or_create_key(scope.marks), os.path.realpath(scope.work)
    places = _places(scope, key)
    if here in places and any(" " in line for line in _owner_lines(scope)):
        return ""
    # Read again: another process of this user may have written it meanwhile.
    if not places and not _is_unused(scope) and not (places := _places(scope, key)):
        import shlex

        move = shlex.join(["mv", scope.work, f"{scope.work}-old"])
        raise AccessDenied(
            say("`{path}` holds the history of changes, and another user made it or it came with "
                "the project; nothing was changed", path=scope.work),
            say("Run `{command}` and try again. Your skills stay; changes that were made before "
                "can then not be undone from here", command=move),
        )  # fmt: skip
    make_folders(scope.work)
    known = [*(place for place in places if place != here), here][-_MAX_PLACES:]
    lines = [f"{owner_id(key, place)} {json.dumps(place)}\n" for place in known]
    write_atomic(scope.part(OWNER_FILE), "".join(lines).encode())
    if not places or here in places:
        return ""
    return say("This project was moved or copied from `{path}`; its history of changes was "
               "adopted and `satchel undo` works here", path=places[-1])  # fmt: skip


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
    check_places(scope)
    adopted = claim_work_folder(scope)
    check_scope(scope)
    ignore = scope.part(".gitignore")
    if not (os.path.isfile(ignore) and all(os.path.isdir(scope.part(name)) for name in PARTS)):
        for name in PARTS:
            make_folders(scope.part(name))
        if not os.path.isfile(ignore):
            write_atomic(ignore, b"*\n")
    return adopted
