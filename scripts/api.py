"""Writes the page of the Python API from signatures and docstrings.

The source is parsed and not imported: adapters need no framework here, and annotations are shown as
they are written.
"""

from __future__ import annotations

import ast
import os
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_NAMES = {"satchel": 20, "satchel.goals": 12, "satchel.agent": 13}
"""The packages, with how many names each may export at most."""
ADAPTERS = (
    "pydantic_ai", "langchain", "openai_agents", "claude_agent_sdk", "google_adk",
    "agent_framework", "smolagents",
)  # fmt: skip
FIRST = ("Satchel", "Session", "Agent", "AgentSteps", "Engine")
"""What most programs use comes first on the page."""
LISTED = {
    **dict.fromkeys(("DbosEngine", "LocalEngine", "TemporalEngine"), ()),  # those of `Engine`
    "Budget": ("of", "tokens", "share"),
    "Filter": (),
    "Library": (
        "snapshot",
        "refresh",
        "list_skills",
        "get_skill",
        "load_content",
        "watch",
        "close",
    ),
    "Location": (),
    "Problem": ("severity", "message", "fix", "to_dict"),
    "SatchelError": (),
    "Trace": ("listen", "history"),
}
"""Classes that have more methods than those for programs."""
NO_ARGUMENTS = frozenset(("Session",))
"""Classes that other parts make."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def api_page() -> Iterator[str]:
    """The lines of the page.

    Raises:
        SystemExit: a package exports too many names, or a public name has no docstring.
    """
    yield "Import a name from the package under which it is listed. `async` names the"
    yield "asynchronous twin of a method, which takes the same arguments. Every error is a"
    yield "[`SatchelError`](errors.md). [What is public](versions.md), and how it changes."
    yield ""
    for package, most in MOST_NAMES.items():
        names = _exported(package)
        if len(names) > most:
            raise SystemExit(f"error: `{package}` exports {len(names)} names; at most {most}")
        yield f"## `{package}`"
        yield ""
        names.sort(key=lambda name: (name not in FIRST, name))
        for name in names:
            yield f"### `{name}`"
            yield ""
            yield from _entry(package, name)
    yield "## Adapters"
    yield ""
    yield "[Use it with a framework](../guides/frameworks.md) shows how each is used."
    yield ""
    for adapter in ADAPTERS:
        package = f"satchel.integrations.{adapter}"
        yield f"### `{package}`"
        yield ""
        for name in _exported(package):
            yield from _entry(package, name, methods=False)


def _entry(package: str, name: str, *, methods: bool = True) -> Iterator[str]:
    module, node = _find(package, name) or (package, None)
    if isinstance(node, ast.Assign):
        yield from _item(f"{name} = {ast.unparse(node.value)}", "One of these types.")
        return
    if isinstance(node, Function):
        yield from _item(_signature(node), _first_paragraph(node))
        return
    if node is None:
        raise SystemExit(f"error: `{package}.{name}` is not defined")
    functions = _functions(module, node)
    yield from _item(_constructor(node, functions.get("__init__")), _first_paragraph(node))
    for one in LISTED.get(name, functions) if methods else ():
        if one[0] == "_" or (one[0] == "a" and one[1:] in functions):
            continue
        more = f", async `a{one}`" if f"a{one}" in functions else ""
        yield from _item(_signature(functions[one]), _first_paragraph(functions[one]), more)


def _constructor(node: ast.ClassDef, init: Any) -> str:
    """How an object is made: by its `__init__`, or of a record's fields."""
    if node.name in NO_ARGUMENTS:
        return node.name
    if init is not None:
        return node.name + _signature(init).removeprefix("__init__").removesuffix(" -> None")
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    record = any(ast.unparse(base) == "NamedTuple" for base in node.bases)
    return f"{node.name}({', '.join(map(ast.unparse, fields))})" if record else node.name


def _signature(node: Any) -> str:
    decorators = {ast.unparse(one) for one in node.decorator_list}
    returns = f" -> {ast.unparse(node.returns)}"
    if "property" in decorators:
        return f"{node.name}{returns.replace(' ->', ':')}"
    text = ast.unparse(node.args).replace("=", " = ")
    for own in ("self", "cls"):
        text = text.removeprefix(own).removeprefix(", ") if text.startswith(own) else text
    start = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{start}{node.name}({text}){returns}"


def _first_paragraph(node: Any) -> str:
    text = ast.get_docstring(node)
    if not text:
        raise SystemExit(f"error: `{node.name}` is public and has no docstring")
    return " ".join(text.partition("\n\n")[0].split()).replace("<", "&lt;")


def _item(code: str, words: str, more: str = "") -> Iterator[str]:
    yield f"- `{code}`{more}<br>"
    yield f"  {words}"
    yield ""


@cache
def _tree(module: str) -> ast.Module:
    path = os.path.join(ROOT, "src", *module.split("."))
    path = os.path.join(path, "__init__.py") if os.path.isdir(path) else f"{path}.py"
    with open(path, encoding="utf-8") as file:
        return ast.parse(file.read())


def _exported(module: str) -> list[str]:
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise SystemExit(f"error: `{module}` has no `__all__`")


def _find(module: str, name: str) -> tuple[str, Any] | None:
    """The module and the definition of a name; None when it is not one of ours."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ClassDef | Function) and node.name == name:
            return module, node
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return module, node
        if isinstance(node, ast.ImportFrom) and name in [one.name for one in node.names]:
            home = str(node.module)
            return _find(home, name) if home.startswith("satchel") else None
    return None


def _functions(module: str, node: ast.ClassDef) -> dict[str, Any]:
    """The methods of a class by name, with those of its bases."""
    found: dict[str, Any] = {}
    for base in node.bases:
        above = _find(module, ast.unparse(base))
        found |= _functions(*above) if above else {}
    return found | {one.name: one for one in node.body if isinstance(one, Function)}
