"""Who can do this? A detector may be made of others, and only one of them keeps an index."""

from __future__ import annotations

from typing import Any


def ability(detector: object, name: str) -> Any:
    """The attribute of a detector, or of the first one inside it that has one; else None."""
    found = getattr(detector, name, None)
    if found is not None:
        return found
    members: Any = getattr(detector, "members", ())
    for member in members:
        found = ability(member, name)
        if found is not None:
            return found
    return None
