"""Where skills come from.

base.py      Source and Bundle: what every source can do, what it hands over, and its skills
git.py       a repository, read without a checkout
words.py     what a word on the command line, or a line of the lockfile, means; folders and archives
"""

from __future__ import annotations

from satchel.store.sources.base import Bundle, Found, Source, find_skills, subtree
from satchel.store.sources.words import source_from, source_of

__all__ = ["Bundle", "Found", "Source", "find_skills", "source_from", "source_of", "subtree"]
