"""Every third-party import in `src/satchel` is declared by the extra that owns the module."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "satchel"
OWNERS = {
    "agent": "agent",
    "cli/commands/chat_loop": "agent",
    "cli/turn_view": "agent",
    "evals": "eval",
    "goals/engines/dbos": "dbos",
    "hub": "hub",
    "presentation/skill_html": "ui",
    "goals/engines/temporal": "temporal",
    "goals/database": "dbos",
    "integrations/agent_framework": "agent-framework",
    "integrations/claude_agent_sdk": "claude-agent-sdk",
    "integrations/google_adk": "google-adk",
    "integrations/langchain": "langchain",
    "integrations/mcp": "mcp",
    "integrations/openai_agents": "openai-agents",
    "integrations/pydantic_ai": "pydantic-ai",
    "integrations/smolagents": "smolagents",
    "library/remote": "mcp",
    "tools/excel": "excel",
    "ui": "ui",
}
"""Start of a module's path -> the extra that owns it; the first that fits counts."""
DISTRIBUTIONS = {
    "agent_framework": "agent-framework-core",
    "agents": "openai-agents",
    "google": "google-adk",
    "markdown_it": "markdown-it-py",
    "pydantic_ai": "pydantic-ai-slim",
    "yaml": "pyyaml",
}
"""Module -> its distribution, where the two names differ."""


def imports(node: ast.AST) -> Iterator[str]:
    """The packages that a tree imports when it runs."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (name.name.partition(".")[0] for name in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield child.module.partition(".")[0]
        yield from imports(child)


def plain(requirement: str) -> str:
    """The normalised name in a requirement."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def test_every_import_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        name: {plain(one) for one in rows}
        for name, rows in project["optional-dependencies"].items()
    }
    base = {plain(one) for one in project["dependencies"]}
    missing: set[tuple[str, str]] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE).with_suffix("").as_posix()
        owners = [extra for start, extra in OWNERS.items() if module.startswith(start)][:1]
        declared = base.union(*(extras.get(one, set()) for one in owners))
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name in set(imports(tree)) - set(sys.stdlib_module_names) - {"satchel"}:
            if plain(DISTRIBUTIONS.get(name, name)) not in declared:
                missing.add((module, name))
    assert sorted(missing) == []


def test_mcp_stays_below_its_next_major_version() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'"mcp>=[^"]*"', text) == ['"mcp>=2.3,<3"'] * 2
