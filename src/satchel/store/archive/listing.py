"""The files of a large source, so that those below one folder are found without looking at all.

An archive may hold thousands of skills; each is taken out on its own.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.skill.tree import File


def _key(file: File) -> bytes:
    return os.fsencode(file.path)


class Listing:
    """A base for trees that know all their files from the start."""

    def __init__(self, files: Iterable[File]) -> None:
        self.files = tuple(sorted(files, key=_key))

    def below(self, path: str) -> tuple[File, ...]:
        """The files under the folder `path`; all of them when it is empty."""
        if not path:
            return self.files
        name = os.fsencode(path)
        # In byte order everything under `a/` stands between `a/` and `a0`.
        first = bisect_left(self.files, name + b"/", key=_key)
        return self.files[first : bisect_left(self.files, name + b"0", first, key=_key)]
