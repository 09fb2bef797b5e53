"""The tools an agent can call, and the toolset that finds, describes and runs them.

Reading order: `base` (the interface), `toolset`, `schema`, then one module per tool: `skill_tool`,
`read_file`, `selection` (SkillSearch), `script_tool` (RunScript), `program_tool` (tools of
skill.yaml), `packaged` with `workspace` (tools of installed packages), `excel`. `program_run` runs
the programs of both for a call, with `program_runner` and `secrets`. `permission_rules` has the
tool patterns, `framing` marks text from files. `satchel.session` is the only caller.
"""

from __future__ import annotations

from satchel.tools.base import Tool, ToolCall
from satchel.tools.read_file import ReadFileTool
from satchel.tools.selection import SearchTool
from satchel.tools.skill_tool import SkillTool
from satchel.tools.toolset import PROVIDERS, Toolset, make_toolset, record_offer

__all__ = [
    "PROVIDERS",
    "ReadFileTool",
    "SearchTool",
    "SkillTool",
    "Tool",
    "ToolCall",
    "Toolset",
    "make_toolset",
    "record_offer",
]
