"""Helpers for tests of agents and skills: write skills, tool skills and projects.

project = make_project(tmp_path, "code-review", "write-docs")
satchel = Satchel.for_project(project, trust="all")
"""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = ["make_project", "make_skill", "make_tool_skill"]


def make_skill(
    folder: str | os.PathLike[str],
    name: str,
    description: str = "",
    *,
    body: str = "Do the thing.\n",
    **fields: Any,
) -> str:
    """Write a valid skill.

    Args:
        folder: A location, such as `.agents/skills`.
        name: The skill's name and folder; `a/b` nests.
        description: What it does; generated when empty.
        body: The instructions.
        fields: Further frontmatter; `_` in a key becomes `-` except in `when_to_use`.

    Returns:
        The path of its SKILL.md.

    Example:
        from satchel.testing import make_skill

        make_skill("example/.agents/skills", "greet", "Greets people.", body="Say hello.")
    """
    base = os.path.join(os.fspath(folder), name)
    short = name.rpartition("/")[2]
    os.makedirs(base, exist_ok=True)
    lines = [f"name: {short}", f"description: {json.dumps(description or f'Helps with {short}.')}"]
    for key, value in fields.items():
        field = key if key == "when_to_use" else key.replace("_", "-")
        lines.append(f"{field}: {json.dumps(value, ensure_ascii=False)}")
    path = os.path.join(base, "SKILL.md")
    with open(path, "w", encoding="utf-8") as file:
        file.write("---\n" + "\n".join(lines) + "\n---\n\n" + body)
    return path


def make_project(folder: str | os.PathLike[str], *names: str) -> str:
    """Create a project folder with skills in `.agents/skills`.

    Args:
        folder: The folder to create.
        names: Names of the skills.

    Returns:
        The path of the folder.

    Example:
        from satchel import Satchel
        from satchel.testing import make_project

        project = make_project("example", "code-review", "write-docs")
        satchel = Satchel.for_project(project, trust="all")
        assert len(satchel.list_skills()) == 2
    """
    location = os.path.join(os.fspath(folder), ".agents", "skills")
    os.makedirs(location, exist_ok=True)
    for name in names:
        make_skill(location, name)
    return os.fspath(folder)


def make_tool_skill(
    folder: str | os.PathLike[str],
    name: str,
    program: str = "",
    *,
    tool: str = "",
    more: str = "",
) -> str:
    """Write a tool skill in Python.

    Args:
        folder: A location, such as `.agents/skills`.
        name: The skill's folder; `a/b` nests.
        program: Its `main.py`; one that returns its arguments when empty.
        tool: The tool's name; the folder's name and `_run` when empty.
        more: Further lines of YAML: parameters, secrets, files.

    Returns:
        The path of its skill.yaml.

    Example:
        from satchel.testing import make_tool_skill

        make_tool_skill("example/.agents/skills", "word-count", tool="word_count")
    """
    base = os.path.join(os.fspath(folder), name)
    short = name.rpartition("/")[2]
    tool = tool or f"{short.replace('-', '_')}_run"
    os.makedirs(base, exist_ok=True)
    with open(os.path.join(base, "main.py"), "w", encoding="utf-8") as file:
        file.write(program or _ECHO)
    path = os.path.join(base, "skill.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            f"name: {tool}\ndescription: Runs {short} once. Example only.\n"
            f"runtime: python\nentry: main.py\n{more}"
        )
    return path


_ECHO = """\
import json
import sys

request = json.loads(sys.stdin.readline())
print(json.dumps({"output": json.dumps(request["arguments"], sort_keys=True), "error": ""}))
"""
