"""How do vectors lie in a file? Keys, rows and signs in one piece that is mapped, never parsed.

    magic, length and checksum · a line of JSON · hashes · digests · first rows · path offsets ·
    signs · scales · paths · the vectors in 8 bits

Everything but the vectors is covered by the checksum. A vector that is damaged shows when it is
used: its length is not one any more. A segment is never changed; a newer one overrules it.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._optional import require
from satchel.detect.vectors.base import EXTRA, MAX_DIMENSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.detect.vectors.base import Matrix

_MAGIC = b"SATVEC1\n"
_ALIGN = 64
_SLACK = 0.05
"""How far a vector's length may be from one: 8 bits round."""
_STEPS = 127
_LOOKED_AT = 64
"""Vectors that are looked at when a file is opened."""


class Row(NamedTuple):
    """One skill in a segment."""

    key: str
    digest: int
    """Of the texts it was made from; 0 says that the skill is gone."""
    vectors: Matrix
    """One row a text; none when the model does not cover the texts, or the skill is gone."""


class Damaged(Exception):
    """A segment cannot be used."""


def hash_of(key: str) -> int:
    """The number by which a key is found."""
    data = key.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def digest_of(texts: Sequence[str]) -> int:
    """A number for some texts; other texts have another. Never 0."""
    state = blake2b(digest_size=8)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "little") + data)
    return int.from_bytes(state.digest(), "little") or 1


class Segment:
    """Vectors of some skills, in memory or mapped from a file."""

    def __init__(self, data: Any, model: str, path: str = "") -> None:
        """Look into `data`, as `pack` makes it.

        Raises:
            Damaged: it is something else, or not whole, or of another model.
        """
        np: Any = require("numpy", EXTRA)
        self.path = path
        self._np = np
        self._data = memoryview(data)
        about = self._read_head(model)
        keys, rows, dimensions = about["keys"], about["rows"], about["dimensions"]
        self.replaces = tuple(map(str, about["replaces"]))
        self.dimensions: int = dimensions
        words = -(-dimensions // 64)
        self.hashes = self._take("<u8", keys)
        self.digests = self._take("<u8", keys)
        self._first = self._take("<u4", keys + 1)
        self._offsets = self._take("<u8", keys + 1)
        self.signs = self._take("<u8", words * rows).reshape(words, rows)
        self._scales = self._take("<f4", rows)
        self._paths = self._take("u1", about["paths"])
        self.vectors = self._take("i1", rows * dimensions).reshape(rows, dimensions)
        self.rows: int = rows
        slots = np.diff(self._first)
        self.most_slots = int(slots.max()) if keys else 0
        self._exact: Matrix = None
        self.alive: Any = None
        """Which keys count; a newer segment takes some away."""
        self.dead_rows: Any = None
        """The rows of those that do not count; None when there are none."""
        self.let_live(self.digests != 0)

    def let_live(self, alive: Any) -> None:
        """Say which keys count."""
        rows = self._np.repeat(alive, self._np.diff(self._first))
        self.dead_rows = None if rows.all() else ~rows
        self.alive = alive

    def overrule(self, newer: Segment) -> None:
        """Give way to a newer segment where it has the same keys."""
        if len(newer) <= len(self):
            at = self.find(newer.hashes)
            at = at[at >= 0]
        else:
            at = self._np.flatnonzero(newer.find(self.hashes) >= 0)
        if self.alive[at].any():
            alive = self.alive.copy()  # somebody may be reading the old one
            alive[at] = False
            self.let_live(alive)

    def _read_head(self, model: str) -> dict[str, Any]:
        head = bytes(self._data[:20])
        length, check = int.from_bytes(head[8:12], "little"), int.from_bytes(head[12:16], "little")
        try:
            about = json.loads(bytes(self._data[20 : 20 + length]))
            keys, rows, paths = (int(about[name]) for name in ("keys", "rows", "paths"))
            same, dimensions = about["model"] == model, int(about["dimensions"])
        except (ValueError, TypeError, KeyError) as exc:
            raise Damaged from exc
        if head[:8] != _MAGIC or not same or min(keys, rows, paths) < 0:
            raise Damaged
        if not 0 < dimensions <= MAX_DIMENSIONS:
            raise Damaged
        words = -(-dimensions // 64)
        self._at = _aligned(20 + length)
        sizes = (8 * keys, 8 * keys, 4 * (keys + 1), 8 * (keys + 1), 8 * words * rows, 4 * rows)
        end = self._at + sum(map(_aligned, (*sizes, paths)))
        if len(self._data) != end + rows * dimensions:
            raise Damaged
        if zlib.crc32(self._data[20:end]) != check:
            raise Damaged
        return about

    def _take(self, kind: str, count: int) -> Any:
        """The next table, where it lies."""
        made = self._np.frombuffer(self._data, self._np.dtype(kind), count, self._at)
        self._at += _aligned(made.nbytes)
        return made

    def __len__(self) -> int:
        return len(self.hashes)

    def find(self, hashes: Any) -> Any:
        """The place of each key here, -1 where it is not."""
        np = self._np
        if not len(self.hashes):
            return np.full(len(hashes), -1)
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[at] == hashes, at, -1)

    def key(self, at: int) -> str:
        """The key at a place."""
        data = self._paths[self._offsets[at] : self._offsets[at + 1]].tobytes()
        return data.decode("utf-8", "surrogatepass")

    def owner(self, row: int) -> int:
        """Whose vector a row is."""
        return int(self._np.searchsorted(self._first, row, side="right")) - 1

    def slots(self, at: int) -> range:
        """The rows of a key."""
        return range(int(self._first[at]), int(self._first[at + 1]))

    def take(self, rows: Sequence[int]) -> Matrix:
        """Some vectors in 32 bits.

        Raises:
            Damaged: they are no vectors of length one.
        """
        return self._sound(rows)

    def exact(self) -> Matrix:
        """All vectors in 32 bits, made once.

        Raises:
            Damaged: they are no vectors of length one.
        """
        if self._exact is None:
            self._exact = self._sound(slice(None))
        return self._exact

    def _sound(self, rows: Any) -> Matrix:
        np = self._np
        made = self.vectors[rows].astype(np.float32)
        made *= self._scales[rows][:, None]
        squares = np.einsum("ij,ij->i", made, made)
        # A text that the model does not cover has zeros, and a scale of zero.
        if not ((np.abs(squares - 1) < _SLACK) | (self._scales[rows] == 0)).all():
            raise Damaged
        return made

    def living(self) -> list[Row]:
        """What is to be kept when segments are joined; notes that a skill is gone included.

        Raises:
            Damaged: there are vectors that are not of length one.
        """
        made = self._sound(slice(None))
        return [
            Row(self.key(at), int(self.digests[at]), made[self.slots(at)])
            for at in range(len(self))
            if self.alive[at] or not self.digests[at]
        ]


def pack(rows: Iterable[Row], model: str, replaces: Sequence[str] = ()) -> bytes:
    """The bytes of a segment.

    Args:
        rows: The skills; of a key that comes twice the last one counts. Vectors are as long as
            the last one's: a server may have changed its model, and older ones are left out.
        model: The embedder's id.
        replaces: File names of segments that this one stands for.
    """
    np: Any = require("numpy", EXTRA)
    by_hash = {hash_of(row.key): row for row in rows}
    dimensions = next(
        (row.vectors.shape[1] for row in [*by_hash.values()][::-1] if len(row.vectors)), 1
    )
    by_hash = {
        one: row
        for one, row in by_hash.items()
        if not len(row.vectors) or row.vectors.shape[1] == dimensions
    }
    order = sorted(by_hash)
    chosen = [by_hash[one] for one in order]
    parts = [np.asarray(row.vectors, np.float32).reshape(-1, dimensions) for row in chosen]
    vectors = np.concatenate(parts) if parts else np.zeros((0, dimensions), np.float32)
    scales = np.abs(vectors).max(axis=1, initial=0).astype("<f4") / _STEPS
    small = np.rint(vectors / np.maximum(scales, 1e-12)[:, None]).astype(np.int8)
    paths = [row.key.encode("utf-8", "surrogatepass") for row in chosen]
    tables = (
        np.array(order, "<u8"),
        np.array([row.digest for row in chosen], "<u8"),
        np.cumsum([0, *map(len, parts)]).astype("<u4"),
        np.cumsum([0, *map(len, paths)]).astype("<u8"),
        signs_of(np, vectors).T,
        scales.astype("<f4"),
        np.frombuffer(b"".join(paths), np.uint8),
    )
    about = {
        "model": model,
        "dimensions": dimensions,
        "keys": len(chosen),
        "rows": len(vectors),
        "paths": sum(map(len, paths)),
        "replaces": list(replaces),
    }
    head = json.dumps(about).encode()
    body = head.ljust(_aligned(20 + len(head)) - 20, b"\0")
    for table in tables:
        data = table.tobytes()
        body += data.ljust(_aligned(len(data)), b"\0")
    front = _MAGIC + len(head).to_bytes(4, "little") + zlib.crc32(body).to_bytes(4, "little")
    return front + bytes(4) + body + small.tobytes()


def signs_of(np: Any, vectors: Matrix) -> Any:
    """One bit a number, for a first look: vectors that are near have nearly the same signs."""
    bits = np.packbits(vectors > 0, axis=1)
    short = -bits.shape[1] % 8
    return np.ascontiguousarray(np.pad(bits, ((0, 0), (0, short)))).view("<u8")


def open_segment(path: str, model: str) -> Segment:
    """Map a file, and look at some of its vectors: what was not written whole is often zeros.

    Raises:
        Damaged: it is not as it was written.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < 20:
            raise Damaged
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    segment = Segment(data, model, path)
    step = max(1, segment.rows // _LOOKED_AT)
    segment.take(range(0, segment.rows, step))
    return segment


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
