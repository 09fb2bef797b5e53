"""The Satchel adapter: the same two functions as every peer adapter.

`scan` is timed, `pairs` is not.
"""

from __future__ import annotations

from typing import Any


def scan(root: str) -> Any:
    """Find every skill below `root`, from nothing: no index, no cache."""
    # Imported here, so that what discovery loads on its first use counts as its cost.
    from satchel.library import Library, Location

    return Library([Location(root, trusted=True)], index=None).snapshot()


def pairs(found: Any) -> list[tuple[str, str]]:
    """Name and description of everything found."""
    return [(skill.name, skill.description) for skill in found.skills]


def discover(root: str) -> tuple[int, dict[str, str]]:
    """Count the skills below `root`, and return their names and descriptions."""
    found = pairs(scan(root))
    return len(found), dict(found)
