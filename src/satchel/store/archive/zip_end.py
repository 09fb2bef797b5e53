"""Where is a zip's table of contents?

The end of a zip is searched for from behind, and a comment may contain what looks like another end.
Such a file has two meanings, so it has none here: one end record, at the very end.
"""

from __future__ import annotations

from struct import Struct

from satchel.store.archive.pieces import read_at
from satchel.store.archive.rules import refuse

_END = Struct("<4s4H2IH")
_END64 = Struct("<4sQ2H2I4Q")
_LOCATOR = Struct("<4sIQI")
_MARK = b"PK\x05\x06"
_SHORT, _FULL = 0xFFFF, 0xFFFFFFFF


def find_directory(descriptor: int, length: int) -> tuple[int, int, int]:
    """Where the central directory begins and ends, and how many entries it has.

    Raises:
        Unsafe: there is no end record, more than one, or it contradicts itself.
    """
    at, record = _find_end(descriptor, length)
    disk, first, here, count, size, start = record
    end = at
    found = _find_end64(descriptor, at)
    if found is not None:
        end, wide = found
        narrow = (disk, first, here, count, size, start)
        for value, true, top in zip(narrow, wide, (_SHORT,) * 4 + (_FULL,) * 2, strict=True):
            if value not in (true, top):
                raise refuse("zip-end", found="zip64")
        disk, first, here, count, size, start = wide
    elif _SHORT in (disk, first, here, count) or _FULL in (size, start):
        raise refuse("zip-end", found="zip64")
    if disk or first or here != count:
        raise refuse("multi-part")
    if start + size != end:
        raise refuse("hidden-data" if start + size < end else "zip-end", found="central directory")
    return start, end, count


def _find_end(descriptor: int, length: int) -> tuple[int, tuple[int, ...]]:
    base = max(0, length - _END.size - _SHORT)
    tail = read_at(descriptor, length - base, base)
    ends: list[int] = []
    marks: list[int] = []
    at = tail.find(_MARK)
    while at >= 0:
        marks.append(at)
        if len(tail) >= at + _END.size:
            comment = int.from_bytes(tail[at + 20 : at + 22], "little")
            if at + _END.size + comment == len(tail):
                ends.append(at)
        at = tail.find(_MARK, at + 1)
    if not ends:
        raise refuse("trailing-data" if marks else "truncated", found="end record")
    if len(ends) > 1 or marks[-1] != ends[0]:
        raise refuse("zip-end", found=f"{len(marks)} end records")
    fields = _END.unpack_from(tail, ends[0])
    return base + ends[0], fields[1:7]


def _find_end64(descriptor: int, at: int) -> tuple[int, tuple[int, ...]] | None:
    """The large end record, when the locator that must stand before the small one is there."""
    place = at - _LOCATOR.size
    if place < 0:
        return None
    mark, disk, start, disks = _LOCATOR.unpack(read_at(descriptor, _LOCATOR.size, place))
    if mark != b"PK\x06\x07":
        return None
    if disk or disks > 1:
        raise refuse("multi-part")
    if start + _END64.size != place:
        raise refuse("zip-end", found="zip64")
    mark, size, _, _, disk, first, here, count, length, begin = _END64.unpack(
        read_at(descriptor, _END64.size, start)
    )
    if mark != b"PK\x06\x06" or size != _END64.size - 12:
        raise refuse("zip-end", found="zip64")
    return start, (disk, first, here, count, length, begin)
