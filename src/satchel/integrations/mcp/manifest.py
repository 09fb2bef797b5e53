"""What of a skill is served: its frontmatter, and each file with its digest and size.

A manifest is made from bytes that were read once; it is kept as long as a survey of the folder
says that nothing was touched. Bytes are served only when they have the digest that the manifest
announces, so no client ever meets a mismatch that it did not see coming.
"""

from __future__ import annotations

import os
import stat
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import open_beneath
from satchel.errors import Changed, NotFound, SatchelError, SkillBroken
from satchel.library.seal import generated, tree_of
from satchel.library.survey import is_settled, survey
from satchel.library.walk import OWN_FOLDERS
from satchel.skill.portable import portable_fields

if TYPE_CHECKING:
    from satchel.library.seal import Sealed, Seals
    from satchel.library.survey import Survey
    from satchel.skill.model import Skill

MAX_FILES = 512
MAX_BYTES = 16 * 1024 * 1024
"""What every host must be ready to take, by the extension; more than that is not served."""
_TRIES = 3
_AT_THE_TOP = OWN_FOLDERS | {"SKILL.md", "SKILL.sig"}
"""What a skill at the top of a project is: not the whole project."""


class Item(NamedTuple):
    """One file."""

    digest: str
    """`sha256:` and 64 hexadecimal digits."""
    size: int


class Manifest(NamedTuple):
    """A skill as it is served."""

    skill: Skill
    fields: dict[str, Any]
    """The frontmatter, every key as the author wrote it."""
    files: dict[str, Item]
    """Path below the skill's folder, with `/` -> what is announced of it; sorted."""
    rows: Survey
    only: frozenset[str] | None
    settled: bool
    """Whether a further change is sure to show in a survey."""
    sealed: Sealed | None = None
    """What was checked."""

    def stands(self) -> bool:
        """Whether nothing in the folder was touched since."""
        try:
            return self.settled and survey(self.skill.base_dir, self.only) == self.rows
        except (OSError, SatchelError):
            return False

    def read(self, path: str) -> bytes:
        """The bytes of a file, which are the announced ones.

        Raises:
            NotFound: the skill has no such file.
            Changed: the file is another one by now.
        """
        item = self.files.get(path)
        if item is None:
            raise NotFound(f"The skill `{self.skill.name}` has no such file", "")
        try:
            data = _read(self.skill.base_dir, path, item.size)
        except (OSError, SatchelError) as exc:
            raise Changed(f"The skill `{self.skill.name}` changed", "Ask for it again") from exc
        if _digest(data) != item.digest:
            raise Changed(f"The skill `{self.skill.name}` changed", "Ask for it again")
        return data

    def folder(self, path: str) -> dict[str, Item | None] | None:
        """What lies right in a folder: files, and None for folders; None when it is no folder."""
        prefix = f"{path}/" if path else ""
        found: dict[str, Item | None] = {}
        for file, item in self.files.items():
            if file.startswith(prefix):
                name, _, below = file[len(prefix) :].partition("/")
                found[name] = None if below else item
        return dict(sorted(found.items())) if found else None


def make_manifest(skill: Skill, seals: Seals) -> Manifest:
    """Read a skill whole.

    Raises:
        SatchelError: it may not be used as it is, or cannot be served; the message says why.
    """
    for attempt in range(_TRIES):
        try:
            return _make(skill, seals)
        except _Moved:
            time.sleep(0.01 * (attempt + 1))
    raise Changed(f"The skill `{skill.name}` changes while it is read", "Try again")


class _Moved(Exception):
    """Something changed between the beginning and the end."""


def _make(skill: Skill, seals: Seals) -> Manifest:
    if skill.origin.remote:
        # Whoever got it from us would take it for ours.
        raise SkillBroken("it comes from a server itself", "Let clients connect to that server")
    if skill.head.file != "SKILL.md":
        raise SkillBroken(f"its file is called `{skill.head.file}`", "Rename it to `SKILL.md`")
    sealed = seals.check(skill)
    only = None if skill.head.id else _AT_THE_TOP
    began = time.time_ns()
    rows = survey(skill.base_dir, only)
    names = _files(skill)
    files: dict[str, Item] = {}
    fields: dict[str, Any] = {}
    total = 0
    for path in names:
        try:
            data = _read(skill.base_dir, path, MAX_BYTES - total)
        except OSError as exc:
            if isinstance(exc, FileNotFoundError):
                raise _Moved from exc
            reason = exc.strerror or str(exc)
            raise SkillBroken(f"`{path}` cannot be read: {reason}", "Look at the folder") from exc
        total += len(data)
        digest = _digest(data)
        if not sealed.has(path, digest.removeprefix("sha256:")):
            raise _Moved
        files[path] = Item(digest, len(data))
        if path == "SKILL.md":
            fields = portable_fields(data)
    if not fields:
        raise _Moved
    if fields["name"] != skill.name:
        raise SkillBroken(f"its file names it `{fields['name']}` by now", "Try again")
    if survey(skill.base_dir, only) != rows:
        raise _Moved
    return Manifest(skill, fields, files, rows, only, is_settled(rows, began), sealed)


def _files(skill: Skill) -> list[str]:
    """The files that are the skill, without what running or browsing it left there."""
    base = skill.base_dir
    found: list[str] = []
    for file in tree_of(skill).files:
        if generated(file.path, base):
            continue
        full = os.path.join(base, file.path)
        if file.mode == "link" and os.path.isdir(full):
            raise SkillBroken(
                f"`{file.path}` is a link to a folder", "Put the folder itself in its place"
            )
        try:
            file.path.encode()
        except UnicodeEncodeError as exc:
            raise SkillBroken("the name of a file is not UTF-8", "Rename the file") from exc
        if not file.path.isprintable() or "\\" in file.path:
            raise SkillBroken("the name of a file has signs that no address has", "Rename the file")
        found.append(file.path)
        if len(found) > MAX_FILES:
            raise SkillBroken(f"it has more than {MAX_FILES} files", "Remove what it does not need")
    return found


def _read(root: str, path: str, most: int) -> bytes:
    descriptor = open_beneath(root, path)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise SkillBroken(f"`{path}` is no regular file", "Remove it from the skill")
        data = bytearray()
        while chunk := os.read(descriptor, 1 << 20):
            data += chunk
            if len(data) > most:
                raise SkillBroken(
                    f"it has more than {MAX_BYTES >> 20} MiB", "Remove what it does not need"
                )
        return bytes(data)
    finally:
        os.close(descriptor)


def _digest(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"
