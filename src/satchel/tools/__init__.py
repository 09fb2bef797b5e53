"""WHAT AN AGENT MAY CALL: Skill, ReadFile, SkillSearch, and how a provider is told of them.

Reading order: `toolset` (the object hosts hold), `base` (what a tool is), then one file per tool.
`arguments` fills placeholders, `frame` keeps a stranger's text in its place, `definitions` speaks
each provider's dialect. Tools of tool skills: `script_tools` (which there are now), `script_tool`
(one call), `engine` (what runs their programs), `secrets`, `file_parameters`. Tools of installed
packages: `packaged`.
"""

from __future__ import annotations

from satchel.tools.base import Call, Tool
from satchel.tools.read_file import ReadFileTool
from satchel.tools.search_tool import SearchTool
from satchel.tools.skill_tool import SkillTool
from satchel.tools.toolset import PROVIDERS, Toolset, make_toolset, tell_offer

__all__ = [
    "PROVIDERS",
    "Call",
    "ReadFileTool",
    "SearchTool",
    "SkillTool",
    "Tool",
    "Toolset",
    "make_toolset",
    "tell_offer",
]
