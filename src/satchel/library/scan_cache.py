"""On-disk cache of scanned locations.

There is one file per location in the cache folder. It holds tuples in Python's `marshal` format,
which loads fastest, needs no import and is as trustworthy as the `.pyc` files beside every module.
After any error, such as a wrong checksum, the location is read again.
"""

from __future__ import annotations

import marshal
import os
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from zlib import adler32, crc32

from satchel._fs import write_atomic
from satchel.i18n import pack_messages, unpack_messages
from satchel.library.scanner import BrokenFile, LocationState, ManifestFile
from satchel.skill.document import SkillHeader
from satchel.skill.problems import NO_PROBLEMS, Problem

if TYPE_CHECKING:
    from satchel.library.locations import Location
    from satchel.library.scanner import WalkLimits

_new: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_MAGIC = b"satchel-index-4\n"


class ScanCache:
    """The cached locations of a cache folder."""

    def __init__(self, folder: str) -> None:
        self.cache = folder
        self._folder = os.path.join(folder, "index")

    def load(self, location: Location, bounds: WalkLimits) -> tuple[LocationState | None, str]:
        """Load a location; None and the reason when the file is damaged."""
        try:
            key, *tables = _load(self._path(location, bounds))
            if key != _key(location, bounds):
                return None, ""
            return _restore(LocationState(location, bounds), *tables), ""
        except OSError:
            return None, ""
        except (ValueError, TypeError, EOFError, IndexError) as exc:
            return None, str(exc)

    def save(self, state: LocationState) -> str:
        """Save a location; returns the reason when that fails, else empty."""
        rows = [
            (*head[:8], tuple(map(_packed, head.problems))) if head.problems else tuple(head)
            for head in state.heads.values()
        ]
        broken = [
            (item.id, item.file, item.stamp, tuple(map(_packed, item.problems)))
            for item in state.broken.values()
        ]
        notes = [
            (folder, [_packed(problem) for problem in notes])
            for folder, notes in state.notes.items()
        ]
        manifests = {folder: item.digest for folder, item in state.manifests.items()}
        key = _key(state.location, state.bounds)
        table = (key, state.folders, rows, broken, manifests, notes, state.followed)
        try:
            _save(self._path(state.location, state.bounds), table)
        except OSError as exc:
            return exc.strerror or str(exc)
        return ""

    def _path(self, location: Location, bounds: WalkLimits) -> str:
        key = repr(_key(location, bounds)).encode()
        return os.path.join(self._folder, f"{crc32(key):08x}{adler32(key):08x}.idx")


def _key(location: Location, bounds: WalkLimits) -> tuple[Any, ...]:
    """What a cached location depends on beside its files."""
    strict = location.trusted is not True
    return (
        marshal.version,
        location.path,
        strict,
        location.boundary if strict else "",
        tuple(bounds),
    )


def _load(path: str) -> Any:
    """Load what `_save` wrote.

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
    return marshal.loads(body)  # noqa: S302 - our own file; see the docstring


def _save(path: str, table: Any) -> None:
    body = marshal.dumps(table)
    write_atomic(path, _MAGIC + _checksum(body) + body, private=True, durable=False)


def _checksum(body: bytes | memoryview) -> bytes:
    return crc32(body).to_bytes(4, "big") + adler32(body).to_bytes(4, "big")


def _restore(
    state: LocationState,
    folders: dict[str, int],
    heads: list[tuple[Any, ...]],
    broken: list[tuple[Any, ...]],
    manifests: dict[str, str],
    notes: list[tuple[str, list[tuple[Any, ...]]]],
    followed: dict[str, str],
) -> LocationState:
    state.folders = folders
    # Runs in C: this is most of a warm start.
    ids = map(itemgetter(2), heads)
    table = state.heads = dict(zip(ids, map(partial(_new, SkillHeader), heads), strict=True))
    for row in heads:
        if row[8]:
            table[row[2]] = table[row[2]]._replace(problems=_problems(row[8]))
    for skill_id, file, stamp, problems in broken:
        state.broken[skill_id] = BrokenFile(skill_id, file, stamp, _problems(problems))
    state.manifests = {one: ManifestFile(digest=digest) for one, digest in manifests.items()}
    state.notes = {folder: list(_problems(rows)) for folder, rows in notes}
    state.followed = followed
    return state


def _packed(problem: Problem) -> tuple[Any, ...]:
    return (*problem[:3], pack_messages(problem.values))


def _problems(rows: Any) -> tuple[Problem, ...]:
    found = (Problem(*row) for row in rows)
    return tuple(one._replace(values=unpack_messages(one.values)) for one in found) or NO_PROBLEMS
