"""Vectors of skills on disk: a `.npy` matrix that is mapped, and a table of keys and digests.

`table.json` names the matrix it belongs to. A new matrix is written under a new name before the
table is replaced, so readers always see a pair that belongs together. Writers hold a lock.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import write_atomic
from satchel._optional import require
from satchel.detect.vectors.base import EXTRA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.detect.vectors.base import Matrix

SLOTS = 2
"""Vectors of a skill: its name, and its name with what it does."""
_SLACK = 0.01
"""How far the square of a vector's length may be from one."""
_CHECKED = 64
"""Skills whose vectors are checked when a file is opened."""


class Damaged(Exception):
    """The files cannot be used."""


class Entry(NamedTuple):
    """One skill that is not on disk yet."""

    digest: str
    """Of the texts that the vectors were made from; empty when the skill is gone."""
    block: Matrix
    """One row a text; None when the model covers none of them, or the skill is gone."""


class Saved(NamedTuple):
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


def saved_from(digests: dict[str, str], matrix: Matrix, mark: tuple[int, ...] = ()) -> Saved:
    """Make the record of some vectors."""
    keys = list(digests)
    places = {key: at for at, key in enumerate(keys[: len(matrix)])}
    return Saved(digests, keys, places, matrix, mark)


def empty() -> Saved:
    """No vectors."""
    np: Any = require("numpy", EXTRA)
    return saved_from({}, np.zeros((0, SLOTS, 1), np.float32))


def mark_of(folder: str) -> tuple[int, ...]:
    """Another value after every change of the table; empty without one."""
    try:
        info = os.stat(os.path.join(folder, "table.json"))
    except OSError:
        return ()
    return info.st_ino, info.st_mtime_ns, info.st_size


def load(folder: str, model: str) -> Saved:
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
                raise Damaged from exc
    raise Damaged


def _load(folder: str, model: str, mark: tuple[int, ...]) -> Saved:
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
    if matrix.dtype != np.float32 or matrix.ndim != 3 or matrix.shape[1] != SLOTS:
        raise ValueError
    if len(matrix) > len(digests):
        raise ValueError
    check(matrix[:: max(1, len(matrix) // _CHECKED)])
    return saved_from(digests, matrix, mark)


def check(blocks: Matrix) -> None:
    """Check vectors of skills: of length one, or zeros for a text that the model does not cover.

    Raises:
        ValueError: they are not.
    """
    np: Any = require("numpy", EXTRA)
    squares = np.einsum("ijk,ijk->ij", blocks, blocks)
    ones = np.abs(squares - 1) < _SLACK
    if not ((ones | (squares == 0)).all() and ones.any(axis=1).all()):
        raise ValueError("damaged vectors")


def join(saved: Saved, fresh: Mapping[str, Entry]) -> Saved:
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
    matrix = np.empty((len(digests), SLOTS, length[0]), np.float32)
    if rows:
        matrix[: len(rows)] = saved.matrix[rows]
    for at, entry in enumerate(made.values(), len(rows)):
        matrix[at] = entry.block
    return saved_from({**digests, **bare}, matrix)


def save(folder: str, model: str, saved: Saved) -> None:
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
