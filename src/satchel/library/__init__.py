"""Discovery of skills: locations, precedence, trust, integrity and snapshots.

Reading order: `library` (the object callers use), `snapshot` (what it returns), `library_scan` and
`snapshot_builder` (how that is made), `locations` and `package_locations` (folders and their
order), `scanner` (one location on disk, with `location_walk`, `skill_files` and `location_state`),
`scan_cache` (results of the last scan), `tool_skills` (skills with tools), `requirement_checker`
and `readiness` (what is installed), `integrity`, `locked_skills`, `verdict_cache` and `trust_store`
(what may be used), `served_skills` and `remote` (skills of servers).
"""

from __future__ import annotations

from satchel.library.library import Library
from satchel.library.location_state import WalkLimits
from satchel.library.locations import Location, default_locations
from satchel.library.scan_cache import ScanCache
from satchel.library.snapshot import Filter, Snapshot
from satchel.library.trust_store import TrustStore

__all__ = [
    "Filter",
    "Library",
    "Location",
    "ScanCache",
    "Snapshot",
    "TrustStore",
    "WalkLimits",
    "default_locations",
]
