"""Where does a skill wait until it is complete and on the disk?

    stage/<tx>/new/<id>/   the skill, as it will be
    stage/<tx>.alive       held locked by the process that is filling it

The stage is beside the skills, on the same file system, so that a rename puts a skill in its place.
Whoever finds a stage whose `alive` nobody holds may delete it: its owner is dead.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel._fs import check_lock_file, locked
from satchel._language import say
from satchel.errors import Conflict, SkillBroken, Unsafe
from satchel.skill.tree import LIMITS, FolderTree, Seal, digest_of
from satchel.store.scope import check_id, prepare_scope, unchanged

if TYPE_CHECKING:
    from typing import Self

    from satchel.skill.tree import File, Tree
    from satchel.store.scope import Scope

_NEW = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_BINARY", 0)
)


class Stage:
    """One process's staging folder. Close it, or use it as a context: then it is gone."""

    def __init__(self, scope: Scope) -> None:
        """Make an empty one.

        Raises:
            AccessDenied: the scope leads elsewhere.
            Refused: the disk says no.
        """
        self.scope = scope
        with unchanged(scope.work):
            self.notes = tuple(prepare_scope(scope))
            """Notes about the work area."""
            self.path = scope.part("stage", f"{os.getpid():x}-{os.urandom(6).hex()}")
            self._alive = locked(self.path + ".alive", private=False)
            # Locked first, made second: nobody ever sees a stage without an owner.
            self._alive.__enter__()
            try:
                os.makedirs(os.path.join(self.path, "new"))
            except OSError:
                self._let_go()
                raise
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was staged and not used. What is left goes with the next command."""
        if self._open:
            self._open = False
            remove_tree(self.path)
            self._let_go()

    def leave(self) -> None:
        """Go without removing anything: a journal on the disk needs what is staged."""
        if self._open:
            self._open = False
            self._let_go()

    def _let_go(self) -> None:
        with suppress(OSError):
            os.unlink(self.path + ".alive")
        with suppress(OSError):
            self._alive.__exit__(None, None, None)

    def folder(self, skill_id: str) -> str:
        """The folder to fill with a skill."""
        path = os.path.join(self.path, "new", check_id(skill_id))
        with unchanged(path):
            os.makedirs(path, exist_ok=True)
        return path

    def write_tree(self, skill_id: str, tree: Tree, over: str = "") -> Seal:
        """Write a skill's files; the digest is computed while they are written.

        Args:
            skill_id: Which skill.
            tree: Its files.
            over: The folder that it replaces or is made from: its mode bits are not widened.

        Raises:
            Unsafe: a path leads elsewhere, or two files have one name here.
            SkillBroken: it is too large.
            Refused: the disk says no.
        """
        folder = self.folder(skill_id)
        with unchanged(folder):
            taken = os.listdir(folder)
        if taken:
            raise Conflict(
                say("The skill `{name}` is there twice", name=skill_id), say("Choose one of them")
            )
        try:
            with unchanged(folder):
                marks = dict(sorted(_write(folder, tree).items()))
                if over:
                    _keep_modes(folder, over)
                FolderTree(folder)  # refuses links that lead outside
        except BaseException:
            remove_tree(folder)
            raise
        return Seal(digest_of(marks), marks)


def stage(scope: Scope) -> Stage:
    """A new staging folder; use it as a context."""
    return Stage(scope)


def _write(folder: str, tree: Tree) -> dict[str, str]:
    """Write the files below `folder`; returns what `Seal.files` should say of them."""
    from hashlib import sha256

    marks: dict[str, str] = {}
    made = {""}
    room = LIMITS.size
    # Links come last: no file is ever written through one.
    for file in sorted(tree.files, key=lambda file: file.mode == "link"):
        _make_parents(folder, file, made)
        path = os.path.join(folder, file.path)
        if file.mode == "link":
            leads = b"".join(tree.chunks(file.path))
            os.symlink(leads, os.fsencode(path))
            marks[file.path] = "link:" + os.fsdecode(leads)
            continue
        mode = 0o755 if file.mode == "program" else 0o644
        total = sha256()
        try:
            descriptor = os.open(path, _NEW, mode)
        except FileExistsError as exc:
            raise Unsafe(
                "name-twice",
                say("`{path}` has the same name as another file on this system", path=file.path),
                say("Rename one of them"),
            ) from exc
        with os.fdopen(descriptor, "wb", buffering=0) as stream:
            for chunk in tree.chunks(file.path):
                room -= len(chunk)
                if room < 0:
                    raise SkillBroken(
                        say("The skill is larger than {size} MiB", size=LIMITS.size >> 20),
                        say("Remove what the skill does not need"),
                    )
                total.update(chunk)
                rest = memoryview(chunk)
                while rest:
                    rest = rest[stream.write(rest) :]
            if hasattr(os, "fchmod"):
                os.fchmod(descriptor, mode)  # whatever the user's umask takes away
        marks[file.path] = f"sha256:{total.hexdigest()}" + (" x" if mode == 0o755 else "")
    return marks


def _keep_modes(new: str, old: str) -> None:
    """Give nobody rights to a staged path that they lack on the path it replaces."""
    with os.scandir(new) as entries:
        for entry in entries:
            there = os.path.join(old, entry.name)
            if entry.is_dir(follow_symlinks=False) and not os.path.islink(there):
                _keep_modes(entry.path, there)
            elif entry.is_file(follow_symlinks=False):
                _keep_mode(entry.path, there)
    _keep_mode(new, old)


def _keep_mode(new: str, old: str) -> None:
    try:
        known = os.lstat(old).st_mode
    except OSError:
        return
    now = stat.S_IMODE(os.lstat(new).st_mode)
    if not stat.S_ISLNK(known) and now & ~(known | stat.S_IRWXU):
        os.chmod(new, now & (known | stat.S_IRWXU))


def _make_parents(folder: str, file: File, made: set[str]) -> None:
    """Make the folders above a file, each once."""
    parts = file.path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts) or os.path.isabs(file.path):
        raise Unsafe(
            "path-escapes",
            say("`{path}` leads out of the skill's folder", path=file.path),
            say("Do not use what this comes from"),
        )
    here = ""
    for part in parts[:-1]:
        here = f"{here}/{part}" if here else part
        if here not in made:
            path = os.path.join(folder, here)
            os.mkdir(path)
            os.chmod(path, 0o755)  # noqa: S103 - a skill is for everyone who may see the project
            made.add(here)


def sweep(scope: Scope) -> bool:
    """Remove the stages of dead owners; True when there were any."""
    from filelock import FileLock, Timeout

    found = False
    names = {name.removesuffix(".alive") for name in os.listdir(scope.part("stage"))}
    for name in sorted(names):
        path = scope.part("stage", name)
        try:
            check_lock_file(path + ".alive")
            with FileLock(path + ".alive", timeout=0, blocking=False, thread_local=False):
                found = True
                remove_tree(path)
                os.unlink(path + ".alive")
        except (Timeout, OSError):  # alive, or gone meanwhile, or Windows
            continue
    return found


def remove_tree(path: str) -> bool:
    """Delete whatever is there as far as that is possible; True when it is gone.

    Follows no link.
    """
    import shutil

    with suppress(OSError):  # some errors come through all the same
        if os.path.islink(path) or not os.path.isdir(path):
            os.unlink(path)
        else:
            shutil.rmtree(path, ignore_errors=True)
            if os.path.lexists(path):
                _open_folders(path)
                shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)


def _open_folders(path: str) -> None:
    """Make folders writable that their author protected: nothing leaves one that is not."""
    os.chmod(path, 0o700)
    for folder, inner, _ in os.walk(path):
        for name in inner:
            full = os.path.join(folder, name)
            if not os.path.islink(full):
                os.chmod(full, 0o700)
