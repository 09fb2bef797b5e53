"""The user's key, and HMAC signatures of Satchel's own records.

A project may contain a `.satchel` folder, and a `git pull` may add files to it. The journal, the
history and similar records are therefore signed: an HMAC over their content and over the real path
of the work area. The key exists only in the user's state folder.
"""

from __future__ import annotations

import errno
import json
import os
import re
from typing import TYPE_CHECKING, Any

from satchel._fs import locked, read_plain, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEY_FILE = "work.key"
NO_STATE = "(none)"
"""Placeholder path without a state folder: no record is valid, and none can be made."""
SIGNATURE = "seal"
RECORD_KIND = "record"
_KEY_DIGITS = re.compile(rb"[0-9a-f]{64}")
_MAX_KEY_FILE_BYTES = 1024


def key_path(state: str) -> str:
    """Path of the key in a state folder."""
    return os.path.join(state, KEY_FILE) if state else NO_STATE


def read_key(path: str) -> bytes:
    """Read the key; empty when there is none yet.

    Raises:
        OSError: it cannot be read or is damaged.
    """
    if path == NO_STATE:
        return b""
    try:
        data = read_plain(path, _MAX_KEY_FILE_BYTES).strip()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    if not _KEY_DIGITS.fullmatch(data):
        raise OSError(errno.EINVAL, "it is damaged; delete it to begin with a new one", path)
    return bytes.fromhex(data.decode())


def load_or_create_key(path: str) -> bytes:
    """Read the key or create it.

    Raises:
        OSError: it cannot be read or saved.
    """
    key = read_key(path)
    if not key:
        if path == NO_STATE:
            raise OSError(errno.ENOENT, "there is no home folder; set SATCHEL_HOME", KEY_FILE)
        with locked(path + ".lock"):
            key = read_key(path)
            if not key:
                key = os.urandom(32)
                write_atomic(path, key.hex().encode() + b"\n", private=True)
    return key


def owner_id(key: bytes, work_path: str) -> str:
    """Identifier of the owner of a work area; not a secret."""
    return _compute_hmac(key, b"owner", work_path, b"")[:32]


def sign_record(table: Mapping[str, Any], key: bytes, work_path: str, kind: str) -> str:
    """Sign a record.

    Args:
        table: The content as JSON values; an existing signature is ignored.
        key: The user's key.
        work_path: The real path of the work area that the record belongs to.
        kind: The kind of record, so that none passes for another.
    """
    content = {name: value for name, value in table.items() if name != SIGNATURE}
    text = json.dumps(content, sort_keys=True)
    return _compute_hmac(key, kind.encode(), work_path, text.encode())


def verify_record(
    table: Mapping[str, Any], key_file: str, work_paths: Iterable[str], kind: str
) -> bool:
    """Whether a record is signed with the user's key, for one of the work areas.

    Args:
        table: The content with its signature.
        key_file: The path of the key.
        work_paths: The real paths that the work area has or had.
        kind: The kind of record.

    Raises:
        OSError: the key cannot be read.
    """
    from hmac import compare_digest

    key, signature = read_key(key_file), table.get(SIGNATURE)
    if not key or not isinstance(signature, str) or not signature.isascii():
        return False
    return any(
        compare_digest(sign_record(table, key, work_path, kind), signature)
        for work_path in work_paths
    )


def _compute_hmac(key: bytes, kind: bytes, work_path: str, data: bytes) -> str:
    """The HMAC over three texts with their lengths, so that different texts never look the same."""
    import hmac

    message = b"".join(b"%d:" % len(part) + part for part in (kind, os.fsencode(work_path), data))
    return hmac.new(key, message, "sha256").hexdigest()
