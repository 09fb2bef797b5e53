"""skillkit: `SkillManager.discover`, recursive to depth 5. Empty strings switch defaults off."""

from typing import Any

from skillkit import SkillManager


def scan(root: str) -> Any:
    """Find every skill: this is timed."""
    manager = SkillManager(
        project_skill_dir=root,
        anthropic_config_dir="",
        plugin_dirs=[],
        additional_search_paths=[],
    )
    manager.discover()
    return manager


def pairs(found: Any) -> list[tuple[str, str]]:
    """Name and description of each: this is not timed."""
    return [(skill.name, skill.description) for skill in found.list_skills()]
