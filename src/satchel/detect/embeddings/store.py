"""Persistent vectors of skills, with nearest-neighbour search.

Vectors are stored beside the index. A skill is embedded once, and again when its texts change. A
skill without a vector has no score.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import locked, write_atomic
from satchel._optional import require
from satchel.detect.embeddings import EXTRA

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from satchel.detect.embeddings import Embedder, Matrix

VECTORS_PER_SKILL_COUNT = 2
"""One for the name, one for the name with the description."""
_MAX_NORM_ERROR = 0.01
"""Of the squared vector length."""
_SAMPLED_SKILL_COUNT = 64
MAX_BATCH_SKILLS = 256
MIN_FLUSH_SKILLS = 4_096
LOCK_WAIT_S = 30.0
_COSINE_DIGITS_COUNT = 6
"""Further digits depend on where a vector is stored."""

Texts = tuple[str, "Sequence[str]"]
"""A skill's key and its two texts."""


class VectorsDamaged(Exception):
    """The files cannot be used."""


class PendingVector(NamedTuple):
    """One skill that is not on disk yet."""

    digest: str
    """Of the texts that the vectors were made from."""
    block: Matrix
    """One row a text; None when the skill is gone."""


class SavedVectors(NamedTuple):
    """What is on disk. It is never changed, only replaced."""

    digests: dict[str, str]
    """By key, in the order of the matrix."""
    keys: list[str]
    rows_by_key: dict[str, int]
    """By key: its row of the matrix."""
    matrix: Matrix
    """Skills, slots, numbers."""
    version: tuple[int, ...] = ()
    """Inode and time of the table."""


def make_saved(
    digests: dict[str, str], matrix: Matrix, version: tuple[int, ...] = ()
) -> SavedVectors:
    """Make the record of some vectors."""
    keys = list(digests)
    rows_by_key = {key: row for row, key in enumerate(keys)}
    return SavedVectors(digests, keys, rows_by_key, matrix, version)


def make_empty() -> SavedVectors:
    """Return the record of no vectors."""
    np: Any = require("numpy", EXTRA)
    return make_saved({}, np.zeros((0, VECTORS_PER_SKILL_COUNT, 1), np.float32))


def read_version(folder: str) -> tuple[int, ...]:
    """Return a value that differs after every change of the table; empty without one."""
    try:
        info = os.stat(os.path.join(folder, "table.json"))
    except OSError:
        return ()
    return info.st_ino, info.st_mtime_ns, info.st_size


def load(folder: str, model: str) -> SavedVectors:
    """Open what `folder` holds; nothing when there is no table.

    Raises:
        VectorsDamaged: it is not as it was written, or of another model.
    """
    for _ in range(3):  # a writer may replace both files between the two reads
        version = read_version(folder)
        if not version:
            return make_empty()
        try:
            return _load(folder, model, version)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError) as exc:
            if read_version(folder) == version:
                raise VectorsDamaged from exc
    raise VectorsDamaged


def _load(folder: str, model: str, version: tuple[int, ...]) -> SavedVectors:
    np: Any = require("numpy", EXTRA)
    with open(os.path.join(folder, "table.json"), "rb") as file:
        table = json.loads(file.read())
    digests = dict(zip(table["keys"], table["digests"], strict=True))
    if table["model"] != model or len(digests) != len(table["keys"]):
        raise ValueError
    if not table["matrix"]:
        return make_empty()._replace(version=version)
    path = os.path.join(folder, os.path.basename(table["matrix"]))
    matrix = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    if matrix.dtype != np.float32 or matrix.ndim != 3 or matrix.shape[1] != VECTORS_PER_SKILL_COUNT:
        raise ValueError
    if len(matrix) != len(digests):
        raise ValueError
    check_lengths(matrix[:: max(1, len(matrix) // _SAMPLED_SKILL_COUNT)])
    return make_saved(digests, matrix, version)


def check_lengths(blocks: Matrix) -> None:
    """Check that vectors of skills are of length one.

    Raises:
        ValueError: they are not.
    """
    np: Any = require("numpy", EXTRA)
    squares = np.einsum("ijk,ijk->ij", blocks, blocks)
    if not (np.abs(squares - 1) < _MAX_NORM_ERROR).all():
        raise ValueError("damaged vectors")


def merge(saved: SavedVectors, fresh: Mapping[str, PendingVector]) -> SavedVectors:
    """Return saved and fresh vectors together; the fresh ones replace saved ones.

    Vectors of another length than the newest are dropped: a server may have changed its model.
    """
    np: Any = require("numpy", EXTRA)
    embedded = {key: entry for key, entry in fresh.items() if entry.block is not None}
    lengths = [*(entry.block.shape[1] for entry in embedded.values()), saved.matrix.shape[2]]
    length = lengths[0]
    embedded = {key: entry for key, entry in embedded.items() if entry.block.shape[1] == length}
    rows = [row for key, row in saved.rows_by_key.items() if key not in fresh]
    rows = rows if saved.matrix.shape[2] == length else []
    digests = {saved.keys[row]: saved.digests[saved.keys[row]] for row in rows}
    digests.update((key, entry.digest) for key, entry in embedded.items())
    if not digests:
        return make_empty()
    matrix = np.empty((len(digests), VECTORS_PER_SKILL_COUNT, length), np.float32)
    if rows:
        matrix[: len(rows)] = saved.matrix[rows]
    for index, entry in enumerate(embedded.values(), len(rows)):
        matrix[index] = entry.block
    return make_saved(digests, matrix)


def save(folder: str, model: str, saved: SavedVectors) -> None:
    """Write vectors, and remove matrices that no table names. The caller holds the lock.

    Raises:
        OSError: they cannot be written.
    """
    np: Any = require("numpy", EXTRA)
    name = f"{os.urandom(8).hex()}.npy" if saved.rows_by_key else ""
    if name:
        np.save(os.path.join(folder, name), saved.matrix, allow_pickle=False)
    digests = list(saved.digests.values())
    table = {"model": model, "matrix": name, "keys": saved.keys, "digests": digests}
    data = json.dumps(table).encode()
    write_atomic(os.path.join(folder, "table.json"), data, private=True, durable=False)
    for other in os.listdir(folder):
        if other.endswith(".npy") and other != name:
            with suppress(OSError):  # on Windows a mapped file stays, and goes the next time
                os.unlink(os.path.join(folder, other))


class VectorStore:
    """The vectors of skills, by one model."""

    def __init__(self, folder: str | None, embedder: Embedder) -> None:
        """Open the vectors that an embedder made.

        Args:
            folder: Where they are; None keeps them in memory.
            embedder: The model.
        """
        self._np: Any = require("numpy", EXTRA)
        self.embedder = embedder
        self._folder = os.path.join(folder, _compute_digest([embedder.id])) if folder else ""
        self._lock = threading.RLock()
        self._saved = make_empty()
        """Replaced, never modified."""
        self.changes = 0
        """Incremented with every change."""
        self.trouble = ""
        """Why the last fill could not be written; else empty."""
        self.refresh()

    # --- reading ---

    def __len__(self) -> int:
        """The number of skills that have a vector."""
        return len(self._saved.digests)

    def refresh(self) -> None:
        """Read what other processes have written."""
        if not self._folder or read_version(self._folder) == self._saved.version:
            return
        with self._lock:
            try:
                self._replace(load(self._folder, self.embedder.id))
            except VectorsDamaged:
                self._discard_saved()

    def stored_keys(self) -> list[str]:
        """Return the keys of skills that have a vector."""
        return list(self._saved.digests)

    def missing(self, keys: Iterable[str]) -> list[str]:
        """Return the keys that are not embedded yet."""
        digests = self._saved.digests
        return [key for key in keys if key not in digests]

    def nearest(
        self, queries: Matrix, limit: int, allowed: Container[str] | None = None
    ) -> list[str]:
        """Return the skills nearest to each query, by the nearest of their texts.

        Args:
            queries: Vectors of length one, as the same embedder makes them.
            limit: How many skills for each query.
            allowed: The keys that count; None counts all.
        """
        np, saved = self._np, self._saved
        if not saved.rows_by_key:
            return []
        if saved.matrix.shape[2] != queries.shape[1]:
            self._discard_saved()  # a server has changed its model
            return []
        nearest_keys: dict[str, None] = {}
        for column in np.round(_compute_cosines(saved.matrix, queries), _COSINE_DIGITS_COUNT).T:
            best: list[tuple[float, str]] = []
            order: list[int] = np.argsort(-column).tolist()
            for row in order:
                score = float(column[row])
                if len(best) >= limit and -score > best[limit - 1][0]:
                    break
                key = saved.keys[row]
                if allowed is None or key in allowed:
                    best.append((-score, key))
            # Ties are ordered by key.
            nearest_keys.update((key, None) for _, key in sorted(best)[:limit])
        return list(nearest_keys)

    def vectors(self, keys: Iterable[str]) -> tuple[list[str], Matrix]:
        """Return the keys that have vectors, and a block for each."""
        saved = self._saved
        embedded_keys = list(dict.fromkeys(key for key in keys if key in saved.rows_by_key))
        size = self.embedder.dimensions
        blocks = self._np.zeros(
            (len(embedded_keys), VECTORS_PER_SKILL_COUNT, size), self._np.float32
        )
        try:
            if embedded_keys:
                blocks[:] = saved.matrix[[saved.rows_by_key[key] for key in embedded_keys]]
                check_lengths(blocks)
        except ValueError:  # damaged, or of another length
            self._discard_saved()
            return [], blocks[:0]
        return embedded_keys, blocks

    def _replace(self, saved: SavedVectors) -> None:
        self._saved = saved
        self.changes += 1

    def _discard_saved(self) -> None:
        """Discard the saved vectors; their skills are missing again."""
        with self._lock:
            self._replace(make_empty()._replace(version=read_version(self._folder)))

    # --- filling ---

    def fill(
        self,
        texts: Iterable[Texts],
        gone: Iterable[str] = (),
        progress: Callable[[int], None] | None = None,
        *,
        rebuild: bool = False,
    ) -> None:
        """Embed skills whose texts are new or changed.

        Args:
            texts: Skills with their texts.
            gone: Skills to forget.
            progress: Called with how many skills have their vectors now.
            rebuild: Make all of them; the old ones count until the new ones are there.

        Raises:
            ModelFailed: the model cannot be run or reached; what was made until then is kept.
        """
        self.trouble = ""
        self.refresh()
        digests = self._saved.digests
        fresh = {key: PendingVector("", None) for key in gone if key in digests}
        all_texts = list(texts)
        new_texts = all_texts if rebuild else self.changed(all_texts)
        unchanged_count = len(all_texts) - len(new_texts)
        try:
            for start in range(0, len(new_texts), MAX_BATCH_SKILLS):
                fresh.update(self._embed(new_texts[start : start + MAX_BATCH_SKILLS]))
                if len(fresh) >= MIN_FLUSH_SKILLS:
                    self._flush(fresh)
                    fresh = {}
                if progress is not None:
                    progress(unchanged_count + min(start + MAX_BATCH_SKILLS, len(new_texts)))
        finally:
            self._flush(fresh)

    def changed(self, texts: Iterable[Texts]) -> list[Texts]:
        """Return the skills whose texts are not embedded."""
        digests = self._saved.digests
        return [entry for entry in texts if digests.get(entry[0]) != _compute_digest(entry[1])]

    def _embed(self, texts: Sequence[Texts]) -> dict[str, PendingVector]:
        vectors = self.embedder.embed([text for _, lines in texts for text in lines])
        blocks = self._np.reshape(vectors, (len(texts), VECTORS_PER_SKILL_COUNT, -1))
        return {
            key: PendingVector(_compute_digest(lines), block)
            for (key, lines), block in zip(texts, blocks, strict=True)
        }

    def _flush(self, fresh: Mapping[str, PendingVector]) -> None:
        """Write new vectors together with those that other processes have written."""
        if not fresh:
            return
        with self._lock:
            saved = self._saved
            try:
                if self._folder:
                    with locked(os.path.join(self._folder, "writer.lock"), timeout=LOCK_WAIT_S):
                        self.refresh()
                        save(self._folder, self.embedder.id, merge(self._saved, fresh))
                        saved = load(self._folder, self.embedder.id)
                else:
                    saved = merge(saved, fresh)
            except (OSError, VectorsDamaged) as exc:
                self.trouble = getattr(exc, "strerror", "") or str(exc)
                saved = merge(self._saved, fresh)._replace(version=read_version(self._folder))
            self._replace(saved)


def _compute_cosines(matrix: Matrix, queries: Matrix) -> Matrix:
    """Return the cosine of each skill's nearest text with each query."""
    count, slots, size = matrix.shape
    return (matrix.reshape(-1, size) @ queries.T).reshape(count, slots, -1).max(axis=1)


def _compute_digest(texts: Sequence[str]) -> str:
    state = blake2b(digest_size=8)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()
