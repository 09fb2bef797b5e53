"""skillport: `list_skills_fs`, what `skillport list` calls (no vector index is built)."""

from typing import Any

from skillport.interfaces.cli.catalog import list_skills_fs
from skillport.shared.config import Config


def scan(root: str) -> Any:
    """Find every skill: this is timed."""
    return list_skills_fs(config=Config(skills_dir=root), limit=10_000_000)


def pairs(found: Any) -> list[tuple[str, str]]:
    """Name and description of each: this is not timed."""
    return [(skill.name, skill.description) for skill in found.skills]
