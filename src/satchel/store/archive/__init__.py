"""ONE STRICT READER: zip and tar as a tree of files, or a refusal that names the rule.

    rules.py     the rules, the bounds and the names, how a refusal is said, and the tree of files
    zip.py       central directory and local headers, cross-checked
    open.py      which of them a file is; gz, bz2 and xz, within bounds; ustar, pax and GNU names

Nothing is ever repaired, guessed or written to where skills live.
"""

from __future__ import annotations

from satchel.store.archive.open import open_archive
from satchel.store.archive.rules import BOUNDS, RULES, ArchiveTree, Bounds

__all__ = ["BOUNDS", "RULES", "ArchiveTree", "Bounds", "open_archive"]
