"""How does ADK's own `SkillToolset` get skills from Satchel? As its registry.

    SkillToolset(registry=SkillSource(Satchel.for_project(".")), code_executor=...)

For those who want ADK to run a skill's scripts, in its executors. Satchel finds the skills, and
checks each before ADK gets its text and files.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from satchel._optional import require
from satchel.errors import NotFound

try:
    from google.adk.skills.models import Frontmatter, Resources, Script, Skill
    from google.adk.skills.skill_registry import SkillRegistry
except ImportError:
    require("google.adk", "google-adk")
    raise

if TYPE_CHECKING:
    from satchel.facade import Satchel

__all__ = ["SkillSource"]


class SkillSource(SkillRegistry):
    """Skills of a project, for ADK's own toolset."""

    def __init__(self, satchel: Satchel) -> None:
        """Take the skills of a project."""
        self._satchel = satchel
        self._session = satchel.session()

    async def search_skills(self, *, query: str) -> list[Frontmatter]:
        """The skills that fit, best first. ADK refuses names that are not its kind of names."""
        reply = await self._session.acall("SkillSearch", {"query": query})
        found: list[Frontmatter] = []
        for one in (reply.data or {}).get("matches", ()):
            try:
                found.append(Frontmatter(name=one["name"], description=one["description"]))
            except ValueError as wrong:
                why = str(wrong)
                trace = self._satchel.trace
                trace.record("refused", [one["name"]], tool="search_skills", reason=why)
        return found

    async def get_skill(self, *, name: str) -> Skill:
        """Check a skill and read it whole.

        Raises:
            NotFound: It may not be loaded. ADK tells the model the message.
        """
        reply = await self._session.acall("Skill", {"name": name})
        self._session.forget(name)  # ADK keeps what is loaded itself
        about = None if reply.error else self._satchel.get_skill(reply.data["name"])
        if about is None:
            raise NotFound(reply.text)
        folders = await asyncio.to_thread(_folders, reply.data["base_dir"])
        scripts = folders["scripts"].items()
        return Skill(
            frontmatter=Frontmatter(name=about.name, description=about.description),
            instructions=reply.data["content"],
            resources=Resources(
                references=folders["references"],
                assets=folders["assets"],
                scripts={path: Script(src=src) for path, src in scripts if isinstance(src, str)},
            ),
        )

    def search_tool_description(self) -> str | None:
        """What the model is told of the search."""
        return "Find skills for a task, by what the task is about. Any language."


def _folders(base: str) -> dict[str, dict[str, Any]]:
    """The files of the three folders ADK knows. Links are not followed: they may lead out."""
    found: dict[str, dict[str, Any]] = {"references": {}, "assets": {}, "scripts": {}}
    for folder, files in found.items():
        top = os.path.join(base, folder)
        for where, _, names in os.walk(top):
            for name in sorted(names):
                path = os.path.join(where, name)
                if os.path.islink(path) or not os.path.isfile(path):
                    continue
                with open(path, "rb") as file:
                    data = file.read()
                try:
                    files[os.path.relpath(path, top)] = data.decode()
                except UnicodeDecodeError:
                    files[os.path.relpath(path, top)] = data
    return found
