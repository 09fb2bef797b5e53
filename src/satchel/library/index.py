"""What was read last time, kept on disk, so that the next process reads nothing twice.

One file per location, in the cache folder. It holds tuples in Python's own `marshal` format: the
fastest to load, no import, and no more trusted than the `.pyc` files beside every module. A
checksum guards against damage; anything odd means "read everything again".
"""

from __future__ import annotations

import marshal
import os
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from zlib import adler32, crc32

from satchel._fs import write_atomic
from satchel._language import pack_messages, unpack_messages
from satchel.library.walk import Broken, Shelf
from satchel.skill.model import Head
from satchel.skill.problems import NO_PROBLEMS, Problem

if TYPE_CHECKING:
    from satchel.library.locations import Location
    from satchel.library.walk import Bounds

_new: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
WORTH_IT = 1
"""An empty location needs no index. Even a few skills do: reading one means preparing the parser,
which takes longer than reading the whole index."""
_MAGIC = b"satchel-index-3\n"
_LOCKS = 64
"""Lockfiles that are remembered."""


class Index:
    """The saved shelves of a cache folder."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(folder, "index")

    def load(self, location: Location, bounds: Bounds) -> tuple[Shelf | None, str]:
        """The shelf as it was last saved, or None and the reason when the file is damaged."""
        try:
            key, folders, heads, broken, notes, followed = _load(self._path(location, bounds))
            if key != _key(location, bounds):
                return None, ""
            return _restore(location, bounds, folders, heads, broken, notes, followed), ""
        except OSError:
            return None, ""
        except (ValueError, TypeError, EOFError, IndexError) as exc:
            return None, str(exc)

    def save(self, shelf: Shelf) -> str:
        """Save a shelf; returns why it could not be, or nothing."""
        rows = [
            (*head[:8], tuple(map(_packed, head.problems))) if head.problems else tuple(head)
            for head in shelf.heads.values()
        ]
        broken = [
            (item.id, item.file, item.stamp, tuple(map(_packed, item.problems)))
            for item in shelf.broken.values()
        ]
        notes = [
            (folder, [_packed(problem) for problem in notes])
            for folder, notes in shelf.notes.items()
        ]
        key = _key(shelf.location, shelf.bounds)
        table = (key, shelf.folders, rows, broken, notes, shelf.followed)
        try:
            _save(self._path(shelf.location, shelf.bounds), table)
        except OSError as exc:
            return exc.strerror or str(exc)
        return ""

    def knows_lock(self, path: str, stamp: tuple[int, ...]) -> bool:
        """Whether this lockfile was found sound before. For a look only: a load looks itself."""
        return self._sound().get(path) == stamp

    def note_lock(self, path: str, stamp: tuple[int, ...]) -> None:
        """Remember that a lockfile is sound, so that the next process need not read it."""
        known = {**self._sound(), path: stamp}
        while len(known) > _LOCKS:
            del known[next(iter(known))]
        with suppress(OSError):  # a cache that cannot be saved is made again
            _save(os.path.join(self._folder, "locks"), known)

    def _sound(self) -> dict[str, tuple[int, ...]]:
        """Lockfile -> its stamp when it was found sound."""
        try:
            return dict(_load(os.path.join(self._folder, "locks")))
        except (OSError, ValueError, TypeError, EOFError):
            return {}

    def _path(self, location: Location, bounds: Bounds) -> str:
        key = repr(_key(location, bounds)).encode()
        return os.path.join(self._folder, f"{crc32(key):08x}{adler32(key):08x}.idx")


def _key(location: Location, bounds: Bounds) -> tuple[Any, ...]:
    """What a saved shelf depends on beside the files."""
    strict = location.trusted is not True
    return (
        marshal.version,
        location.path,
        strict,
        location.boundary if strict else "",
        tuple(bounds),
    )


def _load(path: str) -> Any:
    """What `_save` wrote.

    Raises:
        OSError: there is no such file.
        ValueError: it is damaged.
    """
    with open(path, "rb") as stream:
        data = stream.read()
    head = len(_MAGIC)
    if data[:head] != _MAGIC or len(data) < head + 8:
        raise ValueError("unknown format")
    body = memoryview(data)[head + 8 :]
    if data[head : head + 8] != _checksum(body):
        raise ValueError("wrong checksum")
    return marshal.loads(body)  # noqa: S302 - our own file; see above


def _save(path: str, table: Any) -> None:
    body = marshal.dumps(table)
    write_atomic(path, _MAGIC + _checksum(body) + body, private=True, durable=False)


def _checksum(body: bytes | memoryview) -> bytes:
    return crc32(body).to_bytes(4, "big") + adler32(body).to_bytes(4, "big")


def _restore(
    location: Location,
    bounds: Bounds,
    folders: dict[str, int],
    heads: list[tuple[Any, ...]],
    broken: list[tuple[Any, ...]],
    notes: list[tuple[str, list[tuple[Any, ...]]]],
    followed: dict[str, str],
) -> Shelf:
    shelf = Shelf(location, bounds)
    shelf.folders = folders
    # In C from end to end: this is most of a warm start.
    ids = map(itemgetter(2), heads)
    table = shelf.heads = dict(zip(ids, map(partial(_new, Head), heads), strict=True))
    for row in heads:
        if row[8]:
            table[row[2]] = table[row[2]]._replace(problems=_problems(row[8]))
    for skill_id, file, stamp, problems in broken:
        shelf.broken[skill_id] = Broken(skill_id, file, stamp, _problems(problems))
    shelf.notes = {folder: list(_problems(rows)) for folder, rows in notes}
    shelf.followed = followed
    return shelf


def _packed(problem: Problem) -> tuple[Any, ...]:
    return (*problem[:3], pack_messages(problem.values))


def _problems(rows: Any) -> tuple[Problem, ...]:
    found = (Problem(*row) for row in rows)
    return tuple(one._replace(values=unpack_messages(one.values)) for one in found) or NO_PROBLEMS
