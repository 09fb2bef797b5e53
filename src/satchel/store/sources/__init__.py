"""Sources of skills: folders, archives, git repositories and discovery indexes.

base.py      Source and Bundle; addresses; finding skills in a source, and extracting one
git.py       a git repository, read without a checkout
discovery.py a discovery index of any site
parse.py     parses the text of a source; folders and archives
"""

from __future__ import annotations

from satchel.store.sources.base import Bundle, Source, subtree
from satchel.store.sources.found_skills import FoundSkill, find_skills, read_plugins
from satchel.store.sources.parse import source_from, source_of

__all__ = [
    "Bundle",
    "FoundSkill",
    "Source",
    "find_skills",
    "read_plugins",
    "source_from",
    "source_of",
    "subtree",
]
