"""Zips in which one field of one header lies: another reader would see another archive.

`FIELDS` names each with the rule that must refuse it, or as `ACCEPTED` where no reader that goes by
the field finds other files.
"""

from __future__ import annotations

import zlib
from struct import pack
from typing import Any

from hostile.archives import ACCEPTED, FILE, SKILL, UTF8, Case, Zip, deflate, form

DATA = b"hello " * 50
PACKED = deflate(DATA)
CRC = zlib.crc32(DATA)
DESCRIBED: dict[str, Any] = {"flags": 8, "local": {"crc": 0, "packed": 0, "size": 0}}


def described(
    *,
    mark: bytes = b"PK\7\x08",
    crc: int = CRC,
    packed: int = len(DATA),
    size: int = len(DATA),
    form: str = "<3I",
) -> Zip:
    """A stored file whose values follow it."""
    return Zip().add("s/a", DATA, tail=mark + pack(form, crc, packed, size), **DESCRIBED)


def local(**fields: Any) -> Zip:
    """A packed file whose local header differs."""
    return Zip().add("s/a", DATA, method=8, local=fields).add("s/b")


def unicode_path(name: bytes, *, version: int = 1, crc: int | None = None) -> bytes:
    check = zlib.crc32(b"s/a") if crc is None else crc
    return b"\x75\x70" + pack("<HBI", 5 + len(name), version, check) + name


def nested(stored: bool) -> Zip:
    """A file that is an archive itself, which readers of local headers would enter."""
    inner = Zip(skill=False).add("s/evil.py", b"print(1)").bytes()
    return Zip().add("s/inner.zip", inner, method=0 if stored else 8)


def swapped() -> bytes:
    """The directory lists the entries in another order than the file has them."""
    archive = Zip().add("s/a", b"a").add("s/b", b"b")
    archive.rows.reverse()
    return archive.bytes()


def crossed() -> bytes:
    """Two rows of the directory point at each other's content."""
    archive = Zip(skill=False).add("s/SKILL.md", SKILL).add("s/a", SKILL, at=0)
    return archive.bytes()


def row_twice() -> bytes:
    archive = Zip().add("s/a")
    archive.rows.append(archive.rows[-1])
    return archive.bytes()


def row_lost() -> bytes:
    archive = Zip().add("s/a").add("s/b")
    del archive.rows[1]
    return archive.bytes()


def directory_twice() -> bytes:
    archive = Zip().add("s/a")
    return archive.bytes(between=b"".join(archive.rows))


def directory_moved() -> bytes:
    archive = Zip().add("s/a")
    return archive.bytes(start=len(archive.body) - 7)


def mark(begin: bytes, count: int = 1) -> bytes:
    """One signature is another one."""
    data = Zip().add("s/a").bytes()
    return data.replace(begin, begin[:2] + b"\0\0", count)


FIELDS: dict[str, tuple[str, Any]] = {
    **{
        f"flag {bit} only inside": (rule, local(flags=1 << bit))
        for bit, rule in {
            0: "header-differs", 1: ACCEPTED, 2: ACCEPTED, 3: "hidden-data", 4: ACCEPTED,
            5: ACCEPTED, 6: "header-differs", 11: "header-differs", 13: "header-differs",
        }.items()
    },
    **{
        f"flag {bit} only in the directory": (
            rule,
            Zip().add("s/a", flags=1 << bit, local={"flags": 0}),
        )
        for bit, rule in {
            0: "encrypted", 3: "header-differs", 5: "damaged", 6: "encrypted",
            11: "header-differs", 13: "encrypted",
        }.items()
    },
    **{
        f"method {method} inside": ("header-differs", local(method=method))
        for method in (0, 1, 6, 9, 12, 14, 93, 99, 0xFFFF)
    },
    "a checksum of zero inside": ("header-differs", local(crc=0)),
    "a packed size of zero inside": ("header-differs", local(packed=0)),
    "a packed size of one more inside": ("header-differs", local(packed=len(PACKED) + 1)),
    "a size of zero inside": ("header-differs", local(size=0)),
    "sizes of zip64 inside": ("header-differs", local(packed=0xFFFFFFFF, size=0xFFFFFFFF)),
    "a name of another case inside": ("damaged", local(name=b"s/A")),
    "a name that climbs out inside": ("damaged", local(name=b"../a")),
    "an empty name inside": ("damaged", local(name=b"")),
    "a name with a NUL inside": ("damaged", local(name=b"s/a\0b")),
    "a folder's name inside": ("damaged", local(name=b"s/a/")),
    "AES inside": ("encrypted", local(extra=pack("<HH7x", 0x9901, 7))),
    "zip64 inside, with other sizes": (
        "header-differs",
        local(packed=0xFFFFFFFF, size=0xFFFFFFFF, extra=pack("<HHQQ", 1, 16, 5, 5)),
    ),
    "the same second name": (ACCEPTED, Zip().add("s/a", extra=unicode_path(b"s/a"))),
    "a second name of another version": (
        "header-differs", Zip().add("s/a", extra=unicode_path(b"s/b", version=2)),
    ),
    "a second name with another checksum": (
        "header-differs", Zip().add("s/a", extra=unicode_path(b"s/b", crc=1)),
    ),
    "an empty second name": ("header-differs", Zip().add("s/a", extra=unicode_path(b""))),
    "two second names": (
        "header-differs", Zip().add("s/a", extra=unicode_path(b"s/a") + unicode_path(b"s/b")),
    ),
    "a second name in broken UTF-8": (
        "header-differs", Zip().add("s/a", extra=unicode_path(b"s/\xff")),
    ),
    "a descriptor": (ACCEPTED, described()),
    "a descriptor without its mark": (ACCEPTED, described(mark=b"")),
    "a descriptor of zip64": ("hidden-data", described(form="<IQQ")),
    "a descriptor with another packed size": ("header-differs", described(packed=1)),
    "a descriptor with another size": ("header-differs", described(size=1)),
    "a descriptor with another mark": (ACCEPTED, described(mark=b"evil")),
    "a descriptor behind a gap": ("hidden-data", described(mark=b"gap.PK\7\x08")),
    "a descriptor that nothing announces": (
        "hidden-data", Zip().add("s/a", DATA, tail=b"PK\7\x08" + pack("<3I", CRC, 300, 300)),
    ),
    "values in front and behind that differ": (
        "header-differs",
        Zip().add(
            "s/a", DATA, flags=8, local={"size": 5},
            tail=b"PK\7\x08" + pack("<3I", CRC, len(DATA), len(DATA)),
        ),
    ),
    "a stored archive": (ACCEPTED, nested(stored=True)),
    "a packed archive": (ACCEPTED, nested(stored=False)),
    "another order": (ACCEPTED, swapped),
    "two rows for one content": ("overlap", crossed),
    "a row twice": ("duplicate-name", row_twice),
    "a row that is missing": ("hidden-data", row_lost),
    "a directory twice": ("hidden-data", directory_twice),
    "a directory that begins in an entry": ("hidden-data", directory_moved),
    "no mark at the first entry": ("not-an-archive", lambda: mark(b"PK\3\4")),
    "no mark at the first row": ("damaged", lambda: mark(b"PK\1\2")),
    "no mark at the end": ("damaged", lambda: mark(b"PK\5\6")),
    "a directory of another size": ("damaged", lambda: Zip().add("s/a").bytes(size=40)),
    "a directory larger than the file": ("damaged", lambda: Zip().bytes(size=1 << 30)),
    "a directory at the very end": ("hidden-data", lambda: Zip().bytes(start=0xFFFFFFF0)),
    "no entries at all": (ACCEPTED, lambda: Zip(skill=False).bytes()),
    "a comment shorter than it says": (ACCEPTED, lambda: Zip().bytes(note=9)),
    "a comment longer than it says": (
        "trailing-data", lambda: Zip().bytes(comment=b"a comment", note=3),
    ),
    "a file of Unix with the bit of a folder": (
        ACCEPTED, Zip().add("s/a", outside=FILE | 0x10),
    ),
    "a folder of Unix without the bit": (
        ACCEPTED, Zip().add("s/a/", b"", outside=0o040755 << 16),
    ),
    "a program that takes its owner's rights": (
        ACCEPTED, Zip().add("s/a", outside=0o104755 << 16),
    ),
    "an old encoding that is UTF-8 by chance": (
        "zip-encoding", Zip().add("s/é".encode(), made=0x0014),
    ),
    "UTF-8 in the comment alone": (ACCEPTED, Zip().add("s/a", comment="é".encode())),
    "a version from the future": ("damaged", Zip().add("s/a", need=999)),
    "an empty file that is packed": (
        ACCEPTED, Zip().add("s/a", b"", method=8, packed=deflate(b"")),
    ),
    "an empty file with content": ("hidden-data", Zip().add("s/a", b"", tail=b"x")),
    "a name of 65,535 bytes": ("path-too-long", Zip().add("s/" + "a" * 65_533, flags=UTF8)),
}  # fmt: skip

FIELD_ZIPS = [Case(f"zip: {what}", rule, form(made)) for what, (rule, made) in FIELDS.items()]
