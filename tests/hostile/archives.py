"""Hostile zips, made by hand: no library writes what these contain.

`ZIPS` names each with the rule that must refuse it, or as `ACCEPTED` where every reader finds the
same files. `Zip` writes every field of the format as it is told to, so that a header can lie about
anything.
"""

from __future__ import annotations

import os
import random
import zlib
from struct import pack
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

SKILL = b"---\nname: bad\ndescription: Helps.\n---\n\nDo it.\n"
FILE = 0o100644 << 16
UTF8 = 0x0800
ACCEPTED = "accepted"


class Case(NamedTuple):
    """One hostile thing."""

    name: str
    rule: str
    make: Callable[[str], str]
    """Writes it below a folder, and returns what to import."""


def deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


class Zip:
    """A zip with arbitrary fields."""

    def __init__(self, *, skill: bool = True) -> None:
        self.body = b""
        self.rows: list[bytes] = []
        if skill:
            self.add("s/SKILL.md", SKILL)

    def add(
        self,
        name: str | bytes,
        data: bytes = b"x",
        *,
        method: int = 0,
        packed: bytes | None = None,
        gap: bytes = b"",
        tail: bytes = b"",
        local: dict[str, Any] | None = None,
        central: bool = True,
        **said: Any,
    ) -> Zip:
        """Append an entry; keywords override what the directory says, `local` the other half."""
        raw = name.encode() if isinstance(name, str) else name
        content = packed if packed is not None else deflate(data) if method == 8 else data
        fields: dict[str, Any] = {
            "made": 0x0314, "need": 20, "flags": 0, "method": method, "crc": zlib.crc32(data),
            "packed": len(content), "size": len(data), "name": raw, "extra": b"", "comment": b"",
            "disk": 0, "inside": 0, "outside": FILE, "at": len(self.body) + len(gap),
        }  # fmt: skip
        fields |= said
        near = fields | (local or {})
        self.body += gap + pack(
            "<4s5H3I2H", b"PK\3\4", near["need"], near["flags"], near["method"], 0, 33,
            near["crc"], near["packed"], near["size"], len(near["name"]), len(near["extra"]),
        ) + near["name"] + near["extra"] + content + tail  # fmt: skip
        if central:
            self.rows.append(pack(
                "<4s6H3I5H2I", b"PK\1\2", fields["made"], fields["need"], fields["flags"],
                fields["method"], 0, 33, fields["crc"], fields["packed"], fields["size"],
                len(fields["name"]), len(fields["extra"]), len(fields["comment"]), fields["disk"],
                fields["inside"], fields["outside"], fields["at"],
            ) + fields["name"] + fields["extra"] + fields["comment"])  # fmt: skip
        return self

    def bytes(
        self,
        *,
        comment: bytes = b"",
        before: bytes = b"",
        between: bytes = b"",
        after: bytes = b"",
        **said: Any,
    ) -> bytes:
        directory = b"".join(self.rows)
        end: dict[str, Any] = {
            "disk": 0, "first": 0, "here": len(self.rows), "count": len(self.rows),
            "size": len(directory), "start": len(self.body), "note": len(comment),
        }  # fmt: skip
        end |= said
        record = pack(
            "<4s4H2IH", b"PK\5\6", end["disk"], end["first"], end["here"], end["count"],
            end["size"], end["start"], end["note"],
        )  # fmt: skip
        return before + self.body + directory + between + record + comment + after


def _zip(data: bytes | Callable[[], bytes]) -> Callable[[str], str]:
    def write(folder: str) -> str:
        path = os.path.join(folder, "skills.zip")
        with open(path, "wb") as stream:
            stream.write(data() if callable(data) else data)
        return path

    return write


def _named(name: str) -> Callable[[str], str]:
    return _zip(lambda: Zip().add(name, flags=0 if name.isascii() else UTF8).bytes())


NAMES: dict[str, tuple[str, str]] = {
    "climbs out": ("path-escapes", "../evil"),
    "climbs out later": ("path-escapes", "s/../../evil"),
    "ends in two dots": ("path-escapes", "s/.."),
    "from the root": ("path-absolute", "/etc/evil"),
    "backslashes": ("path-backslash", "s\\..\\..\\evil"),
    "a share": ("path-backslash", "\\\\host\\share\\evil"),
    "a drive": ("path-colon", "C:/evil"),
    "an alternate stream": ("path-colon", "s/a.md:evil"),
    "an empty part": ("path-parts", "s//evil"),
    "a dot as a part": ("path-parts", "s/./evil"),
    "three dots": ("windows-name", "s/..."),
    "a soft hyphen": ("path-characters", "s/a\u00adb"),
    "a byte order mark": ("path-characters", "s/a\ufeffb"),
    "a device and a space": ("windows-name", "s/Con .txt"),
    "a console": ("windows-name", "s/CONIN$"),
    "a NUL": ("path-characters", "s/a.md\0.png"),
    "an escape sequence": ("path-characters", "s/\x1b[2Jevil"),
    "a line break": ("path-characters", "s/a\nb"),
    "text direction": ("path-characters", "s/gnp\u202e.exe"),
    "zero width": ("path-characters", "s/SKI\u200bLL.md"),
    "tag characters": ("path-characters", "s/a\U000e0041\U000e0042"),
    "an invisible letter": ("path-characters", "s/a\u3164"),
    "only a device": ("windows-name", "s/CON"),
    "a device with an ending": ("windows-name", "s/nul.tar.gz"),
    "a device with a superscript": ("windows-name", "s/COM¹.md"),
    "a dot at the end": ("windows-name", "s/a."),
    "a space at the end": ("windows-name", "s/a /b"),
    "a wildcard": ("windows-name", "s/a*b"),
    "a short name of .git": ("windows-name", "s/git~1/config"),
    "a long part": ("path-too-long", "s/" + "a" * 256),
    "a long path": ("path-too-long", "s/" + "/".join(["a" * 100] * 11)),
    "a deep path": ("path-too-deep", "s/" + "a/" * 65 + "b"),
    "another case": ("case-conflict", "s/skill.md"),
    "another case of a folder": ("case-conflict", "S/other.md"),
    "a long s": ("case-conflict", "ſ/other.md"),
    "twice": ("duplicate-name", "s/SKILL.md"),
    "below a file": ("file-and-folder", "s/SKILL.md/evil"),
}
"""What -> the rule, and a name next to `s/SKILL.md`."""


def _bomb() -> bytes:
    return Zip().add("s/zeros", bytes(16 << 20), method=8).bytes()


def _many_small_bombs() -> bytes:
    made = Zip()
    for number in range(400):
        made.add(f"s/{number}", bytes(64 << 10), method=8)
    return made.bytes()


def _quoted_bomb(*, count: int = 200) -> bytes:
    """Each entry's content is the next entry with its header: all share the same zeros."""
    kernel = deflate(bytes(40_000))
    crc = zlib.crc32(bytes(40_000))
    made = Zip(skill=False)
    made.add("s/000", packed=kernel, method=8, size=40_000, crc=crc)
    for number in range(1, count):
        made.rows.append(made.rows[0].replace(b"s/000", b"s/%03d" % number))
    return made.bytes()


def _partial_overlap() -> bytes:
    made = Zip()
    inner = Zip(skill=False).add("s/inner", b"y" * 50)
    at = len(made.body) + 30 + len("s/outer")
    made.add("s/outer", inner.body)
    made.rows.append(Zip(skill=False).add("s/inner", b"y" * 50, at=at).rows[0])
    return made.bytes()


def _hidden_entry() -> bytes:
    return Zip().add("s/seen").add("s/hidden", central=False).add("s/last").bytes()


def _too_many() -> bytes:
    body = Zip().body
    rows: list[bytes] = []
    parts: list[bytes] = [body]
    at = 0
    for number in range(50_001):
        one = Zip(skill=False).add(f"s/{number}", b"", at=at)
        rows += one.rows
        at += len(one.body)
        parts.append(one.body)
    made = Zip(skill=False)
    made.body, made.rows = b"".join(parts[1:]), rows
    return made.bytes()


def _huge_directory() -> bytes:
    """More rows than are ever parsed, of one entry."""
    made = Zip()
    made.rows *= 200_000
    return made.bytes(here=1, count=1)


def _long_names() -> bytes:
    made = Zip()
    for number in range(600):
        made.add(f"s/{number:04}/" + "/".join(["a" * 15] * 60), b"")
    return made.bytes()


def _dense(count: int) -> bytes:
    """More than a skill may hold, packed thirty to one."""
    made = Zip()
    data = random.Random(1).randbytes(20_000) * 50
    for number in range(count):
        made.add(f"s/{number}", data, method=8)
    return made.bytes()


def _crowd() -> bytes:
    made = Zip()
    parts, rows = [made.body], made.rows
    at = len(made.body)
    for number in range(10_001):
        one = Zip(skill=False).add(f"s/{number}", b"", at=at)
        rows += one.rows
        at += len(one.body)
        parts.append(one.body)
    made.body = b"".join(parts)
    return made.bytes()


def _descriptor(data: bytes, *, crc: int | None = None) -> bytes:
    sum_ = zlib.crc32(data) if crc is None else crc
    return pack("<4s3I", b"PK\7\x08", sum_, len(data), len(data))


_D = {"flags": 8, "local": {"crc": 0, "packed": 0, "size": 0}}
_UNICODE = b"\x75\x70" + pack("<HBI", 5 + 6, 1, zlib.crc32(b"s/a.md")) + b"s/b.md"
_PLAIN = Zip().add("s/a.md", b"hello" * 100, method=8)

FORMS: dict[str, tuple[str, Any]] = {
    # Kinds of entries.
    "a symbolic link": ("link", Zip().add("s/a", b"/etc/passwd", outside=0o120777 << 16)),
    "a link from DOS": ("link", Zip().add("s/a", b"../..", made=20, outside=0o120777 << 16)),
    "a named pipe": ("special-file", Zip().add("s/a", b"", outside=0o010644 << 16)),
    "a device": ("special-file", Zip().add("s/a", b"", outside=0o020644 << 16)),
    "a socket": ("special-file", Zip().add("s/a", b"", outside=0o140644 << 16)),
    "a folder without a slash": ("type-differs", Zip().add("s/a", b"", outside=0o040755 << 16)),
    "a DOS folder without a slash": ("type-differs", Zip().add("s/a", b"", outside=0x10)),
    "a file with a slash": ("type-differs", Zip().add("s/a/", b"", outside=FILE)),
    "a folder with content": ("type-differs", Zip().add("s/a/", b"x", outside=0o040755 << 16)),
    "a folder twice": (
        "duplicate-name",
        Zip().add("s/a/", b"", outside=0x10).add("s/a/", b"", outside=0x10),
    ),
    "an accent in two ways": (
        "case-conflict",
        Zip().add("s/\u00e9", flags=UTF8).add("s/e\u0301", flags=UTF8),
    ),
    # Encoding of names.
    "an old code page": ("zip-encoding", Zip().add(b"s/\x82.md")),
    "broken UTF-8": ("path-encoding", Zip().add(b"s/\xff.md", flags=UTF8)),
    "overlong UTF-8": ("path-encoding", Zip().add(b"s/\xc0\xae\xc0\xae/x", flags=UTF8)),
    "half a pair": ("path-encoding", Zip().add(b"s/\xed\xa0\x80", flags=UTF8)),
    "no name": ("path-parts", Zip().add(b"", b"x")),
    # Features.
    "a password": ("encrypted", Zip().add("s/a", flags=1)),
    "strong encryption": ("encrypted", Zip().add("s/a", flags=0x41)),
    "a password in the second header": ("header-differs", Zip().add("s/a", local={"flags": 1})),
    "encryption by AES": ("encrypted", Zip().add("s/a", extra=pack("<HH7x", 0x9901, 7))),
    "method AES": ("encrypted", Zip().add("s/a", b"x", method=99)),
    "method bzip2": ("method", Zip().add("s/a", method=12)),
    "method lzma": ("method", Zip().add("s/a", method=14)),
    "method zstd": ("method", Zip().add("s/a", method=93)),
    "patched data": ("damaged", Zip().add("s/a", flags=0x20)),
    "another disk": ("multi-part", Zip().add("s/a", disk=1)),
    # Content.
    "a wrong checksum": ("damaged", Zip().add("s/a", crc=7)),
    "not deflate": ("damaged", Zip().add("s/a", b"x" * 9, method=8, packed=b"\xff" * 9)),
    "half of deflate": (
        "damaged",
        Zip().add("s/a", b"abc" * 99, method=8, packed=deflate(b"abc" * 99)[:-3]),
    ),
    "more than declared": (
        "damaged",
        Zip().add("s/a", b"", method=8, packed=deflate(bytes(50_000)), size=10, crc=0),
    ),
    "less than declared": ("truncated", Zip().add("s/a", b"x", method=8, size=500)),
    "stored in another size": ("truncated", Zip().add("s/a", b"x", size=2)),
    "bytes behind deflate": (
        ACCEPTED,
        Zip().add("s/a", b"abc", method=8, packed=deflate(b"abc") + b"evil"),
    ),
    # Two stories.
    "another name inside": ("damaged", Zip().add("s/a", local={"name": b"s/b"})),
    "another length of name": ("damaged", Zip().add("s/a", local={"name": b"s/abc"})),
    "another method inside": ("header-differs", Zip().add("s/a", local={"method": 8})),
    "another size inside": ("header-differs", Zip().add("s/a", local={"size": 9})),
    "another checksum inside": ("header-differs", Zip().add("s/a", local={"crc": 9})),
    "another flag inside": ("header-differs", Zip().add("s/a", local={"flags": UTF8})),
    "a second name": ("header-differs", Zip().add("s/a.md", extra=_UNICODE)),
    "a second name inside": ("header-differs", Zip().add("s/a.md", local={"extra": _UNICODE})),
    "a descriptor that lies": (
        "header-differs",
        Zip().add("s/a", b"abc", tail=_descriptor(b"abc", crc=5), **_D),
    ),
    "a descriptor that is missing": ("hidden-data", Zip().add("s/a", b"abc", **_D)),
    "an entry that is not there": ("overlap", Zip().add("s/a", at=10)),
    "an entry beyond the end": ("hidden-data", Zip(skill=False).add("s/a", b"x", at=0xFFFFFFF0)),
    # Where things lie.
    "one content for two hundred": ("overlap", _quoted_bomb),
    "an entry inside another": ("overlap", _partial_overlap),
    "an entry nobody lists": ("hidden-data", _hidden_entry),
    "a gap": ("hidden-data", Zip().add("s/a", gap=b"evil")),
    "a program in front": (
        "hidden-data",
        Zip(skill=False).add("s/SKILL.md", SKILL, gap=b"PK\3\4" + b"#!/bin/sh\n"),
    ),
    "bytes before the end record": ("damaged", lambda: _PLAIN.bytes(between=b"evil")),
    "bytes behind the end": ("trailing-data", lambda: _PLAIN.bytes(after=b"evil")),
    "an end in the comment": ("hidden-data", lambda: _PLAIN.bytes(comment=Zip().bytes())),
    "an end record in the comment": (
        "hidden-data",
        lambda: _PLAIN.bytes(comment=b"PK\5\6" + bytes(30)),
    ),
    "no end": ("damaged", lambda: _PLAIN.bytes()[:-30]),
    "cut in the middle": ("damaged", lambda: _PLAIN.bytes()[:90]),
    "a directory too short": ("hidden-data", lambda: _PLAIN.bytes(start=len(_PLAIN.body) + 9)),
    "fewer than declared": ("multi-part", lambda: _PLAIN.bytes(here=3, count=3)),
    "more than it declares": ("multi-part", lambda: _PLAIN.bytes(here=1, count=1)),
    "part of a set": ("multi-part", lambda: _PLAIN.bytes(disk=1)),
    "half of the entries elsewhere": ("multi-part", lambda: _PLAIN.bytes(here=1)),
    "a set's first part": ("unsupported-format", lambda: b"PK\7\x08" + _PLAIN.bytes()),
    # zip64 and additional fields.
    "zip64 in the end record": ("multi-part", lambda: _PLAIN.bytes(here=0xFFFF, count=0xFFFF)),
    "zip64 in front of the end": ("damaged", lambda: _PLAIN.bytes(between=b"PK\6\7" + bytes(16))),
    "zip64 in a comment": (ACCEPTED, Zip().add("s/a", comment=b"PK\6\7" + bytes(16))),
    "zip64 in an entry": ("too-large", Zip().add("s/a", b"x", size=0xFFFFFFFF)),
    "zip64 in a field": (ACCEPTED, Zip().add("s/a", extra=pack("<HHQ", 1, 8, 5))),
    "a field that is cut off": ("damaged", Zip().add("s/a", extra=b"\x01\x02\x63\x00ab")),
    # Other files.
    "zstd": ("unsupported-format", lambda: b"\x28\xb5\x2f\xfd" + bytes(99)),
    "7z": ("unsupported-format", lambda: b"7z\xbc\xaf\x27\x1c" + bytes(99)),
    "rar": ("unsupported-format", lambda: b"Rar!\x1a\x07\x01\x00" + bytes(99)),
    "text": ("not-an-archive", lambda: b"hello " * 999),
    "nothing": ("not-an-archive", lambda: b""),
    # How much.
    "a bomb": ("ratio", _bomb),
    "many small bombs": ("ratio", _many_small_bombs),
    "four times four gigabytes": (
        "too-large",
        Zip().add("s/a", b"x", method=8, size=0xFFFFFFF0).add("s/b", b"x", method=8, size=99),
    ),
    "fifty thousand and one": ("too-many-files", _too_many),
    "long paths of many folders": ("names-too-large", _long_names),
    "two hundred thousand rows": ("names-too-large", _huge_directory),
    "a skill too large": ("too-large", lambda: _dense(68)),
    "a skill of too many files": ("too-many-files", _crowd),
}


def form(what: Any) -> Callable[[str], str]:
    return _zip(what.bytes() if isinstance(what, Zip) else what)


ZIPS = [
    *(Case(f"zip: {what}", rule, _named(name)) for what, (rule, name) in NAMES.items()),
    *(Case(f"zip: {what}", rule, form(made)) for what, (rule, made) in FORMS.items()),
]
