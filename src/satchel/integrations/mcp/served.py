"""The skills that one client may have, by address, with the digest of every file.

    skill://pdf/SKILL.md              the skill `pdf`
    skill://pdf/references/forms.md   a file of it
    skill://pdf/templates             a folder of it
    skill://pdf/tables/SKILL.md       a skill `tables` that lies in the folder of `pdf`

An address is only ever looked up in a table of what is served; no path is made from it. Nothing is
read before it is asked for, and a page of a listing reads that page alone. What cannot be served
says why.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from satchel._fs import is_inside, open_beneath
from satchel.errors import Changed, NotFound, SatchelError, SkillBroken
from satchel.library.seal import generated, tree_of
from satchel.library.survey import is_settled, survey
from satchel.library.walk import OWN_FOLDERS
from satchel.skill.validate import portable_fields
from satchel.tools.frame import one_line, printable
from satchel.tools.read_file import Addressed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from satchel.library import Library, Snapshot
    from satchel.library.seal import Sealed, Seals
    from satchel.library.survey import Survey
    from satchel.library.tool_shelf import ToolSnapshot
    from satchel.skill.model import Skill

SCHEME = "skill://"
_LONGEST_ADDRESS = 4_096
"""Characters of an address that are looked at."""


def address(*parts: str) -> str:
    """The address of a path: a skill's, then a file's below it."""
    return SCHEME + quote("/".join(part for part in parts if part), safe="/")


def segments(uri: str) -> tuple[str, ...]:
    """The names in an address, decoded once; nothing when it is none of ours.

    A step up, an empty step, a separator that was hidden in an encoding, a query: none of these is
    ever an address of a skill.
    """
    if len(uri) > _LONGEST_ADDRESS or uri[: len(SCHEME)].lower() != SCHEME:
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


def skill_paths(skills: Iterable[Skill]) -> dict[str, Skill]:
    """The path of each skill, in order: its name, after the path of a skill that it lies in.

    Names are unique among offered skills, so a path is too. A name that nobody may publish has no
    path of its own; the files may still be those of a skill around it.
    """
    skills = list(skills)
    by_folder = {(skill.origin.root, skill.head.id): skill for skill in skills}
    paths: dict[str, Skill] = {}
    for skill in skills:
        paths.setdefault(_path(skill, by_folder), skill)
    return dict(sorted(paths.items()))


def _path(skill: Skill, by_folder: dict[tuple[str, str], Skill]) -> str:
    folder, _, last = skill.head.id.rpartition("/")
    while folder and last == skill.name:
        around = by_folder.get((skill.origin.root, folder))
        if around is not None:
            return f"{_path(around, by_folder)}{skill.head.id[len(folder) :]}"
        folder = folder.rpartition("/")[0]
    return skill.name


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


_MOST_KEPT = 20_000
"""Manifests that are remembered."""
_OLDEST = 5.0
"""Seconds that a list may be old, whoever should have looked: as long as a client may keep one."""


class Unserved(NamedTuple):
    """A skill that is offered here and cannot be served, and why."""

    skill: Skill
    reason: str
    fix: str


class Found(NamedTuple):
    """What an address means."""

    path: str
    """The skill's path."""
    file: str
    """The path of the file or folder below the skill; empty for the skill's own folder."""
    manifest: Manifest


class Manifests:
    """The manifests of a library, shared by all who have a part of it."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._kept: dict[str, Manifest] = {}
        self._refused: dict[str, tuple[object, Unserved]] = {}
        self._lock = threading.Lock()
        self._looked = time.monotonic()

    def look(self) -> None:
        """Look for changes if nobody has for a while. The server's own looks come much sooner."""
        if time.monotonic() - self._looked > _OLDEST:
            self._looked = time.monotonic()
            self._library.refresh()

    def get(self, skill: Skill) -> Manifest | None:
        """What is served of a skill now; None when nothing is."""
        key = skill.base_dir
        kept = self._kept.get(key)
        try:
            if (
                kept is not None
                and kept.skill.head is skill.head
                and kept.stands()
                and self._library.seals.check(skill) is kept.sealed
            ):
                return kept
            made = make_manifest(skill, self._library.seals)
        except (OSError, SatchelError) as exc:
            self._refuse(skill, exc)
            return None
        with self._lock:
            self._refused.pop(key, None)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = made
        return made

    def _refuse(self, skill: Skill, exc: OSError | SatchelError) -> None:
        if isinstance(exc, SatchelError):
            why = Unserved(skill, exc.message, exc.hint)
        else:
            why = Unserved(skill, exc.strerror or str(exc), "Look at the folder")
        with self._lock:
            self._kept.pop(skill.base_dir, None)
            before = self._refused.get(skill.base_dir)
            self._refused[skill.base_dir] = (skill.head, why)
        if before is None or before[1][1:] != why[1:]:
            self._library.trace.record(
                "failed", (skill.name,), what="mcp", ref=skill.ref, reason=why.reason, fix=why.fix
            )

    def __len__(self) -> int:
        """How many skills were read so far."""
        return len(self._kept)

    def refused(self) -> list[Unserved]:
        """Those that were asked for and could not be served."""
        return [why for _, why in self._refused.values()]

    def changed(self, paths: set[str] | None = None) -> set[str]:
        """The folders of skills that were handed out and are something else by now.

        Args:
            paths: What was touched; everything is looked at when None.
        """
        if paths is None:
            folders = set(self._kept)
        else:
            folders: set[str] = set()
            for path in paths:
                while len(path) > 1 and path not in folders:
                    if path in self._kept:
                        folders.add(path)
                    path = os.path.dirname(path)  # noqa: PLW2901 - upwards
        found = [(key, self._kept.get(key)) for key in folders]
        return {
            key
            for key, kept in found
            if kept is not None and (kept.settled or paths) and not kept.stands()
        }

    def forget(self, folders: set[str]) -> None:
        """Read these again when somebody asks."""
        with self._lock:
            for folder in folders:
                self._kept.pop(folder, None)


class _Table(NamedTuple):
    """What a snapshot comes to for one client."""

    look: tuple[Snapshot, ToolSnapshot]
    paths: dict[str, Skill]
    names: Sequence[str]
    closed: dict[str, list[str]]
    """Folder of a skill -> the folders in it that are skills the client may not have."""


def _closed(look: Snapshot, tools: ToolSnapshot, served: Iterable[Skill]) -> dict[str, list[str]]:
    left = [skill for skill in look.hidden if skill.state == "excluded"]
    left += [one.skill for one in tools.hidden if one.skill.state == "excluded"]
    left += [skill for skill in look.skills if not skill.for_model]
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


class Served:
    """What one client may have of it."""

    def __init__(self, library: Library, manifests: Manifests) -> None:
        self._library = library
        self._manifests = manifests
        self._table: _Table | None = None
        self._by_head: tuple[object, dict[int, str]] = (None, {})

    def _paths(self) -> _Table:
        self._manifests.look()
        look, tools = self._library.snapshot(), self._library.tools()
        table = self._table
        if table is None or table.look[0] is not look or table.look[1] is not tools:
            # What only people may load is for prompts; a host could not tell it from the others.
            paths = skill_paths(look.for_model)
            closed = _closed(look, tools, paths.values())
            table = self._table = _Table((look, tools), paths, list(paths), closed)
        return table

    def _manifest(self, skill: Skill, closed: dict[str, list[str]]) -> Manifest | None:
        """What is served of a skill, without the skills in it that this client may not have."""
        found = self._manifests.get(skill)
        inner = tuple(closed.get(skill.base_dir, ()))
        if found is None or not inner:
            return found
        files = {path: item for path, item in found.files.items() if not path.startswith(inner)}
        return found._replace(files=files)

    @property
    def paths(self) -> Sequence[str]:
        """The paths of all skills that could be served, sorted. Nothing is read."""
        return self._paths().names

    def inner(self, skill: Skill) -> tuple[str, ...]:
        """The folders in a skill's folder that this client may not have, each with a `/`."""
        return tuple(self._paths().closed.get(skill.base_dir, ()))

    def manifests(self, paths: Sequence[str]) -> Iterator[tuple[str, Manifest]]:
        """Those of some skills; whatever cannot be served is left out, and the trace says why."""
        table = self._paths()
        for path in paths:
            skill = table.paths.get(path)
            found = self._manifest(skill, table.closed) if skill is not None else None
            if found is not None:
                yield path, found

    def find(self, uri: str) -> Found:
        """What an address means; the innermost skill that is served has it.

        Raises:
            NotFound: nothing is served there. It is not said whether there is something.
        """
        names = segments(uri)
        table = self._paths()
        for count in range(len(names), 0, -1):
            path = "/".join(names[:count])
            skill = table.paths.get(path)
            if skill is None:
                continue
            manifest = self._manifest(skill, table.closed)
            if manifest is not None:
                return Found(path, "/".join(names[count:]), manifest)
        raise NotFound("Nothing is served at this address", "Call skills/list")

    def place(self, uri: str) -> tuple[Skill, str] | None:
        """The skill that an address belongs to and the path below its folder. Nothing is read."""
        names = segments(uri)
        paths = self._paths().paths
        for count in range(len(names), 0, -1):
            skill = paths.get("/".join(names[:count]))
            if skill is not None:
                return skill, "/".join(names[count:])
        return None

    def read(self, uri: str) -> tuple[Found, bytes]:
        """A file's bytes, which are the ones that its skill announces.

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

    def uri(self, skill: Skill) -> str:
        """The address of a skill, whether it is served or not."""
        table = self._paths().paths
        if self._by_head[0] is not table:
            self._by_head = (table, {id(one.head): path for path, one in table.items()})
        return address(self._by_head[1].get(id(skill.head), skill.name), "SKILL.md")


ABSENT = "Give the path of one of the skill's files: the skill itself lists them"
"""The next step after an address that nothing has."""


class SkillFiles:
    """The files of the skills that one client may have, by address."""

    hint = ABSENT

    def __init__(self, library: Library, served: Served) -> None:
        self._library = library
        self._served = served

    def find(self, uri: str) -> Addressed:
        """What is there.

        Raises:
            NotFound: nothing is.
        """
        uri = _tidy(uri)
        place = self._served.place(uri)
        if place is None:
            raise NotFound("Nothing is served at this address", self._otherwise(uri))
        try:
            found = self._served.find(uri)
        except NotFound:
            return self._opened(uri, *place)
        if found.file in found.manifest.files:
            return Addressed(uri, found.file, data=self._served.read(uri)[1])
        children = found.manifest.folder(found.file)
        if children is None:
            raise NotFound("Nothing is served at this address", ABSENT)
        rows = [_row(name, is_folder=item is None) for name, item in children.items()]
        return Addressed(uri, found.file, entries=tuple(rows))

    def path_of(self, uri: str) -> str:
        """The absolute path that an address stands for; the address itself when it has none."""
        place = self._served.place(_tidy(uri))
        if place is None:
            return uri
        skill, file = place
        return os.path.join(skill.base_dir, *file.split("/")) if file else skill.base_dir

    def _opened(self, uri: str, skill: Skill, file: str) -> Addressed:
        """A file of a skill that has no manifest."""
        inner = self._served.inner(skill)
        full = os.path.realpath(os.path.join(skill.base_dir, file))
        inside = is_inside(full, os.path.realpath(skill.base_dir))
        if not inside or f"{file}/".startswith(inner) or not self._is_ours(full):
            raise NotFound("Nothing is served at this address", ABSENT)
        if not os.path.isdir(full):
            return Addressed(uri, file, root=skill.base_dir)
        prefix = f"{file}/" if file else ""
        with os.scandir(full) as entries:
            rows = [
                _row(one.name, is_folder=one.is_dir())
                for one in entries
                if not f"{prefix}{one.name}/".startswith(inner)
            ]
        return Addressed(uri, file, entries=tuple(rows))

    def _is_ours(self, real: str) -> bool:
        """Whether a path lies in the folder of a skill that this client may have."""
        look = self._library.snapshot()
        for holder in self._library.holders(real):
            mine = look.get(holder.name)
            # What only people may load comes as a prompt: its file is not read around that.
            if mine is not None and mine.for_model and mine.base_dir == holder.base_dir:
                return True
        return False

    def _otherwise(self, uri: str) -> str:
        """What may have been meant: the name of a skill in other letters."""
        name, _, rest = uri[len(SCHEME) :].partition("/")
        for path in self._served.paths:
            if path != name and path.casefold() == name.casefold():
                meant = f"{SCHEME}{path}/{rest}".rstrip("/")
                return f"Did you mean `{one_line(meant, 300)}`?"
        if self._served.place(f"{SCHEME}{name}") is not None:
            return ABSENT
        return "Give `skill://NAME/FILE`, with the name of a skill that Skill or SkillSearch lists"


def _tidy(uri: str) -> str:
    """An address without steps that lead nowhere: a `/` at its end, `./` and `//`."""
    names = [name for name in uri[len(SCHEME) :].split("/") if name not in {"", "."}]
    return SCHEME + "/".join(names)


def _row(name: str, *, is_folder: bool) -> dict[str, str]:
    return {"path": printable(name), "type": "dir" if is_folder else "file"}
