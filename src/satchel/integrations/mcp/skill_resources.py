"""The skills of one client by URI, with the digest of every file.

    skill://pdf/SKILL.md              the skill `pdf`
    skill://pdf/references/forms.md   a file of it
    skill://pdf/templates             a folder of it

A URI is only looked up in a table of served files; no path is made from it. Files are read on
request, and a page of a listing reads that page alone. A skill that cannot be served has a
recorded reason.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from satchel._fs import open_beneath
from satchel.errors import Changed, NotFound, SatchelError, SkillBroken
from satchel.library.fingerprint import list_stamps
from satchel.library.integrity import generated, tree_of
from satchel.skill.validate import portable_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from satchel.library import Library, Snapshot
    from satchel.library.integrity import IntegrityChecker, VerifiedFolder
    from satchel.skill.model import Skill

SCHEME = "skill://"
_MAX_URI_CHARS = 4_096


def address(*parts: str) -> str:
    """The URI of a path: a skill's, then a file's below it."""
    return SCHEME + quote("/".join(part for part in parts if part), safe="/")


def segments(uri: str) -> tuple[str, ...]:
    """The decoded path segments of a URI; empty when it is not valid.

    URIs with `..`, empty segments, encoded separators or a query are never valid.
    """
    if len(uri) > _MAX_URI_CHARS or uri[: len(SCHEME)].lower() != SCHEME:
        return ()
    found: list[str] = []
    for raw in uri[len(SCHEME) :].split("/"):
        try:
            name = unquote(raw, errors="strict")
        except UnicodeDecodeError:
            return ()
        if name in {"", ".", ".."} or not name.isprintable() or not {"/", "\\"}.isdisjoint(name):
            return ()
        if "?" in raw or "#" in raw:
            return ()
        found.append(name)
    return tuple(found)


MAX_SKILL_FILES = 512
MAX_SKILL_BYTES = 16 * 1024 * 1024
"""The size that every host must accept by the extension; larger skills are not served."""
_MAX_ATTEMPTS = 3


class ResourceFile(NamedTuple):
    """One file."""

    digest: str
    """`sha256:` and 64 hexadecimal digits."""
    size: int


class ServedManifest(NamedTuple):
    """A served skill."""

    skill: Skill
    fields: dict[str, Any]
    """The frontmatter with all keys as written."""
    files: dict[str, ResourceFile]
    """Path below the skill's folder, with `/` -> its digest and size; sorted."""
    verified: VerifiedFolder

    def is_current(self) -> bool:
        """Whether the stamps of the folder are the same as then."""
        try:
            return list_stamps(self.verified.path, self.verified.only) == self.verified.rows
        except (OSError, SatchelError):
            return False

    def read(self, path: str) -> bytes:
        """The bytes of a file, verified against its digest.

        Raises:
            NotFound: the skill has no such file.
            Changed: the file has changed.
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

    def folder(self, path: str) -> dict[str, ResourceFile | None] | None:
        """The children of a folder: files, and None for folders; None when it is no folder."""
        prefix = f"{path}/" if path else ""
        found: dict[str, ResourceFile | None] = {}
        for file, item in self.files.items():
            if file.startswith(prefix):
                name, _, below = file[len(prefix) :].partition("/")
                found[name] = None if below else item
        return dict(sorted(found.items())) if found else None


def make_manifest(skill: Skill, integrity: IntegrityChecker) -> ServedManifest:
    """Read all files of a skill.

    Raises:
        SatchelError: it may not be used, or cannot be served.
    """
    for attempt in range(_MAX_ATTEMPTS):
        try:
            return _make(skill, integrity)
        except _ChangedMeanwhile:
            time.sleep(0.01 * (attempt + 1))
    raise Changed(f"The skill `{skill.name}` changes while it is read", "Try again")


class _ChangedMeanwhile(Exception):
    """A file changed while the skill was read."""


def _make(skill: Skill, integrity: IntegrityChecker) -> ServedManifest:
    if skill.origin.remote:
        # The client would take it for the installed skill.
        raise SkillBroken("it comes from a server itself", "Let clients connect to that server")
    if skill.head.file != "SKILL.md":
        raise SkillBroken(f"its file is called `{skill.head.file}`", "Rename it to `SKILL.md`")
    verified = integrity.check(skill)
    files: dict[str, ResourceFile] = {}
    fields: dict[str, Any] = {}
    total = 0
    for path in _files(skill):
        try:
            data = _read(skill.base_dir, path, MAX_SKILL_BYTES - total)
        except OSError as exc:
            if isinstance(exc, FileNotFoundError):
                raise _ChangedMeanwhile from exc
            reason = exc.strerror or str(exc)
            raise SkillBroken(f"`{path}` cannot be read: {reason}", "Look at the folder") from exc
        total += len(data)
        digest = _digest(data)
        if not verified.has(path, digest.removeprefix("sha256:")):
            raise _ChangedMeanwhile
        files[path] = ResourceFile(digest, len(data))
        if path == "SKILL.md":
            fields = portable_fields(data)
    if not fields:
        raise _ChangedMeanwhile
    if fields["name"] != skill.name:
        raise SkillBroken(f"its file names it `{fields['name']}` by now", "Try again")
    made = ServedManifest(skill, fields, files, verified)
    if not made.is_current():
        raise _ChangedMeanwhile
    return made


def _files(skill: Skill) -> list[str]:
    """The files of the skill, without generated ones."""
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
        if len(found) > MAX_SKILL_FILES:
            raise SkillBroken(
                f"it has more than {MAX_SKILL_FILES} files", "Remove what it does not need"
            )
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
                    f"it has more than {MAX_SKILL_BYTES >> 20} MiB", "Remove what it does not need"
                )
        return bytes(data)
    finally:
        os.close(descriptor)


def _digest(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


_MAX_MANIFESTS = 20_000
_MAX_LIST_AGE_S = 5.0
"""Maximum age of a list without a refresh: as long as a client may cache one."""


class ResolvedAddress(NamedTuple):
    """The skill and file of a URI."""

    path: str
    file: str
    """The path of the file or folder below the skill; empty for the skill's own folder."""
    manifest: ServedManifest


class ManifestCache:
    """The manifests of a library, shared by all views."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._kept: dict[str, ServedManifest] = {}
        self._refused: dict[str, tuple[str, str]] = {}
        """Folder of a skill that cannot be served -> the reason and its fix."""
        self._lock = threading.Lock()
        self._refreshed_at = time.monotonic()

    def refresh_if_old(self) -> None:
        """Refresh the library if it was not refreshed recently."""
        if time.monotonic() - self._refreshed_at > _MAX_LIST_AGE_S:
            self._refreshed_at = time.monotonic()
            self._library.refresh()

    def get(self, skill: Skill) -> ServedManifest | None:
        """The current manifest of a skill; None when it is not served."""
        key = skill.base_dir
        kept = self._kept.get(key)
        try:
            if (
                kept is not None
                and kept.skill.head is skill.head
                and self._library.integrity.check(skill) is kept.verified
            ):
                return kept
            made = make_manifest(skill, self._library.integrity)
        except (OSError, SatchelError) as exc:
            self._refuse(skill, exc)
            return None
        with self._lock:
            self._refused.pop(key, None)
            if len(self._kept) >= _MAX_MANIFESTS:
                self._kept.clear()
            self._kept[key] = made
        return made

    def _refuse(self, skill: Skill, exc: OSError | SatchelError) -> None:
        if isinstance(exc, SatchelError):
            reason, fix = exc.message, exc.hint
        else:
            reason, fix = exc.strerror or str(exc), "Look at the folder"
        with self._lock:
            self._kept.pop(skill.base_dir, None)
            before = self._refused.get(skill.base_dir)
            self._refused[skill.base_dir] = (reason, fix)
        if before != (reason, fix):
            self._library.trace.record(
                "failed", (skill.name,), what="mcp", ref=skill.ref, reason=reason, fix=fix
            )

    def changed(self) -> set[str]:
        """The folders of served skills that have changed."""
        return {key for key, kept in list(self._kept.items()) if not kept.is_current()}

    def forget(self, folders: set[str]) -> None:
        """Read these again on the next request."""
        with self._lock:
            for folder in folders:
                self._kept.pop(folder, None)


class _Table(NamedTuple):
    """The served skills of a snapshot for one client."""

    snapshot: Snapshot
    paths: dict[str, Skill]
    names: Sequence[str]
    closed: dict[str, list[str]]
    """Folder of a skill -> the skill folders inside it that the client may not access."""


def _hidden_folders(snapshot: Snapshot, served: Iterable[Skill]) -> dict[str, list[str]]:
    left = [skill for skill in snapshot.every() if skill.state == "excluded"]
    left += [skill for skill in snapshot.skills if not skill.for_model]
    closed: dict[str, list[str]] = {}
    if not left:
        return closed
    folders = {skill.base_dir for skill in served}
    for skill in left:
        above = os.path.dirname(skill.base_dir)
        while len(above) > 1 and above != os.path.dirname(above):
            if above in folders:
                inner = os.path.relpath(skill.base_dir, above).replace(os.sep, "/")
                closed.setdefault(above, []).append(f"{inner}/")
            above = os.path.dirname(above)
    return closed


class SkillResources:
    """The served skills, by URI."""

    def __init__(self, library: Library, manifests: ManifestCache) -> None:
        self._library = library
        self._manifests = manifests
        self._table: _Table | None = None

    def _paths(self) -> _Table:
        self._manifests.refresh_if_old()
        snapshot, table = self._library.snapshot(), self._table
        if table is None or table.snapshot is not snapshot:
            # User-only skills are served as prompts; a host could not distinguish them.
            paths = {skill.name: skill for skill in snapshot.for_model}
            paths = dict(sorted(paths.items()))
            closed = _hidden_folders(snapshot, paths.values())
            table = self._table = _Table(snapshot, paths, list(paths), closed)
        return table

    def _manifest(self, skill: Skill, closed: dict[str, list[str]]) -> ServedManifest | None:
        """The manifest of a skill, without inner skills that this client may not access."""
        found = self._manifests.get(skill)
        inner = tuple(closed.get(skill.base_dir, ()))
        if found is None or not inner:
            return found
        files = {path: item for path, item in found.files.items() if not path.startswith(inner)}
        return found._replace(files=files)

    @property
    def paths(self) -> Sequence[str]:
        """The paths of all servable skills, sorted. No file is read."""
        return self._paths().names

    def manifests(self, paths: Sequence[str]) -> Iterator[tuple[str, ServedManifest]]:
        """The manifests of some skills; those that cannot be served are recorded in the trace."""
        table = self._paths()
        for path in paths:
            skill = table.paths.get(path)
            found = self._manifest(skill, table.closed) if skill is not None else None
            if found is not None:
                yield path, found

    def find(self, uri: str) -> ResolvedAddress:
        """Resolve a URI to a served skill and one of its files.

        Raises:
            NotFound: nothing is served there; the error does not reveal whether it exists.
        """
        place = self.locate(uri)
        if place is not None:
            skill, file = place
            manifest = self._manifest(skill, self._paths().closed)
            if manifest is not None:
                return ResolvedAddress(skill.name, file, manifest)
        raise NotFound("Nothing is served at this address", "Call skills/list")

    def locate(self, uri: str) -> tuple[Skill, str] | None:
        """The skill and the path below its folder of a URI. No file is read."""
        names = segments(uri)
        paths = self._paths().paths
        for count in range(len(names), 0, -1):  # a name may contain a `/`
            skill = paths.get("/".join(names[:count]))
            if skill is not None:
                return skill, "/".join(names[count:])
        return None

    def path_of(self, uri: str) -> str:
        """The absolute path of a URI; empty when nothing is there that this client may access."""
        place = self.locate(_normalise(uri))
        if place is None:
            return ""
        skill, file = place
        closed = tuple(self._paths().closed.get(skill.base_dir, ()))
        if f"{file}/".startswith(closed):
            return ""
        return os.path.join(skill.base_dir, *file.split("/")) if file else skill.base_dir

    def read(self, uri: str) -> tuple[ResolvedAddress, bytes]:
        """A file's bytes, verified against its skill's manifest.

        Raises:
            NotFound: no file is served there.
        """
        for _ in range(3):
            found = self.find(uri)
            try:
                return found, found.manifest.read(found.file)
            except Changed:
                self._manifests.forget({found.manifest.skill.base_dir})
        raise NotFound("The file changes while it is read", "Try again")


def _normalise(uri: str) -> str:
    """Normalise a URI: remove a trailing `/`, `./` and `//`."""
    names = [name for name in uri[len(SCHEME) :].split("/") if name not in {"", "."}]
    return SCHEME + "/".join(names)
