"""Which engine keeps the index of this library, and in which folder?"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from satchel._optional import available

if TYPE_CHECKING:
    from satchel.detect.index.base import FieldIndex

FORMAT = 2
"""Part of the folder's name. Raise it when an engine keeps something else, or texts are cut
otherwise: all is built anew."""

TANTIVY_FROM = 250
"""Skills from which tantivy is quicker than plain Python."""
FTS5_FROM = 5_000
"""Skills from which SQLite does better than plain Python, where tantivy is not installed."""

_NAME = re.compile(r"(memory|fts5|tantivy)-(\d+)")


def choose_engine(folder: str | None, count: int) -> str:
    """`memory`, `tantivy` or `fts5`: what `open_index` takes."""
    if folder is None:
        return "memory"

    def suits(engine: str, least: int) -> bool:
        # Who has changed over once changes back only at half the number: no going to and fro.
        started = os.path.isdir(os.path.join(folder, f"{engine}-{FORMAT}"))
        return count >= (least // 2 if started else least)

    if suits("tantivy", TANTIVY_FROM) and available("tantivy") is not None:
        return "tantivy"
    if suits("fts5", FTS5_FROM):
        from satchel.detect.index.fts5 import has_fts5

        return "fts5" if has_fts5() else "memory"
    return "memory"


def open_index(folder: str | None, count: int) -> FieldIndex:
    """The index that `folder` keeps, or an empty one.

    tantivy is taken from 250 skills on, if it is installed; SQLite from 5,000 on, if it is not;
    plain Python below that. Measured with real bodies, in a new process: opening and the first
    search take 14 ms with plain Python at 100 skills, 22 at 300, 47 at 2,000, and 13 to 20 with
    tantivy at any of them. SQLite opens in 20 ms, but a goal of 150 words takes it 144 ms at 2,000
    skills and plain Python 17: only where reading the file gets slow is it the better choice.

    Args:
        folder: Where it is kept, for one set of skills; None keeps it in memory.
        count: How many skills there are.

    Raises:
        OSError: the folder cannot be made.
    """
    engine = choose_engine(folder, count)
    place = os.path.join(folder, f"{engine}-{FORMAT}") if folder is not None else None
    if place is not None and engine == "tantivy":
        from satchel.detect.index.tantivy_engine import TantivyIndex

        return TantivyIndex(place)
    if place is not None and engine == "fts5":
        from satchel.detect.index.fts5 import Fts5Index

        return Fts5Index(place)
    from satchel.detect.index.memory import MemoryIndex

    if place is not None:
        os.makedirs(place, mode=0o700, exist_ok=True)
    return MemoryIndex(place)


def discard(folder: str) -> None:
    """Remove every index that `folder` keeps, and nothing else: others hold the lock beside them.

    One of a newer format stays: another installation uses it.
    """
    import shutil

    for name, version in _kept(folder):
        if version <= FORMAT:
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def sweep(folder: str, engine: str) -> None:
    """Remove what a finished index has made useless.

    Those are indexes of older formats, and the one in plain Python when a larger engine has taken
    over. One of another engine stays: another installation may use it.
    """
    import shutil

    for name, version in _kept(folder):
        outgrown = name == f"memory-{FORMAT}" and engine != "memory"
        if version < FORMAT or outgrown:
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def _kept(folder: str) -> list[tuple[str, int]]:
    """The folders of indexes, and the format of each."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [(name, int(found[2])) for name in names if (found := _NAME.fullmatch(name))]
