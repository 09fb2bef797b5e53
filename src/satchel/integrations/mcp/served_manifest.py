"""The manifest of a skill that the MCP server serves: its frontmatter and the digests of its files.

A manifest is only made of a skill that passed the integrity check, and its files are verified
against their digests whenever they are read.
"""

from __future__ import annotations

import os
import stat
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import open_beneath
from satchel.errors import Changed, NotFound, SatchelError, SkillBroken
from satchel.library.fingerprint import list_stamps
from satchel.library.generated_files import is_generated
from satchel.library.integrity import tree_of
from satchel.skill.published_format import portable_fields

if TYPE_CHECKING:
    from satchel.library.integrity import IntegrityChecker, VerifiedFolder
    from satchel.skill.model import Skill

SKILL_FILE = "SKILL.md"
MAX_SKILL_FILES = 512
MAX_SKILL_BYTES = 16 * 1024 * 1024
"""The size that every host must accept by the extension; larger skills are not served."""
_MAX_ATTEMPTS = 3
_ATTEMPT_DELAY_S = 0.01
_CHUNK_BYTES = 1 << 20


class ResourceFile(NamedTuple):
    """The digest and size of one served file."""

    digest: str
    """`sha256:` and 64 hexadecimal digits."""
    size: int


class ServedManifest(NamedTuple):
    """A served skill with the digests of its files."""

    skill: Skill
    fields: dict[str, Any]
    """The frontmatter with all keys as written."""
    files: dict[str, ResourceFile]
    """Path below the skill's folder, with `/` -> its digest and size; sorted."""
    verified: VerifiedFolder

    def is_current(self) -> bool:
        """Whether no file of the folder has changed since the manifest was made, by its stamps."""
        try:
            survey = list_stamps(self.verified.path, self.verified.top_names)
        except (OSError, SatchelError):
            return False
        return survey == self.verified.survey

    def read(self, path: str) -> bytes:
        """Return the bytes of a file, verified against its digest.

        Raises:
            NotFound: the skill has no such file.
            Changed: the file has changed.
        """
        file = self.files.get(path)
        if file is None:
            raise NotFound(f"The skill `{self.skill.name}` has no such file", "")
        try:
            data = _read_file(self.skill.base_dir, path, file.size)
        except (OSError, SatchelError) as exc:
            raise Changed(f"The skill `{self.skill.name}` changed", "Ask for it again") from exc
        if _digest_of(data) != file.digest:
            raise Changed(f"The skill `{self.skill.name}` changed", "Ask for it again")
        return data

    def list_folder(self, path: str) -> dict[str, ResourceFile | None] | None:
        """Return the children of a folder, with None for folders; None when it is no folder."""
        prefix = f"{path}/" if path else ""
        children: dict[str, ResourceFile | None] = {}
        for file_path, file in self.files.items():
            if file_path.startswith(prefix):
                name, _, path_below = file_path[len(prefix) :].partition("/")
                children[name] = None if path_below else file
        return dict(sorted(children.items())) if children else None


class _ChangedMeanwhile(Exception):
    """A file changed while the skill was read."""


def make_manifest(skill: Skill, integrity: IntegrityChecker) -> ServedManifest:
    """Read all files of a skill and return its manifest.

    Raises:
        SatchelError: it may not be used, or cannot be served.
    """
    if skill.origin.remote:
        # The client would take it for the installed skill.
        raise SkillBroken("it comes from a server itself", "Let clients connect to that server")
    if skill.head.file != SKILL_FILE:
        raise SkillBroken(f"its file is called `{skill.head.file}`", "Rename it to `SKILL.md`")
    for attempt in range(_MAX_ATTEMPTS):
        try:
            return _read_manifest(skill, integrity)
        except _ChangedMeanwhile:
            time.sleep(_ATTEMPT_DELAY_S * (attempt + 1))
    raise Changed(f"The skill `{skill.name}` changes while it is read", "Try again")


def _read_manifest(skill: Skill, integrity: IntegrityChecker) -> ServedManifest:
    verified = integrity.check(skill)
    files: dict[str, ResourceFile] = {}
    fields: dict[str, Any] = {}
    remaining_bytes = MAX_SKILL_BYTES
    for path in _list_files(skill):
        data = _read_listed_file(skill, path, remaining_bytes)
        remaining_bytes -= len(data)
        digest = _digest_of(data)
        if not verified.has(path, digest.removeprefix("sha256:")):
            raise _ChangedMeanwhile
        files[path] = ResourceFile(digest, len(data))
        if path == SKILL_FILE:
            fields = portable_fields(data)
    if not fields:
        raise _ChangedMeanwhile
    if fields["name"] != skill.name:
        raise SkillBroken(f"its file names it `{fields['name']}` by now", "Try again")
    manifest = ServedManifest(skill, fields, files, verified)
    if not manifest.is_current():
        raise _ChangedMeanwhile
    return manifest


def _list_files(skill: Skill) -> list[str]:
    """Return the paths of the skill's files, without generated ones.

    Raises:
        SkillBroken: it has too many files, or one that no URI can name.
    """
    base = skill.base_dir
    paths: list[str] = []
    for file in tree_of(skill).files:
        if is_generated(file.path, base):
            continue
        if file.mode == "link" and os.path.isdir(os.path.join(base, file.path)):
            raise SkillBroken(
                f"`{file.path}` is a link to a folder", "Put the folder itself in its place"
            )
        try:
            file.path.encode()
        except UnicodeEncodeError as exc:
            raise SkillBroken("the name of a file is not UTF-8", "Rename the file") from exc
        if not file.path.isprintable() or "\\" in file.path:
            raise SkillBroken("the name of a file has signs that no address has", "Rename the file")
        paths.append(file.path)
        if len(paths) > MAX_SKILL_FILES:
            raise SkillBroken(
                f"it has more than {MAX_SKILL_FILES} files", "Remove what it does not need"
            )
    return paths


def _read_listed_file(skill: Skill, path: str, max_bytes: int) -> bytes:
    try:
        return _read_file(skill.base_dir, path, max_bytes)
    except FileNotFoundError as exc:
        raise _ChangedMeanwhile from exc
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise SkillBroken(f"`{path}` cannot be read: {reason}", "Look at the folder") from exc


def _read_file(root: str, path: str, max_bytes: int) -> bytes:
    """Read a regular file below a folder, and refuse one that makes the skill too large."""
    descriptor = open_beneath(root, path)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SkillBroken(f"`{path}` is no regular file", "Remove it from the skill")
        data = bytearray()
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            data += chunk
            if len(data) > max_bytes:
                raise SkillBroken(
                    f"it has more than {MAX_SKILL_BYTES >> 20} MiB", "Remove what it does not need"
                )
        return bytes(data)
    finally:
        os.close(descriptor)


def _digest_of(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"
