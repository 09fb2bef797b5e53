"""HELPERS FOR PEOPLE WHO TEST AGENTS, SKILLS AND ENGINES.

project = make_project(tmp_path, "code-review", "write-docs")
satchel = Satchel.for_project(project, trust="all")

`skills` writes skills. `engine_suite` says whether an engine of goals does what it must; it is
imported by its own name, so that whoever only writes skills does not load it.
"""

from __future__ import annotations

from satchel.testing.skills import make_project, make_skill, make_tool_skill

__all__ = ["make_project", "make_skill", "make_tool_skill"]
