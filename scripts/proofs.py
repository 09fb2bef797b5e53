"""Maps requirements to tests, from docs/requirements.toml and the marks in tests/.

The tests are parsed, not run: a mark in a file that cannot be imported counts here, and fails in
the test run.
"""

from __future__ import annotations

import ast
import os
import tomllib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Row(NamedTuple):
    """One requirement."""

    id: str
    text: str
    group: str
    open: bool
    """Whether it is not implemented yet."""


class Difference(NamedTuple):
    """Where Satchel does something else than the document that asked for a row."""

    row: str
    asked: str
    done: str
    why: str


class Proof(NamedTuple):
    """One mark on one test, class of tests or file of tests."""

    id: str
    path: str
    """Relative to the project, with forward slashes."""
    name: str
    """The test's name, with its class; empty when the whole file is marked."""


def read_rows(root: str) -> list[Row]:
    """Every requirement, in the order of the file."""
    with open(os.path.join(root, "docs", "requirements.toml"), "rb") as file:
        document = tomllib.load(file)
    return [
        Row(row["id"], row["text"], group["title"], row.get("open", False))
        for group in document["group"]
        for row in group["rows"]
    ]


def read_differences(root: str) -> list[Difference]:
    """Every settled difference, in the order of the file."""
    with open(os.path.join(root, "docs", "requirements.toml"), "rb") as file:
        return [Difference(**one) for one in tomllib.load(file)["differences"]["rows"]]


def read_proofs(root: str) -> list[Proof]:
    """Every `pytest.mark.req` below tests/, sorted by file and line."""
    proofs: list[Proof] = []
    for path in _test_files(os.path.join(root, "tests")):
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read(), path)
        short = os.path.relpath(path, root).replace(os.sep, "/")
        proofs += [Proof(row, short, name) for row, name in _marks(tree)]
    return proofs


def _test_files(folder: str) -> Iterator[str]:
    for here, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if name.startswith("test_") and name.endswith(".py"):
                yield os.path.join(here, name)


def _marks(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Pairs of requirement and test name. A mark on a class or file covers all its tests."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            yield from ((row, "") for row in _rows_in(node.value))
        elif isinstance(node, ast.ClassDef):
            yield from _decorated(node, node.name)
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from _decorated(inner, f"{node.name}::{inner.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _decorated(node, node.name)


def _decorated(
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, name: str
) -> Iterator[tuple[str, str]]:
    for decorator in node.decorator_list:
        for row in _rows_in(decorator):
            yield row, name


def _rows_in(expression: ast.expr) -> Iterator[str]:
    """The arguments of every `….mark.req(…)` inside, also those in `pytest.param(marks=…)`."""
    for node in ast.walk(expression):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "req"
        ):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value
