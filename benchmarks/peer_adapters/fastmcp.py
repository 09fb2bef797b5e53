"""fastmcp: `SkillsDirectoryProvider`, one provider per skill; it hashes every file."""

from typing import Any

from fastmcp.server.providers.skills import SkillsDirectoryProvider


def scan(root: str) -> Any:
    """Find every skill: this is timed."""
    return SkillsDirectoryProvider(roots=root)


def pairs(found: Any) -> list[tuple[str, str]]:
    """Name and description of each: this is not timed."""
    infos = [provider.skill_info for provider in found.providers]
    return [(info.name, info.description) for info in infos]
