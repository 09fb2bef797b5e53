"""ONE STRICT READER: zip and tar as a tree of files, or a refusal that names the rule.

    rules.py     the rules, the bounds and the names, and how a refusal is said
    tree.py      the files of an archive, found by folder
    zip.py       central directory and local headers, cross-checked
    tar.py       ustar, pax and GNU names
    open.py      which of them a file is; gz, bz2 and xz, within bounds

Nothing is ever repaired, guessed or written to where skills live.
"""

from __future__ import annotations

from satchel.store.archive.open import open_archive
from satchel.store.archive.rules import BOUNDS, RULES, Bounds
from satchel.store.archive.tree import ArchiveTree

__all__ = ["BOUNDS", "RULES", "ArchiveTree", "Bounds", "open_archive"]
