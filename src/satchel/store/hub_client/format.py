"""The files of a hub: paths, records, signed statements, and the parsers that verify them.

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
import zlib
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from satchel.errors import Changed
from satchel.i18n import say
from satchel.store.hub_client.ed25519 import verify_ssh
from satchel.store.hub_client.release_name import parse_name, parse_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
MAX_BLOB_BYTES = 64 << 20
MAX_STATE_AGE_DAYS = 7

Row = dict[str, Any]
"""One JSON object of a file."""
_Record = TypeVar("_Record")


# --- bytes and digests ---------------------------------------------------------------------


def digest_hex(data: bytes) -> str:
    """The SHA-256 of data, as 64 hexadecimal digits."""
    return sha256(data).hexdigest()


def pack_rows(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Write rows as gzipped JSON lines; the same rows yield the same bytes with one zlib."""
    lines = b"".join(
        json.dumps(row, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        for row in rows
    )
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(lines) + packer.flush()
    return packed[:4] + bytes(4) + packed[8:]  # no time


def unpack_rows(data: bytes, path: str) -> list[Row]:
    """Read gzipped JSON lines.

    Raises:
        Changed: they are damaged or too large.
    """
    try:
        unpacker = zlib.decompressobj(31)
        text = unpacker.decompress(data, MAX_UNPACKED_BYTES)
        _require(unpacker.eof and not unpacker.unused_data)
        rows = [json.loads(line) for line in text.splitlines()]
        _require(all(isinstance(row, dict) for row in rows))
    except (ValueError, zlib.error, RecursionError) as exc:
        raise damaged(path) from exc
    return cast("list[Row]", rows)


def _require(condition: object) -> None:
    if not condition:
        raise ValueError


def _record(kind: type[_Record], row: Row) -> _Record:
    """A record from a row; fields that a later version added are ignored."""
    known: tuple[str, ...] = getattr(kind, "_fields")  # noqa: B009 - a NamedTuple
    return kind(**{key: value for key, value in row.items() if key in known})


def _require_format(version: object) -> None:
    if version != FORMAT_VERSION:
        raise Changed(
            say("The hub has a newer format"),
            say("Run `{command}`", command="pip install -U satchel"),
        )


def damaged(path: str) -> Changed:
    """The error for a file of a hub that is not what it should be."""
    return Changed(
        say("`{path}` of the hub is damaged", path=path),
        say("Try again later; report it to the hub if it stays"),
    )


def timestamp(moment: datetime | None = None) -> str:
    """A moment in UTC, in seconds: `2026-11-18T09:00:00Z`; now by default."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    """Parse a moment as `timestamp` writes it.

    Raises:
        ValueError: it is written in another way.
    """
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


# --- paths ---------------------------------------------------------------------------------


def commit_path(number: int) -> str:
    """Path of a commit."""
    return f"commits/{number:012}"


def content_path(folder: str, digest: str) -> str:
    """Path of a file that is named after its content: `index/ab/<hex>`."""
    ending = ".tar.gz" if folder == "blobs" else ""
    return f"{folder}/{digest[:2]}/{digest}{ending}"


# --- statements ----------------------------------------------------------------------------


def statement(kind: str, hub: str, **lines: str) -> bytes:
    """The text that is signed for a change, one `key: value` per line."""
    rows = "".join(f"{key}: {value}\n" for key, value in {"hub": hub, **lines}.items())
    return f"satchel-{kind}-1\n{rows}".encode()


_SIGNED_FIELDS = {
    "hub": ("key",),
    "publisher": ("publisher", "key", "previous"),
    "release": ("name", "version", "tree"),
    "yank": ("name", "version", "reason", "time"),
    "revoke": ("tree", "reason", "time"),
}
"""Type of a change -> the fields that its signature covers, after the hub's name."""


def change_statement(change: Row, hub: str) -> bytes:
    """The statement of a change.

    Raises:
        ValueError: it has another type, lacks a field, or a field has more than one line.
    """
    kind = change.get("type")
    fields = {key: change.get(key) for key in _SIGNED_FIELDS.get(str(kind), ())}
    if not fields or not all(
        isinstance(value, str) and value.isprintable() for value in fields.values()
    ):
        raise ValueError(kind)
    return statement(str(kind), hub, **cast("dict[str, str]", fields))


def signed_by(change: Row, hub: str, key: str) -> bool:
    """Whether a change carries the signature of a key."""
    try:
        text = change_statement(change, hub)
    except ValueError:
        return False
    return verify_ssh(key, CHANGE_NAMESPACE, text, str(change.get("signature", "")))


# --- state ---------------------------------------------------------------------------------


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
        return parse_timestamp(self.time)


def render_state(state: HubState, sign: Callable[[bytes, str], str]) -> bytes:
    """Write `state`; `sign` takes the bytes and the namespace, and returns base64."""
    row = {"format": FORMAT_VERSION, **state._asdict()}
    line = json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    return line + sign(line, STATE_NAMESPACE).encode() + b"\n"


def parse_state(data: bytes, key: str = "") -> HubState:
    """Read and verify `state`.

    Args:
        data: The file.
        key: The key that must have signed it; the key in the file itself when empty.

    Raises:
        Changed: it is damaged, or was signed with another key.
    """
    line, newline, signature = data.partition(b"\n")
    try:
        row = json.loads(line)
        _require_format(row["format"])
        state = _record(HubState, row)
        for field, value in state._asdict().items():
            is_number = field in ("count", "skills")
            _require(type(value) is int and value >= 0 if is_number else isinstance(value, str))
        parse_timestamp(state.time)
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise damaged(STATE) from exc
    text = signature.decode("ascii", "replace").removesuffix("\n")
    if not verify_ssh(key or state.key, STATE_NAMESPACE, line + newline, text):
        raise Changed(
            say("The hub `{name}` was not signed with its key", name=state.hub),
            say("Do not use it; ask its keeper"),
        )
    return state


# --- commits -------------------------------------------------------------------------------


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


def render_commit(commit: Commit) -> bytes:
    """Write a commit."""
    return json.dumps(commit._asdict(), sort_keys=True, separators=(",", ":")).encode() + b"\n"


def parse_commit(data: bytes, number: int) -> Commit:
    """Read a commit.

    Raises:
        Changed: it is damaged, or has another number.
    """
    try:
        row = json.loads(data)
        commit = _record(Commit, row)
        _require(commit.number == number)
        _require(all(isinstance(row[key], str) for key in row if key != "number"))
    except (ValueError, TypeError, RecursionError) as exc:
        raise damaged(commit_path(number)) from exc
    return commit


# --- index ---------------------------------------------------------------------------------


def index_bits(skills: int, per_file: int = BIN_SKILL_COUNT) -> int:
    """Number of hash bits that select a bin; bins have 24 to 48 skills on average.

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
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]
    """The commit that added it."""
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
    yanked_at: str = ""
    """Time of the last yank, or of its withdrawal."""


class PublisherKey(NamedTuple):
    """A key of a publisher, signed by the key before it; in the bin of the publisher's name."""

    publisher: str
    key: str
    previous: str
    signature: str
    by: str
    """`publisher` when the previous key signed it, else `hub`."""
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]


_NUMBERS = frozenset(("size", "count"))
"""Fields of a bin that are numbers; the others are texts."""


def read_bin(rows: Sequence[Row], path: str) -> tuple[list[HubRelease], list[PublisherKey]]:
    """The releases and publisher keys of a bin.

    Raises:
        Changed: a row is damaged.
    """
    releases: list[HubRelease] = []
    keys: list[PublisherKey] = []
    try:
        for row in rows:
            _require(all(isinstance(row[key], str) for key in row if key not in _NUMBERS))
            _require(all(type(row[key]) is int for key in _NUMBERS.intersection(row)))
            if "publisher" in row:
                keys.append(_record(PublisherKey, row))
                continue
            one = _record(HubRelease, row)
            _require(parse_name(one.name) and parse_version(one.version))
            _require(len(bytes.fromhex(one.blob)) == 32 and 0 <= one.size <= MAX_BLOB_BYTES)
            releases.append(one)
        _require(len({(one.name, one.version) for one in releases}) == len(releases))
    except (ValueError, TypeError, AttributeError) as exc:
        raise damaged(path) from exc
    return releases, keys


def release_is_signed(release: HubRelease, hub: str) -> bool:
    """Whether a release carries the signature of its key."""
    return signed_by({"type": "release", **release._asdict()}, hub, release.key)
