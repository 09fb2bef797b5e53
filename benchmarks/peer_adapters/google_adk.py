"""google-adk: `list_skills_in_dir`, the listing without resources (its cheapest entry point)."""

from typing import Any

from google.adk.skills import list_skills_in_dir


def scan(root: str) -> Any:
    """Find every skill: this is timed."""
    return list_skills_in_dir(root)


def pairs(found: Any) -> list[tuple[str, str]]:
    """Name and description of each: this is not timed."""
    return [(skill.name, skill.description) for skill in found.values()]
