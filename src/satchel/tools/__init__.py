"""What an agent may call: a `Session` is one conversation, its `Toolset` holds the tools.

Reading order: `session` (the only way to call tools), `toolset` (finds, describes, runs tools),
`base` (what a tool is), then one file per tool. `prompt` and `loaded` belong to a session, `gate`
and `permits` decide about calls, `frame` marks text from files. Tools of tool skills: `script_tool`
(one call), `engine` (runs their programs), `secrets`. Tools of installed packages: `packaged`.
"""

from __future__ import annotations

from satchel.tools.base import Call, Tool
from satchel.tools.read_file import ReadFileTool
from satchel.tools.selecting import SearchTool
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
