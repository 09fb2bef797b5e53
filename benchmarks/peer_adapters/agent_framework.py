"""agent-framework-core: `FileSkillsSource.get_skills`; it indexes resources and scripts too."""

import asyncio
from typing import Any

from agent_framework import FileSkillsSource, SkillsSourceContext


def scan(root: str) -> Any:
    """Find every skill: this is timed."""
    source = FileSkillsSource(root)
    return asyncio.run(source.get_skills(SkillsSourceContext(agent=None)))


def pairs(found: Any) -> list[tuple[str, str]]:
    """Name and description of each: this is not timed."""
    return [(skill.frontmatter.name, skill.frontmatter.description) for skill in found]
