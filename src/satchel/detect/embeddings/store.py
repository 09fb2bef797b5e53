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
from satchel.detect.embeddings.base import EXTRA

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from satchel.detect.embeddings.base import Embedder, Matrix

VECTORS_PER_SKILL_COUNT = 2
"""One for the name, one for the name with the description."""
_MAX_NORM_ERROR = 0.01
"""Of the squared vector length."""
_SAMPLED_SKILL_COUNT = 64


class VectorsDamaged(Exception):
    """The files cannot be used."""


class PendingVector(NamedTuple):
    """One skill that is not on disk yet."""

    digest: str
    """Of the texts that the vectors were made from; empty when the skill is gone."""
    block: Matrix
    """One row a text; None when the model covers none of them, or the skill is gone."""


class SavedVectors(NamedTuple):
    """What is on disk. It is never changed, only replaced."""

    digests: dict[str, str]
    """By key: those with vectors first, in the order of the matrix."""
    keys: list[str]
    places: dict[str, int]
    """By key: its row of the matrix; not of those without vectors."""
    matrix: Matrix
    """Skills, slots, numbers."""
    mark: tuple[int, ...] = ()
    """Inode and time of the table."""


def saved_from(digests: dict[str, str], matrix: Matrix, mark: tuple[int, ...] = ()) -> SavedVectors:
    """Make the record of some vectors."""
    keys = list(digests)
    places = {key: at for at, key in enumerate(keys[: len(matrix)])}
    return SavedVectors(digests, keys, places, matrix, mark)


def empty() -> SavedVectors:
    """No vectors."""
    np: Any = require("numpy", EXTRA)
    return saved_from({}, np.zeros((0, VECTORS_PER_SKILL_COUNT, 1), np.float32))


def mark_of(folder: str) -> tuple[int, ...]:
    """Another value after every change of the table; empty without one."""
    try:
        info = os.stat(os.path.join(folder, "table.json"))
    except OSError:
        return ()
    return info.st_ino, info.st_mtime_ns, info.st_size


def load(folder: str, model: str) -> SavedVectors:
    """Open what `folder` holds; nothing when there is no table.

    Raises:
        Damaged: it is not as it was written, or of another model.
    """
    for _ in range(3):  # a writer may replace both files between the two reads
        mark = mark_of(folder)
        if not mark:
            return empty()
        try:
            return _load(folder, model, mark)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError) as exc:
            if mark_of(folder) == mark:
                raise VectorsDamaged from exc
    raise VectorsDamaged


def _load(folder: str, model: str, mark: tuple[int, ...]) -> SavedVectors:
    np: Any = require("numpy", EXTRA)
    with open(os.path.join(folder, "table.json"), "rb") as file:
        table = json.loads(file.read())
    digests = dict(zip(table["keys"], table["digests"], strict=True))
    if table["model"] != model or len(digests) != len(table["keys"]):
        raise ValueError
    if not table["matrix"]:
        return empty()._replace(digests=digests, keys=list(digests), mark=mark)
    path = os.path.join(folder, os.path.basename(table["matrix"]))
    matrix = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    if matrix.dtype != np.float32 or matrix.ndim != 3 or matrix.shape[1] != VECTORS_PER_SKILL_COUNT:
        raise ValueError
    if len(matrix) > len(digests):
        raise ValueError
    check(matrix[:: max(1, len(matrix) // _SAMPLED_SKILL_COUNT)])
    return saved_from(digests, matrix, mark)


def check(blocks: Matrix) -> None:
    """Check vectors of skills: of length one, or zeros for a text that the model does not cover.

    Raises:
        ValueError: they are not.
    """
    np: Any = require("numpy", EXTRA)
    squares = np.einsum("ijk,ijk->ij", blocks, blocks)
    ones = np.abs(squares - 1) < _MAX_NORM_ERROR
    if not ((ones | (squares == 0)).all() and ones.any(axis=1).all()):
        raise ValueError("damaged vectors")


def join(saved: SavedVectors, fresh: Mapping[str, PendingVector]) -> SavedVectors:
    """Both in one, in memory; what is fresh overrules.

    Vectors of another length than the newest are dropped: a server may have changed its model.
    """
    np: Any = require("numpy", EXTRA)
    made = {key: entry for key, entry in fresh.items() if entry.block is not None}
    length = [*(one.block.shape[1] for one in made.values()), saved.matrix.shape[2]]
    made = {key: one for key, one in made.items() if one.block.shape[1] == length[0]}
    rows = [at for key, at in saved.places.items() if key not in fresh]
    rows = rows if saved.matrix.shape[2] == length[0] else []
    digests = {saved.keys[at]: saved.digests[saved.keys[at]] for at in rows}
    digests.update((key, entry.digest) for key, entry in made.items())
    bare = {key: one for key, one in saved.digests.items() if key not in saved.places}
    bare = {key: one for key, one in bare.items() if key not in fresh}
    bare.update((key, one.digest) for key, one in fresh.items() if one.digest and one.block is None)
    if not digests:
        return empty()._replace(digests=bare, keys=list(bare))
    matrix = np.empty((len(digests), VECTORS_PER_SKILL_COUNT, length[0]), np.float32)
    if rows:
        matrix[: len(rows)] = saved.matrix[rows]
    for at, entry in enumerate(made.values(), len(rows)):
        matrix[at] = entry.block
    return saved_from({**digests, **bare}, matrix)


def save(folder: str, model: str, saved: SavedVectors) -> None:
    """Write vectors, and remove matrices that no table names. The caller holds the lock.

    Raises:
        OSError: they cannot be written.
    """
    np: Any = require("numpy", EXTRA)
    name = f"{os.urandom(8).hex()}.npy" if saved.places else ""
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


MAX_BATCH_SKILLS = 256
MIN_FLUSH_SKILLS = 4_096
LOCK_WAIT_S = 30.0
_COSINE_DIGITS_COUNT = 6
"""Further digits depend on where a vector is stored."""

Texts = tuple[str, "Sequence[str]"]
"""A skill's key and its two texts."""


class VectorStore:
    """The vectors of skills, by one model."""

    def __init__(
        self,
        folder: str | None,
        embedder: Embedder,
        covers: Callable[[Sequence[str]], Sequence[bool]],
    ) -> None:
        """Open the vectors that an embedder made.

        Args:
            folder: Where they are; None keeps them in memory.
            embedder: The model.
            covers: Which of a skill's texts it can read.
        """
        self._np: Any = require("numpy", EXTRA)
        self.embedder = embedder
        self._covers = covers
        self._folder = os.path.join(folder, _digest([embedder.id])) if folder else ""
        self._lock = threading.RLock()
        self._saved = empty()
        """Replaced, never modified."""
        self.changes = 0
        """Incremented with every change."""
        self.trouble = ""
        """Why the last fill could not be written; else empty."""
        self.refresh()

    # --- reading ---

    def __len__(self) -> int:
        """The number of skills that have a vector or are not covered."""
        return len(self._saved.digests)

    def refresh(self) -> None:
        """Read what other processes have written."""
        if not self._folder or mark_of(self._folder) == self._saved.mark:
            return
        with self._lock:
            try:
                self._replace(load(self._folder, self.embedder.id))
            except VectorsDamaged:
                self._lose()

    def stored_keys(self) -> list[str]:
        """Return the keys of skills that have a vector or are not covered."""
        return list(self._saved.digests)

    def missing(self, keys: Iterable[str]) -> list[str]:
        """Return the keys that are not embedded yet."""
        known = self._saved.digests
        return [key for key in keys if key not in known]

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
        if not saved.places:
            return []
        if saved.matrix.shape[2] != queries.shape[1]:
            self._lose()  # a server has changed its model
            return []
        found: dict[str, None] = {}
        for column in np.round(_scores(saved.matrix, queries), _COSINE_DIGITS_COUNT).T:
            best: list[tuple[float, str]] = []
            order: list[int] = np.argsort(-column).tolist()
            for at in order:
                score = float(column[at])
                if len(best) >= limit and -score > best[limit - 1][0]:
                    break
                key = saved.keys[at]
                if allowed is None or key in allowed:
                    best.append((-score, key))
            # Ties are ordered by key.
            found.update((key, None) for _, key in sorted(best)[:limit])
        return list(found)

    def vectors(self, keys: Iterable[str]) -> tuple[list[str], Matrix]:
        """Return the keys that have vectors, and a block for each."""
        saved = self._saved
        found = list(dict.fromkeys(key for key in keys if key in saved.places))
        size = self.embedder.dimensions
        blocks = self._np.zeros((len(found), VECTORS_PER_SKILL_COUNT, size), self._np.float32)
        try:
            if found:
                blocks[:] = saved.matrix[[saved.places[key] for key in found]]
                check(blocks)
        except ValueError:  # damaged, or of another length
            self._lose()
            return [], blocks[:0]
        return found, blocks

    def _replace(self, saved: SavedVectors) -> None:
        self._saved = saved
        self.changes += 1

    def _lose(self) -> None:
        """Discard the saved vectors; their skills are missing again."""
        with self._lock:
            self._replace(empty()._replace(mark=mark_of(self._folder)))

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
        known = self._saved.digests
        fresh = {key: PendingVector("", None) for key in gone if key in known}
        wanted = list(texts)
        new = wanted if rebuild else self.changed(wanted)
        kept = len(wanted) - len(new)
        try:
            for begin in range(0, len(new), MAX_BATCH_SKILLS):
                fresh.update(self._embedded(new[begin : begin + MAX_BATCH_SKILLS]))
                if len(fresh) >= MIN_FLUSH_SKILLS:
                    self._flush(fresh)
                    fresh = {}
                if progress is not None:
                    progress(kept + min(begin + MAX_BATCH_SKILLS, len(new)))
        finally:
            self._flush(fresh)

    def changed(self, texts: Iterable[Texts]) -> list[Texts]:
        """Return the skills whose texts are not embedded."""
        known = self._saved.digests
        return [one for one in texts if known.get(one[0]) != _digest(one[1])]

    def _embedded(self, texts: Sequence[Texts]) -> dict[str, PendingVector]:
        covers = [self._covers(lines) for _, lines in texts]
        flat = [
            text
            for (_, lines), flags in zip(texts, covers, strict=True)
            for text, flag in zip(lines, flags, strict=True)
            if flag
        ]
        made = iter(self.embedder.embed(flat) if flat else ())
        fresh: dict[str, PendingVector] = {}
        for (key, lines), flags in zip(texts, covers, strict=True):
            rows = [next(made) if flag else None for flag in flags]
            length = next((len(row) for row in rows if row is not None), 0)
            block = self._np.zeros((VECTORS_PER_SKILL_COUNT, length), self._np.float32)
            for slot, row in enumerate(rows):
                if row is not None:
                    block[slot] = row
            fresh[key] = PendingVector(_digest(lines), block if block.any() else None)
        return fresh

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
                        save(self._folder, self.embedder.id, join(self._saved, fresh))
                        saved = load(self._folder, self.embedder.id)
                else:
                    saved = join(saved, fresh)
            except (OSError, VectorsDamaged) as exc:
                self.trouble = getattr(exc, "strerror", "") or str(exc)
                saved = join(self._saved, fresh)._replace(mark=mark_of(self._folder))
            self._replace(saved)


def _scores(matrix: Matrix, queries: Matrix) -> Matrix:
    """Return the cosine of each skill's nearest text with each query."""
    count, slots, size = matrix.shape
    return (matrix.reshape(-1, size) @ queries.T).reshape(count, slots, -1).max(axis=1)


def _digest(texts: Sequence[str]) -> str:
    state = blake2b(digest_size=8)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()
