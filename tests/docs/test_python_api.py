"""The pages of the Python API have each name that a reader meets."""

from __future__ import annotations

import ast
import glob
import os
from typing import TYPE_CHECKING

import api
import api_source
import page_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _imports() -> Iterator[tuple[str, str]]:
    """Where each name is defined that a page for readers imports from Satchel."""
    pages = glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)
    for path in [os.path.join(ROOT, "README.md"), *pages]:
        with open(path, encoding="utf-8") as file:
            blocks = page_blocks.parse(file.read())
        for block in blocks:
            for node in ast.walk(ast.parse(block.text if block.language == "python" else "")):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("satchel"):
                    for one in node.names:
                        found = api_source.find(str(node.module), one.name)
                        yield (found.module if found else str(node.module)), one.name


def test_each_name_that_a_page_imports_has_a_description():
    known = {(entry.found.module, entry.name) for entry in api.entries()}
    assert sorted(set(_imports()) - known) == []


def test_each_parameter_of_a_public_function_is_described():
    missing = [
        f"{entry.name}.{name}: {field.name}"
        for entry in api.entries()
        for name, node in api.functions(entry)
        for field in api.described(entry, api_source.parameters(node))
        if not field.words
    ]
    assert missing == []
