"""Was this written here, by this user's Satchel?

A project comes from somebody. It may bring a `.satchel` of its own, and a `git pull` puts files
into the one that is there, over ours if need be. So whatever is believed later (the journal and the
history) carries a seal: a keyed sum over its content and over the real path of the work area. The
key is in the user's state folder and nowhere else, so nobody who can only write into the project
can make one, and what was copied from another place is not taken for ours.
"""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING, Any

from satchel._fs import locked, read_plain, write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "work.key"
MEMORY = "(memory)"
"""Instead of a path: there is no state folder, so the key lives as long as the process."""
SEAL = "seal"
RECORD = "record"
_KEY = re.compile(rb"[0-9a-f]{64}")
_MAX_FILE = 1024
_NOT_KEPT = frozenset((errno.EROFS, errno.EACCES, errno.EPERM))
_memory: dict[str, bytes] = {}


def key_path(state: str) -> str:
    """Where the key of a user is, for the path of the state folder."""
    return os.path.join(state, NAME) if state else MEMORY


def read_key(path: str) -> bytes:
    """The key; empty when there is none yet.

    Raises:
        OSError: it cannot be read, or is damaged. That must not look as if there were none.
    """
    if path == MEMORY:
        return _memory.get(path, b"")
    try:
        data = read_plain(path, _MAX_FILE).strip()
    except (FileNotFoundError, NotADirectoryError):
        return _memory.get(path, b"")
    if not _KEY.fullmatch(data):
        raise OSError(errno.EINVAL, "it is damaged; delete it to begin with a new one", path)
    return bytes.fromhex(data.decode())


def own_key(path: str) -> tuple[bytes, str]:
    """The key, made at the first use; and why it cannot be kept, when it cannot.

    Raises:
        OSError: the disk says no, in a way that may be over soon.
    """
    key = read_key(path)
    if key and path not in _memory:
        return key, ""
    if path == MEMORY:
        return _memory.setdefault(path, os.urandom(32)), "there is no state folder"
    try:
        with locked(path + ".lock"):
            key = b"" if path in _memory else read_key(path)
            if not key:
                key = _memory.get(path) or os.urandom(32)
                write_atomic(path, key.hex().encode() + b"\n", private=True)
                _memory.pop(path, None)
    except OSError as exc:
        if exc.errno not in _NOT_KEPT:
            raise
        return _memory.setdefault(path, key or os.urandom(32)), exc.strerror or str(exc)
    return key, ""


def mark_of(key: bytes, work: str) -> str:
    """What stands in a work area so that its owner knows it again. It is no secret."""
    return _sum(key, b"owner", work, b"")[:32]


def seal_of(table: Mapping[str, Any], key: bytes, work: str, kind: str) -> str:
    """The seal of what is about to be written.

    Args:
        table: The content, as JSON knows it; a seal in it does not count.
        key: Whose.
        work: The work area that it belongs to.
        kind: What it is, so that nothing passes for something else.
    """
    import json

    bare = {name: value for name, value in table.items() if name != SEAL}
    return _sum(key, kind.encode(), work, json.dumps(bare, sort_keys=True).encode())


def is_sealed(table: Mapping[str, Any], path: str, work: str, kind: str) -> bool:
    """Whether something that was read carries the seal of the key at `path`.

    Raises:
        OSError: the key cannot be read.
    """
    from hmac import compare_digest

    key, given = read_key(path), table.get(SEAL)
    if not key or not isinstance(given, str) or not given.isascii():
        return False
    return compare_digest(seal_of(table, key, work, kind), given)


def _sum(key: bytes, kind: bytes, work: str, data: bytes) -> str:
    import hmac

    place = os.fsencode(os.path.realpath(work))
    framed = b"".join(b"%d:" % len(part) + part for part in (kind, place, data))
    return hmac.new(key, framed, "sha256").hexdigest()
