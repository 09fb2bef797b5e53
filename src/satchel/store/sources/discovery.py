"""Installs from a discovery index: `https://HOST/.well-known/agent-skills/index.json`.

An index lists skills: with v0.2 each has the address and the digest of an archive or a SKILL.md,
with v0.1, which has no `$schema`, the paths of its files. One is chosen with `…/index.json#NAME` or
`https://HOST#NAME`. Entries of other types, or without what is needed, are skipped and named.
Nothing is signed: the lockfile pins what was installed.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote, urljoin, urlsplit

from satchel.errors import Changed, InvalidInput, NotFound, ServerFailed
from satchel.i18n import did_you_mean, join_names, say
from satchel.library.lockfile import LockedSource
from satchel.skill.file_tree import MemoryTree, main_file
from satchel.store.archive.open import open_packed
from satchel.store.archive.rules import check_path, shown
from satchel.store.download import LOOPBACK_HOSTS, FileReader, check_address
from satchel.store.sources.base import Bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from satchel.skill.file_tree import Tree

INDEX_PATH = ".well-known/agent-skills/index.json"
_OLD_INDEX_PATH = ".well-known/skills/index.json"
_INDEX_FOLDER = re.compile(r"/\.well-known/(?:agent-)?skills\Z")
SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
_MAX_INDEX_BYTES = 4 << 20
_MAX_SKILL_BYTES = 64 << 20
_MAX_FILES = 512
_MAX_NAMES_SHOWN = 12
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_SKILL_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*\Z")


class IndexedFile(NamedTuple):
    """One file of an index."""

    url: str
    digest: str
    """`sha256:…`; empty in an index of v0.1."""


class IndexedSkill(NamedTuple):
    """One skill of an index."""

    name: str
    type: str
    """`skill-md`, `archive`, or `files` in an index of v0.1."""
    files: Mapping[str, IndexedFile]
    """By path; an archive has an empty one."""


class DiscoverySource:
    """One skill of a discovery index."""

    kind = "discovery"

    def __init__(self, url: str, name: str = "") -> None:
        """Refer to a skill of an index; the name may be left out when there is only one.

        Args:
            url: The address of the index, of its folder, or of the site.
            name: The skill.
        """
        self._address = check_address(url)
        self.name = name
        self._readers: dict[str, FileReader] = {}

    @property
    def url(self) -> str:
        """The address, with the name of a single skill."""
        return f"{self._address}#{self.name}" if self.name else self._address

    @contextmanager
    def fetch(
        self, *, ref: str = "", commit: str = "", progress: Callable[[str], None] | None = None
    ) -> Generator[Bundle]:
        """Fetch the skill."""
        del progress
        if ref or commit:
            raise InvalidInput(
                say("`{path}` has no branches or tags", path=shown(self.url)),
                say("Write `{value}`", value=f"{self._address}#NAME"),
            )
        index, data = self._read_index()
        skill, notes = self._choose(index, data)
        source = LockedSource(self.kind, f"{index}#{skill.name}")
        if skill.type != "archive":
            tree = self._read_files(skill)
            if not all(file.digest for file in skill.files.values()):
                note = say("The index has no digests, so the files were not verified")
                notes = (*notes, note)
            yield Bundle(source, tree, notes, name=skill.name)
            return
        with open_packed(self._read(skill.name, skill.files[""], _MAX_SKILL_BYTES)) as tree:
            if not main_file(file.path for file in tree.files):
                raise NotFound(say("There is no SKILL.md in `{path}`", path=skill.name))
            yield Bundle(source, tree, notes, name=skill.name)

    def _read_index(self) -> tuple[str, bytes]:
        """The address of the index, and its content; a site may have it where v0.1 had it."""
        if self._address.endswith("/index.json"):
            addresses = [self._address]
        elif _INDEX_FOLDER.search(self._address):
            addresses = [f"{self._address}/index.json"]
        else:
            addresses = [f"{self._address}/{INDEX_PATH}", f"{self._address}/{_OLD_INDEX_PATH}"]
        for address in addresses[:-1]:
            with suppress(NotFound):
                return address, self._download(address, _MAX_INDEX_BYTES)
        try:
            return addresses[-1], self._download(addresses[-1], _MAX_INDEX_BYTES)
        except NotFound as exc:
            raise NotFound(
                say("There is no `{path}`", path=shown(addresses[0])),
                say("Give the address of a git repository, or of a site with a discovery index"),
            ) from exc

    def _read_files(self, skill: IndexedSkill) -> Tree:
        contents: dict[str, bytes] = {}
        remaining = _MAX_SKILL_BYTES
        for path, file in skill.files.items():
            check_path(path)
            contents[path] = self._read(skill.name, file, remaining)
            remaining -= len(contents[path])
        return MemoryTree(contents)

    def _read(self, name: str, file: IndexedFile, limit: int) -> bytes:
        """Download a file, and compare it with its digest."""
        data = self._download(file.url, limit, has_digest=bool(file.digest))
        if file.digest not in ("", f"sha256:{sha256(data).hexdigest()}"):
            raise Changed(
                say("`{file}` is not what the server `{server}` listed: {reason}",
                    file=name, server=_origin(self._address), reason=say("digest")),
                say("Report it to the operator of the server"),
            )  # fmt: skip
        return data

    def _download(self, url: str, limit: int, *, has_digest: bool = False) -> bytes:
        origin = _origin(url)
        if origin not in self._readers:
            self._readers[origin] = FileReader(check_address(origin))
        path = url[len(origin) :].lstrip("/")
        return self._readers[origin].read(path, limit, has_digest=has_digest)

    def _choose(self, index: str, data: bytes) -> tuple[IndexedSkill, tuple[str, ...]]:
        """The chosen skill, and a note about the entries that were skipped."""
        skills, skipped = self._parse(index, data)
        note = say("Skipped in the index: {names}", names=join_names(skipped[:_MAX_NAMES_SHOWN]))
        matching = [skill for skill in skills if self.name in ("", skill.name)]
        if len(matching) == 1:
            return matching[0], (note,) if skipped else ()
        names = join_names(f"`{skill.name}`" for skill in skills[:_MAX_NAMES_SHOWN])
        if len(matching) > 1:
            hint = say("Write `{value}`", value=f"{self._address}#NAME")
            message = say("There are {count} skills in it: {names}", count=len(skills), names=names)
            raise InvalidInput(message, f"{hint}. {note}" if skipped else hint)
        if skipped and (not self.name or any(f"`{self.name}` " in text for text in skipped)):
            raise ServerFailed(
                say("`{path}` has no skill that can be installed: {reason}",
                    path=shown(index), reason=note),
                say("Report it to the operator of the server"),
            )  # fmt: skip
        if not skills:
            raise NotFound(say("There are no skills here"))
        raise NotFound(
            say("There is no skill `{name}`", name=shown(self.name)),
            did_you_mean(skill.name for skill in skills[:_MAX_NAMES_SHOWN]),
        )

    def _parse(self, index: str, data: bytes) -> tuple[list[IndexedSkill], list[str]]:
        """The usable skills of an index, and the names of the others with the reason."""
        skills: list[IndexedSkill] = []
        skipped: list[str] = []
        try:
            table = json.loads(data)
            schema = table.get("$schema", SCHEMA)
            _require("$schema", schema, schema == SCHEMA)
            rows: Any = table["skills"]
            _require("skills", type(rows).__name__, isinstance(rows, list))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
            reason = shown(str(exc) or type(exc).__name__)
            raise ServerFailed(
                say("`{path}` cannot be used: {reason}", path=shown(index), reason=reason),
                say("Report it to the operator of the server"),
            ) from exc
        for row in rows:
            try:
                skills.append(_parse_row(index, row))
            except (ValueError, KeyError, TypeError, AttributeError) as exc:
                name = cast("dict[str, Any]", row).get("name") if isinstance(row, dict) else row
                reason = str(exc) if isinstance(exc, ValueError) else f"{type(exc).__name__} {exc}"
                skipped.append(f"`{shown(str(name)[:80])}` ({shown(reason[:120])})")
        return skills, skipped


def _parse_row(index: str, row: Mapping[str, Any]) -> IndexedSkill:
    """One entry of an index.

    Raises:
        ValueError: it cannot be installed; a missing field is another error of the parser.
    """
    name = str(row["name"])
    _require("name", name, _SKILL_NAME.match(name))
    if "files" in row and "url" not in row:
        return IndexedSkill(name, "files", _parse_files(urljoin(index, f"{name}/"), row["files"]))
    file_type, url, digest = (str(row.get(key, "")) for key in ("type", "url", "digest"))
    _require("type", file_type, file_type in ("skill-md", "archive"))
    _require("digest", digest, _DIGEST.match(digest))
    address = urljoin(index, url)
    _require("url", url, _may_be_read(address, index))
    path = "" if file_type == "archive" else "SKILL.md"
    return IndexedSkill(name, file_type, {path: IndexedFile(address.partition("#")[0], digest)})


def _parse_files(folder: str, rows: list[Any]) -> dict[str, IndexedFile]:
    """The files of an entry of v0.1: paths, in some drafts with digests."""
    files: dict[str, IndexedFile] = {}
    for row in rows:
        path, digest = (row, "") if isinstance(row, str) else (str(row["path"]), str(row["digest"]))
        _require("digest", digest, not digest or _DIGEST.match(digest))
        files[path] = IndexedFile(folder + quote(path), digest)
    _require("files", ", ".join(files), main_file(files) and len(files) <= _MAX_FILES)
    return files


def _may_be_read(url: str, index: str) -> bool:
    """Whether an address of an index may be read: https, or this machine for an index on it."""
    parts = urlsplit(url)
    if parts.username is not None or not parts.hostname or not url.isprintable():
        return False
    if parts.hostname in LOOPBACK_HOSTS and urlsplit(index).hostname not in LOOPBACK_HOSTS:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK_HOSTS)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _require(key: str, value: object, condition: object) -> None:
    """Raise `ValueError` for a field whose value is refused."""
    if not condition:
        raise ValueError(f"{key}: {value or '-'}")
