"""A strict reader for zip and tar: a tree of files, or a refusal that names the rule.

    rules.py     rules, limits and file names; refusals; the tree of files
    zip.py       zip: the standard library's reader, with checks of every entry
    open.py      detection of the format; gzip; tar: ustar, pax and GNU names

Nothing is repaired or guessed.
"""

from __future__ import annotations

from satchel.store.archive.open import open_archive, open_packed
from satchel.store.archive.rules import BOUNDS, RULES, ArchiveLimits, ArchiveTree

__all__ = ["BOUNDS", "RULES", "ArchiveLimits", "ArchiveTree", "open_archive", "open_packed"]
