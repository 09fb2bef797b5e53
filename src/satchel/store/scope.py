"""Which folders does Satchel write to?

    R/skills/<id>/     the skills
    R/satchel.lock     what was installed, for review
    R/.satchel/        work area: lock, stage/, journal.json, history/, base/, trash/

R is `.agents` of a project, or `~/.config/agents` for all projects.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._fs import is_really_inside, make_folders, write_atomic
from satchel._language import say
from satchel.errors import AccessDenied, InvalidInput
from satchel.library.locations import global_folder, user_folder
from satchel.library.lockfile import lock_path
from satchel.skill.interpret import INVISIBLE

if TYPE_CHECKING:
    from satchel.settings import Settings

Name = Literal["project", "global"]
WORK = ".satchel"
PARTS = ("stage", "history", "base", "trash")
_MAX_NAME = 255  # bytes of one file name, on every common file system


class Scope(NamedTuple):
    """One folder with skills that Satchel writes to."""

    name: Name
    folder: str
    """The folder with the skills, absolute."""
    boundary: str = ""
    """The project's folder: nothing may lead out of it. Empty for the user's own."""

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
        scope = Scope(name, user_folder(settings), project)
    else:
        folder = global_folder()
        if not folder:
            raise AccessDenied(
                say("There is no home folder to keep skills in"), say("Set `HOME` to one")
            )
        scope = Scope(name, folder)
    check_scope(scope)
    return scope


def check_scope(scope: Scope) -> None:
    """Nothing in a scope leads elsewhere: a project comes from somebody, links and all.

    Raises:
        AccessDenied: something does.
    """
    if scope.boundary:
        for path in (scope.root, scope.folder):
            if not is_really_inside(path, scope.boundary):
                raise AccessDenied(
                    say("`{path}` leads outside the project", path=path),
                    say("Replace the link by a folder"),
                )
    for path in (scope.work, *(scope.part(name) for name in PARTS)):
        if os.path.islink(path):
            raise AccessDenied(
                say("`{path}` is a link; Satchel works only in a folder of its own", path=path),
                say("Remove the link"),
            )


def prepare_scope(scope: Scope) -> None:
    """Make the work area, at the first use.

    Raises:
        AccessDenied: something in the scope leads elsewhere.
        OSError: it cannot be made.
    """
    check_scope(scope)
    ignore = scope.part(".gitignore")
    if os.path.isfile(ignore) and all(os.path.isdir(scope.part(name)) for name in PARTS):
        return
    for name in PARTS:
        make_folders(scope.part(name))
    if not os.path.isfile(ignore):
        write_atomic(ignore, b"*\n")


def check_id(skill_id: str) -> str:
    """Return an id that can be the name of a skill's folder.

    Folders that are already there have all kinds of names, so this is wider than what a skill's
    name should be: one visible folder name that every system can hold.

    Raises:
        InvalidInput: it cannot.
    """
    try:
        length = len(os.fsencode(skill_id))
    except UnicodeEncodeError:
        length = 0
    odd = (
        not length
        or skill_id[0] in ". "
        or skill_id[-1] in ". "
        or any(sign in "/\\:" or ord(sign) < 32 or ord(sign) == 127 for sign in skill_id)
        or INVISIBLE.search(skill_id)
    )
    if odd or length > _MAX_NAME:
        raise InvalidInput(
            say("`{name}` cannot be the name of a skill's folder", name=ascii(skill_id)[1:-1]),
            say("Use a-z, 0-9 and single hyphens"),
        )
    return skill_id
