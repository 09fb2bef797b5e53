"""strands-agents: `Skill.from_directory`, immediate children only."""

from typing import Any

from strands.vended_plugins.skills import Skill


def scan(root: str) -> Any:
    """Find every skill: this is timed."""
    return Skill.from_directory(root)


def pairs(found: Any) -> list[tuple[str, str]]:
    """Name and description of each: this is not timed."""
    return [(skill.name, skill.description) for skill in found]
