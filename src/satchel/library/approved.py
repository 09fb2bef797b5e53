"""Which files did a skill have when it was approved? So that a change can be named, not only told.

The trust file keeps one digest for each approved content: it is read at every start, and has to
stay small. Beside it, each content has a file of its own with the marks of what it consists of.
Nothing depends on those: a table counts only if it gives the digest that was approved, and without
one people are told that a skill changed, but not where.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from satchel.skill.tree import Seal

_FOLDER = "approved"
_KIND = "sha256:"
_DIGITS = 64


def keep_files(book: str, seal: Seal) -> None:
    """Keep what an approved content consists of, beside the trust file `book`.

    What cannot be kept is not: the approval holds all the same.
    """
    import json

    from satchel.skill.tree import digest_of

    path = _path(book, seal.digest)
    # The mark of a served skill is made otherwise, so its table could not be told from another.
    if not path or digest_of(seal.files) != seal.digest or kept_files(book, seal.digest):
        return
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        # ASCII only: names that are not UTF-8 come back as they were.
        with open(path, "w", encoding="ascii") as stream:
            json.dump(seal.files, stream)


def kept_files(book: str, digest: str) -> Mapping[str, str] | None:
    """Path -> mark of an approved content; None when it is not known."""
    import json

    from satchel.skill.tree import digest_of

    try:
        with open(_path(book, digest), encoding="ascii") as stream:
            table: Any = json.load(stream)
        files = {str(path): str(mark) for path, mark in table.items()}
        return files if digest_of(files) == digest else None
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


def drop_others(book: str, digests: Collection[str]) -> None:
    """Delete the tables of contents that are approved no more."""
    folder = os.path.join(os.path.dirname(book), _FOLDER)
    with suppress(OSError):
        for name in os.listdir(folder):
            if f"{_KIND}{name}" not in digests:
                os.unlink(os.path.join(folder, name))


def _path(book: str, digest: str) -> str:
    """Where the table of a digest is; nowhere when it is no digest of ours."""
    name = digest.removeprefix(_KIND)
    fits = len(name) == _DIGITS and name.isalnum() and name.isascii()
    return os.path.join(os.path.dirname(book), _FOLDER, name) if fits else ""
