"""Measures names and shapes of Python code, beside other packages.

Example:
    python scripts/code_figures.py src/satchel ../site-packages/starlette
    python scripts/code_figures.py --names src/satchel/store   # where vague names are bound

Counts of what makes code hard to read: calls with many positional arguments, local names that say
nothing, imports inside functions, branches of a function, constants and `__all__` below the first
function or class, and class names that exist twice.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

MIN_MANY_ARGUMENTS_COUNT = 7
MAX_COMPLEXITY_COUNT = 15
VAGUE_NAMES = frozenset(
    [
        "at",
        "chosen",
        "done",
        "found",
        "given",
        "held",
        "here",
        "kept",
        "known",
        "left",
        "made",
        "more",
        "most",
        "one",
        "own",
        "rest",
        "said",
        "seen",
        "shown",
        "told",
        "wanted",
        "where",
        "whole",
    ]
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.match_case,
    ast.IfExp,
    ast.Assert,
)


class CodeFigures(NamedTuple):
    """The figures of one package."""

    package: str
    lines: int
    many_arguments: float
    """Calls with at least seven positional arguments, of 10,000 calls."""
    vague_names: float
    """Bindings with a name that says nothing, in percent."""
    late_imports: float
    """Imports inside functions, of 1,000 lines."""
    complexity: float
    """Mean of all functions."""
    complex_functions: int
    """Functions with a complexity above 15."""
    late_constants: int
    """Constants and `__all__` below the first function or class."""
    double_classes: int
    """Class names that exist more than once."""


def measure(package: Path) -> CodeFigures:
    """Measure all modules of a package."""
    lines = calls = many = late = late_constants = 0
    names: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    complexities: list[int] = []
    for path in module_paths(package):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines += len(text.splitlines())
        names.update(name for name, _ in bindings(tree))
        late += len(set(late_import_lines(tree)))
        late_constants += len(list(late_constant_names(tree)))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                calls += 1
                many += len(node.args) >= MIN_MANY_ARGUMENTS_COUNT
            elif isinstance(node, ast.ClassDef):
                classes[node.name] += 1
            elif isinstance(node, FUNCTIONS):
                complexities.append(complexity(node))
    vague = sum(names[name] for name in VAGUE_NAMES)
    return CodeFigures(
        package.name,
        lines,
        10_000 * many / max(calls, 1),
        100 * vague / max(names.total(), 1),
        1_000 * late / max(lines, 1),
        sum(complexities) / max(len(complexities), 1),
        sum(number > MAX_COMPLEXITY_COUNT for number in complexities),
        late_constants,
        sum(count > 1 for count in classes.values()),
    )


def module_paths(package: Path) -> Iterator[Path]:
    """The modules of a package, without files that it gives to its users."""
    for path in sorted(package.rglob("*.py")):
        if not {"system_skills", "templates"}.intersection(path.relative_to(package).parts):
            yield path


def bindings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names that are assigned or are parameters, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def late_import_lines(tree: ast.AST) -> Iterator[int]:
    """The lines of imports inside functions."""
    nodes = [(tree, False)]
    while nodes:
        node, inside = nodes.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            if inside:
                yield node.lineno
        elif not isinstance(node, ast.expr):
            inside = inside or isinstance(node, FUNCTIONS)
            nodes.extend((child, inside) for child in ast.iter_child_nodes(node))


def late_constant_names(tree: ast.Module) -> Iterator[str]:
    """Constants and `__all__` below the first function or class whose values use neither."""
    definitions: set[str] = set()
    for node in tree.body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            definitions.add(node.name)
        elif definitions and isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            used = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
            if not used & definitions:
                yield from (name for name in names if name.isupper() or name == "__all__")


def complexity(function: ast.AST) -> int:
    """One, and one for each branch; functions and classes inside count for themselves."""
    total, nodes = 1, list(ast.iter_child_nodes(function))
    while nodes:
        node = nodes.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
        else:
            total += isinstance(node, BRANCHES)
        nodes.extend(ast.iter_child_nodes(node))
    return total


def print_names(package: Path) -> None:
    """Print each binding of a vague name with its place."""
    for path in module_paths(package):
        for name, line in bindings(ast.parse(path.read_text(encoding="utf-8"))):
            if name in VAGUE_NAMES:
                print(f"{path}:{line}: {name}")


def main() -> None:
    """Print a table of the packages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("package", nargs="+", type=Path)
    parser.add_argument("--names", action="store_true", help="list the bindings of vague names")
    options = parser.parse_args()
    if options.names:
        for package in options.package:
            print_names(package)
        return
    heads = (
        *("package", "lines", "≥ 7 args", "vague %", "late imports"),
        *("complexity", "over 15", "late constants", "twice"),
    )
    print("{:<16}{:>8}{:>10}{:>10}{:>14}{:>12}{:>9}{:>16}{:>7}".format(*heads))
    for package in options.package:
        row = "{:<16}{:>8}{:>10.1f}{:>10.2f}{:>14.2f}{:>12.2f}{:>9}{:>16}{:>7}"
        print(row.format(*measure(package)))


if __name__ == "__main__":
    main()
