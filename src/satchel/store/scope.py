"""The folders that Satchel writes to, the owner of the work area, and what a disk error says.

    R/skills/<id>/     the skills
    R/satchel.lock     what was installed, for review
    R/.satchel/        work area: owner, lock, stage/, journal.json, history/, base/, trash/

R is `.agents` of a project, or `~/.config/agents` for all projects.

`.satchel/owner` holds a mark that only this user, at this path, can make (`library/trust.py`). An
area without it came with a clone or a copy, belongs to another user, or the project was moved. It
is never believed: readers see an empty history, and every change is refused until it is removed.
Without a state folder the key lives as long as the process. Without `marks` in the scope nothing is
checked; for tests of single parts.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._fs import is_odd, is_really_inside, make_folders, read_plain, write_atomic
from satchel._language import say
from satchel.errors import AccessDenied, Conflict, Refused
from satchel.library.locations import global_folder, user_folder
from satchel.library.lockfile import check_id, lock_path
from satchel.library.trust import key_path, mark_of, own_key, read_key

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from satchel.settings import Settings
    from satchel.skill.model import Skill


def refusal(exc: OSError, fallback: str = "") -> Refused:
    """An error of the system before anything was changed, or after everything was put back."""
    path = named(exc, fallback)
    if isinstance(exc, TimeoutError):
        return Refused(
            say("`{path}` is held by another process; nothing was changed", path=path),
            say("Wait until the other command has ended, then run this one again"),
        )
    return Refused(
        say("`{path}`: {reason}; nothing was changed", path=path, reason=reason(exc)), hint(exc)
    )


def named(exc: OSError, fallback: str = "") -> str:
    """The path that an error is about."""
    found = exc.filename if exc.filename is not None else fallback
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)


def reason(exc: OSError) -> str:
    """What the system says."""
    return exc.strerror or str(exc)


def hint(exc: OSError) -> str:
    """What to do about it."""
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return say("Make room on the disk, then run the command again")
    if exc.errno in (errno.EACCES, errno.EPERM):
        return say("Check the permissions of the folder, then run the command again")
    if exc.errno == errno.EROFS:
        return say("The file system is read-only: make it writable, then run the command again")
    if exc.errno == errno.EXDEV:
        return say(
            "The skills and `.satchel` must be on one file system: replace the link or mount"
        )
    if exc.errno == errno.EIO:
        return say("The disk reports an error: look after it before you run the command again")
    return say("Run the command again")


@contextmanager
def unchanged(fallback: str) -> Generator[None]:
    """Errors of the system in here become refusals that say that nothing was changed."""
    try:
        yield
    except OSError as exc:
        raise refusal(exc, fallback) from exc


def meanwhile(name: str) -> Conflict:
    """A skill, or its entry in the lockfile, is not what the plan saw."""
    return Conflict(
        say("`{name}` was changed meanwhile; nothing was changed by this command", name=name),
        say("Look at it, then run the command again"),
    )


__all__ = [
    "PARTS",
    "TIMEOUT",
    "WORK",
    "Name",
    "Scope",
    "check_id",
    "check_scope",
    "scope_of",
    "whose",
]

Name = Literal["project", "global"]
WORK = ".satchel"
PARTS = ("stage", "history", "base", "trash")
"""Folders that are always there."""
TIMEOUT = 60.0
"""Seconds that a writer waits for another one."""
_FILES = ("owner", "lock", "journal.json", "entry.new", ".gitignore")


class Scope(NamedTuple):
    """One folder with skills that Satchel writes to."""

    name: Name
    folder: str
    """The folder with the skills, absolute."""
    boundary: str = ""
    """The project's folder: nothing may lead out of it. Empty for the user's own."""
    marks: str = ""
    """The user's key (`library/trust.py`), by which Satchel knows its own work area; empty when
    nothing is checked."""

    @property
    def root(self) -> str:
        """What holds the skills, the lockfile and the work area."""
        return os.path.dirname(self.folder)

    @property
    def lock(self) -> str:
        """The lockfile."""
        return lock_path(self.folder)

    @property
    def work(self) -> str:
        """The work area."""
        return os.path.join(self.root, WORK)

    def target(self, skill_id: str) -> str:
        """Where a skill is."""
        return os.path.join(self.folder, skill_id)

    def part(self, *names: str) -> str:
        """A path in the work area."""
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
            raise AccessDenied(
                say("There is no home folder to keep skills in"), say("Set `HOME` to one")
            )
        scope = Scope(name, folder, marks=key_path(settings.paths.state))
    check_places(scope)
    return scope


def check_scope(scope: Scope) -> None:
    """Nothing in a scope leads elsewhere: a project comes from somebody, links and all.

    Raises:
        AccessDenied: something does.
    """
    check_places(scope)
    for name in PARTS:
        _check_kind(scope.part(name), stat.S_ISDIR)
    for name in _FILES:
        _check_kind(scope.part(name), stat.S_ISREG)


def check_places(scope: Scope) -> None:
    if scope.boundary:
        for path in (scope.root, scope.folder):
            if not is_really_inside(path, scope.boundary):
                raise AccessDenied(
                    say("`{path}` leads outside the project", path=path),
                    say("Replace the link by a folder"),
                )
    _check_kind(scope.work, stat.S_ISDIR)


def _check_kind(path: str, is_kind: Callable[[int], bool]) -> None:
    """Nothing is there, or what we would put there ourselves."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # nothing, or nothing to be had: said by whoever needs it
        return
    if stat.S_ISLNK(mode):
        raise AccessDenied(
            say("`{path}` is a link; Satchel works only in a folder of its own", path=path),
            say("Remove the link"),
        )
    if not is_kind(mode):
        raise AccessDenied(
            say("`{path}` is not what Satchel puts there", path=path), say("Move it elsewhere")
        )


def whose(settings: Settings, skill: Skill) -> Name:
    """The scope in which this very skill lies. No scope is opened for that.

    Raises:
        Refused: it ships with a product, or lies where Satchel does not write.
    """
    if skill.is_system:
        raise Refused(
            say("`{name}` ships with a product and cannot be changed", name=skill.name),
            say("Exclude it: add its name to the setting `exclude`"),
        )
    name = _scope_at(settings, skill)
    if name is None or skill.origin.remote or not skill.origin.writable:
        raise Refused(
            say("`{name}` is in `{place}`, which Satchel does not write to",
                name=skill.name, place=skill.origin.label),
            say("Change it where it comes from"),
        )  # fmt: skip
    if "/" in skill.head.id or not skill.head.id:
        raise Refused(
            say("`{name}` lies within another folder, `{path}`",
                name=skill.name, path=skill.head.id),
            say("Change that folder by hand"),
        )  # fmt: skip
    return name


def _scope_at(settings: Settings, skill: Skill) -> Name | None:
    """The scope whose folder a skill was found in."""
    folders: tuple[tuple[Name, str], ...] = (
        ("project", user_folder(settings)),
        ("global", global_folder()),
    )
    real = os.path.realpath(skill.origin.root)
    for name, folder in folders:
        if folder and os.path.realpath(folder) == real:
            return name
    return None


OWNER = "owner"
_MAX_FILE = 4096
_BLANK = re.compile(r"lock|\.gitignore|\.(?:\.gitignore|owner)\.[0-9]+\.[0-9a-f]{8}")
"""What says nothing, so that it may be there before the owner's mark is."""


def is_ours(scope: Scope) -> bool:
    """Whether what is in the work area may be believed; for readers.

    Raises:
        OSError: the disk does not say.
    """
    if not scope.marks:
        return True
    key = read_key(scope.marks)
    return bool(key) and mark_of(key, scope.work) in _owners(scope)


def claim(scope: Scope) -> list[str]:
    """Make sure that the work area is ours; returns notes about it.

    Raises:
        AccessDenied: it belongs to another owner.
        OSError: the disk says no.
    """
    if not scope.marks:
        return []
    key, why = own_key(scope.marks)
    wanted = mark_of(key, scope.work)
    if wanted not in _owners(scope):
        # Another process of ours may have written its mark meanwhile.
        if not _is_blank(scope) and wanted not in _owners(scope):
            raise AccessDenied(
                say("`{path}` was not made here: it came with the project, belongs to another "
                    "user, or the project was moved; nothing was changed", path=scope.work),
                say("Remove it, then run the command again. The skills are not in it, but what "
                    "could be undone is"),
            )  # fmt: skip
        make_folders(scope.work)
        write_atomic(scope.part(OWNER), f"{wanted}\n".encode())
    if not why:
        return []
    return [
        say(
            "`{path}` cannot be written ({reason}), so this change cannot be undone later, and the "
            "next one is refused until `.satchel` is removed",
            path=scope.marks,
            reason=why,
        )
    ]


def _owners(scope: Scope) -> list[str]:
    """The marks in a work area; 0.1 wrote several."""
    try:
        data = read_plain(scope.part(OWNER), _MAX_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        if is_odd(exc):
            return []
        raise
    return data.decode("ascii", "replace").split("\n")


def _is_blank(scope: Scope) -> bool:
    """Whether there is no work area, or one that was begun and holds nothing."""
    try:
        return all(_BLANK.fullmatch(name) for name in os.listdir(scope.work))
    except FileNotFoundError:
        return True


def prepare_scope(scope: Scope) -> list[str]:
    """Make the work area, at the first use; returns notes about it.

    Raises:
        AccessDenied: something in the scope leads elsewhere, or it belongs to another owner.
        OSError: it cannot be made.
    """
    check_places(scope)
    said = claim(scope)
    check_scope(scope)
    ignore = scope.part(".gitignore")
    if not (os.path.isfile(ignore) and all(os.path.isdir(scope.part(name)) for name in PARTS)):
        for name in PARTS:
            make_folders(scope.part(name))
        if not os.path.isfile(ignore):
            write_atomic(ignore, b"*\n")
    return said
