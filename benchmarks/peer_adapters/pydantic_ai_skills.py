"""pydantic-ai-skills: `SkillsCapability`, then `for_run`: only there descriptions are read."""

import asyncio
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage
from pydantic_ai_skills import SkillsCapability


def scan(root: str) -> Any:
    """Find every skill: this is timed."""
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    return asyncio.run(SkillsCapability(root).for_run(context))


def pairs(found: Any) -> list[tuple[str, str]]:
    """Name and description of each: this is not timed."""
    leaves = []
    found.apply(leaves.append)
    return [(leaf.id, leaf.get_description()) for leaf in leaves if leaf.id]
