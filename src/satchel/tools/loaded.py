"""What was loaded before, so that nothing is read twice.

With refresh on, a kept text is used only while the file's stamp is the one it was read at. With
refresh off, what was loaded stays as it was at the last look, files and all.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import RACY_NS
from satchel.errors import SkillBroken
from satchel.tools.arguments import argument_names
from satchel.tools.folder import folder_of, list_folder, listed_folder
from satchel.tools.frame import disarm

if TYPE_CHECKING:
    from satchel.library import Snapshot
    from satchel.library.seal import Sealed, Seals
    from satchel.skill import Skill
    from satchel.tools.folder import Folder

_ENTRIES = 256
_CHARACTERS = 16_000_000

Stamp = tuple[int, int, int, int]


Key = tuple[str, str, str]
"""Location, id and file: what makes the path, without the cost of joining it."""


class Loaded(NamedTuple):
    """A skill's text and folder as they were read."""

    path: str
    base_dir: str
    body: str
    """Without blank lines at either end."""
    safe: str
    """The body with our tags disarmed."""
    disarmed: int
    names: tuple[str, ...]
    folder: Folder
    look: Snapshot
    """The snapshot in which it was last seen."""
    stamp: Stamp
    """Of the SKILL.md; all zero when it must be read again next time."""
    sealed: Sealed
    """What was checked."""
    changed: bool
    """The file was no longer the one that the last look saw."""


class LoadedSkills:
    """Keeps the skills loaded last."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals
        self._entries: OrderedDict[Key, Loaded] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    def folders(self) -> list[str]:
        """The folders of what is kept, latest first."""
        with self._lock:
            return [kept.base_dir for kept in reversed(self._entries.values())]

    def load(self, skill: Skill, look: Snapshot, *, fresh: bool) -> Loaded:
        """The skill's text and folder.

        Args:
            skill: Which one.
            look: The snapshot it is from.
            fresh: Whether what is on disk now counts; else what was there at the last look.

        Raises:
            SatchelError: it cannot be read, is no skill any more, or may not be used as it is.
        """
        head = skill.head
        key = (skill.origin.root, head.id, head.file)
        kept = self._entries.get(key)
        if kept is not None and not fresh and kept.look is look:
            loaded = kept
        else:
            sealed = self._seals.check(skill)
            if kept is None or kept.sealed is not sealed:
                loaded = self._read(skill, look, sealed)
            else:
                # The check has just seen every file of the folder: all are as they were.
                loaded = kept._replace(look=look, changed=False)
        self._keep(key, loaded)
        return loaded

    def _read(self, skill: Skill, look: Snapshot, sealed: Sealed) -> Loaded:
        path = skill.path
        stamp = _stamp(path)
        document = self._seals.document(skill, sealed)
        if document.head is None:
            problem = next((item for item in document.problems if item.severity == "error"), None)
            why = problem.message if problem else "it is no skill"
            fix = problem.fix if problem else "Run `satchel doctor`"
            raise SkillBroken(f"`{path}` can no longer be read as a skill: {why}", fix)
        if time.time_ns() - stamp[1] < RACY_NS:
            stamp = (0, 0, 0, 0)
        head = skill.head
        new = document.head
        body = document.body.strip("\n")
        safe, disarmed = disarm(body)
        base_dir = skill.base_dir
        return Loaded(
            path,
            base_dir,
            body,
            safe,
            disarmed,
            argument_names(document.fields.get("arguments")),
            _list(skill, sealed),
            look,
            stamp,
            sealed,
            changed=(new.mtime_ns, new.size) != (head.mtime_ns, head.size),
        )

    def _keep(self, key: Key, loaded: Loaded) -> None:
        with self._lock:
            old = self._entries.pop(key, None)
            self._characters += len(loaded.body) - (len(old.body) if old else 0)
            self._entries[key] = loaded
            while len(self._entries) > _ENTRIES or (
                self._characters > _CHARACTERS and len(self._entries) > 1
            ):
                _, dropped = self._entries.popitem(last=False)
                self._characters -= len(dropped.body)


def _stamp(path: str) -> Stamp:
    try:
        info = os.stat(path)
    except OSError:
        return (0, 0, 0, 0)
    return (info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino)


def _list(skill: Skill, sealed: Sealed) -> Folder:
    """What else is in the folder: from the check, which has seen it all, or by looking."""
    base_dir, own_file = skill.base_dir, skill.head.file
    if skill.origin.remote:
        return listed_folder(sealed.rows, own_file)
    return folder_of(sealed.rows, own_file) or list_folder(base_dir, own_file)
