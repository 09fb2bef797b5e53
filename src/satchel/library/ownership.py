"""The user's key, and HMAC signatures of Satchel's own records.

A project may contain a `.satchel` folder, and a `git pull` may add files to it. The journal, the
history and similar records are therefore signed: an HMAC over their content and over the real path
of the work area. The key exists only in the user's state folder.
"""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING, Any

from satchel._fs import locked, read_plain, write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY_FILE = "work.key"
MEMORY = "(memory)"
"""Placeholder path without a state folder: the key lives as long as the process."""
SIGNATURE = "seal"
RECORD_KIND = "record"
_KEY = re.compile(rb"[0-9a-f]{64}")
_MAX_KEY_FILE_BYTES = 1024
_READ_ONLY_ERRORS = frozenset((errno.EROFS, errno.EACCES, errno.EPERM))
_unsaved_keys: dict[str, bytes] = {}


def key_path(state: str) -> str:
    """Path of the key in a state folder."""
    return os.path.join(state, KEY_FILE) if state else MEMORY


def read_key(path: str) -> bytes:
    """Read the key; empty when there is none yet.

    Raises:
        OSError: it cannot be read or is damaged.
    """
    if path == MEMORY:
        return _unsaved_keys.get(path, b"")
    try:
        data = read_plain(path, _MAX_KEY_FILE_BYTES).strip()
    except (FileNotFoundError, NotADirectoryError):
        return _unsaved_keys.get(path, b"")
    if not _KEY.fullmatch(data):
        raise OSError(errno.EINVAL, "it is damaged; delete it to begin with a new one", path)
    return bytes.fromhex(data.decode())


def load_or_create_key(path: str) -> tuple[bytes, str]:
    """Read the key or create it; also returns why it cannot be saved, if so.

    Raises:
        OSError: a temporary error of the disk.
    """
    key = read_key(path)
    if key and path not in _unsaved_keys:
        return key, ""
    if path == MEMORY:
        return _unsaved_keys.setdefault(path, os.urandom(32)), "there is no state folder"
    try:
        with locked(path + ".lock"):
            key = b"" if path in _unsaved_keys else read_key(path)
            if not key:
                key = _unsaved_keys.get(path) or os.urandom(32)
                write_atomic(path, key.hex().encode() + b"\n", private=True)
                _unsaved_keys.pop(path, None)
    except OSError as exc:
        if exc.errno not in _READ_ONLY_ERRORS:
            raise
        return _unsaved_keys.setdefault(path, key or os.urandom(32)), exc.strerror or str(exc)
    return key, ""


def owner_id(key: bytes, work: str) -> str:
    """Identifier of the owner of a work area; not a secret."""
    return _hmac(key, b"owner", work, b"")[:32]


def sign_record(table: Mapping[str, Any], key: bytes, work: str, kind: str) -> str:
    """Sign a record.

    Args:
        table: The content as JSON values; an existing signature is ignored.
        key: The user's key.
        work: The work area that the record belongs to.
        kind: The kind of record, so that none passes for another.
    """
    import json

    bare = {name: value for name, value in table.items() if name != SIGNATURE}
    return _hmac(key, kind.encode(), work, json.dumps(bare, sort_keys=True).encode())


def verify_record(table: Mapping[str, Any], path: str, work: str, kind: str) -> bool:
    """Whether a record has a valid signature of the key at `path`.

    Raises:
        OSError: the key cannot be read.
    """
    from hmac import compare_digest

    key, given = read_key(path), table.get(SIGNATURE)
    if not key or not isinstance(given, str) or not given.isascii():
        return False
    return compare_digest(sign_record(table, key, work, kind), given)


def _hmac(key: bytes, kind: bytes, work: str, data: bytes) -> str:
    import hmac

    place = os.fsencode(os.path.realpath(work))
    framed = b"".join(b"%d:" % len(part) + part for part in (kind, place, data))
    return hmac.new(key, framed, "sha256").hexdigest()
