"""The format of a hub: paths, records, signed statements, and `HubFiles`, which reads them.

    state                     the one mutable file: two lines, JSON and its signature
    commits/000000000012      create-only: number, digests of earlier commits, digest of changes
    changes/ab/<hex>          the changes of one commit: releases, publishers, yanks, revocations
    index/ab/<hex>            table: releases by name, keys by publisher, names by digest of a tree
    search/ab/<hex>           table: newest version and description by name, for searches
    revoked/ab/<hex>          digests of skills that must not be installed
    blobs/ab/<hex>.tar.gz     the files of a release

All but `state` and `commits` are named after the SHA-256 of their bytes, so that a reader who
believes `state` needs to believe no server. All but `state`, `commits` and blobs are gzipped JSON
lines. A statement is the text that a publisher or the hub signs; `signed_by` verifies it.

A table is a tree. Its root and the other nodes have entries: a prefix of bits of a key's hash, and
the *bin* with the rows of all keys that begin so, or a node that divides them further. A bin with
too many keys is divided in two, so the files follow from the rows alone. Another row rewrites its
bin and the nodes above it: a number of files that hardly depends on the size of the hub.

What readers and builds use is what `state` leads to: the commits up to `count` with their changes,
the file `revoked`, the nodes and bins below the roots `index` and `search`, and the blobs of the
releases in the bins of the index. Nothing leads to the roots of an older state: its other nodes and
bins are garbage once no reader has that state any more.
"""

from __future__ import annotations

import json
import re
import zlib
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, get_origin, get_type_hints

from satchel.errors import Changed
from satchel.i18n import say
from satchel.store.archive.rules import shown
from satchel.store.hub_client.signatures import is_signed_successor, verify_ssh
from satchel.store.hub_client.versions import parse_name, parse_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from satchel.store.hub_client.versions import Version


STATE = "state"
FORMAT_VERSION = 2
STATE_NAMESPACE = "satchel-state"
MAX_STATE_BYTES = 16 << 10
MAX_COMMIT_BYTES = 4 << 10
MAX_FILE_BYTES = 4 << 20
"""Of one file of the index or the search list, as it is transferred."""
MAX_UNPACKED_BYTES = 64 << 20
MAX_BLOB_BYTES = 80 << 20
MAX_REASON_CHARS = 1_000
"""Of a yank or a revocation."""
MAX_STATE_AGE_DAYS = 7
HEX = re.compile(r"[0-9a-f]{64}\Z")
UNREADABLE = "unreadable"
"""The verdict on a release whose blob is missing or holds other files."""

Row = dict[str, Any]
"""One JSON object of a file."""
_Record = TypeVar("_Record")

_field_types = cache(get_type_hints)


def digest_hex(data: bytes) -> str:
    """Return the SHA-256 of data, as 64 hexadecimal digits."""
    return sha256(data).hexdigest()


def render_row(row: Mapping[str, Any]) -> bytes:
    """Write a row as one line of JSON, the same for the same values."""
    line = json.dumps(row, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return line.encode() + b"\n"


def pack(data: bytes) -> bytes:
    """Compress as gzip without a time; the same data yield the same bytes with one zlib."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = compressor.compress(data) + compressor.flush()
    return packed[:4] + bytes(4) + packed[8:]


def unpack_rows(data: bytes, path: str) -> list[Row]:
    """Read gzipped JSON lines; raises `Changed` when they are damaged or too large."""
    try:
        decompressor = zlib.decompressobj(31)
        text = decompressor.decompress(data, MAX_UNPACKED_BYTES)
        _require(decompressor.eof and not decompressor.unused_data)
        rows = [json.loads(line) for line in text.splitlines()]
        _require(all(isinstance(row, dict) for row in rows))
    except (ValueError, zlib.error, RecursionError) as exc:
        raise damaged(path) from exc
    return cast("list[Row]", rows)


def _require(condition: object) -> None:
    if not condition:
        raise ValueError


def _parse_record(record_type: type[_Record], row: Row) -> _Record:
    """Make a record from a row, with checked types; fields of a later version are ignored."""
    types = _field_types(record_type)
    fields = {key: row[key] for key in types if key in row}
    for key, value in fields.items():
        _require(type(value) is (get_origin(types[key]) or types[key]))
    return record_type(**fields)


def damaged(path: str) -> Changed:
    """Return the error for a file of a hub that is not what it should be."""
    return unusable(say("`{path}` of the hub is damaged", path=path))


def unusable(message: str) -> Changed:
    """Return the error for a hub that may be correct again later."""
    return Changed(message, say("Try again later; report it to the hub if it stays"))


def untrusted(message: str) -> Changed:
    """Return the error for a hub or a release that may be an attack."""
    return Changed(message, say("Do not use it; ask its keeper"))


def rewritten(hub: str) -> Changed:
    """Return the error for a hub whose history is not the one that was seen."""
    return untrusted(say("The history of the hub `{name}` was rewritten", name=hub))


def timestamp(moment: datetime | None = None) -> str:
    """Write a moment in UTC, in seconds: `2026-11-18T09:00:00Z`; now by default."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def commit_path(number: int) -> str:
    """Return the path of a commit."""
    return f"commits/{number:012}"


def content_path(folder: str, digest: str) -> str:
    """Return the path of a file that is named after its content: `index/ab/<hex>`."""
    ending = ".tar.gz" if folder == "blobs" else ""
    return f"{folder}/{digest[:2]}/{digest}{ending}"


# --- records -------------------------------------------------------------------------------


class HubState(NamedTuple):
    """The signed content of `state`."""

    hub: str
    """The hub's name, such as `skills.acme.example`; a part of every signed statement."""
    key: str
    """The hub's public key, as in a `.pub` file."""
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]
    """Number of commits."""
    head: str
    """Digest of the last commit."""
    index: str  # pyright: ignore[reportIncompatibleMethodOverride]
    """Digest of the root of a table, like `search`."""
    revoked: str
    search: str
    skills: int
    time: str
    repairs: int = 0
    """Number of times that the keeper replaced commits which could not be read."""
    rotations: list[dict[str, str]] = []  # noqa: RUF012 - never changed
    """Signed changes of the hub's key, oldest first."""

    @property
    def moment(self) -> datetime:
        """When it was signed."""
        return datetime.strptime(self.time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def render_state(state: HubState, sign: Callable[[bytes, str], str]) -> bytes:
    """Write `state`; `sign` takes the bytes and the namespace, and returns base64."""
    line = render_row({"format": FORMAT_VERSION, **state._asdict()})
    return line + sign(line, STATE_NAMESPACE).encode() + b"\n"


def parse_state(data: bytes, key: str = "") -> HubState:
    """Read `state`, signed with a key or one that follows it; without a key, with that in it."""
    line, newline, signature = data.partition(b"\n")
    try:
        row = json.loads(line)
        if row["format"] != FORMAT_VERSION:
            raise Changed(
                say("The hub has the format {format}, not {version}",
                    format=row["format"], version=FORMAT_VERSION),
                say("Update Satchel; if it is new, the keeper must run "
                    "`satchel hub build --rebuild`"),
            )  # fmt: skip
        state = _parse_record(HubState, row)
        _require(state.moment)
        _require(all(change["key"] and change["previous"] for change in state.rotations))
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise damaged(STATE) from exc
    signature_text = signature.decode("ascii", "replace").removesuffix("\n")
    is_signed = verify_ssh(state.key, STATE_NAMESPACE, line + newline, signature_text)
    if not is_signed or not is_signed_successor(
        key or state.key, state.key, state.rotations, state.hub
    ):
        raise untrusted(say("The hub `{name}` was not signed with its key", name=shown(state.hub)))
    return state


class Commit(NamedTuple):
    """One commit."""

    number: int
    previous: str
    """Digest of the commit before it; empty for the first."""
    skip: str
    """Digest of the commit `skip_target`, so that a reader proves a long history in few steps."""
    changes: str
    """Digest of the file with its changes."""
    time: str


def skip_target(number: int) -> int:
    """The commit that `Commit.skip` names: the number without its lowest bit; 0 for none."""
    return number & (number - 1)


def parse_commit(data: bytes, number: int) -> Commit:
    """Read a commit; raises `Changed` when it is damaged, or has another number."""
    try:
        commit = _parse_record(Commit, json.loads(data))
        _require(commit.number == number)
    except (ValueError, TypeError, RecursionError) as exc:
        raise damaged(commit_path(number)) from exc
    return commit


class HubRelease(NamedTuple):
    """One release as the index has it."""

    name: str
    version: str
    tree: str
    """Satchel's digest of the files."""
    blob: str
    """Hexadecimal SHA-256 of the archive."""
    size: int
    """Bytes of the archive."""
    time: str
    description: str
    license: str
    scan: str
    """The hub's verdict; shown, never believed."""
    key: str
    """The publisher's key, as in a `.pub` file."""
    signature: str
    yanked: str = ""
    """Reason for which it is no longer selected."""

    @property
    def number(self) -> Version:
        """The version for comparisons."""
        return parse_version(self.version) or (0, 0, 0)


class PublisherKey(NamedTuple):
    """A key of a publisher, signed by the key before it or by the hub's."""

    publisher: str
    key: str
    previous: str
    signature: str


class IndexBin(NamedTuple):
    """The rows of a bin of the index."""

    releases: list[HubRelease]
    keys: list[PublisherKey]
    names: dict[str, list[str]]
    """Digest of a tree -> the skills that have it."""


def read_bin(files: HubFiles, digest: str) -> IndexBin:
    """Read a bin of the index; raises `Changed` when a row is damaged."""
    contents = IndexBin([], [], {})
    try:
        for row in files.rows("index", digest):
            if "publisher" in row:
                contents.keys.append(_parse_record(PublisherKey, row))
                continue
            if "names" in row:
                contents.names[str(row["tree"])] = list(map(str, row["names"]))
                continue
            release = _parse_record(HubRelease, row)
            _require(parse_name(release.name) and parse_version(release.version))
            _require(HEX.match(release.blob) and 0 <= release.size <= MAX_BLOB_BYTES)
            contents.releases.append(release)
        versions = {(release.name, release.version) for release in contents.releases}
        _require(len(versions) == len(contents.releases))
    except (ValueError, TypeError, KeyError) as exc:
        raise damaged(content_path("index", digest)) from exc
    return contents


# --- files ---------------------------------------------------------------------------------


class HubFiles:
    """The files of a hub, for readers and writers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get(self, path: str, limit: int) -> bytes | None:
        """The content of a file; None when it does not exist or exceeds the limit."""
        raise NotImplementedError

    def content(self, folder: str, digest: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """A file that is named after its content; raises `Changed` when it is not that."""
        path = content_path(folder, digest)
        if not HEX.match(digest):
            raise damaged(shown(path))
        data = self.get(path, limit)
        if data is None:
            raise unusable(say("The hub `{name}` has no `{path}`", name=self.name, path=path))
        if digest_hex(data) != digest:
            raise damaged(path)
        return data

    def rows(self, folder: str, digest: str) -> list[Row]:
        """The rows of a file of the index, a list or a commit."""
        return unpack_rows(self.content(folder, digest), content_path(folder, digest))

    def listed(self, search: str) -> Iterator[list[Row]]:
        """The skills in each bin of a search list."""
        for _, digest in HubTable(self, "search", search).bins():
            # A skill without a release to install has only its name.
            yield [row for row in self.rows("search", digest) if row.keys() != {"name"}]


# --- tables --------------------------------------------------------------------------------


class TableKind(NamedTuple):
    """How a table divides its keys."""

    capacity: int
    """Keys in a bin at most."""
    depths: range = range(7, 128, 7)
    """Numbers of bits after which a new node begins: after 7 it has up to 128 entries."""
    publisher_bits: int = 0
    """Bits of the publisher's hash, in front of those of the whole key."""

    def bits(self, key: str) -> str:
        """The bits of a key, as digits."""
        digests = (sha256(text.encode()).digest()[:16] for text in (key.partition("/")[0], key))
        first, whole = (f"{int.from_bytes(digest, 'big'):0128b}" for digest in digests)
        return first[: self.publisher_bits] + whole[self.publisher_bits :]


TABLES = {
    "index": TableKind(48),
    # The skills of a publisher are together, so that its page reads few bins.
    "search": TableKind(1_500, depths=range(16, 128, 16), publisher_bits=16),
}
"""By their folder, which is the field of `state` with their root."""


class TableEntry(NamedTuple):
    """An entry of a node, with either a bin or a node."""

    prefix: str
    """Bits that follow those of the node itself."""
    bin: str = ""
    node: str = ""


class HubTable:
    """The nodes of a table; of an empty one without a root."""

    def __init__(self, files: HubFiles, folder: str, root: str = "") -> None:
        self.kind = TABLES[folder]
        self.root = root
        self._folder = folder
        self._files = files
        self._nodes: dict[str, list[TableEntry]] = {}

    def node(self, digest: str) -> list[TableEntry]:
        """The entries of a node; raises `Changed` when it is damaged."""
        if digest not in self._nodes:
            rows = self._files.rows(self._folder, digest)
            try:
                entries = [_parse_record(TableEntry, row) for row in rows]
                for entry in entries:
                    _require(not entry.bin and entry.prefix if entry.node else entry.bin)
            except (ValueError, TypeError) as exc:
                raise self._damaged(digest) from exc
            self._nodes[digest] = entries
        return self._nodes[digest]

    def find(self, key: str) -> str:
        """The digest of the bin of a key; empty in an empty table."""
        bits, depth, digest = self.kind.bits(key), 0, self.root
        while digest:
            for entry in self.node(digest):
                if bits.startswith(entry.prefix, depth):
                    break
            else:
                raise self._damaged(digest)
            if entry.bin:
                return entry.bin
            depth, digest = depth + len(entry.prefix), entry.node
        return ""

    def bins(self) -> Iterator[tuple[str, str]]:
        """Bits and digest of each bin, in order."""
        if self.root:
            yield from self._walk(self.root, "")

    def _walk(self, digest: str, path: str) -> Iterator[tuple[str, str]]:
        for entry in self.node(digest):
            bits = path + entry.prefix
            if len(bits) > 128:
                raise self._damaged(digest)
            if entry.bin:
                yield bits, entry.bin
            else:
                yield from self._walk(entry.node, bits)

    def _damaged(self, digest: str) -> Changed:
        return damaged(content_path(self._folder, digest))
