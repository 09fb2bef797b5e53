"""Helpers for tests of agents and skills.

project = make_project(tmp_path, "code-review", "write-docs")
satchel = Satchel.for_project(project, trust="all")
"""

from __future__ import annotations

from satchel.testing.skills import make_project, make_skill, make_tool_skill

__all__ = ["make_project", "make_skill", "make_tool_skill"]
