"""Hostile tars, made by hand, plain and compressed. `TARS` names each with its rule."""

from __future__ import annotations

import gzip
import os
import random
from typing import TYPE_CHECKING, Any

from hostile.archives import NAMES, SKILL, Case

if TYPE_CHECKING:
    from collections.abc import Callable

END = bytes(1024)


def header(
    name: str | bytes,
    size: int | bytes = 0,
    kind: bytes = b"0",
    *,
    mode: bytes = b"0000644\0",
    link: bytes = b"",
    magic: bytes = b"ustar\x0000",
    prefix: bytes = b"",
    checksum: bytes | None = None,
) -> bytes:
    """One header block with arbitrary fields."""
    block = bytearray(512)
    raw = name.encode() if isinstance(name, str) else name
    block[: len(raw)] = raw
    block[100:108] = mode
    block[108:124] = b"0000000\0" * 2
    block[124:136] = size if isinstance(size, bytes) else b"%011o\0" % size
    block[136:148] = b"00000000000\0"
    block[148:156] = b" " * 8
    block[156:157] = kind
    block[157 : 157 + len(link)] = link
    block[257:265] = magic
    block[345 : 345 + len(prefix)] = prefix
    block[148:156] = b"%06o\0 " % sum(block) if checksum is None else checksum
    assert len(block) == 512
    return bytes(block)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def entry(name: str | bytes, data: bytes = b"x", kind: bytes = b"0", **said: Any) -> bytes:
    return header(name, said.pop("size", len(data)), kind, **said) + padded(data)


def pax(*pairs: tuple[str, bytes], kind: bytes = b"x") -> bytes:
    data = b"".join(record(key, value) for key, value in pairs)
    return entry("pax", data, kind)


def record(key: str, value: bytes) -> bytes:
    rest = b" " + key.encode() + b"=" + value + b"\n"
    size = len(rest) + 1
    while len(str(size)) + len(rest) != size:
        size = len(str(size)) + len(rest)
    return str(size).encode() + rest


def long_name(name: bytes, kind: bytes = b"L") -> bytes:
    return entry("././@LongLink", name + b"\0", kind, magic=b"ustar  \0")


FIRST = entry("s/SKILL.md", SKILL)
GNU = b"ustar  \0"


def tar(*parts: bytes) -> bytes:
    return FIRST + b"".join(parts) + END


def _write(name: str, data: bytes | Callable[[], bytes]) -> Callable[[str], str]:
    def write(folder: str) -> str:
        path = os.path.join(folder, name)
        with open(path, "wb") as stream:
            stream.write(data() if callable(data) else data)
        return path

    return write


def _named(name: str) -> bytes:
    raw = name.encode()
    if len(raw) <= 100 and raw.isascii() and "\0" not in name:
        return tar(entry(raw))
    return tar(pax(("path", raw)), entry("short"))


def _too_many() -> bytes:
    return FIRST + b"".join(header(f"s/{number}") for number in range(50_000)) + END


def _many_global() -> bytes:
    return tar(pax(("comment", b"x"), kind=b"g") * 50_000)


def _dense() -> bytes:
    parts = (random.Random(number).randbytes(20_000) * 50 for number in range(68))
    return gzip.compress(tar(*(entry(f"s/{at}", data) for at, data in enumerate(parts))), 6)


def _damaged_gzip() -> bytes:
    data = bytearray(gzip.compress(tar()))
    data[-6] ^= 1
    return bytes(data)


_MUCH = tar(entry("s/zeros", bytes(32 << 20)))
_MARKS = bytearray(FIRST)
_MARKS[5] ^= 1

PLAIN: dict[str, tuple[str, Any]] = {
    # Kinds of entries.
    "a symbolic link": ("link", tar(header("s/a", kind=b"2", link=b"/etc/passwd"))),
    "a link and a file through it": (
        "link",
        tar(header("s/a", kind=b"2", link=b"/var"), entry("s/a/evil")),
    ),
    "a hard link": ("link", tar(header("s/a", kind=b"1", link=b"../../etc/passwd"))),
    "a hard link to itself": ("link", tar(header("s/a", kind=b"1", link=b"s/a"))),
    "a long link": ("link", tar(long_name(b"../" * 99, b"K"), header("s/a", kind=b"2"))),
    "a character device": ("special-file", tar(header("s/a", kind=b"3"))),
    "a block device": ("special-file", tar(header("s/a", kind=b"4"))),
    "a named pipe": ("special-file", tar(header("s/a", kind=b"6"))),
    "a sparse file of GNU": ("sparse-file", tar(header("s/a", kind=b"S", magic=GNU))),
    "a sparse file of pax": ("sparse-file", tar(pax(("GNU.sparse.major", b"1")), entry("s/a"))),
    "a sparse name of pax": (
        "sparse-file",
        tar(pax(("GNU.sparse.name", b"../evil")), entry("s/a")),
    ),
    "a second volume": ("multi-part", tar(header("s/a", kind=b"M", magic=GNU))),
    "an unknown kind": ("tar-type", tar(header("s/a", kind=b"Z"))),
    "a contiguous file": ("tar-type", tar(header("s/a", kind=b"7"))),
    "a volume label": ("tar-type", tar(header("s", kind=b"V", magic=GNU))),
    "a file with a slash": ("type-differs", tar(entry("s/a/"))),
    "a folder with content": ("type-differs", tar(entry("s/a", b"x", b"5"))),
    "a folder twice": ("duplicate-name", tar(header("s/a/", kind=b"5") * 2)),
    "a folder that is a file": ("file-and-folder", tar(entry("s/a"), header("s/a", kind=b"5"))),
    "broken UTF-8": ("path-encoding", tar(entry(b"s/\xff"))),
    "another alphabet": (
        "path-encoding",
        tar(pax(("hdrcharset", b"BINARY"), ("path", b"s/a")), entry("x")),
    ),
    # Headers.
    "a wrong checksum": ("tar-header", bytes(_MARKS) + END),
    "a header of zeros but one": ("tar-header", tar(bytes(511) + b"\1")),
    "an old format": ("tar-header", tar(entry("s/a", magic=bytes(8)))),
    "two formats": ("tar-header", tar(entry("s/a", magic=b"ustar\0  "))),
    "a GNU header with a prefix": ("tar-header", tar(entry("a", magic=GNU, prefix=b"../../etc"))),
    "a prefix that climbs out": ("path-escapes", tar(entry("evil", prefix=b"s/../.."))),
    "bytes behind a name": ("tar-header", tar(entry(b"s/a\0evil"))),
    "a number that is none": ("tar-header", tar(entry("s/a", size=b"0000000009x\0"))),
    "a negative size": ("tar-header", tar(entry("s/a", size=b"\xff" * 12))),
    "an enormous size": ("truncated", tar(entry("s/a", size=b"\x80" + b"\x7f" * 11))),
    "a size beyond the end": ("truncated", tar(entry("s/a", size=1 << 30))),
    "cut in a file": ("truncated", FIRST[:600]),
    "no end": ("truncated", FIRST),
    "half an end": ("truncated", FIRST + bytes(512)),
    "an end in between": ("tar-header", FIRST + bytes(512) + entry("s/evil") + END),
    "a second archive behind the end": ("trailing-data", tar() + tar()),
    # Extended headers.
    "a size of pax that differs": (
        "header-differs",
        tar(pax(("size", b"1024")), entry("s/a", b""), entry("s/b")),
    ),
    "a size of pax that is none": ("tar-pax", tar(pax(("size", b"-1")), entry("s/a"))),
    "a name of pax that climbs out": ("path-escapes", tar(pax(("path", b"../x")), entry("s/a"))),
    "a long name that climbs out": ("path-escapes", tar(long_name(b"../x"), entry("s/a"))),
    "two names in one header": (
        "tar-pax",
        tar(pax(("path", b"s/a"), ("path", b"s/b")), entry("s/c")),
    ),
    "a record that counts wrong": ("tar-pax", tar(entry("x", b"99 path=s/a\n", b"x"), entry("y"))),
    "a record without a length": ("tar-pax", tar(entry("x", b"path=s/a\n", b"x"), entry("y"))),
    "a record of zero bytes": ("tar-pax", tar(entry("x", b"0 path=s/a\n", b"x"), entry("y"))),
    "a record without an end": ("tar-pax", tar(entry("x", b"11 path=s/ab", b"x"), entry("y"))),
    "a header of a megabyte": ("tar-pax", tar(pax(("comment", b"x" * (1 << 20))), entry("s/a"))),
    "a name for all": ("tar-pax", tar(pax(("path", b"s/x"), kind=b"g"), entry("s/a"))),
    "a size for all": ("tar-pax", tar(pax(("size", b"0"), kind=b"g"), entry("s/a"))),
    "two headers for one": (
        "tar-order",
        tar(pax(("path", b"s/a")), pax(("path", b"s/b")), entry("s/c")),
    ),
    "two long names for one": (
        "tar-order",
        tar(long_name(b"s/a"), long_name(b"s/b"), entry("s/c")),
    ),
    "a long name and a pax name": (
        "tar-order",
        tar(long_name(b"s/a"), pax(("path", b"s/b")), entry("s/c")),
    ),
    "a header without an entry": ("tar-order", tar(pax(("path", b"s/a")))),
    "a link's name for a file": ("tar-order", tar(long_name(b"s/a", b"K"), entry("s/c"))),
    "a long name of a megabyte": ("path-too-long", tar(long_name(b"a" * (1 << 20)), entry("s/a"))),
    "bytes behind a long name": ("tar-header", tar(long_name(b"s/a\0evil"), entry("s/a"))),
    "bytes behind a header": (
        "hidden-data",
        tar(header("x", 10, b"x") + b"10 a=bcde\n" + b"evil".ljust(502, b"\0"), entry("s/a")),
    ),
    # How much.
    "fifty thousand and one": ("too-many-files", _too_many),
    "headers without end": ("too-many-files", _many_global),
}

PACKED: dict[str, tuple[str, str, Any]] = {
    "a gzip bomb": ("ratio", "s.tar.gz", lambda: gzip.compress(_MUCH)),
    "a gzip in a gzip": ("not-an-archive", "s.tar.gz", lambda: gzip.compress(gzip.compress(tar()))),
    "half a gzip": ("truncated", "s.tar.gz", lambda: gzip.compress(tar())[:-9]),
    "a gzip with another checksum": ("damaged", "s.tar.gz", _damaged_gzip),
    "bytes behind a gzip": ("trailing-data", "s.tar.gz", lambda: gzip.compress(tar()) + b"evil"),
    "a second tar in a second gzip": (
        "trailing-data",
        "s.tar.gz",
        lambda: gzip.compress(tar()) + gzip.compress(tar()),
    ),
    "bzip2": ("unsupported-format", "s.tar.bz2", b"BZh9" + bytes(99)),
    "xz": ("unsupported-format", "s.tar.xz", b"\xfd7zXZ\0" + bytes(99)),
    "a skill too large": ("too-large", "s.tar.gz", _dense),
}

TARS = [
    Case(f"tar: {what}", rule, _write(name, data))
    for what, (rule, name, data) in {
        **{what: (rule, "s.tar", _named(name)) for what, (rule, name) in NAMES.items()},
        **{what: (rule, "s.tar", data) for what, (rule, data) in PLAIN.items()},
        **{f"packed, {what}": row for what, row in PACKED.items()},
    }.items()
]
