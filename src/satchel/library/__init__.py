"""WHICH SKILLS EXIST HERE: places, precedence, trust, and snapshots of what they hold.

Reading order: `library` (the object callers hold), `snapshot` (what it hands out), `locations`
(places and their order), `walk` (one place on disk), `index` (what was read last time),
`tool_shelf` (the tool skills among them, found when somebody asks).
"""

from __future__ import annotations

from satchel.library.index import Index
from satchel.library.library import Library
from satchel.library.locations import Location, default_locations
from satchel.library.snapshot import Filter, Snapshot
from satchel.library.trust import TrustBook
from satchel.library.walk import Bounds

__all__ = [
    "Bounds",
    "Filter",
    "Index",
    "Library",
    "Location",
    "Snapshot",
    "TrustBook",
    "default_locations",
]
