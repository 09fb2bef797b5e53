"""Which format is a file, and what does it contain?

The first bytes decide, never the name: a zip called `.tar.gz` is a zip.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.errors import InvalidInput, NotFound, Refused
from satchel.store.archive.pieces import read_at
from satchel.store.archive.rules import BOUNDS, refuse, shown
from satchel.store.archive.tar import open_tar
from satchel.store.archive.unpack import unpack
from satchel.store.archive.zip import open_zip

if TYPE_CHECKING:
    from satchel.store.archive.rules import Bounds
    from satchel.store.archive.tree import ArchiveTree

_PACKED = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\0": "xz"}
_OTHERS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "rar",
    b"\x1f\x9d": "compress",
    b"\x04\x22\x4d\x18": "lz4",
    b"PK\x07\x08": "zip in parts",
    b"MSCF": "cab",
    b"xar!": "xar",
    b"LZIP": "lzip",
}


def open_archive(path: str, bounds: Bounds = BOUNDS, *, scratch: str | None = None) -> ArchiveTree:
    """Open a zip or a tar, compressed or not.

    Every header is checked at once; the content of a file when it is read.

    Args:
        path: The archive.
        bounds: How large it may be; a skill's own limits are for `subtree`.
        scratch: A folder on the disk that a compressed tar is unpacked to, unnamed.

    Raises:
        Unsafe: it breaks a rule.
        NotFound: there is no such file.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise NotFound(
            say("There is no archive `{path}`", path=shown(path)), say("Check the path")
        ) from exc
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    try:
        return _open(descriptor, path, bounds, scratch)
    except BaseException as exc:
        os.close(descriptor)
        if isinstance(exc, OSError):  # such as a full disk
            raise _unreadable(path, exc) from exc
        raise


def _unreadable(path: str, exc: OSError) -> Refused:
    return Refused(
        say("`{path}` cannot be read: {reason}", path=shown(path), reason=exc.strerror or exc),
        say("Check its permissions, and the room for temporary files"),
    )


def _open(descriptor: int, path: str, bounds: Bounds, scratch: str | None) -> ArchiveTree:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise InvalidInput(
            say("`{path}` is not a regular file", path=shown(path)), say("Check the path")
        )
    head = read_at(descriptor, 512, 0)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return open_zip(descriptor, bounds)
    for mark, name in _OTHERS.items():
        if head.startswith(mark):
            raise refuse("unsupported-format", found=name)
    for mark, kind in _PACKED.items():
        if head.startswith(mark):
            return _open_packed(descriptor, kind, bounds, scratch)
    return _open_plain(descriptor, "tar", bounds)


def _open_plain(descriptor: int, kind: str, bounds: Bounds) -> ArchiveTree:
    head = read_at(descriptor, 512, 0)
    if head[257:262] != b"ustar" and head != bytes(512):
        raise refuse("not-an-archive", found="" if kind == "tar" else f"{kind} without a tar in it")
    return open_tar(descriptor, bounds, kind)


def _open_packed(descriptor: int, kind: str, bounds: Bounds, scratch: str | None) -> ArchiveTree:
    plain = unpack(descriptor, kind, bounds, scratch)
    try:
        tree = _open_plain(plain, f"tar.{kind}", bounds)
    except BaseException:
        os.close(plain)
        raise
    os.close(descriptor)
    return tree
