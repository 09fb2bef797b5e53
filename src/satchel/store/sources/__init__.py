"""Where skills come from.

base.py      Source and Bundle: what every source can do, and what it hands over
folder.py    a folder or an archive on this machine
git.py       a repository, read without a checkout
words.py     what a word on the command line, or a line of the lockfile, means
find.py      which skills a source holds, and the files of one of them
"""

from __future__ import annotations

from satchel.store.sources.base import Bundle, Source
from satchel.store.sources.find import Found, find_skills, subtree
from satchel.store.sources.words import source_from, source_of

__all__ = ["Bundle", "Found", "Source", "find_skills", "source_from", "source_of", "subtree"]
