"""ONE STRICT READER: zip and tar as a tree of files, or a refusal that names the rule.

    rules.py     the rules and the bounds, and how a refusal is said
    names.py     which names files may have
    listing.py   many files, found by folder
    zip.py       central directory and local headers, cross-checked
    tar.py       ustar, pax and GNU names
    unpack.py    gz, bz2 and xz, within bounds
    open.py      which of them a file is

Nothing is ever repaired, guessed or written to where skills live.
"""

from __future__ import annotations

from satchel.store.archive.open import open_archive
from satchel.store.archive.rules import BOUNDS, RULES, Bounds
from satchel.store.archive.tree import ArchiveTree

__all__ = ["BOUNDS", "RULES", "ArchiveTree", "Bounds", "open_archive"]
