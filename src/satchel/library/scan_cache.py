"""On-disk cache of scanned locations.

There is one file per location in the cache folder. It holds a `_StoredScan` as nested tuples in
Python's `marshal` format, which loads fastest, needs no import and is as trustworthy as the `.pyc`
files beside every module. After any error, such as a wrong checksum, the location is read again.
"""

from __future__ import annotations

import marshal
import os
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import adler32, crc32

from satchel._fs import write_atomic
from satchel.library.location_state import BrokenFile, LocationState, ManifestFile
from satchel.skill.document import SkillHeader
from satchel.skill.problems import pack_problems, unpack_problems

if TYPE_CHECKING:
    from satchel.library.location_state import WalkLimits
    from satchel.library.locations import Location

_new_tuple: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_header_id = itemgetter(SkillHeader._fields.index("id"))
_header_problems = itemgetter(SkillHeader._fields.index("problems"))
_MAGIC = b"satchel-index-6\n"
_CHECKSUM_BYTES = 8

_Values = tuple[Any, ...]
"""The values of a record, of which `marshal` saves no more."""


class _StoredScan(NamedTuple):
    """The content of a cache file: the tables of a `LocationState`."""

    key: _Values
    """What the scan depends on beside the files of the location; see `_cache_key`."""
    folders: dict[str, int]
    headers: list[_Values]
    """The values of every `SkillHeader`."""
    broken_files: list[_Values]
    """The values of every `BrokenFile`."""
    manifest_digests: dict[str, str]
    """Folder -> the digest of its skill.yaml."""
    folder_problems: list[tuple[str, tuple[_Values, ...]]]
    link_by_target: dict[str, str]


class ScanCache:
    """The cached locations of a cache folder."""

    def __init__(self, folder: str) -> None:
        self.cache = folder

    def load(self, location: Location, limits: WalkLimits) -> tuple[LocationState | None, str]:
        """Load a location; None and the reason when the file is damaged."""
        try:
            stored = _StoredScan(*load_values(self._path(location, limits)))
            if stored.key != _cache_key(location, limits):
                return None, ""
            return _restore(stored, location, limits), ""
        except OSError:
            return None, ""
        except (ValueError, TypeError, EOFError, IndexError) as exc:
            return None, str(exc)

    def save(self, state: LocationState) -> str:
        """Save a location; returns the reason when that fails, else empty."""
        try:
            save_values(self._path(state.location, state.limits), tuple(_store(state)))
        except OSError as exc:
            return exc.strerror or str(exc)
        return ""

    def _path(self, location: Location, limits: WalkLimits) -> str:
        return cache_path(self.cache, _cache_key(location, limits))


def _cache_key(location: Location, limits: WalkLimits) -> _Values:
    """What a cached location depends on beside its files."""
    return (
        marshal.version,
        location.path,
        location.folders,
        location.is_confined,
        location.boundary if location.is_confined else "",
        tuple(limits),
    )


def _store(state: LocationState) -> _StoredScan:
    headers = [
        tuple(header._replace(problems=pack_problems(header.problems)))
        if header.problems
        else tuple(header)
        for header in state.headers.values()
    ]
    broken_files = [
        (broken.id, broken.file, broken.stamp, pack_problems(broken.problems))
        for broken in state.broken.values()
    ]
    folder_problems = [
        (folder, pack_problems(problems)) for folder, problems in state.folder_problems.items()
    ]
    return _StoredScan(
        key=_cache_key(state.location, state.limits),
        folders=state.folders,
        headers=headers,
        broken_files=broken_files,
        manifest_digests={folder: file.digest for folder, file in state.manifests.items()},
        folder_problems=folder_problems,
        link_by_target=state.link_by_target,
    )


def _restore(stored: _StoredScan, location: Location, limits: WalkLimits) -> LocationState:
    state = LocationState(location, limits)
    state.folders = stored.folders
    # Runs in C: this is most of a warm start.
    ids = map(_header_id, stored.headers)
    new_header = partial(_new_tuple, SkillHeader)
    state.headers = dict(zip(ids, map(new_header, stored.headers), strict=True))
    for values in filter(_header_problems, stored.headers):
        skill_id, problems = _header_id(values), unpack_problems(_header_problems(values))
        state.headers[skill_id] = state.headers[skill_id]._replace(problems=problems)
    for skill_id, file, stamp, problems in stored.broken_files:
        state.broken[skill_id] = BrokenFile(skill_id, file, stamp, unpack_problems(problems))
    for folder, digest in stored.manifest_digests.items():
        state.manifests[folder] = ManifestFile(digest=digest)
    for folder, problems in stored.folder_problems:
        state.folder_problems[folder] = list(unpack_problems(problems))
    state.link_by_target = stored.link_by_target
    return state


def cache_path(cache: str, key: _Values) -> str:
    """The file in a cache folder for what depends on some values."""
    return os.path.join(cache, "index", f"{_checksum(repr(key).encode()).hex()}.idx")


def load_values(path: str) -> Any:
    """Load what `save_values` wrote.

    Raises:
        OSError: there is no such file.
        ValueError: it is damaged.
    """
    with open(path, "rb") as stream:
        data = stream.read()
    magic_end = len(_MAGIC)
    body_start = magic_end + _CHECKSUM_BYTES
    if data[:magic_end] != _MAGIC or len(data) < body_start:
        raise ValueError("unknown format")
    body = memoryview(data)[body_start:]
    if data[magic_end:body_start] != _checksum(body):
        raise ValueError("wrong checksum")
    return marshal.loads(body)  # noqa: S302 - our own file; see the docstring


def save_values(path: str, values: Any) -> None:
    """Write values that `marshal` knows to a file of the cache.

    Raises:
        OSError: it cannot be written.
    """
    body = marshal.dumps(values)
    write_atomic(path, _MAGIC + _checksum(body) + body, private=True, durable=False)


def _checksum(data: bytes | memoryview) -> bytes:
    return crc32(data).to_bytes(4, "big") + adler32(data).to_bytes(4, "big")
