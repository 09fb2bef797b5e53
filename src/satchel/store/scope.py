"""Which folders does Satchel write to?

    R/skills/<id>/     the skills
    R/satchel.lock     what was installed, for review
    R/.satchel/        work area: owner, lock, stage/, journal.json, history/, base/, trash/

R is `.agents` of a project, or `~/.config/agents` for all projects.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._fs import is_really_inside
from satchel._language import say
from satchel.errors import AccessDenied, Refused
from satchel.library.locations import global_folder, user_folder
from satchel.library.lockfile import check_id, lock_path
from satchel.library.marks import key_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.settings import Settings
    from satchel.skill.model import Skill

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
    """The user's key (`library/marks.py`), by which Satchel knows its own work area; empty when
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
