"""The format of a hub: paths, records, signed statements, and `HubFiles`, which reads them.

    state                     the one mutable file: two lines, JSON and its signature
    commits/000000000012      create-only: number, digests of earlier commits, digest of changes
    changes/ab/<hex>          the changes of one commit: releases, publishers, yanks, revocations
    index/ab/<hex>            root, middles and bins: every release of a name, by the name's hash
    revoked/ab/<hex>          digests of skills that must not be installed
    search/ab/<hex>           list of segments, and segments with names and descriptions
    blobs/ab/<hex>.tar.gz     the files of a release

All but `state` and `commits` are named after the SHA-256 of their bytes, so that a reader who
believes `state` needs to believe no server. All but `state`, `commits` and blobs are gzipped JSON
lines. A statement is the text that a publisher or the hub signs; `signed_by` verifies it.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, lru_cache
from hashlib import sha256, sha512
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, get_type_hints

from satchel.errors import Changed, InvalidInput
from satchel.i18n import say
from satchel.store.archive.rules import shown
from satchel.store.hub_client.release_name import parse_name, parse_version
from satchel.store.signing import plain_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from satchel.store.hub_client.release_name import Version

STATE = "state"
FORMAT_VERSION = 1
STATE_NAMESPACE = "satchel-state"
CHANGE_NAMESPACE = "satchel-release"
BIN_SKILL_COUNT = 32
SEGMENT_SKILL_COUNT = 1_000
MAX_STATE_BYTES = 16 << 10
MAX_COMMIT_BYTES = 4 << 10
MAX_FILE_BYTES = 4 << 20
"""Of one file of the index or the search list, as it is transferred."""
MAX_UNPACKED_BYTES = 64 << 20
MAX_BLOB_BYTES = 80 << 20
MAX_STATE_AGE_DAYS = 7
HEX = re.compile(r"[0-9a-f]{64}\Z")
UNREADABLE = "unreadable"
"""The verdict on a release whose blob is missing or holds other files."""

Row = dict[str, Any]
"""One JSON object of a file."""
_Record = TypeVar("_Record")


def digest_hex(data: bytes) -> str:
    """The SHA-256 of data, as 64 hexadecimal digits."""
    return sha256(data).hexdigest()


def render_row(row: Mapping[str, Any]) -> bytes:
    """One line of JSON, the same for the same values."""
    line = json.dumps(row, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return line.encode() + b"\n"


def pack(data: bytes) -> bytes:
    """Compress as gzip without a time; the same data yield the same bytes with one zlib."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(data) + packer.flush()
    return packed[:4] + bytes(4) + packed[8:]


def pack_rows(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Write rows as gzipped JSON lines."""
    return pack(b"".join(map(render_row, rows)))


def unpack_rows(data: bytes, path: str) -> list[Row]:
    """Read gzipped JSON lines; raises `Changed` when they are damaged or too large."""
    try:
        unpacker = zlib.decompressobj(31)
        text = unpacker.decompress(data, MAX_UNPACKED_BYTES)
        _require(unpacker.eof and not unpacker.unused_data)
        rows = [json.loads(line) for line in text.splitlines()]
        _require(all(isinstance(row, dict) for row in rows))
    except (ValueError, zlib.error, RecursionError) as exc:
        raise damaged(path) from exc
    return cast("list[Row]", rows)


def _is_whole(data: bytes) -> bool:
    """Whether data are a gzip file that ends, within the first megabyte."""
    unpacker = zlib.decompressobj(31)
    with suppress(zlib.error):
        unpacker.decompress(data, 1 << 20)
    return unpacker.eof


def _require(condition: object) -> None:
    if not condition:
        raise ValueError


_types = cache(get_type_hints)


def _record(kind: type[_Record], row: Row) -> _Record:
    """A record from a row, with checked types; fields that a later version added are ignored."""
    types = _types(kind)
    fields = {key: row[key] for key in types if key in row}
    _require(all(type(value) is types[key] for key, value in fields.items()))
    return kind(**fields)


def damaged(path: str) -> Changed:
    """The error for a file of a hub that is not what it should be."""
    return unusable(say("`{path}` of the hub is damaged", path=path))


def unusable(message: str) -> Changed:
    """The error for a hub that may be correct again later."""
    return Changed(message, say("Try again later; report it to the hub if it stays"))


def untrusted(message: str) -> Changed:
    """The error for a hub or a release that may be an attack."""
    return Changed(message, say("Do not use it; ask its keeper"))


def rewritten(hub: str) -> Changed:
    """The error for a hub whose history is not the one that was seen."""
    return untrusted(say("The history of the hub `{name}` was rewritten", name=hub))


def timestamp(moment: datetime | None = None) -> str:
    """A moment in UTC, in seconds: `2026-11-18T09:00:00Z`; now by default."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def commit_path(number: int) -> str:
    """Path of a commit."""
    return f"commits/{number:012}"


def content_path(folder: str, digest: str) -> str:
    """Path of a file that is named after its content: `index/ab/<hex>`."""
    ending = ".tar.gz" if folder == "blobs" else ""
    return f"{folder}/{digest[:2]}/{digest}{ending}"


# --- statements ----------------------------------------------------------------------------


_SIGNED_FIELDS = {
    "hub": ("key",),
    "publisher": ("publisher", "key", "previous"),
    "release": ("name", "version", "tree"),
    "yank": ("name", "version", "reason"),
    "revoke": ("tree", "reason"),
}
"""Type of a change -> the fields that its signature covers, after the hub's name."""


def change_statement(change: Row, hub: str) -> bytes:
    """The text that is signed for a change; raises `ValueError` for one that cannot be signed."""
    kind = str(change.get("type"))
    fields = [(key, change.get(key)) for key in _SIGNED_FIELDS.get(kind, ())]
    for _, value in fields or [("", None)]:
        _require(isinstance(value, str) and value.isprintable())
    rows = "".join(f"{key}: {value}\n" for key, value in [("hub", hub), *fields])
    return f"satchel-{kind}-1\n{rows}".encode()


def signed_by(change: Row, hub: str, key: str) -> bool:
    """Whether a change carries the signature of a key."""
    try:
        text = change_statement(change, hub)
    except ValueError:
        return False
    return verify_ssh(key, CHANGE_NAMESPACE, text, str(change.get("signature", "")))


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
    """Digest of the index root."""
    revoked: str
    search: str
    skills: int
    time: str

    @property
    def moment(self) -> datetime:
        """When it was signed."""
        return datetime.strptime(self.time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def render_state(state: HubState, sign: Callable[[bytes, str], str]) -> bytes:
    """Write `state`; `sign` takes the bytes and the namespace, and returns base64."""
    line = render_row({"format": FORMAT_VERSION, **state._asdict()})
    return line + sign(line, STATE_NAMESPACE).encode() + b"\n"


def parse_state(data: bytes, key: str = "") -> HubState:
    """Read `state`, signed with a key, or with the one in the file itself when none is given."""
    line, newline, signature = data.partition(b"\n")
    try:
        row = json.loads(line)
        if row["format"] != FORMAT_VERSION:
            raise Changed(
                say("The hub has a newer format"),
                say("Run `{command}`", command="pip install -U satchel"),
            )
        state = _record(HubState, row)
        _require(state.moment)
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise damaged(STATE) from exc
    text = signature.decode("ascii", "replace").removesuffix("\n")
    if not verify_ssh(key or state.key, STATE_NAMESPACE, line + newline, text):
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
        commit = _record(Commit, json.loads(data))
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


def read_bin(rows: Iterable[Row], path: str) -> tuple[list[HubRelease], list[PublisherKey]]:
    """The releases and publisher keys of a bin; raises `Changed` when a row is damaged."""
    releases: list[HubRelease] = []
    keys: list[PublisherKey] = []
    try:
        for row in rows:
            if "publisher" in row:
                keys.append(_record(PublisherKey, row))
                continue
            one = _record(HubRelease, row)
            _require(parse_name(one.name) and parse_version(one.version))
            _require(HEX.match(one.blob) and 0 <= one.size <= MAX_BLOB_BYTES)
            releases.append(one)
        _require(len({one[:2] for one in releases}) == len(releases))
    except (ValueError, TypeError) as exc:
        raise damaged(path) from exc
    return releases, keys


# --- files ---------------------------------------------------------------------------------


def index_bits(skills: int, per_file: int = BIN_SKILL_COUNT) -> int:
    """Number of hash bits that select a bin, so that bins have 24 to 48 skills on average.

    The same function, with `SEGMENT_SKILL_COUNT`, selects a segment of the search list.
    """
    bits = 0
    while 2 * skills > 3 * per_file << bits:
        bits += 1
    return bits


def bin_number(name: str, bits: int) -> int:
    """The bin of a name."""
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big") >> (64 - bits)


def low_bits(bits: int) -> int:
    """Bits that select a bin within its middle file; the others select the middle."""
    return bits - bits // 2


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
            if not _is_whole(data):
                raise damaged(path)
            raise unusable(
                say("`{path}` of the hub `{name}` is another file than its state names",
                    path=path, name=self.name)
            )  # fmt: skip
        return data

    def rows(self, folder: str, digest: str) -> list[Row]:
        """The rows of a file of the index, a list or a commit."""
        return unpack_rows(self.content(folder, digest), content_path(folder, digest))

    def segments(self, search: str) -> Iterator[list[Row]]:
        """The rows of each segment of a search list."""
        for row in self.rows("search", search):
            yield self.rows("search", str(row.get("segment")))


class HubIndex:
    """The index of a hub; without a root, one without bins."""

    def __init__(self, files: HubFiles, root: str = "") -> None:
        self._files = files
        self._middles: dict[int, list[str]] = {}
        first, *rest = files.rows("index", root) if root else [{"bits": 0}]
        self.bits = int(first["bits"]) & 63
        self._digests = [str(row["middle"]) for row in rest]
        self.size = 1 << self.bits if root else 0
        """Number of bins."""

    def digest(self, number: int) -> str:
        """The digest of a bin."""
        middle, at = divmod(number, 1 << low_bits(self.bits))
        if middle not in self._middles:
            rows = self._files.rows("index", self._digests[middle])
            self._middles[middle] = [str(row["bin"]) for row in rows]
        return self._middles[middle][at]

    def read(self, number: int) -> tuple[list[HubRelease], list[PublisherKey]]:
        """The releases and publisher keys of a bin."""
        digest = self.digest(number)
        return read_bin(self._files.rows("index", digest), content_path("index", digest))


# --- signatures ----------------------------------------------------------------------------
# A reader needs neither OpenSSH nor a cryptography package. Verification handles public values
# only, so its timing reveals nothing. Numbers that are not canonical are refused (RFC 8032).

_FIELD_ORDER = 2**255 - 19
_GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _FIELD_ORDER) % _FIELD_ORDER
_ROOT_OF_MINUS_ONE = pow(2, (_FIELD_ORDER - 1) // 4, _FIELD_ORDER)

_Point = tuple[int, int, int, int]
"""Extended coordinates X, Y, Z, T with x = X/Z, y = Y/Z, xy = T/Z."""


def signed_data(namespace: str, message: bytes) -> bytes:
    """The bytes that `ssh-keygen -Y sign -n NAMESPACE` signs for a message."""
    parts = (namespace.encode(), b"", b"sha512", sha512(message).digest())
    return b"SSHSIG" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def verify_ssh(key: str, namespace: str, message: bytes, signature: str) -> bool:
    """Whether a signature of `ssh-keygen`, its 64 bytes as base64, is that of a key."""
    try:
        blob, data = (b64decode(one, validate=True) for one in (plain_key(key)[12:], signature))
        return verify(blob[-32:], signed_data(namespace, message), data)
    except (ValueError, InvalidInput):
        return False


def verify(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature (R, s) is valid: R = s·B - h·A, with A the key and B the base point."""
    a, r = _decompress(key), _decompress(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or len(signature) != 64 or s >= _GROUP_ORDER:
        return False
    twice = _add(a, a)
    if not _add(_add(twice, twice), _add(twice, twice))[0]:
        return False  # a key of small order: one signature would fit every message
    h = int.from_bytes(sha512(signature[:32] + key + message).digest(), "little") % _GROUP_ORDER
    minus_a = (-a[0], a[1], a[2], -a[3])
    steps = {"01": minus_a, "10": _BASE, "11": _add(_BASE, minus_a)}
    total: _Point = (0, 1, 1, 0)
    for bits in zip(f"{s:0253b}", f"{h:0253b}", strict=True):
        total = _add(total, total)
        if (step := steps.get("".join(bits))) is not None:
            total = _add(total, step)
    x, y, z, _ = total
    return not ((x - r[0] * z) % _FIELD_ORDER or (y - r[1] * z) % _FIELD_ORDER)


@lru_cache(maxsize=256)
def _decompress(data: bytes) -> _Point | None:
    sign, y = divmod(int.from_bytes(data, "little"), 1 << 255)
    if y >= _FIELD_ORDER or len(data) != 32:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _FIELD_ORDER) % _FIELD_ORDER
    x = pow(square, (_FIELD_ORDER + 3) // 8, _FIELD_ORDER)
    if (x * x - square) % _FIELD_ORDER:
        x = x * _ROOT_OF_MINUS_ONE % _FIELD_ORDER
    if (x * x - square) % _FIELD_ORDER or (not x and sign):
        return None
    if x & 1 != sign:
        x = _FIELD_ORDER - x
    return x, y, 1, x * y % _FIELD_ORDER


def _add(p: _Point, q: _Point) -> _Point:
    a = (p[1] - p[0]) * (q[1] - q[0]) % _FIELD_ORDER
    b = (p[1] + p[0]) * (q[1] + q[0]) % _FIELD_ORDER
    c = 2 * p[3] * q[3] * _D % _FIELD_ORDER
    d = 2 * p[2] * q[2] % _FIELD_ORDER
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _FIELD_ORDER, g * h % _FIELD_ORDER, f * g % _FIELD_ORDER, e * h % _FIELD_ORDER


_BASE = cast("_Point", _decompress(b"\x58" + b"\x66" * 31))
