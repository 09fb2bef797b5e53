"""How does the Agent Framework's own `SkillsProvider` get skills from Satchel? As its source.

    SkillsProvider(SkillSource(Satchel.for_project(".")), disable_load_skill_approval=True)

Satchel says which skills there are, and checks each when it is loaded.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from satchel._optional import require

try:
    from agent_framework import Skill, SkillFrontmatter, SkillsSource
except ImportError:
    require("agent_framework", "agent-framework")
    raise

if TYPE_CHECKING:
    from agent_framework import SkillsSourceContext

    from satchel.facade import Satchel
    from satchel.tools.session import Session

__all__ = ["SkillSource"]


class SkillSource(SkillsSource):
    """Satchel's skills for the framework's own `SkillsProvider`."""

    def __init__(self, satchel: Satchel) -> None:
        """Take the skills of a project."""
        self._satchel = satchel
        self._session = satchel.session()

    async def get_skills(self, context: SkillsSourceContext) -> list[Skill]:
        """The skills a model may load, as they are on disk now."""
        del context
        return await asyncio.to_thread(self._skills)

    def _skills(self) -> list[Skill]:
        self._satchel.refresh()
        found: list[Skill] = []
        for one in self._satchel.list_skills():
            if not one.for_model:
                continue
            try:
                about = SkillFrontmatter(name=one.name, description=one.description)
            except ValueError as wrong:  # its limits are narrower than ours
                why = str(wrong)
                self._satchel.trace.record("refused", [one.name], tool="load_skill", reason=why)
            else:
                found.append(_Skill(self._session, about))
        return found


class _Skill(Skill):
    """One skill, checked when it is loaded."""

    def __init__(self, session: Session, frontmatter: SkillFrontmatter) -> None:
        self._session = session
        self._frontmatter = frontmatter

    @property
    def frontmatter(self) -> SkillFrontmatter:
        return self._frontmatter

    async def get_content(self) -> str:
        reply = await self._session.acall("Skill", {"name": self._frontmatter.name})
        self._session.forget(self._frontmatter.name)  # the framework asks as often as it likes
        return reply.text
