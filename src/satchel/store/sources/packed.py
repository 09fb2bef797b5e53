"""A zip or tar archive on this machine as a source."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from satchel._language import listed, say
from satchel.errors import InvalidInput
from satchel.library.lockfile import Place
from satchel.store.archive.open import open_archive
from satchel.store.archive.rules import shown
from satchel.store.sources.base import Bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ENDINGS = re.compile(
    r"\.(?:zip|skill|tar|tgz|tbz2?|txz|tzst|tar\.(?:gz|bz2|xz|zst)|7z|rar)\Z", re.IGNORECASE
)
"""What an archive's name ends in. Its first bytes decide what it is."""


class ArchiveSource:
    """Skills in an archive."""

    kind = "archive"

    def __init__(self, file: str, url: str, path: str = "") -> None:
        self.file = file
        self.url = url
        self.path = path

    @contextmanager
    def fetch(
        self, *, ref: str = "", commit: str = "", progress: Callable[[str], None] | None = None
    ) -> Generator[Bundle]:
        """Open the archive.

        Raises:
            Unsafe: it breaks a rule of the strict reader.
            NotFound: there is no such file.
        """
        del progress
        if ref or commit:
            raise InvalidInput(
                say("`{path}` is an archive: it has no branches or tags", path=shown(self.file)),
                say("Leave the ref out"),
            )
        with open_archive(self.file) as tree:
            notes: tuple[str, ...] = ()
            if tree.ignored:
                names = listed(f"`{shown(one)}`" for one in tree.ignored[:20])
                notes = (say("Left out: {names}", names=names),)
            name = ENDINGS.sub("", os.path.basename(self.file))
            yield Bundle(Place("archive", self.url, path=self.path), tree, notes, name)
