"""What is in the place of a file: the words for it."""

from __future__ import annotations

import stat

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link that leads nowhere"),
)


def kind_of_mode(mode: int) -> str:
    """How a file's type is called in a sentence."""
    return next((name for test, name in _KINDS if test(mode)), "not a regular file")
