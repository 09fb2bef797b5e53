"""How is a piece of an open file read without moving anybody else's place in it?"""

from __future__ import annotations

import os

_HAS_PREAD = hasattr(os, "pread")


def read_at(descriptor: int, size: int, at: int) -> bytes:
    """Up to `size` bytes from the position `at`."""
    if _HAS_PREAD:
        return os.pread(descriptor, size, at)
    os.lseek(descriptor, at, os.SEEK_SET)  # Windows: one reader at a time
    return os.read(descriptor, size)
