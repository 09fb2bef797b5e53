"""Chooses and opens the index of a library: plain Python or tantivy, one folder each."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

from satchel._optional import available

if TYPE_CHECKING:
    from satchel.detect.index.base import FieldIndex

FORMAT = 3
"""Part of the folder's name. Raise it when an engine keeps something else, or texts are cut
otherwise: the index is rebuilt."""

TANTIVY_FROM = 250
"""Skills from which tantivy is faster than plain Python."""
UNUSED_S = 90 * 86_400.0
"""Seconds without use after which the index of another project is removed."""

_ENGINE_FOLDER = re.compile(r"(memory|fts5|tantivy)-(\d+)")
_PROJECT_FOLDER = re.compile("[0-9a-f]{16}")


def choose_engine(folder: str | None, count: int) -> str:
    """`memory` or `tantivy`: what `open_index` takes."""
    if folder is None:
        return "memory"
    # Once tantivy is in use it stays until the number has halved: no switching back and forth.
    started = os.path.isdir(os.path.join(folder, f"tantivy-{FORMAT}"))
    least = TANTIVY_FROM // 2 if started else TANTIVY_FROM
    return "tantivy" if count >= least and available("tantivy") is not None else "memory"


def open_index(folder: str | None, count: int) -> FieldIndex:
    """Open the index that `folder` keeps, or an empty one.

    tantivy is used from 250 skills on, if it is installed, and plain Python otherwise. Measured
    with real bodies, in a new process: opening and the first search take 14 ms with plain Python at
    100 skills, 22 at 300, 47 at 2,000, and 13 to 20 with tantivy at any of them.

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
    from satchel.detect.index.memory import MemoryIndex

    if place is not None:
        os.makedirs(place, mode=0o700, exist_ok=True)
    return MemoryIndex(place)


def remove_indexes(folder: str, engine: str = "") -> None:
    """Remove the indexes in `folder` that a finished one of `engine` has replaced.

    Those are older formats, and the one in plain Python once tantivy has taken over. Without an
    engine, all of them are removed. A newer format stays: another installation uses it.
    """
    import shutil

    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        found = _ENGINE_FOLDER.fullmatch(name)
        if found is None or int(found[2]) > FORMAT:
            continue
        is_replaced = found[1] == "memory" and engine != "memory"
        if not engine or int(found[2]) < FORMAT or is_replaced:
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def remove_unused(shelf: str) -> None:
    """Remove the index folders of projects in `shelf` that were not used for 90 days."""
    import shutil

    oldest = time.time() - UNUSED_S
    for name in os.listdir(shelf) if os.path.isdir(shelf) else ():
        folder = os.path.join(shelf, name)
        if _PROJECT_FOLDER.fullmatch(name) and _last_use(folder) < oldest:
            shutil.rmtree(folder, ignore_errors=True)


def mark_used(folder: str) -> None:
    """Note that an index is in use; `remove_unused` reads it from the folder's time."""
    from contextlib import suppress

    with suppress(OSError):
        os.utime(folder)


def _last_use(folder: str) -> float:
    """The newest time of a project's folder and of those in it."""
    try:
        inner = [one.path for one in os.scandir(folder)]
        return max(os.stat(path).st_mtime for path in (folder, *inner))
    except OSError:
        return time.time()
