"""The engines `dbos` and `temporal` use only public names of their packages."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from satchel.goals import engines

FOLDER = Path(engines.__file__).parent


def names(tree: ast.AST) -> set[str]:
    """Modules and attributes that a file uses, but for our own private ones."""
    own = {
        node.attr if isinstance(node, ast.Attribute) else node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        or (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in {"self", "cls"}
        )
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.Attribute) and node.attr not in own:
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {node.value} if node.value.startswith(("dbos.", "temporalio.")) else set()
    return found


@pytest.mark.parametrize("package", ["dbos", "temporal"])
def test_no_private_name_of_the_package_is_used(package: str) -> None:
    files = [*FOLDER.glob(f"{package}*.py")]
    assert len(files) >= 3
    tuples = {"_replace", "_asdict", "_fields", "_field_defaults"}  # of our named tuples
    private: list[str] = []
    for file in files:
        for name in names(ast.parse(file.read_text(encoding="utf-8"))) - tuples:
            if name.startswith("satchel."):
                continue
            if any(part.startswith("_") and part[:2] != "__" for part in name.split(".")):
                private.append(f"{file.name}: {name}")
    assert private == []
